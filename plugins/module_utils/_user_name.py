# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The name of a process's user, as the container it runs in knows it: to the host the same number is somebody else."""

from __future__ import annotations

import os
import pwd
import stat

from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc

_LONGEST = 1_000_000  # bytes of a passwd file


def user_name(proc: Proc, pid: int, uid: int, inside: bool) -> str | None:
    """The name, None where there is none. inside: whether the process lives in a PID namespace below ours."""
    if not inside:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return None
    try:
        number = _number_inside(proc.read(proc.path(pid, "uid_map")).decode("ascii"), uid)
        return None if number is None else _listed(proc.path(pid, "root", "etc", "passwd"), number)
    except (OSError, ValueError):
        return None


def _number_inside(uid_map: str, uid: int) -> int | None:
    """The uid in the process's own user namespace (user_namespaces(7): inside, outside, length)."""
    for line in uid_map.splitlines():
        inside, outside, length = (int(number) for number in line.split())
        if outside <= uid < outside + length:
            return inside + uid - outside
    return None


def _listed(path: str, number: int) -> str | None:
    # The file is the container's: a link in it would be followed in our root, and a FIFO would not end.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        for line in stream.read(_LONGEST).decode("utf-8", "replace").splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2] == str(number) and fields[0].isprintable():
                return fields[0][:64]
    return None
