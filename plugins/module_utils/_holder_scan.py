# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""One pass over /proc: every process that holds a GPU device node or listens on the server's port, and every entry
that could not be looked at."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import NodeSet, find_nodes
from ansible_collections.cleanslate.gpu.plugins.module_utils._dispositions import KNOWN_PROGRAMS, executable_name
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Via
from ansible_collections.cleanslate.gpu.plugins.module_utils._node_match import NodeMatcher, network_mounts
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import ListeningOn
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import GONE, Proc, ProcStat, ProcStatus, try_read
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import (
    Hold,
    Item,
    RawHolder,
    RawPort,
    RawUnreadable,
    Surroundings,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Progress
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_shares import WHOLE, Share
from ansible_collections.cleanslate.gpu.plugins.module_utils._trusted_program import trusted_program
from ansible_collections.cleanslate.gpu.plugins.module_utils._user_name import user_name

# What is being read. A task's memory lock can block maps and cmdline for ever, a dead file server a stat.
STAT, FD, FD_LINKS, MAPS, MAPPED, MAPPED_LINKS, STATUS, LABEL, USER, PROGRAM = range(10)
STEP_NAMES = ("stat", "fd", "fd", "maps", "map_files", "map_files", "status", "cmdline", "status (user name)", "exe")
_LONGEST_LINEAGE = 100


class _Denied(Exception):
    """A table that exists and could not be read."""

    def __init__(self, what: str, error: str) -> None:
        super().__init__(what, error)
        self.what, self.error = what, error


@contextlib.contextmanager
def _reading(what: str) -> t.Iterator[None]:
    """Let a vanished process through as what it is; anything else that goes wrong is a table that cannot be read."""
    try:
        yield
    except OSError as error:
        if error.errno in GONE:
            raise
        raise _Denied(what, error.strerror or str(error)) from error


class _Found:
    """What one process has open or mapped so far: nodes, and sockets by inode. Dicts, as sets that keep their order."""

    def __init__(self) -> None:
        self.holds: dict[Hold, None] = {}
        self.sockets: dict[int, None] = {}

    def add(self, items: t.Iterable[Hold | int]) -> None:
        for item in items:
            if isinstance(item, int):
                self.sockets[item] = None
            else:
                self.holds[item] = None


class HolderReader:
    """skip names (pid, step) pairs that blocked before: these are read in another way, or not at all. port: who listens
    there is looked for as well."""

    def __init__(
        self,
        proc: Proc,
        devices: t.Sequence[str],
        majors: t.Sequence[int] | None,
        *,
        progress: Progress | None = None,
        skip: t.Collection[tuple[int, int]] = (),
        port: ListeningOn | None = None,
    ) -> None:
        self._proc = proc
        self._own_ns_depth: int | None = None
        self._devices = devices
        self._majors = majors
        self._progress = progress
        self._skip = skip
        self._port = port
        self._sockets: dict[int, str] = {}
        self._nodes = NodeSet()
        self._matcher = NodeMatcher(self._nodes, proc)

    def read_all(
        self, compute_pids: t.Collection[int], parent_pid: int | None, share: Share = WHOLE
    ) -> t.Iterator[Item]:
        """Everything one scan needs, or of the processes a share. parent_pid: who asked, as this /proc numbers it."""
        self._nodes = find_nodes(self._devices, self._majors, self._proc)
        stats, unknown = self._stats()
        surroundings = self._surroundings(stats, parent_pid)
        yield surroundings
        yield from (item for item in unknown if share.has(item.pid))
        listening = self._listening(stats, surroundings)
        self._match(listening or {})
        owned: set[int] = set()
        for pid, entry in stats.items():
            if entry.kernel_thread or pid == surroundings.reader or not share.has(pid):
                continue  # the forked child that reads is no holder
            for item in self._look(entry, compute_pids, stats):
                if isinstance(item, RawHolder):
                    owned.update(inode for inode, _address in item.listens)
                yield item
        if self._port is not None:
            yield self._rest_of_port(listening, owned, stats, surroundings)

    def _listening(self, stats: t.Mapping[int, ProcStat], surroundings: Surroundings) -> dict[int, str] | None:
        if self._port is None:
            return {}
        return self._port.sockets(stats, surroundings.init_cgroup, surroundings.own_cgroup)

    def _rest_of_port(
        self,
        before: dict[int, str] | None,
        owned: t.Collection[int],
        stats: t.Mapping[int, ProcStat],
        surroundings: Surroundings,
    ) -> RawPort:
        """Sockets without an owner that were not closed meanwhile."""
        if before is None:
            return RawPort(problem=f"{self._proc.root}/net/tcp could not be read, so who listens is not known")
        left = set(before).difference(owned)
        now = self._listening(stats, surroundings) if left else {}
        return RawPort(tuple((inode, before[inode]) for inode in sorted(left) if now is None or inode in now))

    def read_again(self, pids: t.Iterable[int], compute_pids: t.Collection[int]) -> t.Iterator[Item]:
        """These processes once more, without their ancestry."""
        self._nodes = find_nodes(self._devices, self._majors, self._proc)
        for pid in pids:
            self._match(self._port.sockets_around(pid) if self._port is not None else {})
            self._may_read(pid, STAT)
            entry = self._task(pid)
            if entry is not None:
                yield from self._look(entry, compute_pids, {})

    def _match(self, sockets: dict[int, str]) -> None:
        self._sockets = sockets
        self._matcher = NodeMatcher(self._nodes, self._proc, sockets)

    def _may_read(self, pid: int, step: int) -> bool:
        """Say what is read next; False where this read blocked before."""
        if (pid, step) in self._skip:
            return False
        if self._progress is not None:
            self._progress.at(pid, step)
        return True

    def _stats(self) -> tuple[dict[int, ProcStat], list[RawUnreadable]]:
        stats: dict[int, ProcStat] = {}
        unknown: list[RawUnreadable] = []
        for pid in self._proc.pids():
            problem = "reading it did not come back"
            if self._may_read(pid, STAT):
                try:
                    stats[pid] = self._proc.stat(pid)
                    continue
                except OSError as error:
                    if error.errno in GONE:
                        continue
                    problem = error.strerror or str(error)
                except (ValueError, LookupError):
                    problem = "it makes no sense"
            unknown.append(RawUnreadable(pid, "?", "stat", problem, True, "nothing about it is known"))
        return stats, unknown

    def _surroundings(self, stats: t.Mapping[int, ProcStat], parent_pid: int | None) -> Surroundings:
        proc, own = self._proc, self._proc.own_pid()
        own_pids: set[int] = set()
        pid = parent_pid
        while pid and pid not in own_pids and (pid != 1 or not own_pids):  # PID 1 has a rule of its own
            own_pids.add(pid)
            pid = stats[pid].ppid if pid in stats else None
        me: int | str = parent_pid if parent_pid is not None else "self"
        own_status: ProcStatus = try_read(lambda: proc.status(me), ProcStatus())
        return Surroundings(
            nodes=self._nodes,
            own_pids=frozenset(own_pids),
            own_cgroup=try_read(lambda: proc.cgroup(me), ""),
            init_cgroup=try_read(lambda: proc.cgroup(1), ""),
            own_pid_namespace=try_read(lambda: proc.pid_namespace(me), None),
            own_ns_depth=len(own_status.ns_pids),
            hidepid=proc.hidepid() if os.geteuid() != 0 else None,
            hidden_matter=self._nodes.may_be_opened_by_others(os.geteuid()),
            reader=own if own != parent_pid else None,
        )

    def _look(
        self, entry: ProcStat, compute_pids: t.Collection[int], stats: t.Mapping[int, ProcStat]
    ) -> t.Iterator[RawHolder | RawUnreadable]:
        found = _Found()
        denials: list[_Denied] = []
        living: list[ProcStat] = []
        try:
            for read in (self._fds, self._maps):
                try:
                    read(entry, living, found)
                except _Denied as denied:
                    denials.append(denied)
        except OSError:
            if not found.holds and not found.sockets:
                return  # the process is gone
        ending = bool(denials) and self._ending(entry.pid)
        if found.holds or found.sockets or (entry.pid in compute_pids and (ending or not denials)):
            holder = self._details(entry, living, found, "maps" not in (d.what for d in denials), ending, stats)
            if holder is not None:
                yield holder
        if denials and not ending:
            yield self._unreadable(entry, denials[0], bool(found.holds))

    def _fds(self, entry: ProcStat, living: list[ProcStat], found: _Found) -> None:
        """Open files of the leader; where it is dead or its table empty, those of the living threads, which are put
        into living. A dead leader is not asked: its table is empty, and closed to a plain user."""
        pid, proc = entry.pid, self._proc
        avoid = self._places_to_avoid(pid, FD, FD_LINKS, "fd")
        with _reading("fd"):
            if entry.alive and self._open_files(proc.path(pid, "fd"), "fd", avoid, found):
                return
            for tid in proc.tids(pid):
                task = self._task(pid, tid)
                if task is None or not task.alive:
                    continue
                living.append(task)
                if tid == pid:
                    continue
                try:
                    self._open_files(proc.path(pid, "fd", tid=tid), "thread_fd", avoid, found)
                except OSError as error:
                    if error.errno not in GONE:
                        raise

    def _open_files(self, table: str, via: Via, avoid: t.Sequence[str], found: _Found) -> bool:
        """Whether anything is open."""
        folder = os.open(table, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            names = os.listdir(folder)
            found.add(self._matcher.open_files(folder, names, via, avoid))
        finally:
            os.close(folder)
        return bool(names)

    def _maps(self, entry: ProcStat, living: t.Sequence[ProcStat], found: _Found) -> None:
        """Mappings of the leader; where it is dead, of the first living thread that still has memory (they share)."""
        pid = entry.pid
        for tid in [None] if entry.alive else [task.pid for task in living]:
            if not self._may_read(pid, MAPS):
                raise _Denied("maps", "reading it did not come back")
            with _reading("maps"):
                maps = self._proc.read(self._proc.path(pid, "maps", tid=tid))
            if not maps and entry.alive:
                raise _Denied("maps", "it is empty, as of a process that is ending")
            if not maps:
                continue
            avoid = self._places_to_avoid(pid, MAPPED, MAPPED_LINKS, "maps")
            unknown = []
            for mapped in self._matcher.mappings(maps, pid, tid, avoid):
                if isinstance(mapped, str):
                    unknown.append(mapped)
                else:
                    found.add([mapped])
            if unknown:
                raise _Denied("maps", f"the mapping of {unknown[0]} could not be looked up")
            return

    def _places_to_avoid(self, pid: int, step: int, careful: int, what: str) -> tuple[str, ...]:
        """Nothing at first. Where that blocked, a dead file server is the likely cause: keep off its files."""
        if self._may_read(pid, step):
            return ()
        if not self._may_read(pid, careful):
            raise _Denied(what, "reading it did not come back")
        with _reading(what):
            return network_mounts(self._proc, pid)

    def _dying(self, entry: ProcStat, living: t.Sequence[ProcStat], status: ProcStatus) -> bool:
        """SIGKILL pending, or every thread on its way out. A dead leader whose thread lives on is not dying."""
        pid, proc = entry.pid, self._proc
        if entry.alive and not entry.exiting:
            return status.sigkill_pending
        tasks: t.Sequence[ProcStat] = living
        if entry.alive and not tasks:
            tasks = try_read(lambda: [proc.stat(pid, tid) for tid in proc.tids(pid)], [entry])
        if status.sigkill_pending or all(task.exiting for task in tasks):
            return True
        return any(self._kill_pending(pid, task.pid) for task in tasks)

    def _ending(self, pid: int) -> bool:
        """Whether a process is gone or on its way out by now: then its tables are closed to a plain user."""
        tids: list[int] = try_read(lambda: self._proc.tids(pid), [])
        tasks = [self._task(pid, tid) for tid in tids]
        return all(task is None or task.exiting for task in tasks)

    def _task(self, pid: int, tid: int | None = None) -> ProcStat | None:
        found: ProcStat | None = try_read(lambda: self._proc.stat(pid, tid), None)
        return found

    def _kill_pending(self, pid: int, tid: int) -> bool:
        status: ProcStatus = try_read(lambda: self._proc.status(pid, tid), ProcStatus())
        return status.sigkill_pending

    def _unreadable(self, entry: ProcStat, denied: _Denied, listed: bool) -> RawUnreadable:
        pid, what, error = entry.pid, denied.what, denied.error
        if listed or pid == 1:
            reason = "it is listed as a holder" if listed else "PID 1 is never touched"
            return RawUnreadable(pid, entry.comm, what, error, False, reason)
        status: ProcStatus = try_read(lambda: self._proc.status(pid), ProcStatus())
        if not status.uids:
            matters = self._nodes.may_be_opened_by_others(os.geteuid())
            return RawUnreadable(pid, entry.comm, what, error, matters, "its user is not known")
        matters = self._nodes.may_open(status.uids, status.gids)
        reason = f"uid {status.uids[1]} {'may open a node' if matters else 'could not have opened a node'}"
        return RawUnreadable(pid, entry.comm, what, error, matters, reason)

    def _details(
        self,
        entry: ProcStat,
        living: t.Sequence[ProcStat],
        found: _Found,
        maps_read: bool,
        ending: bool,
        stats: t.Mapping[int, ProcStat],
    ) -> RawHolder | None:
        """All there is to say about one holder. None where it neither holds, listens nor is dying, or is gone."""
        proc, pid = self._proc, entry.pid
        self._may_read(pid, STATUS)
        status: ProcStatus = try_read(lambda: proc.status(pid), ProcStatus())
        dying = ending or self._dying(entry, living, status)
        if not found.holds and not found.sockets and not dying:
            return None
        tid = living[0].pid if living and not entry.alive else None
        argv: tuple[str, ...] = try_read(lambda: proc.argv(pid, tid), ()) if self._may_read(pid, LABEL) else ()
        user = None
        if self._may_read(0, USER):  # a name service that hangs does so for everybody
            inside = len(status.ns_pids) > self._own_depth()
            user = try_read(lambda: user_name(proc, pid, status.uids[1], inside), None)
        self._may_read(pid, STATUS)
        now: ProcStat | None = try_read(lambda: proc.stat(pid), None)
        if now is None or now.start_time != entry.start_time:
            return None  # it ended while it was looked at; whoever has its number now is another
        blocked = next((task for task in (now, *living) if task.state == "D"), None)
        exe: str | None = try_read(lambda: proc.exe(pid, tid), None)
        known = executable_name(exe) in KNOWN_PROGRAMS and self._may_read(pid, PROGRAM)
        return RawHolder(
            stat=now,
            status=status,
            holds=tuple(found.holds),
            dying=dying,
            cgroup=self._cgroup(pid, tid),
            argv=argv,
            exe=exe,
            program=trusted_program(proc, pid, tid, exe) if known else None,
            user=user,
            age_s=self._age(entry.start_time),
            wchan=try_read(lambda: proc.wchan(pid, blocked.pid), None) if blocked is not None else None,
            pid_namespace=try_read(lambda: proc.pid_namespace(pid, tid), None),
            lineage=self._lineage(entry, stats),
            maps_read=maps_read,
            listens=tuple((inode, self._sockets[inode]) for inode in found.sockets),
        )

    def _own_depth(self) -> int:
        """How many PID namespaces this process is in, counted from /proc's own."""
        if self._own_ns_depth is None:
            own: ProcStatus = try_read(lambda: self._proc.status("self"), ProcStatus())
            self._own_ns_depth = max(1, len(own.ns_pids))
        return self._own_ns_depth

    def _cgroup(self, pid: int, tid: int | None = None) -> str | None:
        found: str | None = try_read(lambda: self._proc.cgroup(pid, tid), None)
        return found

    def _lineage(self, entry: ProcStat, stats: t.Mapping[int, ProcStat]) -> tuple[tuple[int, str], ...]:
        lineage: list[tuple[int, str]] = []
        parent = entry.ppid
        while parent in stats and parent > 1 and len(lineage) < _LONGEST_LINEAGE:
            lineage.append((parent, self._cgroup(parent) or ""))
            parent = stats[parent].ppid
        return tuple(lineage)

    def _age(self, start_time: int) -> float | None:
        """From CLOCK_BOOTTIME: the uptime file of a container is not the machine's."""
        proc = self._proc
        now: float | None = time.clock_gettime(time.CLOCK_BOOTTIME)
        if proc.root != "/proc":
            now = try_read(lambda: float(proc.read(os.path.join(proc.root, "uptime")).split()[0]), None)
        return None if now is None else round(max(now - start_time / os.sysconf("SC_CLK_TCK"), 0.0), 1)
