# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Reading a file that another user may write to, without believing its length or its kind."""

from __future__ import annotations

import errno
import os
import stat

# The largest file of a server unit, its start guard, has a fraction of it. The configuration belongs to the service's
# user, who could make it as long as the disk, and root would keep all of it in memory.
MOST_BYTES = 1 << 20


def read_small(path: str, *, follow: bool = True) -> tuple[bytes, os.stat_result]:
    """What stands in a regular file, and whose it is. OSError where it is none, or has more than MOST_BYTES.

    follow: a symbolic link may lead there.
    """
    # A pipe is opened without waiting for somebody at its other end.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with open(os.open(path, flags), "rb") as handle:
        info = os.fstat(handle.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file; look at what it is and move it away")
        data = handle.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(
            errno.EFBIG,
            f"it is longer than {MOST_BYTES} bytes, which no file of a server unit is; look at who wrote to it",
        )
    return data, info
