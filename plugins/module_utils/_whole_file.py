# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""A small file that is only ever replaced as a whole, and the JSON document in it, which may be anybody's."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import with_cure
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import FLAGS

MOST_BYTES = 1 << 20


class FolderRefused(Exception):
    """The folder cannot be used as it is. The text says why and what to do."""


class Unreadable(Exception):
    """There is something, and it cannot be understood."""


def read_document(name: str, folder: int | None = None) -> t.Any:
    """The JSON document, None where there is no file. It needs no lock. folder: a descriptor. Raises Unreadable."""
    try:
        handle = os.open(name, os.O_RDONLY | FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)
        raise Unreadable(why) from error
    except ValueError as error:  # a NUL in the path
        raise Unreadable(f"there can be no such path: {error}") from error
    found = os.fstat(handle)
    wrong = ""
    if not stat.S_ISREG(found.st_mode):
        wrong = "it is no regular file; look at what it is and remove it"
    elif found.st_uid not in (0, os.geteuid()):
        # Whoever owns a file can change it at any time, and root acts on what stands in these.
        wrong = f"it belongs to user id {found.st_uid}, who could change it; look at what is in it, then chown it"
    if wrong:
        os.close(handle)
        raise Unreadable(wrong)
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


def replace(folder: int, name: str, data: bytes, mode: int) -> None:
    """Whoever reads sees the old or the new data, also after the power has failed. Only under a lock. Raises OSError.

    folder: a descriptor, so that the folder cannot be exchanged for another one half-way.
    """
    with with_cure():
        _replace(folder, name, data, mode)


def _replace(folder: int, name: str, data: bytes, mode: int) -> None:
    temporary = f".{name}.new"
    _remove(folder, temporary)  # of a process that was killed while it wrote
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)  # whatever the umask is
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            _remove(folder, temporary)
        raise
    os.fsync(folder)


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
