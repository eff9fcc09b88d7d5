# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The stop of the server before the release, where one execution does both, and what all of it returns."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_release import Released, refusal
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import describe
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import (
    ReleaseResult,
    look_until_complete,
    unreadable_message,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import SUFFIXES, check_seconds, check_unit
from ansible_collections.cleanslate.gpu.plugins.module_utils._unit_stop import StopResult, stop_or_look

STOP_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "stop_unit": {"type": "str"},
    "drain": {"type": "float", "default": 60.0},
}


def check_stop_arguments(params: t.Mapping[str, t.Any]) -> None:
    """ValueError with a sentence where the options cannot be meant."""
    check_seconds("drain", params["drain"], zero=True)
    if params["stop_unit"] is None:
        return
    check_unit("stop_unit", params["stop_unit"], SUFFIXES)
    if params["scope"] == "lxc":
        raise ValueError(
            f"stop_unit is {params['stop_unit']}, and scope is lxc: the systemd of this machine knows no unit of a"
            " container. Stop it there first, with sglang_unit_stop."
        )


def unseen(world: GpuWorld, params: t.Mapping[str, t.Any]) -> Released | None:
    """Where it cannot be seen who holds the GPUs, no server is stopped: what must follow could not be done."""
    if params["stop_unit"] is None or refusal(world.request, params["node_pid_namespace"]) is not None:
        return None
    scan = look_until_complete(lambda: world.scan(()), world.clock)
    if scan.complete:
        return None
    message = f"{unreadable_message(scan, nothing_done=True)} {params['stop_unit']} was not stopped."
    return Released(ReleaseResult("incomplete", message, holders=scan.holders, left=scan.holders), None, "not_asked")


def stop_first(world: GpuWorld, params: t.Mapping[str, t.Any], *, check_mode: bool) -> StopResult | None:
    """Stop the unit that was named; None where there is none, or where nobody may be signalled here at all."""
    if params["stop_unit"] is None or refusal(world.request, params["node_pid_namespace"]) is not None:
        return None
    return stop_or_look(world.systemd, params["stop_unit"], params["drain"], world.clock, check_mode=check_mode)


def not_released(stopped: StopResult) -> Released:
    """A server that was told to end and has not would only be signalled past its manager."""
    return Released(ReleaseResult("survivors", f"{stopped.reason}. Nobody was signalled."), None, "not_asked")


def as_result(released: Released, stopped: StopResult | None) -> dict[str, t.Any]:
    """The public shape (RETURN)."""
    result = released.result
    check_mode = result.verdict == "would_release"
    after = [holder for holder in result.left if not (check_mode and holder.disposition == "target")]
    holders = {
        "before_header": "GPU holders",
        "after_header": "GPU holders",
        "before": "".join(f"{describe(holder)}\n" for holder in result.holders),
        "after": "".join(f"{describe(holder)}\n" for holder in after),
    }
    message = released.message
    if stopped is not None and stopped.changed and released.failed:
        message = f"{stopped.reason}. After that: {message}"
    return {
        "changed": result.changed or check_mode or (stopped is not None and stopped.changed),
        "msg": message,
        "verdict": result.verdict,
        "holders": [holder.as_dict() for holder in result.holders],
        "signalled": [signalled.as_dict() for signalled in result.signalled],
        "would_signal": [{"pid": pid, "signal": name} for pid, name in result.would_signal],
        "stop": None if stopped is None else stopped.as_dict(),
        "stopped": list(result.stopped),
        "would_stop": list(result.would_stop),
        "survivors": [holder.as_dict() for holder in result.survivors],
        "respawned_by": result.respawned_by,
        "stale_nodes": [node.as_dict() for node in result.stale_nodes],
        "port_owners": [owner.as_dict() for owner in result.port_owners],
        "smi_state": released.smi_state,
        "gate": None if released.gate is None else released.gate.as_dict(),
        "elapsed_s": result.elapsed_s,
        "diff": holders if stopped is None else [stopped.as_diff(), holders],
    }
