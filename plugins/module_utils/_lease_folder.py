# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The folder in which the leases of a host stand: opened safely, changed by one process at a time, written as a whole.

Everything goes through the file descriptor of the folder, so that it cannot be exchanged for another one half-way. The
name of the file carries the boot: what an earlier boot left behind is never read, whatever it says.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock

LOCK_WAIT = 5.0  # seconds for the momentary lock; who has it needs milliseconds
LOCK_POLL = 0.02
MOST_BYTES = 1 << 20
LOCK_NAME = "leases.lock"
TEMPORARY_NAME = "leases.tmp"
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # never through a link; a FIFO reads as empty instead of blocking


class FolderRefused(Exception):
    """The folder cannot be used as it is. The text says why and what to do."""


class LockBusy(Exception):
    """Another process had the momentary lock during the whole of LOCK_WAIT."""


class Unreadable(Exception):
    """There is something, and it cannot be understood."""


class LeaseFolder:
    """One open folder."""

    def __init__(self, handle: int, path: str, boot_id: str) -> None:
        self._handle = handle
        self.path = path
        self.name = f"leases-{boot_id}.json"

    def read(self) -> t.Any:
        """The document, None where there is none. Raises Unreadable."""
        try:
            handle = os.open(self.name, os.O_RDONLY | FLAGS, dir_fd=self._handle)
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
            if document is None:
                raise ValueError("null")  # which for the caller would mean that there is no file
            return document
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"it is not the JSON that was written here ({error})") from error

    def write(self, document: t.Any) -> None:
        """Replace the document as a whole. Only under the lock."""
        data = json.dumps(document, indent=1).encode("utf-8") + b"\n"
        self._remove(TEMPORARY_NAME)  # of a process that was killed while it wrote
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS
        with os.fdopen(os.open(TEMPORARY_NAME, flags, 0o600, dir_fd=self._handle), "wb") as file:
            file.write(data)
        os.rename(TEMPORARY_NAME, self.name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        for other in os.listdir(self._handle):
            if re.fullmatch(r"leases-.*\.json", other) and other != self.name:
                with contextlib.suppress(OSError):  # nobody reads it any more; it only lies about
                    self._remove(other)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._handle)

    @contextlib.contextmanager
    def locked(self, clock: Clock) -> t.Iterator[None]:
        """The momentary lock; the kernel frees it when the process ends, however it ends."""
        handle = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | FLAGS, 0o600, dir_fd=self._handle)
        try:
            deadline = clock.monotonic() + LOCK_WAIT
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if clock.monotonic() >= deadline:
                        raise LockBusy(
                            f"another process has had {self.path}/{LOCK_NAME} locked for {LOCK_WAIT:.0f} s, which"
                            f" should take milliseconds: see who with 'fuser -v {self.path}/{LOCK_NAME}'"
                        ) from None
                    clock.sleep(LOCK_POLL)
            yield
        finally:
            os.close(handle)


@contextlib.contextmanager
def opened(path: str, boot_id: str, *, create: bool, uid: int | None = None) -> t.Iterator[LeaseFolder | None]:
    """Open the folder, made 0700 where create is set. None: there is none. Raises FolderRefused."""
    owner = os.geteuid() if uid is None else uid
    path = os.path.normpath(path)  # with a slash at its end a symbolic link would be followed
    if create:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise FolderRefused(
                f"cannot make the folder {path} for the leases as user id {owner}: {error.strerror}."
                f" The module needs become (root), or a path whose parent exists and belongs to this user"
            ) from error
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        if os.path.islink(path):
            why = "it is a symbolic link, and whoever made it could lead the leases elsewhere; remove it"
        elif error.errno == errno.ENOTDIR:
            why = "it is no folder; remove it"
        else:
            why = f"{error.strerror} for user id {owner}; the module needs become (root)"
        raise FolderRefused(f"cannot use {path} for the leases: {why}") from error
    try:
        found = os.fstat(handle)
        if found.st_uid != owner:
            raise FolderRefused(
                f"cannot use {path} for the leases: it belongs to user id {found.st_uid}, not to {owner} who runs this."
                f" Use become (root), or remove the folder if nobody should have made it"
            )
        if found.st_mode & 0o022:
            raise FolderRefused(
                f"cannot use {path} for the leases: others may write in it (mode {stat.S_IMODE(found.st_mode):04o})."
                f" Look at what is in it, then: chmod 0700 {path}"
            )
        yield LeaseFolder(handle, path, boot_id)
    finally:
        os.close(handle)
