# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The program that a unit runs before its server: options, the real world, signals, exit codes.

0: the server may start. 3: refused, a holder is named. 4: gave up waiting. 5: ended by a signal. 1: the guard itself
failed. 2: wrong options.
"""

from __future__ import annotations

import argparse
import contextlib
import grp
import os
import pwd
import signal
import stat
import traceback
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _leftovers
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock, SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_arguments import GATE_ARGUMENTS, gate_options
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_locks import LockRefused, gpu_locks
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_arguments import SCAN_ARGUMENTS, scan_request
from ansible_collections.cleanslate.gpu.plugins.module_utils._server_log_mode import LOG_MODE
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import (
    EXPECTATION_ARGUMENTS,
    SMI_ARGUMENTS,
    check_smi_arguments,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard import Guard, GuardOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_record import (
    FolderRefused,
    GuardFolder,
    GuardRecord,
    Voice,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_rules import EXIT_CODES, GuardVerdict
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import what_it_said

STATE_FOLDER = "/run/cleanslate-guard"
LOCK_FOLDER = "/run/cleanslate-gpus"
GRACE = 30.0  # seconds after its time for a look that does not come back
RESET_TIMEOUT = 10.0
ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# systemd takes a death by one of these for a good end, and would go on to the server.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# The options that the gate's module has too, from the same tables, so that they mean the same.
_SHARED = {
    **SMI_ARGUMENTS,
    **EXPECTATION_ARGUMENTS,
    **GATE_ARGUMENTS,
    **SCAN_ARGUMENTS,
    "scope": {**SCAN_ARGUMENTS["scope"], "default": "own"},
}
_TYPES: dict[str, t.Callable[[str], t.Any]] = {"int": int, "float": float, "str": str, "path": str}


class _Interrupted(Exception):
    """One of ENDING."""


class _TimeIsOver(Exception):
    """SIGALRM."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="start guard", description=__doc__, allow_abbrev=False)
    made.add_argument("--unit", required=True)
    made.add_argument("--state-dir", default=STATE_FOLDER)
    made.add_argument("--lock-dir", default=LOCK_FOLDER)
    made.add_argument("--lock-group", help="the service user's group: who else may lock the GPUs")
    made.add_argument("--sweep-user", help="whose leftovers are removed; without it nothing is")
    for name, spec in _SHARED.items():
        option = f"--{name.replace('_', '-')}"
        if spec["type"] == "bool":
            made.add_argument(option, action="store_true")
        elif spec["type"] == "list":
            made.add_argument(option, action="append", type=_TYPES[spec["elements"]])
        else:
            made.add_argument(
                option, type=_TYPES[spec["type"]], choices=spec.get("choices"), default=spec.get("default")
            )
    return made


class NodeGuardWorld:
    """The real one."""

    def __init__(self, gpus: GpuWorld, folder: GuardFolder, voice: Voice, unit: str) -> None:
        self._gpus, self._folder, self._voice, self._unit = gpus, folder, voice, unit
        self.search: _leftovers.Search | None = None

    def look(self, processes: bool) -> GpuLook:
        return self._gpus.look(processes)

    def scan(self, processes: t.Sequence[GpuProcess]) -> HolderScan:
        return self._gpus.scan(processes)

    def write(self, record: GuardRecord) -> None:
        self._folder.write(record)

    def write_environment(self, numbers: str | None) -> None:
        self._folder.write_environment(numbers)

    def forget_starts(self) -> str | None:
        done = self._gpus.systemd.reset_failed(self._unit, RESET_TIMEOUT)
        return None if done.exit_code == 0 else what_it_said(done)

    def sweep(self) -> t.Mapping[str, t.Any] | None:
        if self.search is None:
            return None
        return _leftovers.sweep(self.search, proc_root=self._gpus.request.proc_root, clock=self._gpus.clock).as_dict()

    def say(self, text: str, *, warning: bool = False) -> None:
        self._voice.say(text, warning=warning)


