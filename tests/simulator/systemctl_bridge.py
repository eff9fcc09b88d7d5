# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The systemctl of a simulated node: docker-systemctl-replacement, as user manager of NODE/home and NODE/run.

Added here, because it lacks it: kill with --signal and --kill-whom, --no-block, --value, -p A,B; activating and
deactivating while a job runs; Result and NRestarts and InvocationID; EnvironmentFile= read at its time;
polls of 0.1 s where it sleeps 0.5 or 1 s.
Not imitated: cgroups (a stop reaches the main process and its descendants only), Restart= (nothing is watched, so
NRestarts is always 0), exit statuses (a main process that ended by itself is "failed" with Result exit-code even after
exit 0, and a stop is never "failed"), start limits, dependencies beyond order, timers, the system manager.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import time
import typing as t

from contexts import process_stat
from processes import VARIABLE
from smi import append_line

NO_SYSTEM = (
    "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
    "Failed to connect to bus: Host is down\n"
    "(simulated node: only the user manager is played, add --user)\n"
)
WITH_VALUE = {"-p", "--property", "-s", "--signal", "--kill-who", "--kill-whom", "-t", "--type", "--state", "-n",
              "--lines", "-o", "--output", "--what", "--job-mode"}  # fmt: skip
JOBS = {"start": ("activating", "start"), "stop": ("deactivating", "stop-sigterm"), "restart": ("deactivating", "stop")}


class Request:
    """One call taken apart: options that we answer are kept from the replacement, the rest is passed on."""

    def __init__(self, argv: t.Sequence[str]) -> None:
        self.user = self.value = self.no_block = self.quiet = False
        self.properties: list[str] = []
        self.signal = "SIGTERM"
        self.whom = "all"
        self.passed: list[str] = []
        words: list[str] = []
        rest = list(argv)
        while rest:
            word = rest.pop(0)
            name, equals, value = word.partition("=")
            if not word.startswith("-"):
                words.append(word)
                continue
            if name in WITH_VALUE and not equals:
                value = rest.pop(0) if rest else ""
            elif word[:2] in ("-p", "-s") and len(word) > 2 and word[2] != "-":
                name, value = word[:2], word[2:].lstrip("=")
            if name in ("-p", "--property"):
                self.properties += value.split(",")
            elif name in ("-s", "--signal"):
                self.signal = value
            elif name in ("--kill-who", "--kill-whom"):
                self.whom = value
            elif name in ("--user", "--value", "--no-block"):
                setattr(self, name[2:].replace("-", "_"), True)
            elif name in WITH_VALUE:
                self.passed += [name, value]
            else:
                self.quiet = self.quiet or name in ("-q", "--quiet")
                self.passed.append(word)
        self.verb = words[0] if words else ""
        self.units = [word if "." in word else word + ".service" for word in words[1:]]


