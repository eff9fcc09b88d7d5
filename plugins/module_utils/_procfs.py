# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Reading /proc entries. The root of /proc is an argument, so that a folder of plain files serves as well."""

from __future__ import annotations

import dataclasses
import errno
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._text_table import printable

GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENOTDIR})
SIGKILL_BIT = 0x100
PF_EXITING = 0x4
STAT_FIELDS = 20  # after the name, up to the start time
PF_KTHREAD = 0x200000


@dataclasses.dataclass(frozen=True)
class ProcStat:
    """What /proc/PID/stat says. start_time is in clock ticks since boot."""

    pid: int
    comm: str
    state: str
    ppid: int
    flags: int
    start_time: int

    @property
    def kernel_thread(self) -> bool:
        return bool(self.flags & PF_KTHREAD)

    @property
    def exiting(self) -> bool:
        return bool(self.flags & PF_EXITING) or self.state in ("Z", "X", "x")

    @property
    def alive(self) -> bool:
        return self.state not in ("Z", "X", "x")


@dataclasses.dataclass(frozen=True)
class ProcStatus:
    """The lines of /proc/PID/status that matter here. uids: real, effective, saved, file system."""

    uids: tuple[int, ...] = ()
    gids: frozenset[int] = frozenset()
    ns_pids: tuple[int, ...] = ()
    sigkill_pending: bool = False


def text(data: bytes) -> str:
    """Names and paths are bytes in Linux; surrogates keep them printable by json and unharmed."""
    return data.decode("utf-8", "surrogateescape")


def parse_stat(data: bytes) -> ProcStat:
    """comm may hold blanks and brackets: it ends at the last closing bracket."""
    start, end = data.index(b"("), data.rindex(b")")
    rest = data[end + 2 :].split()
    if len(rest) < STAT_FIELDS:
        raise ValueError(f"/proc/PID/stat has {len(rest)} fields after the name, not {STAT_FIELDS} or more")
    return ProcStat(
        pid=int(data[:start]),
        comm=printable(text(data[start + 1 : end])),
        state=text(rest[0]),
        ppid=int(rest[1]),
        flags=int(rest[6]),
        start_time=int(rest[19]),
    )


def parse_status(data: bytes) -> ProcStatus:
    fields: dict[bytes, list[bytes]] = {}
    for line in data.splitlines():
        name, _colon, value = line.partition(b":")
        fields[name] = value.split()
    pending = 0
    for name in (b"SigPnd", b"ShdPnd"):
        for value in fields.get(name, [])[:1]:
            pending |= int(value, 16)
    return ProcStatus(
        uids=tuple(int(number) for number in fields.get(b"Uid", [])),
        gids=frozenset(int(number) for number in [*fields.get(b"Gid", []), *fields.get(b"Groups", [])]),
        ns_pids=tuple(int(number) for number in fields.get(b"NSpid", [])),
        sigkill_pending=bool(pending & SIGKILL_BIT),
    )


class Proc:
    """One /proc. Every method raises OSError as the kernel gives it; ValueError where the text makes no sense."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root

    def path(self, pid: int | str, *names: str, tid: int | None = None) -> str:
        """/proc/PID/NAME, or /proc/PID/task/TID/NAME."""
        task = ("task", str(tid)) if tid is not None else ()
        return "/".join((self.root, str(pid), *task, *names))

    def read(self, path: str) -> bytes:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts: list[bytes] = []
            while True:
                part = os.read(handle, 65536)
                if not part:
                    return b"".join(parts)
                parts.append(part)
        finally:
            os.close(handle)

    def pids(self) -> list[int]:
        return sorted(int(name) for name in os.listdir(self.root) if name.isdigit())

    def tids(self, pid: int) -> list[int]:
        return sorted(int(name) for name in os.listdir(self.path(pid, "task")) if name.isdigit())

    def stat(self, pid: int, tid: int | None = None) -> ProcStat:
        """One line, which the kernel gives whole: not asking for more saves a fifth of what it costs."""
        handle = os.open(self.path(pid, "stat", tid=tid), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return parse_stat(os.read(handle, 65536))
        finally:
            os.close(handle)

    def status(self, pid: int | str, tid: int | None = None) -> ProcStatus:
        return parse_status(self.read(self.path(pid, "status", tid=tid)))

    def cgroup(self, pid: int | str, tid: int | None = None) -> str:
        return text(self.read(self.path(pid, "cgroup", tid=tid)))

    def argv(self, pid: int, tid: int | None = None) -> tuple[str, ...]:
        data = self.read(self.path(pid, "cmdline", tid=tid))
        return tuple(text(part) for part in data.rstrip(b"\0").split(b"\0")) if data else ()

    def exe(self, pid: int, tid: int | None = None) -> str:
        return os.readlink(self.path(pid, "exe", tid=tid))

    def pid_namespace(self, pid: int | str, tid: int | None = None) -> str:
        return os.readlink(self.path(pid, "ns", "pid", tid=tid))

    def pid_namespace_of_node(self) -> str | None:
        """That of PID 1, which names a node: it is the same seen from within a container and from its host."""
        try:
            return self.pid_namespace(1)
        except OSError:
            return None

    def wchan(self, pid: int, tid: int | None = None) -> str | None:
        value = text(self.read(self.path(pid, "wchan", tid=tid))).strip()
        return value if value not in ("", "0") else None

    def own_pid(self) -> int | None:
        """This process as this /proc numbers it (it may belong to another PID namespace than os.getpid())."""
        try:
            return int(os.readlink(os.path.join(self.root, "self")))
        except (OSError, ValueError):
            return None

    def is_of_another_namespace(self) -> bool:
        """Whether a PID that is read here is another process for a signal. Only the kernel's own /proc tells."""
        own = self.own_pid()
        return self.root == "/proc" and own is not None and own != os.getpid()

    def hidepid(self) -> str | None:
        """The hidepid option with which this /proc is mounted, None where it hides nothing."""
        try:
            lines = text(self.read(self.path("self", "mountinfo"))).splitlines()
        except OSError:
            return None
        found = None
        for line in lines:
            left, dash, right = line.partition(" - ")
            fields, kind = left.split(), right.split()
            if not dash or len(fields) < 6 or not kind or kind[0] != "proc":
                continue
            if fields[4].replace("\\040", " ") != self.root:
                continue
            found = None  # the last mount on a place is the one that is seen
            for option in (*fields[5].split(","), *kind[-1].split(",")):
                if option.startswith("hidepid=") and option[8:] not in ("0", "off"):
                    found = option
        return found


def try_read(read: t.Callable[[], t.Any], default: t.Any) -> t.Any:
    """For labels: what cannot be read is left out."""
    try:
        return read()
    except (OSError, ValueError, LookupError):
        return default
