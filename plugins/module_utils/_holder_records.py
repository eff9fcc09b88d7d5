# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Who has a GPU device open or mapped, as plain records."""

from __future__ import annotations

import dataclasses
import typing as t

NodeKind = t.Literal["gpu", "control", "uvm", "caps", "modeset", "nvswitch", "other"]
Via = t.Literal["fd", "thread_fd", "map"]
Disposition = t.Literal["self", "never", "protected", "monitor", "target", "foreign"]
ScopeName = t.Literal["unit", "own", "lxc", "all"]

# A character device is known by its number, a plain file of a simulated node by file system and inode.
NodeKey = tuple[t.Literal["chr", "file"], int, int]


@dataclasses.dataclass(frozen=True)
class DeviceNode:
    """A GPU device node found by the globs. minor is the GPU's minor for kind gpu, else None."""

    path: str
    kind: NodeKind
    key: NodeKey
    minor: int | None = None
    mode: int = 0
    uid: int = 0
    gid: int = 0


@dataclasses.dataclass(frozen=True)
class StaleNode:
    """A path that the globs found but that is no GPU device: reported, never matched."""

    path: str
    reason: str

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Container:
    """kind: lxc (Proxmox; id is the VMID), docker, podman, … or unknown (id is then the cgroup path)."""

    kind: str
    id: str

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Holder:
    """One process that has a GPU device open or mapped. start_time is field 22 of /proc/PID/stat, in clock ticks
    since boot: with the pid it is the identity that a signal is aimed at. What managers are asked by: program, the
    executable's name where nobody but root could have chosen it, and node_unit, the unit of the systemd asked."""

    pid: int
    start_time: int
    comm: str
    ppid: int
    ns_pid: int | None = None
    cmdline: str = ""  # redacted
    exe: str | None = None
    program: str | None = None
    uid: int | None = None
    user: str | None = None
    state: str = "?"
    dying: bool = False
    unit: str | None = None
    node_unit: str | None = None
    container: Container | None = None
    devices: tuple[str, ...] = ()
    via: tuple[Via, ...] = ()
    computes: bool | None = False  # None: not known, since its mappings could not be read
    listens: tuple[str, ...] = ()  # addresses of the server's port
    gpus: tuple[str, ...] = ()
    age_s: float | None = None
    wchan: str | None = None
    disposition: Disposition = "foreign"
    reason: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        """The public shape (RETURN of gpu_holders_info)."""
        result = dataclasses.asdict(self)
        del result["program"], result["node_unit"]
        for key in ("devices", "via", "listens", "gpus"):
            result[key] = list(result[key])
        return result


@dataclasses.dataclass(frozen=True)
class PortOwner:
    """A process that listens on the server's port. pid is None where none was seen to own the socket. ends_with_target:
    it only passes the port on into a container that is to be stopped."""

    address: str
    pid: int | None = None
    comm: str = ""
    cmdline: str = ""  # redacted
    user: str | None = None
    unit: str | None = None
    container: Container | None = None
    dying: bool = False
    disposition: Disposition = "foreign"
    reason: str = ""
    ends_with_target: bool = False

    @property
    def goes(self) -> bool:
        """Whether a release frees the port from it."""
        return self.disposition == "target" or self.dying or self.ends_with_target

    def as_dict(self) -> dict[str, t.Any]:
        """The public shape (RETURN of gpu_holders_info)."""
        return {
            key: value for key, value in dataclasses.asdict(self).items() if key not in ("dying", "ends_with_target")
        }


@dataclasses.dataclass(frozen=True)
class Unreadable:
    """An entry that could not be looked at. matters is False where the process could not hold a node anyway."""

    pid: int
    comm: str
    what: str
    error: str
    matters: bool
    reason: str

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Scope:
    """Who may be signalled. units are names with suffix; containers and lxc are ids (lxc: VMIDs as text).

    allow_protected names protected executables or units that a person has released for stopping.
    gpus restricts to holders that compute-apps lists on these UUIDs (only with unit or lxc).
    """

    name: ScopeName
    units: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    lxc: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    allow_protected: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class HolderScan:
    """One complete (or honestly incomplete) look at every process. port_owners is empty where nobody listens on the
    server's port, and where it was not asked for."""

    holders: tuple[Holder, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    complete: bool = True
    incomplete_reason: str = ""
    stale_nodes: tuple[StaleNode, ...] = ()
    port_owners: tuple[PortOwner, ...] = ()
    seconds: float = 0.0

    def targets(self) -> tuple[Holder, ...]:
        return tuple(holder for holder in self.holders if holder.disposition == "target")
