# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Locks on GPUs that a server holds for as long as its main process lives.

A check cannot exclude: two servers that start at once both find idle GPUs. So a server is started through flock(1),
which takes the lock and then becomes the server. The kernel frees it when that process ends, however it ends. A server
on all GPUs excludes everybody; servers on named GPUs share `all.lock` and exclude each other GPU by GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import is_gpu_uuid

LOCKED_EXIT = 75  # EX_TEMPFAIL: another server has the GPUs now, which can change
_ALL = "all.lock"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 3  # another guard that tests the same lock holds it for an instant
_BETWEEN_TRIES = 0.2


class LockRefused(Exception):
    """The folder or a file of the locks cannot be used. The text says why and what to do."""


@dataclasses.dataclass(frozen=True)
class GpuLock:
    path: str
    exclusive: bool


def gpu_locks(folder: str, uuids: t.Sequence[str]) -> tuple[GpuLock, ...]:
    """The locks of a server on these GPUs (none named: on all), in the order in which they are taken."""
    for uuid in uuids:
        if not is_gpu_uuid(uuid):  # it becomes the name of a file
            raise ValueError(f"{uuid!r} is no GPU UUID; `nvidia-smi -L` lists them.")
    # One order for everybody, or two servers could each wait for what the other has.
    names = sorted({uuid.lower() for uuid in uuids})
    return (
        GpuLock(os.path.join(folder, _ALL), exclusive=not names),
        *(GpuLock(os.path.join(folder, f"{name}.lock"), exclusive=True) for name in names),
    )


def locking_command(flock: str, locks: t.Sequence[GpuLock]) -> list[str]:
    """What stands before the server's own command line. --no-fork: flock becomes the server and keeps its PID."""
    words = []
    for lock in locks:
        shared = [] if lock.exclusive else ["--shared"]
        words += [flock, "--no-fork", "--nonblock", *shared, "--conflict-exit-code", str(LOCKED_EXIT), lock.path]
    return words


def prepare(locks: t.Sequence[GpuLock], group: int | None = None) -> None:
    """Make the folder and the files that are missing. The server's user opens them for reading, which is enough for a
    lock, and can neither make nor remove one. LockRefused says what stands against it.

    :param group: the service user's group; nobody else can then take a lock in the instant in which a server stops.
        Where servers of several groups share GPUs the files are readable by everybody.
    """
    folder = os.path.dirname(locks[0].path)
    _prepare_folder(folder)
    for lock in locks:
        _prepare_file(folder, lock)
        if group is not None:
            _close_to_others(lock.path, group)


def _prepare_file(folder: str, lock: GpuLock) -> None:
    try:
        handle = os.open(lock.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        _open(lock.path, close=True)
    except OSError as error:
        raise LockRefused(
            f"cannot make the lock file {lock.path}: {told(error)}. Where {folder} belongs to the GPU host and"
            f" is shared with this container, make it there: touch {os.path.basename(lock.path)} in that folder"
        ) from error
    else:
        os.fchmod(handle, 0o644)  # whatever the umask says
        os.close(handle)


def _close_to_others(path: str, group: int) -> None:
    """A lock needs no more than the right to read. One that another group has already is shared, and opened to all."""
    handle = _open(path)
    try:
        found = os.fstat(handle)
        # A file of a shared folder may belong to the GPU host, who decides about it.
        with contextlib.suppress(PermissionError):
            if found.st_gid == 0 or (found.st_gid == group and not found.st_mode & 0o004):
                os.fchown(handle, -1, group)
                os.fchmod(handle, 0o640)
            elif group not in (0, found.st_gid):
                os.fchmod(handle, 0o644)
    finally:
        os.close(handle)


def _prepare_folder(folder: str) -> None:
    try:
        os.mkdir(folder, 0o755)
        os.chmod(folder, 0o755)
    except FileExistsError:
        pass
    except OSError as error:
        raise LockRefused(f"cannot make the folder {folder} for the locks of GPUs: {told(error)}") from error
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise LockRefused(f"cannot use {folder} for the locks of GPUs: it is no folder, or a symbolic link; remove it")
    if found.st_mode & 0o022:
        raise LockRefused(
            f"cannot use {folder} for the locks of GPUs: others may write in it"
            f" (mode {stat.S_IMODE(found.st_mode):04o}), so a lock could be taken away. Look at it, then: chmod 0755"
        )


def held_by(locks: t.Sequence[GpuLock], sleep: t.Callable[[float], None], proc_root: str = "/proc") -> str | None:
    """Who has one of these locks, in words; None where all of them are free."""
    for lock in locks:
        for attempt in range(_TRIES):
            if _is_free(lock):
                break
            if attempt + 1 < _TRIES:
                sleep(_BETWEEN_TRIES)
        else:
            return f"{lock.path} is locked by {_owner(lock.path, proc_root)}"
    return None


def _open(path: str, *, close: bool = False) -> int:
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise LockRefused(f"cannot use the lock file {path}: {why}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise LockRefused(f"cannot use the lock file {path}: it is no regular file")
    if close:
        os.close(handle)
    return handle


def _is_free(lock: GpuLock) -> bool:
    handle = _open(lock.path)
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if lock.exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _owner(path: str, proc_root: str) -> str:
    """By the kernel's list of locks, which names no process of another container."""
    inode = os.stat(path).st_ino
    found = []
    with contextlib.suppress(OSError, ValueError), open(os.path.join(proc_root, "locks"), encoding="ascii") as table:
        for line in table:
            words = line.split()
            # "1: FLOCK ADVISORY WRITE 4711 00:1a:1234 0 EOF"; a line with "->" is one that waits.
            if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
                found.append(int(words[4]))
    named = []
    for pid in found:
        try:
            with open(os.path.join(proc_root, str(pid), "comm"), encoding="utf-8", errors="replace") as text:
                named.append(f"pid {pid} ({text.read().strip()})")
        except OSError:
            named.append(f"pid {pid}")
    return ", ".join(named) or "a process that cannot be seen from here (another container that shares these GPUs?)"
