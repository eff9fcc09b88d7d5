# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether nobody but root can change what stands at a path: the file, or any folder on the way to it."""

from __future__ import annotations

import os
import stat
import typing as t


def weak_part(path: str, *, must_exist: bool = True) -> str | None:
    """Which part of the way somebody else could change, as a clause; None where it is root's alone.

    Links are followed: both the way to a link and the way to what it leads to count.

    :param must_exist: False: what is not there yet does not matter, the folders above it do.
    """
    for start in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        for way in _upwards(start):
            try:
                found = os.lstat(way)
            except FileNotFoundError:
                if must_exist:
                    return f"{way} does not exist"
                continue
            except OSError as error:
                return f"{way} cannot be looked at ({error.strerror})"
            weak = _weak(way, found)
            if weak is not None:
                return weak
    return None


def _upwards(path: str) -> t.Iterator[str]:
    yield path
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _weak(way: str, found: os.stat_result) -> str | None:
    if found.st_uid != 0:
        return f"{way} belongs to uid {found.st_uid}, not to root"
    if stat.S_ISLNK(found.st_mode):
        return None  # its mode says nothing
    kept = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX  # nobody can rename what is root's in it
    if found.st_mode & 0o022 and not kept:
        return f"{way} may be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return None