class Bridge:
    def __init__(self, node: str) -> None:
        self.node = node
        # A manager's services see nothing of the caller's environment; the replacement would hand all of it on.
        path = os.path.join(node, "bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        kept = {name: os.environ[name] for name in ("LANG", "USER", "LOGNAME", "SHELL", VARIABLE) if name in os.environ}
        os.environ.clear()
        os.environ.update(
            kept, PATH=path, HOME=os.path.join(node, "home"), XDG_RUNTIME_DIR=os.path.join(node, "run")
        )  # fmt: skip
        self.jobs = os.path.join(node, "run", "jobs")
        os.makedirs(self.jobs, exist_ok=True)
        try:
            sys.dont_write_bytecode = True
            self.tool: t.Any = importlib.import_module("systemctl2.systemctl3")
        except ImportError:
            sys.stderr.write(f"simulated node: docker-systemctl-replacement is not installed for {sys.executable} "
                             "(pip install docker-systemctl-replacement)\n")  # fmt: skip
            sys.exit(1)
        self.tool.time = _Impatient()
        # Its own reads /proc a hundred times over, and fails at a process whose name is not UTF-8.
        self.tool.Systemctl.pidlist_of = lambda _self, pid: [pid, *descendants(pid)] if pid else []
        # It takes every file with an @ in its name for a template of every unit with that prefix.
        self.tool.SystemctlUnitFiles.match_unit_templates = lambda _self, _modules=None: []
        # The units of the machine that we run on are not this node's.
        self.tool._user_folders = [
            os.path.join(node, "home/.config/systemd/user"), os.path.join(node, "run/systemd/user")
        ]  # fmt: skip
        self.tool._system_folders = self.tool._init_folders = self.tool._preset_folders = []
        # Without this it keeps the states of all nodes together in one folder below /tmp, by unit name.
        self.tool.get_RUN = lambda root=False: os.path.join(node, "run")

        self.read_environment_late()

    def read_environment_late(self) -> None:
        """systemd reads EnvironmentFile= before each command; the replacement reads it once, before ExecStartPre=."""
        tool = self.tool
        execve = tool.Systemctl.execve_from

        def with_files(systemctl: t.Any, conf: t.Any, command: t.Any, env: dict[str, str]) -> t.Any:
            files = systemctl.unitfiles
            for name in conf.getlist("Service", "EnvironmentFile", []):
                env.update(files.read_env_file(files.expand_special(name, conf)))
            return execve(systemctl, conf, command, env)

        tool.Systemctl.execve_from = with_files

    def run_tool(self, argv: t.Sequence[str]) -> int:
        sys.argv = ["systemctl", "--user", *argv]
        try:
            return int(self.tool.main())
        except SystemExit as end:
            return int(end.code or 0)

    def read_tool(self, *argv: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.redirect_stderr(io.StringIO()):
            self.run_tool(argv)
        return text.getvalue()

    # ---- what runs at the moment

    def job_of(self, unit: str) -> tuple[str | None, str]:
        """The job that runs for a unit, and the unit's main process from before it."""
        try:
            with open(os.path.join(self.jobs, unit), encoding="ascii") as handle:
                verb, pid, start, main = handle.read().split()
        except (OSError, ValueError):
            return None, "0"
        stat = process_stat(int(pid))
        return (verb if stat is not None and stat[2] == int(start) and stat[0] not in "ZX" else None), main

    def run_job(self, request: Request) -> int:
        stat = process_stat(os.getpid())
        for unit in request.units:
            main = self.properties(unit)["MainPID"]
            with open(os.path.join(self.jobs, unit), "w", encoding="ascii") as handle:
                handle.write(f"{request.verb} {os.getpid()} {stat[2] if stat else 0} {main}")
            if request.verb != "stop":
                # What the unit's processes find in their environment is what show says.
                os.environ["INVOCATION_ID"] = os.urandom(16).hex()
                with open(os.path.join(self.jobs, unit + ".invocation"), "w", encoding="ascii") as handle:
                    handle.write(os.environ["INVOCATION_ID"])
        try:
            return self.run_tool([*request.passed, request.verb, *request.units])
        finally:
            for unit in request.units:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.jobs, unit))

    def detach_job(self, request: Request) -> int:
        """--no-block: the job goes on without us."""
        if os.fork() == 0:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os._exit(self.run_job(request))
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and not any(self.job_of(unit)[0] for unit in request.units):
            time.sleep(0.005)
        return 0

    def change(self, request: Request) -> int:
        """start, stop, restart, reset-failed; exit codes as systemd's (5: no such unit)."""
        for unit in request.units:
            if self.properties(unit)["LoadState"] == "not-found":
                known = "not loaded" if request.verb in ("stop", "reset-failed") else "not found"
                sys.stderr.write(f"Failed to {request.verb} {unit}: Unit {unit} {known}.\n")
                return 5
        if request.verb == "reset-failed":
            self.run_tool(["reset-failed", *request.units])
            return 0
        return self.detach_job(request) if request.no_block else self.run_job(request)

    # ---- queries

    def properties(self, unit: str) -> dict[str, str]:
        lines = self.read_tool("show", "--all", unit).splitlines()
        found = dict(line.partition("=")[::2] for line in lines if "=" in line)
        if found.get("LoadState") == "not-found":
            found.update(ActiveState="inactive", SubState="dead", MainPID="0")
        found["MainPID"] = found.get("MainPID") or "0"
        job, main = self.job_of(unit)
        if job == "stop" and found["MainPID"] == "0" and process_stat(int(main)) is not None:
            # The replacement forgets it when a stop begins; systemd knows it, and can still kill it.
            found["MainPID"] = main
        if job and not (job == "start" and found["ActiveState"] == "active"):
            found["ActiveState"], found["SubState"] = JOBS.get(job, ("activating", "start"))
        if found.get("ActiveState") in ("inactive", "failed"):
            found["MainPID"] = "0"
        found["Result"] = "exit-code" if found.get("ActiveState") == "failed" else "success"
        found["NRestarts"] = "0"
        found["NeedDaemonReload"] = "no"  # each call reads the unit anew
        found["InvocationID"] = ""
        with (
            contextlib.suppress(OSError),
            open(os.path.join(self.jobs, unit + ".invocation"), encoding="ascii") as text,
        ):
            found["InvocationID"] = text.read()
        return found

    def show(self, request: Request) -> int:
        blocks = []
        for unit in request.units:
            found = self.properties(unit)
            names = request.properties or [name for name, value in found.items() if value]
            blocks.append("".join(
                (found[name] if request.value else f"{name}={found[name]}") + "\n" for name in names if name in found
            ))  # fmt: skip
        sys.stdout.write("\n".join(blocks))
        return 0

    def is_active(self, request: Request) -> int:
        states = [self.properties(unit)["ActiveState"] for unit in request.units]
        if not request.quiet:
            sys.stdout.write("".join(state + "\n" for state in states))
        return 0 if "active" in states else 3

    def kill(self, request: Request) -> int:
        number = int(request.signal) if request.signal.isdigit() else int(
            signal.Signals["SIG" + request.signal.upper().replace("SIG", "")]
        )  # fmt: skip
        code = 0
        for unit in request.units:
            main = int(self.properties(unit)["MainPID"])
            if not main:
                sys.stderr.write(f"Failed to kill unit {unit}: No main process to kill\n")
                code = 1
                continue
            for pid in [main] + (descendants(main) if request.whom == "all" else []):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        return code


