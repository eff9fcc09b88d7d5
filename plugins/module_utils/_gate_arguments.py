# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The options of every module that has the gate in it."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import expectation_from

GATE_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "settled_mib": {"type": "int", "default": 0},
    "samples": {"type": "int", "default": 2},
    "interval": {"type": "float", "default": 0.1},
    "timeout": {"type": "float", "default": 300.0},
}


def gate_options(params: t.Mapping[str, t.Any], check_mode: bool) -> GateOptions:
    """ValueError with a sentence where the options cannot be meant."""
    return GateOptions(
        expectation=expectation_from(params),
        max_used_mib=params["max_used_mib"],
        settled_mib=params["settled_mib"],
        samples=params["samples"],
        interval=params["interval"],
        timeout=params["timeout"],
        check_mode=check_mode,
    )
