# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Which program a process runs, told only where nobody but root could have given it that name.

Anybody can copy an interpreter to ~/Xorg and run it. The name of an executable counts where its file and the folder
that holds it belong to root (or to whom this module runs as, who can signal nobody else's processes anyway), where
nobody else may write to either, and where the process lives in this module's user namespace, since in one of his own
anybody can mount a file over another.
"""

from __future__ import annotations

import os
import stat

from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc

_DELETED = " (deleted)"


def program_path(exe: str) -> str:
    """The path without the kernel's mark for a file that was replaced, as by a package upgrade."""
    return exe[: -len(_DELETED)] if exe.endswith(_DELETED) else exe


def trusted_program(proc: Proc, pid: int, tid: int | None, exe: str | None) -> str | None:
    """The executable's name; None where somebody else could have chosen it, or where that cannot be told."""
    if exe is None:
        return None
    path = program_path(exe)
    try:
        if os.readlink(proc.path(pid, "ns", "user", tid=tid)) != os.readlink(proc.path("self", "ns", "user")):
            return None
        folder = proc.path(pid, "root", tid=tid) + os.path.dirname(path)
        for place in (proc.path(pid, "exe", tid=tid), folder):
            if not _only_ours(os.stat(place)):
                return None
    except OSError:
        return None
    return os.path.basename(path)


def _only_ours(found: os.stat_result) -> bool:
    others = stat.S_IWOTH if found.st_gid == 0 else stat.S_IWOTH | stat.S_IWGRP
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & others
