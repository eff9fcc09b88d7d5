# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""A small JSON file that lasts: replaced as a whole, flushed to the disk, changed by one process at a time.

Everybody may read it. It is written through the file descriptor of its folder, which must belong to whoever writes and
must not be writable by others.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_folder import (
    FLAGS,
    LOCK_POLL,
    LOCK_WAIT,
    MOST_BYTES,
    FolderRefused,
    LockBusy,
    Unreadable,
)

UNREADABLE_SUFFIX = ".unreadable"


def read(path: str) -> t.Any:
    """The document, None where there is none. It needs no lock: a file is only ever replaced. Raises Unreadable."""
    try:
        handle = os.open(path, os.O_RDONLY | FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)
        raise Unreadable(why) from error
    try:
        with os.fdopen(handle, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(str(error.strerror)) from error
    if len(data) > MOST_BYTES:
        raise Unreadable(f"it is longer than {MOST_BYTES} bytes")
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not the JSON that was written here ({str(error)[:120]})") from error
    if document is None:
        raise Unreadable("it says null")  # which for the caller would mean that there is no file
    return document


class LockedFile:
    """One file whose lock this process has."""

    def __init__(self, folder: int, path: str) -> None:
        self._folder = folder
        self._name = os.path.basename(path)
        self.path = path

    def replace(self, document: t.Any) -> None:
        """Whoever reads sees the old or the new document, also after the power has failed."""
        temporary = f".{self._name}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=self._folder)  # of a process that was killed while it wrote
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS
        with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=self._folder), "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # whatever the umask is
            file.write(json.dumps(document, indent=1, sort_keys=True).encode("utf-8") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)

    def set_aside(self) -> str:
        """Keep what cannot be read under another name, for a person to look at."""
        os.rename(self._name, self._name + UNREADABLE_SUFFIX, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        return self.path + UNREADABLE_SUFFIX


@contextlib.contextmanager
def locked(path: str, clock: Clock) -> t.Iterator[LockedFile]:
    """The file under its lock, in a folder that is made 0755. Raises FolderRefused, LockBusy, OSError."""
    folder, name = os.path.split(os.path.normpath(path))
    with contextlib.suppress(FileExistsError):
        _make(folder)
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        why = "it is a symbolic link or no folder" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        raise FolderRefused(f"cannot use the folder {folder}: {why}") from error
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise FolderRefused(
                f"cannot use the folder {folder}: it belongs to user id {found.st_uid} with mode"
                f" {stat.S_IMODE(found.st_mode):04o}. It must belong to {os.geteuid()}, who runs this, and others must"
                f" not write in it: use become (root), or mend it with chown and chmod 0755"
            )
        lock = os.open(f".{name}.lock", os.O_RDWR | os.O_CREAT | FLAGS, 0o600, dir_fd=handle)
        try:
            _wait(lock, f"{folder}/.{name}.lock", clock)
            yield LockedFile(handle, os.path.join(folder, name))
        finally:
            os.close(lock)
    finally:
        os.close(handle)


def _make(folder: str) -> None:
    try:
        os.mkdir(folder, 0o755)
    except FileExistsError:
        raise
    except OSError as error:
        raise FolderRefused(
            f"cannot make the folder {folder} as user id {os.geteuid()}: {error.strerror}."
            " The module needs become (root), or a path whose parent exists and belongs to this user"
        ) from error
    os.chmod(folder, 0o755)  # whatever the umask is


def _wait(lock: int, path: str, clock: Clock) -> None:
    deadline = clock.monotonic() + LOCK_WAIT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if clock.monotonic() >= deadline:
                raise LockBusy(
                    f"another process has had {path} locked for {LOCK_WAIT:.0f} s, which should take milliseconds:"
                    f" see who with 'fuser -v {path}'"
                ) from None
            clock.sleep(LOCK_POLL)
