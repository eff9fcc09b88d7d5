# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Who has given files open or mapped, and which sockets are bound: one pass over /proc, in a child under a deadline."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import GONE, Proc, ProcStat, text, try_read
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Progress, collect

FileKey = tuple[int, int]  # device and inode

_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) ([1-9]\d*) +(/.*)$", re.MULTILINE)
_DELETED = " (deleted)"
_STALL = 5.0  # seconds without any progress of the child


@dataclasses.dataclass(frozen=True)
class Holding:
    """A process that has a file open or mapped."""

    key: FileKey
    pid: int
    comm: str
    how: t.Literal["open", "mapped"]


@dataclasses.dataclass(frozen=True)
class Bound:
    """A path at which a Unix socket is bound, in the network namespace of some process."""

    path: str


@dataclasses.dataclass(frozen=True)
class Maker:
    """A living process that is of the kind that makes such files, by its command line."""

    pid: int
    comm: str
    uids: tuple[int, ...]
    start_time: int


@dataclasses.dataclass(frozen=True)
class Unseen:
    """A process whose files could not be looked at. uids is empty where these are not known either."""

    pid: int
    comm: str
    error: str
    uids: tuple[int, ...]


Item = t.Union[Holding, Bound, Maker, Unseen]


@dataclasses.dataclass(frozen=True)
class FileHolders:
    """What one pass brought home. problem says why it is not complete, empty where it is."""

    held: t.Mapping[FileKey, Holding] = dataclasses.field(default_factory=dict)
    bound: frozenset[str] = frozenset()
    makers: tuple[Maker, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    problem: str = ""


def who_holds(
    files: t.Mapping[FileKey, str],
    proc: Proc,
    *,
    makers: re.Pattern[str],
    deadline: float,
    clock: Clock,
) -> FileHolders:
    """files: path by device and inode. makers: what the command line of a process that makes such files looks like."""
    if not files:
        return FileHolders()

    def produce(progress: Progress) -> t.Iterator[Item]:
        return _Pass(files, proc, makers, progress).run()

    result = collect(produce, deadline=deadline, stall=_STALL, clock=clock)
    problem = result.error
    if not result.finished and not problem:
        pid = result.blocked_at[0] if result.blocked_at else 0
        problem = f"reading {proc.root}/{pid or ''} did not come back in time"
    held: dict[FileKey, Holding] = {}
    for item in result.items:
        if isinstance(item, Holding):
            held.setdefault(item.key, item)
    return FileHolders(
        held,
        frozenset(item.path for item in result.items if isinstance(item, Bound)),
        tuple(item for item in result.items if isinstance(item, Maker)),
        tuple(item for item in result.items if isinstance(item, Unseen)),
        problem,
    )


class _Pass:
    def __init__(self, files: t.Mapping[FileKey, str], proc: Proc, makers: re.Pattern[str], progress: Progress) -> None:
        self._files, self._proc, self._makers, self._progress = files, proc, makers, progress
        self._by_inode: dict[int, list[tuple[FileKey, str]]] = {}
        for key, path in files.items():
            self._by_inode.setdefault(key[1], []).append((key, path))
        self._namespaces: set[str] = set()

    def run(self) -> t.Iterator[Item]:
        for pid in self._proc.pids():
            self._progress.at(pid, 0)
            try:
                entry = self._proc.stat(pid)
            except (OSError, ValueError):
                continue  # it ended meanwhile
            if not entry.kernel_thread and pid != os.getpid():  # without files; the one that looks
                yield from self._look(entry)

    def _look(self, entry: ProcStat) -> t.Iterator[Item]:
        pid, proc = entry.pid, self._proc
        # A dead leader has empty tables; those of its living threads tell.
        tids: list[int | None] = [None] if entry.alive else list(try_read(lambda: proc.tids(pid), []))
        looks: list[t.Iterator[Item]] = [self._sockets(pid)]
        for tid in tids:
            looks += [self._open(entry, tid), self._mapped(entry, tid)]
        for look in looks:  # one that fails leaves the others as they are
            try:
                yield from look
            except OSError as error:
                if error.errno not in GONE and entry.alive:
                    uids: tuple[int, ...] = try_read(lambda: proc.status(pid).uids, ())
                    yield Unseen(pid, entry.comm, error.strerror or str(error), uids)
                    break
        if entry.alive:
            line = " ".join(try_read(lambda: proc.argv(pid), ()))
            if self._makers.search(line) or self._makers.search(f" {entry.comm} "):
                yield Maker(pid, entry.comm, try_read(lambda: proc.status(pid).uids, ()), entry.start_time)

    def _open(self, entry: ProcStat, tid: int | None) -> t.Iterator[Holding]:
        folder = self._proc.path(entry.pid, "fd", tid=tid)
        for name in os.listdir(folder):
            try:
                found = os.stat(f"{folder}/{name}")
            except OSError as error:
                if error.errno in GONE:
                    continue
                raise
            key = (found.st_dev, found.st_ino)
            if key in self._files:
                yield Holding(key, entry.pid, entry.comm, "open")

    def _mapped(self, entry: ProcStat, tid: int | None) -> t.Iterator[Holding]:
        """maps names the file system's own device number, which on some differs from what stat says: the same inode
        under the same name counts as well."""
        for major, minor, inode, raw in _MAPPING.findall(self._proc.read(self._proc.path(entry.pid, "maps", tid=tid))):
            for key, path in self._by_inode.get(int(inode), ()):
                mapped = text(raw)
                mapped = mapped[: -len(_DELETED)] if mapped.endswith(_DELETED) else mapped
                same = os.makedev(int(major, 16), int(minor, 16)) == key[0]
                if same or os.path.basename(mapped) == os.path.basename(path):
                    yield Holding(key, entry.pid, entry.comm, "mapped")

    def _sockets(self, pid: int) -> t.Iterator[Bound]:
        """The table of each network namespace once."""
        namespace = os.readlink(self._proc.path(pid, "ns", "net"))
        if namespace in self._namespaces:
            return
        lines = text(self._proc.read(self._proc.path(pid, "net", "unix"))).splitlines()
        self._namespaces.add(namespace)
        for line in lines[1:]:
            fields = line.split(None, 7)
            if len(fields) == 8:
                yield Bound(fields[7])
