# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What a server that was killed leaves behind: shared memory, sockets, wrapper scripts, lock files of a JIT build.

A lock file of torch's FileBaton exists or not, and whoever made it removes it: one whose maker was killed stops every
later start without a word. Locks that the kernel keeps (flock) end with their holder and are left alone.
Only files of the service user with known names are touched, and none that a process has open or mapped. Before one is
removed the kernel is asked as well, by a write lease: it grants that only where nobody has the file open, in whatever
namespace. Names and command lines of processes only ever make a file stay.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import re
import signal
import stat
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock, SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._file_holders import FileHolders, FileKey, who_holds
from ansible_collections.cleanslate.gpu.plugins.module_utils._node_match import network_mounts
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import GONE, Proc

Kind = t.Literal["shared_memory", "lock", "socket", "script"]

# Whoever made one of these has it mapped for as long as it lives: not mapped means dead.
_MAPPED_BY_ITS_MAKER = re.compile(r"(nccl-|cuda\.shm\.|sem\.loky-)")
_SHARED_MEMORY = re.compile(
    r"(sglang_loads_.*\.shm|sgl_shm_(nodecheck|mq|mm)_\d+_?.*|multi_tokenizer_args_\d+|nccl-.+|cuda\.shm\..+|psm_.+"
    r"|sem\.loky-.+)\Z"
)
_SOCKET = re.compile(r"tmp[a-z0-9_]{8}\Z")  # zmq's, at a name that tempfile chose
_SCRIPT = re.compile(r"sglang_temp_file_.*\.sh\Z")
_LOCK = re.compile(r"lock(_.+)?\Z")  # torch: lock; aiter: lock_NAME
_MAKERS = re.compile(r"sglang|multiprocessing|torch|flashinfer|triton|\bninja\b|\bnvcc|\bcicc|\bptxas|cc1plus")
_REPLACED = "another file has taken its place meanwhile"
_DEEPEST = 8
_MOST_ENTRIES = 200_000


