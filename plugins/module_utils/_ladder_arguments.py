# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The options of the release itself."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder import ReleaseOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import read_ladder
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import shown
from ansible_collections.cleanslate.gpu.plugins.module_utils._pair_proof import is_namespace

LONGEST_STOP = 3600.0
LONGEST_WATCH = 600.0

LADDER_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "ladder": {
        "type": "list",
        "elements": "dict",
        "default": [{"signal": "TERM", "wait": 15}, {"signal": "KILL", "wait": 180}],
        "options": {"signal": {"type": "str", "required": True}, "wait": {"type": "float", "required": True}},
    },
    "stop_timeout": {"type": "float", "default": 180.0},
    "respawn_watch": {"type": "float", "default": 10.0},
    "node_pid_namespace": {"type": "str"},
}


def release_options(params: t.Mapping[str, t.Any], check_mode: bool) -> ReleaseOptions:
    """ValueError with a sentence where the options cannot be meant."""
    stop_timeout, respawn_watch = params["stop_timeout"], params["respawn_watch"]
    if not 0 < stop_timeout <= LONGEST_STOP:
        raise ValueError(
            f"stop_timeout is {stop_timeout:g}: it has to be above 0 and at most {LONGEST_STOP:g} seconds."
        )
    if not 0 <= respawn_watch <= LONGEST_WATCH:
        raise ValueError(f"respawn_watch is {respawn_watch:g}: it has to be between 0 and {LONGEST_WATCH:g} seconds.")
    namespace = params["node_pid_namespace"]
    if namespace is not None and not is_namespace(namespace):
        raise ValueError(
            f"node_pid_namespace is {shown(namespace)}: it has to be what `readlink /proc/1/ns/pid` prints on the node."
        )
    return ReleaseOptions(read_ladder(params["ladder"]), respawn_watch, check_mode)