def main(argv: t.Sequence[str] | None = None, clock: Clock | None = None) -> int:
    """Run the guard; the exit code."""
    made = parser()
    arguments = made.parse_args(argv)
    environment = dict(os.environ)
    voice = Voice(arguments.unit, environment)
    if environment.get("INVOCATION_ID"):
        _close_log()
    if arguments.systemd_scope == "system":
        # It is the unit's, and so the service user's: nothing in it may decide what root runs here.
        os.environ.clear()
        os.environ["PATH"] = ROOT_PATH
    try:
        guard = _guard(arguments, voice, clock or SystemClock(), environment)
    except ValueError as error:
        voice.say(f"wrong options: {error}", warning=True)
        return 2
    except FolderRefused as error:
        voice.say(f"{arguments.unit} is not started: {error}", warning=True)
        return EXIT_CODES["error"]
    return EXIT_CODES[_run(guard, arguments.timeout + GRACE)]


def _close_log() -> None:
    """The unit's log is this program's output too. Where it was rotated away, systemd has just made a new one that
    everybody can read, and the server prints its keys into it."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            about = os.fstat(descriptor)
            if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and about.st_mode & 0o077:
                os.fchmod(descriptor, LOG_MODE)


def _guard(arguments: argparse.Namespace, voice: Voice, clock: Clock, environment: t.Mapping[str, str]) -> Guard:
    params = {name: _value(getattr(arguments, name), spec) for name, spec in _SHARED.items()}
    params["units"] = [arguments.unit, *(unit for unit in params["units"] if unit != arguments.unit)]
    check_smi_arguments(params)
    gate = gate_options(params, check_mode=False)
    request = scan_request(params)
    locks = gpu_locks(arguments.lock_dir, gate.expectation.uuids) if arguments.lock_dir else ()
    boot = boot_id(request.proc_root) or ""
    gpus = GpuWorld(request, clock, nvidia_smi=params["nvidia_smi"], smi_timeout=params["smi_timeout"])
    folder = GuardFolder(arguments.state_dir, arguments.unit)
    world = NodeGuardWorld(gpus, folder, voice, arguments.unit)
    if arguments.sweep_user:
        world.search = _search(arguments.sweep_user, environment)
    folder.prepare()
    options = GuardOptions(
        unit=arguments.unit,
        gate=gate,
        locks=locks,
        lock_group=_group(arguments.lock_group),
        boot_id=boot,
        invocation_id=environment.get("INVOCATION_ID", ""),
        pid=os.getpid(),
        refusals=folder.refusals(boot),
        proc_root=request.proc_root,
    )
    return Guard(world, options, clock)


def _group(name: str | None) -> int | None:
    if not name:
        return None
    try:
        return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise ValueError(f"--lock-group: there is no group {name!r} on this node") from error


def _value(given: t.Any, spec: t.Mapping[str, t.Any]) -> t.Any:
    # A default of a list is replaced by what is given, not added to.
    return spec.get("default") if given is None else given


def _search(user: str, environment: t.Mapping[str, str]) -> _leftovers.Search:
    """Where the server's libraries put what they compile: the guard has the unit's environment, as the server has."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ValueError(f"--sweep-user is {user!r}, and there is no such user on this machine") from None
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(account.pw_dir, ".cache")
    folders = (
        environment.get("TORCH_EXTENSIONS_DIR") or os.path.join(cache, "torch_extensions"),
        environment.get("AITER_JIT_DIR") or os.path.join(account.pw_dir, ".aiter"),
        os.path.join(environment.get("FLASHINFER_WORKSPACE_BASE") or account.pw_dir, ".cache", "flashinfer"),
        environment.get("SGLANG_CACHE_DIR", ""),
    )
    return _leftovers.Search(uid=account.pw_uid, caches=tuple(path for path in folders if os.path.isabs(path)))


def _run(guard: Guard, most: float) -> GuardVerdict:
    """Everything that can end the guard from outside becomes a verdict. Its children end with it."""
    for number in ENDING:
        signal.signal(number, _raise(_Interrupted))
    signal.signal(signal.SIGALRM, _raise(_TimeIsOver))
    signal.setitimer(signal.ITIMER_REAL, most)
    try:
        return guard.run()
    except _Interrupted:
        return guard.interrupted()
    except _TimeIsOver:
        return guard.give_up()
    except LockRefused as error:
        return guard.failed(str(error))
    except Exception as error:  # noqa: BLE001 whatever it is, the server must not start, and somebody has to read why
        place = traceback.extract_tb(error.__traceback__)[-1]
        with contextlib.suppress(OSError):
            return guard.failed(f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})")
        return "error"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _raise(what: type[Exception]) -> t.Callable[[int, t.Any], None]:
    def handler(_number: int, _frame: t.Any) -> None:
        # One is enough: a second signal must not cut the record short.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise what

    return handler
