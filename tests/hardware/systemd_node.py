# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node with a real systemd on a machine that has none: namespaces of its own, in the cgroup of an LXC container.

The machine plays the GPU host, the namespaces play container 101 on it. boot_systemd.sh makes them. What is started
inside gets no name of ours and is ended only through the node's own PID 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t
import urllib.error
import urllib.request

from real_gpus import HERE

VMID = "101"
GROUP = pathlib.Path("/sys/fs/cgroup/lxc") / VMID
PORT = 30000
NAMESPACES = ("nsenter", "--mount", "--pid", "--ipc", "--uts", "--cgroup")
# A command begins in a group of processes: sh -c INTO_GROUP sh GROUP COMMAND…
INTO_GROUP = ("sh", "-c", 'echo $$ >"$1/cgroup.procs" || exit 97; shift; exec "$@"', "sh")


class NodeError(Exception):
    """What was expected of the node and what was seen instead."""


def wait_for(what: str, there: t.Callable[[], t.Any], timeout: float, every: float = 0.2) -> t.Any:
    """What `there` returns once it is true. NodeError names what did not come."""
    deadline = time.monotonic() + timeout
    while True:
        value = there()
        if value:
            return value
        if time.monotonic() > deadline:
            raise NodeError(f"after {timeout:g} s still not: {what}")
        time.sleep(every)


class Process(t.NamedTuple):
    """One of the node's processes, by its PID on the machine."""

    pid: int
    parent: int
    state: str
    comm: str
    group: str


class Node:
    def __init__(self, work: pathlib.Path, debs: pathlib.Path) -> None:
        self.work, self.debs = work, debs
        self.init = 0
        self.unshare: subprocess.Popen[bytes] | None = None
        self.python = work / "node-python"  # what Ansible takes for the node's interpreter

    def boot(self) -> None:
        (GROUP / "ns").mkdir(parents=True, exist_ok=True)
        base = self.work / "node"
        with open(self.work / "boot.log", "wb") as log:
            process = self.unshare = subprocess.Popen(
                [*INTO_GROUP, str(GROUP / "ns"),
                 "unshare", "--mount", "--pid", "--ipc", "--uts", "--cgroup", "--fork",
                 "bash", str(HERE / "boot_systemd.sh"), str(self.debs), str(base)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        child = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def runs() -> bool:
            if process.poll() is not None:
                raise NodeError(f"systemd did not start: {(self.work / 'boot.log').read_text()[-2000:]}")
            with contextlib.suppress(OSError, IndexError):
                self.init = int(child.read_text().split()[0])
                return pathlib.Path(f"/proc/{self.init}/comm").read_text().strip() == "systemd"
            return False

        wait_for("systemd is PID 1 of the node", runs, 60)
        (GROUP / "ns" / ".lxc").mkdir(exist_ok=True)
        # As `pct exec` does it: into the container's namespaces, and into its group beside that of its systemd.
        self.python.write_text(
            "#!/bin/sh\n"
            f"echo $$ >{GROUP}/ns/.lxc/cgroup.procs || exit 97\n"
            f"exec env -u PYTHONPATH {' '.join(NAMESPACES)} --target={self.init} -- "
            '/usr/bin/python3 "$@"\n'
        )
        self.python.chmod(0o755)
        wait_for("the node's systemd says running", lambda: self.say("systemctl", "is-system-running") == "running", 30)

    def run(self, *argv: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """A command on the node, as `pct exec` runs it."""
        enter = [*INTO_GROUP, str(GROUP / "ns" / ".lxc"), *NAMESPACES, f"--target={self.init}", "--", *argv]
        return subprocess.run(
            enter, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )

    def say(self, *argv: str) -> str:
        return self.run(*argv).stdout.strip()

    def show(self, unit: str, *names: str) -> dict[str, str]:
        text = self.say("systemctl", "show", unit, *(f"--property={name}" for name in names))
        return dict(line.partition("=")[::2] for line in text.splitlines())

    def read(self, path: str) -> str:
        """A file of the node, seen from outside."""
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{self.init}/root{path}").read_text(errors="replace")
        return ""

    def processes(self, group: str = "") -> list[Process]:
        """Those in the node's cgroups; `group` narrows it to one of them, such as sglang.service."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                where = pathlib.Path(f"/proc/{entry}/cgroup").read_text().strip()
                if f"/lxc/{VMID}/" not in where + "/" or group not in where:
                    continue
                head, dummy, rest = pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")
                words = rest.split()
                found.append(Process(int(entry), int(words[1]), words[0], head.partition("(")[2], where))
        return found

    def schedulers(self) -> list[Process]:
        return [one for one in self.processes("sglang.service") if one.comm.startswith("sglang::schedul")]

    def launcher(self) -> int:
        """The unit's main process, by its PID on the machine."""
        inside = self.show("sglang.service", "MainPID")["MainPID"]
        for one in self.processes("sglang.service"):
            with contextlib.suppress(OSError):
                status = pathlib.Path(f"/proc/{one.pid}/status").read_text()
                numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
                if numbers[-1] == inside:
                    return one.pid
        raise NodeError(f"the main process {inside} of sglang.service is not among the node's processes")

    def shut_down(self) -> None:
        if self.init:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.init, signal.SIGKILL)  # the kernel ends all of its namespace with it
            if self.unshare:
                self.unshare.wait(60)
            for place in (GROUP / "ns" / ".lxc", GROUP / "ns", GROUP, GROUP.parent):
                with contextlib.suppress(OSError):
                    place.rmdir()


def memory_used() -> list[int]:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return [int(line) for line in subprocess.check_output(query, text=True).split()]


def health(path: str = "/health", key: str = "", timeout: float = 3.0) -> str:
    """The status code of an answer, or what stood in its place, asked by nothing of the collection."""
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except (TimeoutError, OSError) as error:
        why = getattr(error, "reason", error)
        return (
            "refused"
            if isinstance(why, ConnectionRefusedError)
            else "timeout"
            if isinstance(why, TimeoutError)
            else "none"
        )


def as_json(value: t.Any, most: int = 1500) -> str:
    return json.dumps(value, default=str)[:most]
