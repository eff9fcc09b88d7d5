# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The stop of the server before the release, where one execution does both, and what all of it returns."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_release import Released, refusal, release_gpus
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import describe
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder import ReleaseOptions
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


def stop_and_release(
    world: GpuWorld,
    params: t.Mapping[str, t.Any],
    options: ReleaseOptions,
    gate: GateOptions | None,
    *,
    check_mode: bool,
) -> tuple[Released, StopResult | None]:
    """The unit that was named first, then the ladder, then the gate. None for the stop where there was none to do, or
    nobody may be signalled here at all."""
    unit, namespace = params["stop_unit"], params["node_pid_namespace"]
    stopped, stopped_at = None, None
    if unit is not None and refusal(world.request, namespace) is None:
        unseen = _unseen(world, unit)
        if unseen is not None:
            return unseen, None
        stopped = stop_or_look(world.systemd, unit, params["drain"], world.clock, check_mode=check_mode)
        if stopped.failed:
            # A server that was told to end and has not would only be signalled past its manager.
            result = ReleaseResult("survivors", f"{stopped.reason}. Nobody else was signalled.")
            return Released(result, None, "not_asked"), stopped
        stopped_at = world.clock.monotonic() if stopped.changed else None
    released = release_gpus(
        world,
        options,
        stop_timeout=params["stop_timeout"],
        gate=gate,
        node_pid_namespace=namespace,
        stopped_at=stopped_at,
    )
    return released, stopped


def _unseen(world: GpuWorld, unit: str) -> Released | None:
    """Where it cannot be seen who holds the GPUs, no server is stopped: what must follow could not be done."""
    scan = look_until_complete(lambda: world.scan(()), world.clock)
    if scan.complete:
        return None
    message = f"{unreadable_message(scan, nothing_done=True)} {unit} was not stopped."
    return Released(ReleaseResult("incomplete", message, holders=scan.holders, left=scan.holders), None, "not_asked")


def options_refused(error: ValueError) -> Released:
    """Options that cannot be meant: nobody was looked at."""
    return Released(ReleaseResult("refused", str(error)), None, "not_asked")


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
