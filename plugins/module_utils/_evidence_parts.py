# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What is taken as evidence about an SGLang server.

First what takes a second and tells most (a reboot loses the kernel's lines), then what moves, and last what can hang
for as long as it is let.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _sglang_processes
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner, Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence import Found, Part, Piece
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence_processes import read_processes
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest, describe, look_for_holders
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import look
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc, try_read
from ansible_collections.cleanslate.gpu.plugins.module_utils._root_only import weak_part
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Progress, collect
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account, find_account
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import read_unit
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd, what_it_said

LOG_BYTES = 1 << 20
JOURNAL_LINES = 2000
KERNEL_LINES = 500
MOST_SPIED = 32
SPY_SECONDS = 10.0  # for one process
_KERNEL = re.compile(
    r"NVRM|Xid|nvidia|nvlink|nvswitch|SXid|oom|Out of memory|Killed process|blocked for more than|hung task|"
    r"segfault|Machine check|mce:|AER:|pcieport",
    re.IGNORECASE,
)
# Not its environment: it holds keys, and says nothing about what happened.
_UNIT_PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "MainPID", "ControlGroup", "NRestarts", "InvocationID",
    "ExecMainCode", "ExecMainStatus", "ExecMainStartTimestamp", "ExecMainExitTimestamp", "ActiveEnterTimestamp",
    "InactiveEnterTimestamp", "StateChangeTimestamp", "Job", "Restart", "RestartUSec", "StartLimitBurst",
    "StartLimitIntervalUSec", "TimeoutStartUSec", "TimeoutStopUSec", "KillMode", "User", "FragmentPath",
    "DropInPaths", "NeedDaemonReload", "UnitFileState", "FreezerState", "MemoryCurrent", "MemoryMax", "TasksCurrent",
    "CPUUsageNSec", "LimitMEMLOCK", "LimitNOFILE", "OOMPolicy",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Sources:
    """Where things are on this machine. log_file and py_spy: empty where there are none."""

    unit: str
    scan: ScanRequest
    nvidia_smi: str = "nvidia-smi"
    smi_timeout: float = 60.0
    log_file: str = ""
    py_spy: str = ""
    folder: str = "/var/log/cleanslate"


class ServerEvidence:
    """The parts about one server."""

    def __init__(
        self,
        sources: Sources,
        runner: Runner,
        clock: Clock,
        runner_as: t.Callable[[Account | None], Runner] | None = None,
    ) -> None:
        self._sources = sources
        self._runner = runner
        self._clock = clock
        self._runner_as = runner_as or self._bare_runner
        self._proc = Proc(sources.scan.proc_root)
        self._members: tuple[int, ...] | None = None
        self._gpus: GpuLook | None = None

    def parts(self) -> tuple[Part, ...]:
        source = self._sources
        parts = (
            Part("unit", f"what systemd says of {source.unit}", 5.0, self._unit),
            Part("memory", "memory and pressure of the machine", 5.0, self._memory),
            Part("kernel", "kernel lines about GPUs, memory and hung tasks", 5.0, self._kernel),
            Part("log", f"the end of {source.log_file or 'its log file (not given)'}", 5.0, self._log),
            Part("journal", f"the last {JOURNAL_LINES} lines of its journal", 10.0, self._journal),
            Part("processes", "state, stacks, threads, limits and open files of its processes", 30.0, self._processes),
            Part("py_spy", f"Python stacks with {source.py_spy or 'py-spy (not given)'}", 60.0, self._spy),
            Part("gpus", "what nvidia-smi says of every GPU", 2 * source.smi_timeout, self._look),
            Part("holders", "who has a GPU device open", source.scan.timeout + 5, self._holders),
            Part("nvidia_smi", "the whole report of nvidia-smi", source.smi_timeout, self._report),
            Part("space", "free space of /dev/shm and of the folders of logs", 5.0, self._space),
        )
        # Seen from the host of a container, these are inside; a unit of that name here would be another server's.
        inside = ("unit", "journal", "log") if source.scan.scope.lxc else ()
        return tuple(part for part in parts if part.name not in inside)

    def _bare_runner(self, account: Account | None) -> Runner:
        # Nothing of the environment of this process: it may hold keys of the connection.
        return CommandRunner(self._clock, environment={"PATH": os.defpath}, inherit=False, account=account)

    def _pids(self, seconds: float) -> tuple[int, ...]:
        """Whoever is in the control group of the unit, its main process and the descendants of that; found out once."""
        if self._members is None:
            root = self._sources.scan.proc_root
            processes = _sglang_processes.all_processes(root)
            # Also where systemd does not answer.
            members = {pid for pid in processes if self._in_unit(pid)}
            if not self._sources.scan.scope.lxc:
                capped: Runner = lambda argv, timeout: self._runner(argv, min(timeout, seconds))  # noqa: E731
                unit = read_unit(Systemd(capped, self._sources.scan.systemd_scope), self._sources.unit)
                members |= _sglang_processes.members_of(unit.main_pid, unit.control_group, processes, root)
            self._members = tuple(sorted(members))
        return self._members

    def _in_unit(self, pid: int) -> bool:
        text = try_read(lambda: self._proc.cgroup(pid), "")
        containers = set(self._sources.scan.scope.lxc)
        paths = [line.split("/") for line in text.splitlines()]
        return any(
            self._sources.unit in path and (not containers or containers & set(path[: path.index(self._sources.unit)]))
            for path in paths
        )

    def _processes(self, seconds: float) -> Found:
        began = self._clock.monotonic()
        pids = self._pids(min(seconds / 2, 10.0))
        if not pids:
            return Found(error=f"no process of {self._sources.unit} is there")
        left = seconds - (self._clock.monotonic() - began)
        text, missing = read_processes(pids, left, self._clock, self._sources.scan.proc_root)
        return Found((Piece("processes.txt", text),), missing)

    def _spy(self, seconds: float) -> Found:
        tool = self._sources.py_spy
        if not tool or not os.path.exists(tool):
            return Found(skipped=f"{tool or 'py-spy'} is not installed")
        deadline = self._clock.monotonic() + seconds
        pids = [pid for pid in self._pids(min(seconds / 2, 10.0)) if self._is_python(pid)][:MOST_SPIED]
        if not pids:
            return Found(error=f"no Python process of {self._sources.unit} is there")
        pieces, errors = [], []
        for pid in pids:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                errors.append(f"no time was left for process {pid} and later ones")
                break
            try:
                runner = self._runner_as(self._spy_account(tool, pid))
            except LookupError as error:
                errors.append(f"process {pid}: {error}")
                continue
            # Without nonblocking it would stop the process while it reads.
            result = runner((tool, "dump", "--nonblocking", "--pid", str(pid)), min(left, SPY_SECONDS))
            if result.exit_code == 0:
                pieces.append(Piece(f"py-spy-{pid}.txt", result.stdout))
            else:
                errors.append(what_it_said(result))
            if result.hung_pid is not None:
                break
        return Found(tuple(pieces), "; ".join(errors))

    def _is_python(self, pid: int) -> bool:
        exe: str = try_read(lambda: self._proc.exe(pid), "")
        return os.path.basename(exe).startswith("python")

    def _spy_account(self, tool: str, pid: int) -> Account | None:
        """As whom py-spy runs: as root only where nobody but root can have written it, else as the server's user."""
        if os.geteuid() != 0 or weak_part(tool) is None:
            return None
        try:
            uid = self._proc.status(pid).uids[1]
        except (OSError, ValueError, IndexError):
            raise LookupError("its user could not be told") from None
        return _account(uid)

    def _look(self, seconds: float) -> Found:
        seen = look(
            self._runner,
            nvidia_smi=self._sources.nvidia_smi,
            timeout=min(self._sources.smi_timeout, seconds),
            proc_root=self._sources.scan.proc_root,
        )
        self._gpus = seen
        document = dataclasses.asdict(seen)
        error = "" if seen.state == "ok" else f"nvidia-smi: {seen.state}. {seen.first_line}".strip()
        return Found((Piece("gpus.json", _json(document)),), error)

    def _report(self, seconds: float) -> Found:
        if self._gpus is not None and self._gpus.state in ("hung", "no_tool"):
            return Found(error=f"nvidia-smi was not asked again: {self._gpus.state}")
        result = self._runner((self._sources.nvidia_smi, "-q", "-x"), min(self._sources.smi_timeout, seconds))
        pieces = (Piece("nvidia-smi.xml", result.stdout),) if result.stdout else ()
        return Found(pieces, "" if result.exit_code == 0 else what_it_said(result))

    def _holders(self, seconds: float) -> Found:
        request = dataclasses.replace(self._sources.scan, timeout=min(self._sources.scan.timeout, seconds))
        processes = self._gpus.processes if self._gpus is not None else ()
        index_of = {gpu.uuid: gpu.index for gpu in self._gpus.gpus} if self._gpus is not None else {}
        capped: Runner = lambda argv, timeout: self._runner(argv, min(timeout, seconds))  # noqa: E731
        states = Systemd(capped, request.systemd_scope).active
        scan = look_for_holders(request, processes, unit_states=states, clock=self._clock)
        document = {
            "complete": scan.complete,
            "incomplete_reason": scan.incomplete_reason,
            "lines": [describe(holder, index_of) for holder in scan.holders],
            "holders": [holder.as_dict() for holder in scan.holders],
            "unreadable": [entry.as_dict() for entry in scan.unreadable],
        }
        return Found((Piece("holders.json", _json(document)),), scan.incomplete_reason)

    def _unit(self, seconds: float) -> Found:
        systemd = Systemd(self._runner, self._sources.scan.systemd_scope)
        argv = systemd.argv("show", "--no-pager", f"--property={','.join(_UNIT_PROPERTIES)}", "--", self._sources.unit)
        found = self._command("unit.txt", argv, seconds)
        # Without the long list of properties.
        return dataclasses.replace(found, error=found.error.replace(f"{argv[-3]} ", ""))

    def _journal(self, seconds: float) -> Found:
        user = self._sources.scan.systemd_scope == "user"
        unit = f"--{'user-' if user else ''}unit={self._sources.unit}"
        argv = ("journalctl", "--no-pager", "-q", "-a", "-o", "short-iso-precise", "-n", str(JOURNAL_LINES), unit)
        return self._command("journal.txt", argv, seconds, tail=True)

    def _command(self, file: str, argv: t.Sequence[str], seconds: float, tail: bool = False) -> Found:
        result = self._runner(argv, seconds)
        pieces = (Piece(file, result.stdout, tail),) if result.stdout else ()
        return Found(pieces, "" if result.exit_code == 0 else what_it_said(result))

    def _kernel(self, seconds: float) -> Found:
        result = self._runner(("dmesg", "--time-format=iso"), seconds / 2)
        if result.exit_code != 0 and not result.timed_out:
            result = self._runner(("dmesg",), seconds / 2)
        if result.exit_code != 0:
            return Found(error=what_it_said(result))
        lines = result.stdout.splitlines()
        telling = [line for line in lines if _KERNEL.search(line)]
        head = f"{len(telling)} of {len(lines)} kernel lines; the last {KERNEL_LINES} at most:\n"
        return Found((Piece("kernel.txt", head + "\n".join(telling[-KERNEL_LINES:]) + "\n", tail=True),))

    def _memory(self, dummy_seconds: float) -> Found:
        texts, errors = [], []
        for name in ("meminfo", "loadavg", "pressure/memory", "pressure/io", "pressure/cpu"):
            try:
                text = self._proc.read(f"{self._proc.root}/{name}").decode("utf-8", "replace")
                texts.append(f"--- {name}\n{text.rstrip()}")
            except OSError as error:
                if name == "meminfo":  # the others are not there on every kernel
                    errors.append(f"{name}: {error.strerror}")
        return Found((Piece("memory.txt", "\n".join(texts) + "\n"),), "; ".join(errors))

    def _space(self, seconds: float) -> Found:
        folders = ["/dev/shm", "/tmp", self._sources.folder]
        folders += [os.path.dirname(self._sources.log_file)] if self._sources.log_file else []

        def produce(progress: Progress) -> t.Iterator[str]:
            for number, folder in enumerate(folders):
                progress.at(number, 0)
                yield free_space(folder)

        # In a child: a file system of a server that is gone does not answer.
        end = self._clock.monotonic() + seconds
        found = collect(produce, deadline=end, stall=seconds, clock=self._clock)
        text = "\n".join(found.items) + "\n"
        missing = "" if found.finished else f"{folders[len(found.items)]} did not answer"
        return Found((Piece("space.txt", text),), missing)

    def _log(self, seconds: float) -> Found:
        path = self._sources.log_file
        if not path:
            return Found(skipped="no log file was given; the journal has its lines")
        end = self._clock.monotonic() + seconds
        found = collect(lambda dummy: iter((read_end(path),)), deadline=end, stall=seconds, clock=self._clock)
        if not found.finished:
            return Found(error=found.error or f"{path} did not answer")
        text, error = found.items[0]
        return Found((Piece("log.txt", text, tail=True),) if text else (), error)


def _json(document: t.Any) -> str:
    return json.dumps(document, indent=1, default=str) + "\n"


def _account(uid: int) -> Account:
    try:
        return find_account(str(uid))
    except LookupError:
        # Some container images run a uid that has no name.
        return Account(str(uid), uid, frozenset({uid}), uid)


def free_space(folder: str) -> str:
    """One line about the file system of a folder."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    total, free = found.f_blocks * found.f_frsize >> 20, found.f_bavail * found.f_frsize >> 20
    return f"{folder}: {free} of {total} MiB free, {found.f_favail} of {found.f_files} inodes free"


def read_end(path: str) -> tuple[str, str]:
    """The end of a log file, and why there is none. Not through a link, which the server's user could have made to
    lead anywhere."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return "", f"{path} could not be read: {error.strerror}"
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return "", f"{path} is no regular file"
        data = os.pread(handle, LOG_BYTES, max(0, found.st_size - LOG_BYTES))
    finally:
        os.close(handle)
    if found.st_size > LOG_BYTES:
        data = data.partition(b"\n")[2]  # a half line may hold half a key, which nothing would recognise
    return data.decode("utf-8", "replace"), ""
