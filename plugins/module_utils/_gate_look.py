# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The gate from a module's options: alone, and as a part of a look at drift."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateResult, wait_idle
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_arguments import GATE_ARGUMENTS, gate_options
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_seconds
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_arguments import SCAN_ARGUMENTS, scan_request
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import (
    EXPECTATION_ARGUMENTS,
    SMI_ARGUMENTS,
    check_smi_arguments,
)

GATE_LOOK_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    **SMI_ARGUMENTS,
    **EXPECTATION_ARGUMENTS,
    **SCAN_ARGUMENTS,
    **GATE_ARGUMENTS,
    "scope": {**SCAN_ARGUMENTS["scope"], "default": "own"},
    "holders": {"type": "bool", "default": True},
    "killed_ago": {"type": "float"},
}


def gate_from(params: t.Mapping[str, t.Any], clock: Clock, *, check_mode: bool) -> t.Callable[[], GateResult]:
    """What waits at the gate, or in check mode looks once. ValueError with a sentence where the options cannot be
    meant, before anything is looked at."""
    check_smi_arguments(params)
    options, killed_ago = gate_options(params, check_mode), params["killed_ago"]
    if killed_ago is not None:
        options = dataclasses.replace(
            options, killed_at=clock.monotonic() - check_seconds("killed_ago", killed_ago, zero=True)
        )
    request = scan_request(params)
    if request.port is not None and not params["holders"]:
        raise ValueError(f"port is {request.port.number}, but holders is false, so nobody would look who listens.")

    def wait() -> GateResult:
        world = GpuWorld(request, clock, nvidia_smi=params["nvidia_smi"], smi_timeout=params["smi_timeout"])
        return wait_idle(world.look, world.scan if params["holders"] else None, options, clock)

    return wait
