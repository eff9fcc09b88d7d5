# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What a scan brings home from /proc, before any rule is applied."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import NodeSet
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import NodeKind, Via
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import ProcStat, ProcStatus


@dataclasses.dataclass(frozen=True)
class Hold:
    """One way in which a process holds one node."""

    path: str
    kind: NodeKind
    minor: int | None
    via: Via


@dataclasses.dataclass(frozen=True)
class RawHolder:
    """A process with holds (or one that is dying and named in compute-apps), and all that rules and people need.

    lineage are the pids and cgroup texts of its ancestors, nearest first. maps_read is False where the mappings could
    not be read: then it is not known whether it computes. listens are the sockets (inode and address) on the server's
    port that it has open; a process that has one is here even where it holds nothing. program: the name of its
    executable where nobody but root could have chosen it, asked only for names that mean something to the rules.
    """

    stat: ProcStat
    status: ProcStatus
    holds: tuple[Hold, ...]
    dying: bool
    cgroup: str | None
    argv: tuple[str, ...] = ()
    exe: str | None = None
    program: str | None = None
    user: str | None = None
    age_s: float | None = None
    wchan: str | None = None
    pid_namespace: str | None = None
    lineage: tuple[tuple[int, str], ...] = ()
    maps_read: bool = True
    listens: tuple[tuple[int, str], ...] = ()

    @property
    def gpu_open(self) -> bool:
        return any(hold.kind == "gpu" for hold in self.holds)

    @property
    def maps_gpu(self) -> bool:
        return any(hold.kind == "gpu" and hold.via == "map" for hold in self.holds)


@dataclasses.dataclass(frozen=True)
class RawUnreadable:
    """An entry that could not be looked at. matters: its process could have held a node that was not seen."""

    pid: int
    comm: str
    what: str
    error: str
    matters: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What the scan is relative to: this process and its ancestors, PID 1 of its namespace, and the nodes. reader is
    the child that reads, as this /proc calls it."""

    nodes: NodeSet
    own_pids: frozenset[int]
    own_cgroup: str
    init_cgroup: str
    own_pid_namespace: str | None
    own_ns_depth: int
    hidepid: str | None
    hidden_matter: bool
    reader: int | None = None


@dataclasses.dataclass(frozen=True)
class RawPort:
    """What is left to say of the server's port: sockets (inode and address) that no process was seen to have open, or
    why nothing is known."""

    unowned: tuple[tuple[int, str], ...] = ()
    problem: str = ""


Item = t.Union[Surroundings, RawHolder, RawUnreadable, RawPort]
