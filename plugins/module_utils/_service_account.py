# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The user as whom the server runs, and what the permission bits of a path let this user do."""

from __future__ import annotations

import dataclasses
import grp
import os
import pwd
import stat


@dataclasses.dataclass(frozen=True)
class Account:
    """A user with the groups that systemd gives a unit of it."""

    name: str
    uid: int
    gids: frozenset[int]
    gid: int  # that of the unit
    home: str = "/"

    def may(self, found: os.stat_result, bits: int) -> bool:
        """Whether the permission bits grant all of these (4 read, 2 write, 1 search). The first class that fits
        decides, as in the kernel: an owner without permission does not get that of the group."""
        mode = stat.S_IMODE(found.st_mode)
        if self.uid == 0:
            return True
        if found.st_uid == self.uid:
            return (mode >> 6) & bits == bits
        if found.st_gid in self.gids:
            return (mode >> 3) & bits == bits
        return mode & bits == bits


def find_account(user: str, group: str = "") -> Account:
    """The account of User= and Group= of a unit; each a name or a number. LookupError says which does not exist."""
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        raise LookupError(f"the user {user} does not exist") from None
    gid = entry.pw_gid
    if group:
        try:
            gid = (grp.getgrgid(int(group)) if group.isdecimal() else grp.getgrnam(group)).gr_gid
        except (KeyError, OverflowError):
            raise LookupError(f"the group {group} does not exist") from None
    gids = frozenset(os.getgrouplist(entry.pw_name, gid))
    return Account(entry.pw_name, entry.pw_uid, gids, gid, entry.pw_dir)