class _Impatient:
    """The time module with shorter naps: the replacement waits by deadline, only its polls are slow."""

    def __getattr__(self, name: str) -> t.Any:
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(min(seconds, 0.1))


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            stat = process_stat(int(entry))
            if stat is not None:
                parents.setdefault(stat[1], []).append(int(entry))
    found: list[int] = []
    todo = [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def main(node: str, argv: t.Sequence[str]) -> None:
    append_line(
        os.path.join(node, "calls.jsonl"),
        {"time": time.time(), "tool": "systemctl", "argv": list(argv), "pid": os.getpid()},
    )
    request = Request(argv)
    if not request.user:
        sys.stderr.write(NO_SYSTEM)
        sys.exit(1)
    bridge = Bridge(node)
    if request.verb == "show" and request.units:
        code = bridge.show(request)
    elif request.verb == "is-system-running":
        code = 0
        sys.stdout.write("running\n")
    elif request.verb == "is-active":
        code = bridge.is_active(request)
    elif request.verb == "kill":
        code = bridge.kill(request)
    elif request.verb in ("start", "stop", "restart", "try-restart", "reload-or-restart", "reset-failed"):
        code = bridge.change(request)
    else:
        listed = ["--property=" + name for name in request.properties]
        code = bridge.run_tool([*request.passed, *listed, *([request.verb] if request.verb else []), *request.units])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
