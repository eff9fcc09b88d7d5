# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether nobody but root can change what stands at a path: the file, or any folder on the way to it."""

from __future__ import annotations

import grp
import os
import stat

_MOST_LINKS = 40  # as many as the kernel follows


def weak_part(path: str, *, must_exist: bool = True) -> str | None:
    """Which part of the way somebody else could change, as a clause; None where it is root's alone.

    Links are followed one after the other, as the kernel does it: the way to a link, to what it leads to, and to each
    link between them counts, since whoever owns one of these can point it elsewhere later.

    :param must_exist: False: what is not there yet does not matter, the folders above it do.
    """
    way, left, links = "/", _parts(os.path.join(os.getcwd(), path)), 0
    while True:
        try:
            found = os.lstat(way)
        except FileNotFoundError:
            if must_exist:
                return f"{way} does not exist"
        except OSError as error:
            return f"{way} cannot be looked at ({error.strerror})"
        else:
            weak = _weak(way, found)
            if weak is not None:
                return weak
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    return f"{way} is one of more than {_MOST_LINKS} links that lead to each other"
                try:
                    target = os.readlink(way)
                except OSError as error:
                    return f"{way} cannot be followed ({error.strerror})"
                left += _parts(target)
                way = "/" if target.startswith("/") else os.path.dirname(way)
        if not left:
            return None
        part = left.pop()
        way = os.path.dirname(way) if part == ".." else os.path.join(way, part)


def _parts(path: str) -> list[str]:
    """The last one first: the next is popped."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _weak(way: str, found: os.stat_result) -> str | None:
    if found.st_uid != 0:
        return f"{way} belongs to uid {found.st_uid}, not to root"
    if stat.S_ISLNK(found.st_mode):
        return None  # its mode says nothing
    kept = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX  # nobody can rename what is root's in it
    if found.st_mode & 0o022 and not kept and not _shipped_so(way, found):
        return f"{way} may be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def _shipped_so(way: str, found: os.stat_result) -> bool:
    """Ubuntu's /var/log is open to the group of its log daemon, in which there is nobody else."""
    if way != "/var/log" or found.st_mode & 0o002:
        return False
    try:
        group = grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return group.gr_name == "syslog" and not group.gr_mem