@dataclasses.dataclass(frozen=True)
class Search:
    """Where to look, and for whose files. An empty folder is left out; a cache that is not there is none."""

    uid: int
    shared_memory: str = "/dev/shm"
    temporary: str = "/tmp"
    caches: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Leftover:
    """One file. stale: nobody wants it any more; removed: and so it is gone. reason says why, or why not."""

    path: str
    kind: Kind
    bytes: int
    stale: bool
    removed: bool
    reason: str

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Swept:
    """Everything that was found."""

    items: tuple[Leftover, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def removed(self) -> tuple[Leftover, ...]:
        return tuple(item for item in self.items if item.removed)

    @property
    def kept(self) -> tuple[Leftover, ...]:
        return tuple(item for item in self.items if not item.removed)

    @property
    def message(self) -> str:
        said = []
        if self.removed:
            size = sum(item.bytes for item in self.removed)
            said.append(f"Removed {_some(self.removed)} ({size / 2**20:.1f} MiB).")
        stale = [item for item in self.kept if item.stale]
        wanted = [item for item in self.kept if not item.stale]
        if stale:
            said.append(f"Would remove {_some(stale)}.")
        if wanted:
            said.append(f"Left alone {_some(wanted)}.")
        said += [f"{problem}." for problem in self.problems]
        return " ".join(said) or "An earlier server left nothing behind."

    def as_dict(self) -> dict[str, t.Any]:
        return {
            "removed": [item.as_dict() for item in self.removed],
            "kept": [item.as_dict() for item in self.kept],
            "removed_bytes": sum(item.bytes for item in self.removed),
            "problems": list(self.problems),
            "msg": self.message,
        }


@dataclasses.dataclass(frozen=True)
class _Candidate:
    kind: Kind
    path: str
    found: os.stat_result

    @property
    def key(self) -> FileKey:
        return (self.found.st_dev, self.found.st_ino)


def find(search: Search, *, proc_root: str = "/proc", clock: Clock | None = None, timeout: float = 10.0) -> Swept:
    """What would be removed and what would stay, without removing anything."""
    return _sweep(search, Proc(proc_root), clock or SystemClock(), timeout, remove=False)


def sweep(search: Search, *, proc_root: str = "/proc", clock: Clock | None = None, timeout: float = 10.0) -> Swept:
    """Remove what is left of an earlier server. timeout: seconds for the look at all processes. Never raises for what
    the disk or /proc looks like."""
    return _sweep(search, Proc(proc_root), clock or SystemClock(), timeout, remove=True)


def _sweep(search: Search, proc: Proc, clock: Clock, timeout: float, *, remove: bool) -> Swept:
    deadline = clock.monotonic() + timeout
    problems: list[str] = []
    candidates = [*_in_folder(search, problems), *_in_caches(search, proc, deadline, clock, problems)]
    # Asked after the files were listed: what came later is not among them.
    holders = who_holds({one.key: one.path for one in candidates}, proc, makers=_MAKERS, deadline=deadline, clock=clock)
    if holders.problem:
        problems.append(f"Not every process could be looked at, so nothing was removed: {holders.problem}")
    items = []
    for one in candidates:
        why = _reason_to_stay(one, search.uid, holders)
        stale = False
        if not why:
            stale, why = _remove(one, search.uid, holders, remove)
        items.append(Leftover(one.path, one.kind, one.found.st_blocks * 512, stale, stale and remove, why))
    return Swept(tuple(items), tuple(problems))


def _reason_to_stay(one: _Candidate, uid: int, holders: FileHolders) -> str:
    """Empty where nothing that was seen speaks for it."""
    held = holders.held.get(one.key)
    if held is not None:
        return f"pid {held.pid} ({held.comm}) has it {held.how}"
    if holders.problem:
        return holders.problem
    if one.kind == "socket" and one.path in holders.bound:
        return "a process listens there"
    if _MAPPED_BY_ITS_MAKER.match(os.path.basename(one.path)):
        return ""
    age_of_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    booted = time.time() - age_of_boot
    ticks = os.sysconf("SC_CLK_TCK")
    for maker in holders.makers:
        if uid in maker.uids and booted + maker.start_time / ticks <= one.found.st_mtime + 1:
            return f"pid {maker.pid} ({maker.comm}) of the same user is older and may still want it"
    return ""


def _remove(one: _Candidate, uid: int, holders: FileHolders, remove: bool) -> tuple[bool, str]:
    """Look once more at exactly that file, and unlink it (where that is wanted) in the folder it was found in. Whether
    it is stale, and why."""
    folder, name = os.path.split(one.path)
    handle = file = -1
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        leased = False
        if one.kind != "socket":
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
            if not os.path.samestat(os.fstat(file), one.found):
                return False, _REPLACED
            refused = _lease(file)
            if refused == errno.EAGAIN:
                return False, "a process that cannot be seen from here has it open or mapped"
            leased = not refused
        unseen = [
            process
            for process in holders.unseen
            if process.pid != 1  # an init is no server
            and (not process.uids or uid in process.uids or (0 in process.uids and one.kind != "socket"))
        ]
        if unseen and not leased:
            first = unseen[0]
            return False, f"the files of pid {first.pid} ({first.comm}) could not be read ({first.error})"
        now = os.stat(name, dir_fd=handle, follow_symlinks=False)
        if (now.st_dev, now.st_ino, now.st_uid) != (*one.key, uid) or now.st_mode != one.found.st_mode:
            return False, _REPLACED
        if remove:
            os.unlink(name, dir_fd=handle)
        return True, "no process listens there" if one.kind == "socket" else "no process has it open or mapped"
    except FileNotFoundError:
        return False, "it has gone by itself meanwhile"
    except OSError as error:
        return False, f"{error.strerror or error}"
    finally:
        for number in (file, handle):
            if number >= 0:
                os.close(number)


def _lease(file: int) -> int:
    """0 where the kernel granted a write lease: nobody else has this file open, and nobody can open it while the lease
    lasts. Else the error; EAGAIN: somebody has."""
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # whoever opens it now waits for us; SIGIO would end us
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def _in_folder(search: Search, problems: list[str]) -> t.Iterator[_Candidate]:
    if search.shared_memory:
        yield from _listed(search.shared_memory, {"shared_memory": _SHARED_MEMORY}, search.uid, problems)
    if search.temporary:
        yield from _listed(search.temporary, {"socket": _SOCKET, "script": _SCRIPT}, search.uid, problems)


def _listed(
    folder: str, patterns: t.Mapping[Kind, re.Pattern[str]], uid: int, problems: list[str]
) -> t.Iterator[_Candidate]:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        problems.append(f"{folder} could not be read ({error.strerror})")
        return
    try:
        for name in sorted(os.listdir(handle)):
            kind = next((kind for kind, pattern in patterns.items() if pattern.match(name)), None)
            found = _lstat(name, handle) if kind is not None else None
            if kind is None or found is None or found.st_uid != uid:
                continue
            if (stat.S_ISSOCK if kind == "socket" else stat.S_ISREG)(found.st_mode):
                yield _Candidate(kind, os.path.join(os.path.realpath(folder), name), found)
    finally:
        os.close(handle)


def _in_caches(
    search: Search, proc: Proc, deadline: float, clock: Clock, problems: list[str]
) -> t.Iterator[_Candidate]:
    remote = _network_mounts(proc)
    for cache in dict.fromkeys(os.path.realpath(cache) for cache in search.caches):
        if any(cache == place or cache.startswith(place.rstrip("/") + "/") for place in remote):
            problems.append(f"{cache} lies on a network file system, where another machine may hold a lock: left alone")
            continue
        try:
            yield from _locks_below(cache, search.uid, deadline, clock, problems)
        except OSError as error:
            if error.errno not in GONE:
                problems.append(f"{cache} could not be looked through ({error.strerror or error})")


def _locks_below(cache: str, uid: int, deadline: float, clock: Clock, problems: list[str]) -> t.Iterator[_Candidate]:
    left = _MOST_ENTRIES
    # Not through symbolic links; a folder is opened below the one it was found in.
    for folder, folders, names, handle in os.fwalk(cache, follow_symlinks=False):
        left -= len(names) + len(folders)
        if left < 0 or clock.monotonic() >= deadline:
            problems.append(f"{cache} was not looked through to the end ({folder} was reached)")
            return
        if folder.count("/") - cache.count("/") >= _DEEPEST:
            folders.clear()
        for name in sorted(filter(_LOCK.match, names)):
            found = _lstat(name, handle)
            # A baton is empty; anything else of that name is something else.
            if found and found.st_uid == uid and stat.S_ISREG(found.st_mode) and not found.st_size:
                yield _Candidate("lock", os.path.join(folder, name), found)


def _network_mounts(proc: Proc) -> tuple[str, ...]:
    own = proc.own_pid()
    try:
        return network_mounts(proc, own) if own is not None else ()
    except OSError:
        return ()


def _lstat(name: str, handle: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=handle, follow_symlinks=False)
    except OSError:
        return None


def _some(items: t.Sequence[Leftover], most: int = 4) -> str:
    """The first few with their reasons."""
    named = "; ".join(f"{item.path} ({item.reason})" for item in items[:most])
    more = f"; and {len(items) - most} more" if len(items) > most else ""
    return f"{len(items)} {'leftover' if len(items) == 1 else 'leftovers'} of an earlier server: {named}{more}"
