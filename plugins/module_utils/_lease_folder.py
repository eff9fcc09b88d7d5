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
import json
import os
import re
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told, with_cure
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import FLAGS
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import locked as momentary_lock
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import FolderRefused, read_document, replace

LOCK_NAME = "leases.lock"


class LeaseFolder:
    """One open folder."""

    def __init__(self, handle: int, path: str, boot_id: str) -> None:
        self._handle = handle
        self.path = path
        self.name = f"leases-{boot_id}.json"

    def read(self) -> t.Any:
        """The document, None where there is none. Raises Unreadable."""
        return read_document(self.name, self._handle)

    def write(self, document: t.Any) -> None:
        """Replace the document as a whole. Only under the lock."""
        replace(self._handle, self.name, json.dumps(document, indent=1).encode("utf-8") + b"\n", 0o600)
        for other in os.listdir(self._handle):
            if re.fullmatch(r"leases-.*\.json", other) and other != self.name:
                with contextlib.suppress(OSError):  # nobody reads it any more; it only lies about
                    os.unlink(other, dir_fd=self._handle)

    @contextlib.contextmanager
    def locked(self, clock: Clock) -> t.Iterator[None]:
        """The momentary lock of this folder. Raises LockBusy, OSError."""
        with with_cure():
            handle = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | FLAGS, 0o600, dir_fd=self._handle)
        with momentary_lock(handle, f"{self.path}/{LOCK_NAME}", clock):
            yield


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
                f"cannot make the folder {path} for the leases as user id {owner}: {told(error)}."
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
