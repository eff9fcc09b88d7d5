# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Who started whom: this execution's own ancestors, and the parents that may start a killed process again."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact_argv

# Programs that adopt orphans, and so are the parent of processes they never started. Cut to 15 characters as comm is.
# What supervises one service each (runsv, s6-supervise, supervisord) is not among them: that does start again.
_ADOPTERS = frozenset(
    (
        "systemd",
        "init",
        "tini",
        "dumb-init",
        "docker-init",
        "catatonit",
        "conmon",
        "containerd-shim",
        "podman-init",
        "s6-svscan",
        "runit",
        "runsvdir",
        "lxc-start",
    )
)


@dataclasses.dataclass(frozen=True)
class Process:
    """What tells a process from others. adopts: it is an init of some kind, not somebody who starts things again."""

    pid: int
    start_time: int
    ppid: int
    comm: str
    adopts: bool = False


class Kinship(t.Protocol):
    def own(self) -> frozenset[int]:
        """PIDs of this process and its ancestors."""

    def process(self, pid: int) -> Process | None:
        """What runs under this PID now, if it is alive."""

    def describe(self, process: Process) -> str:
        """Who it is, for people."""


class ProcKinship:
    """Read from /proc."""

    def __init__(self, proc_root: str = "/proc") -> None:
        self._proc_root = proc_root

    def own(self) -> frozenset[int]:
        pids = {os.getpid()}
        parent = os.getppid()
        while parent > 0 and parent not in pids:
            pids.add(parent)
            process = self.process(parent)
            parent = process.ppid if process is not None else 0
        return frozenset(pids)

    def process(self, pid: int) -> Process | None:
        if pid <= 0:
            return None
        try:
            stat = self._read(pid, "stat")
            head, dummy, tail = stat.rpartition(")")
            fields = tail.split()
            comm = head.partition("(")[2]
            # A zombie starts nothing again.
            if fields[0] in ("Z", "X", "x"):
                return None
            return Process(
                pid=pid,
                start_time=int(fields[19]),
                ppid=int(fields[1]),
                comm=comm,
                adopts=comm in _ADOPTERS or self._is_init(pid),
            )
        except (OSError, IndexError, ValueError):
            return None

    def describe(self, process: Process) -> str:
        # Read only here: cmdline takes a lock of that process, on which a read can block.
        try:
            argv = [part for part in self._read(process.pid, "cmdline").split("\0") if part]
        except OSError:
            argv = []
        return f"PID {process.pid} ({redact_argv(argv)[:200] if argv else process.comm})"

    def _is_init(self, pid: int) -> bool:
        """PID 1, here or in a PID namespace of its own (a container's init)."""
        for line in self._read(pid, "status").splitlines():
            if line.startswith("NSpid:"):
                return line.split()[-1] == "1"
        return pid == 1

    def _read(self, pid: int, name: str) -> str:
        with open(f"{self._proc_root}/{pid}/{name}", "rb") as stream:
            return stream.read().decode("utf-8", "replace")


def ancestors(kinship: Kinship, pid: int, parents: t.Mapping[int, int]) -> tuple[int, ...]:
    """The PIDs above one, nearest first. parents (PID to parent, from the last scan) is asked before /proc is."""
    chain: list[int] = []
    while True:
        parent = parents.get(pid)
        if parent is None:
            process = kinship.process(pid)
            parent = process.ppid if process is not None else 0
        if parent <= 0 or parent in chain:
            return tuple(chain)
        chain.append(parent)
        pid = parent
