# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What the kernel says about a file, with a next step where the cause is a usual one."""

from __future__ import annotations

import contextlib
import errno
import os
import typing as t


def told(error: OSError) -> str:
    """The error in the kernel's words and the cure in ours; the path is the caller's to say."""
    may_not = f"user id {os.geteuid()} may not; the module needs become (root)"
    cures = {
        errno.ENOSPC: "the file system is full; `df -h` and `df -i` show it",
        errno.EDQUOT: "the quota is used up",
        errno.EROFS: "the file system is mounted read-only; `dmesg` may say why",
        errno.EACCES: may_not,
        errno.EPERM: may_not,
        errno.ELOOP: "it is a symbolic link, and whoever made it could lead elsewhere what is written here; remove it",
        errno.ENOENT: "the folder above it does not exist",
        errno.ENOTDIR: "it, or a part of its path, is no folder",
        errno.EISDIR: "it is a folder; look at what is in it and remove it",
        errno.EIO: "the disk does not answer as it should; `dmesg` may say why",
    }
    said, cure = error.strerror or str(error), cures.get(error.errno or 0)
    # Somebody further down may have said it already.
    return f"{said} ({cure})" if cure and cure not in said else said


@contextlib.contextmanager
def with_cure(path: str = "") -> t.Iterator[None]:
    """The same error, whose own text holds the cure, and the path where the caller does not name it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, f"{path}: {told(error)}" if path else told(error)) from error
