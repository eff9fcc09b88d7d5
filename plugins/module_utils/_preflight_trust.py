# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether what root obeys and makes for the unit is out of the reach of the server and its user."""

from __future__ import annotations

from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import NO_PROFILE
from ansible_collections.cleanslate.gpu.plugins.module_utils._root_only import weak_part

_CURE = (
    "Root starts with it at each start of the unit, so whoever can change it is root. Give it to root (chown root,"
    " chmod go-w), with all folders above it, or choose another place."
)
_MISSING = "Make it before the launch (owner root; mode 0600 where it holds secrets): without it nothing is started."


def root_paths(context: Context) -> Check:
    """Files that systemd or the start guard read or run as root, and the places where root makes files and folders."""
    name = "root_paths"
    launch = context.launch
    if launch is None:
        return not_checked(name, NO_PROFILE)
    if context.own_uid != 0:
        return not_checked(name, "only root's units are checked, and this does not run as root")
    if not launch.root_files and not launch.root_folders:
        return not_checked(name, "no files and folders were given")
    faults = []
    for path in launch.root_files:
        weak = weak_part(path)
        if weak is not None:
            missing = weak.endswith("does not exist")
            about = "" if weak.startswith(f"{path} ") else f"{path}: "
            faults.append(Fault(f"{about}{weak}", _MISSING if missing else _CURE))
    for path in launch.root_folders:
        weak = weak_part(path, must_exist=False)
        if weak is not None:
            faults.append(Fault(weak if weak.startswith(f"{path} ") else f"{path}: {weak}", _CURE))
    if faults:
        return failed(name, faults)
    return passed(name, f"{len(launch.root_files)} files and {len(launch.root_folders)} places are root's alone")
