# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state before a fault: a simulated node, the processes on it, and what is known about them by other means than the
modules'."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time
import typing as t

from driving import Node

PLAYER = pathlib.Path(__file__).with_name("player.py")
HIERARCHIES = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
UNIT = "fault.service"
PATIENCE = 30.0
# Stand-ins for what a release may ask: they note how they were called and say what a case has them say.
TOOLS = ("systemctl", "docker", "podman", "pct", "nvidia-cuda-mps-control")
TOOL = '#!/bin/sh\necho "{name} $*" >> "{folder}/commands"\n[ -f "$0.says" ] && exec sh "$0.says" "$@"\nexit 1\n'


@dataclasses.dataclass(frozen=True)
class Actor:
    """One process of a case."""

    name: str
    pid: int
    start_time: int
    log: pathlib.Path | None = None
    process: subprocess.Popen[str] | None = None

    def alive(self) -> bool:
        """The very process, with a thread that runs."""
        try:
            found = _stat(f"/proc/{self.pid}/stat")
            tasks = [_stat(f"/proc/{self.pid}/task/{task}/stat") for task in os.listdir(f"/proc/{self.pid}/task")]
        except OSError:
            return False
        return found[1] == self.start_time and any(task[0] not in ("Z", "X") for task in tasks)

    def heard(self) -> list[str]:
        """The signals that it got and could write down."""
        if self.log is None or not self.log.exists():
            return []
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [name for pid, name in lines if int(pid) == self.pid]

    def tell(self, line: str) -> list[int]:
        """Have it do something; the PIDs that it answers with."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return [] if line.startswith("exec") else list(json.loads(self.process.stdout.readline()))


def _stat(path: str) -> tuple[str, int]:
    with open(path, "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[19])


def until(what: str, test: t.Callable[[], t.Any]) -> t.Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = test()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"{what}: not reached within {PATIENCE:g} s")


class Scene:
    """One case: what a plant puts into it, and the request that is made of the module."""

    def __init__(self, folder: pathlib.Path, node: Node) -> None:
        self.folder = folder
        self.node = node
        folder.chmod(0o777)
        self.cast: dict[str, Actor] = {}
        self.unharmed: list[pathlib.Path] = []  # where processes that cannot be looked at afterwards note a signal
        self.params: dict[str, t.Any] = {}
        self.request: dict[str, t.Any] = {}
        self.pauses: list[tuple[str, str, int, t.Callable[[], None]]] = []
        self.first_ends = contextlib.ExitStack()  # what has to be undone for processes to be able to end
        self.ends = contextlib.ExitStack()
        self.devices = f"{node.path}/dev/nvidia*"
        self._reapable: list[subprocess.Popen[t.Any]] = []
        (folder / "tools").mkdir()
        for name in TOOLS:
            (folder / "tools" / name).write_text(TOOL.format(name=name, folder=folder))
            (folder / "tools" / name).chmod(0o755)
        (folder / "commands").touch()
        (folder / "commands").chmod(0o666)

    # -- processes -----------------------------------------------------------------------------------------------

    def adopt(self, name: str, pid: int, **more: t.Any) -> Actor:
        self.cast[name] = Actor(name, pid, _stat(f"/proc/{pid}/stat")[1], **more)
        return self.cast[name]

    def play(
        self, name: str, *, wrapper: t.Sequence[str] = (), executable: str = sys.executable, title: str = "",
        environment: t.Mapping[str, str] | None = None, **options: t.Any,
    ) -> Actor:  # fmt: skip
        """Start a player; its children are called NAME.1 and so on."""
        log = self.folder / f"{name}.signals"
        argv = [*wrapper, executable, "-S", "-E", str(PLAYER), str(log), json.dumps(options)]
        if title:
            argv[0] = title
        process = subprocess.Popen(
            argv, executable=executable if title else None, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, **(environment or {})}, cwd="/",
        )  # fmt: skip
        self._reapable.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{name} did not start"
        pids = json.loads(line)
        pid = self._seen_from_here(process.pid, pids[0]) if wrapper else pids[0]
        actor = self.adopt(name, pid, log=log, process=process)
        for number, child in enumerate(pids[1:], 1):
            self.adopt(f"{name}.{number}", child, log=log)
        if options.get("zombie"):
            until("a zombie leader", lambda: _stat(f"/proc/{actor.pid}/stat")[0] == "Z")
        if options.get("vfork"):
            until("state D", lambda: _stat(f"/proc/{actor.pid}/stat")[0] == "D")
            child = until("the child", lambda: _children(actor.pid))[0]
            self.ends.callback(_kill, child)
        return actor

    def _seen_from_here(self, above: int, inside: int) -> int:
        """The PID of a player that was started in another PID namespace, where it calls itself `inside`."""

        def search() -> int | None:
            below = [above]
            while below:
                pid = below.pop()
                with contextlib.suppress(OSError):
                    if str(PLAYER).encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                        return pid
                below.extend(_children(pid))
            return None

        return t.cast(int, until(f"a player with PID {inside} inside", search))

    def hold(self, name: str, gpu: int = 1, mib: int = 5000, **options: t.Any) -> Actor:
        """A holder of the simulator: the node's memory follows it."""
        return self.adopt(name, self.node.hold(gpu, mib, **options))

    def dev(self, name: str) -> str:
        return f"{self.node.path}/dev/{name}"

    # -- nvidia-smi ----------------------------------------------------------------------------------------------

    def faults(self, *faults: t.Mapping[str, t.Any], **scenario: t.Any) -> None:
        self.node.script(faults=list(faults), **scenario)

    def uuid(self, gpu: int) -> str:
        return str(self.node.about["gpus"][gpu]["uuid"])

    def app_line(self, gpu: int, pid: int | str, mib: int = 5000, name: str = "python3") -> str:
        """One line as nvidia-smi answers the question for compute processes."""
        about = self.node.about["gpus"][gpu]
        return f"{about['uuid']}, {about['bus_id']}, {pid}, {name}, {mib}\n"

    def listed(self, *lines: str) -> dict[str, t.Any]:
        return {"effect": "exit", "query": "apps", "code": 0, "stdout": "".join(lines)}

    # -- root's ----------------------------------------------------------------------------------------------------

    def real_nodes(self, **minors: int) -> pathlib.Path:
        """A folder of real character devices: unused virtual consoles, which nobody else has open."""
        folder = self.folder / "dev"
        folder.mkdir(exist_ok=True)
        free = iter(_free_consoles())
        for name in ("nvidia0", "nvidia1", "nvidiactl"):
            os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(4, minors.get(name, next(free))))
        self.devices = f"{folder}/nvidia*"
        self.params["majors"] = [4]
        return folder

    def twin(self, original: pathlib.Path, name: str) -> str:
        """Another node of the same number elsewhere."""
        path = self.folder / "elsewhere" / name
        path.parent.mkdir(exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, original.stat().st_rdev)
        return str(path)

    def group(self, actor: Actor, path: str) -> None:
        """Put a process into a control group of systemd's hierarchy."""
        root = next(root for root in HIERARCHIES if os.path.exists(f"{root}/cgroup.procs"))
        self.put_into(actor, f"{root}/{path}")

    def put_into(self, actor: Actor, path: str) -> None:
        place = pathlib.Path(path)
        for folder in [*reversed(place.parents), place]:
            if not folder.exists():
                folder.mkdir()
                self.ends.callback(_remove_group, folder)
        (place / "cgroup.procs").write_text(str(actor.pid))

    def program(self, name: str) -> str:
        """A copy of this Python under another name."""
        path = self.folder / name
        shutil.copy2(os.path.realpath(sys.executable), path)
        return str(path)

    def tool_says(self, name: str, script: str) -> None:
        (self.folder / "tools" / f"{name}.says").write_text(script)

    # -- the end ---------------------------------------------------------------------------------------------------

    def reap(self) -> None:
        for process in self._reapable:
            process.poll()
        for actor in self.cast.values():
            if actor.process is None:  # the simulator's, if it is a child of ours
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(actor.pid, os.WNOHANG)

    def close(self) -> None:
        self.first_ends.close()
        for actor in self.cast.values():
            if actor.alive() and actor.pid != os.getpid():  # a case may name the test itself
                _kill(actor.pid)
        for process in self._reapable:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._reapable:
            process.wait(PATIENCE)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        self.node.stop()
        self.ends.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    """/proc/PID/task/PID/children is not in every kernel."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
                found.extend([int(entry)] if int(words[1]) == pid else [])
    return found


def _remove_group(folder: pathlib.Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)


def _free_consoles() -> list[int]:
    held = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            held.add(path.stat().st_rdev)
    free = [minor for minor in range(20, 64) if os.makedev(4, minor) not in held]
    start = os.getpid() % max(len(free) - 8, 1)
    return free[start:]
