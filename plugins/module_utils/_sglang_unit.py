# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What systemd says about the unit that runs SGLang. A property that is not there is unknown, not zero."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "MainPID",
    "ControlGroup",
    "Result",
    "NRestarts",
    "InvocationID",
    "ExecMainCode",
    "ExecMainStatus",
    "Job",
    "ExecMainStartTimestampMonotonic",
    "StateChangeTimestampMonotonic",
    "InactiveExitTimestampMonotonic",
)
_KILLED = ("2", "3")  # ExecMainCode: CLD_KILLED, CLD_DUMPED
CRASH_LOOP_RESTARTS = 2

UnitPhase = t.Literal["unknown", "absent", "stopped", "queued", "guard", "running", "stopping", "failed", "restarting"]


@dataclasses.dataclass(frozen=True)
class UnitState:
    """One unit at one moment. phase is what its states amount to for a server."""

    name: str
    phase: UnitPhase
    active_state: str | None = None
    sub_state: str | None = None
    main_pid: int | None = None
    control_group: str = ""
    result: str | None = None
    restarts: int | None = None
    invocation: str = ""
    exit_status: int | None = None
    exit_by_signal: bool = False
    main_started_monotonic: float | None = None
    changed_monotonic: float | None = None
    entered_monotonic: float | None = None  # when it was last inactive and began to start

    def crash_looping(self) -> bool:
        """It died several times in a row, or so often that systemd gave up."""
        if self.result == "start-limit-hit":
            return True
        return self.phase in ("restarting", "failed") and (self.restarts or 0) >= CRASH_LOOP_RESTARTS

    def describe(self) -> str:
        """The states in a few words, for a message."""
        text = f"the unit is {self.active_state or 'in an unknown state'}"
        if self.sub_state and self.sub_state != self.active_state:
            text += f" ({self.sub_state})"
        if self.result not in (None, "", "success"):
            text += f", result {self.result}"
        if self.exit_status:
            how = "by signal" if self.exit_by_signal else "with exit status"
            text += f", its main process ended {how} {self.exit_status}"
        if self.restarts:
            text += f", restarted {self.restarts} times"
        return text


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _moment(text: str | None) -> float | None:
    # Microseconds; 0 stands for never.
    return (_number(text) or 0) / 1e6 or None


def _phase(answer: t.Mapping[str, str]) -> UnitPhase:
    active, sub = answer.get("ActiveState", ""), answer.get("SubState", "")
    if answer.get("LoadState") == "not-found" and active in ("", "inactive"):
        return "absent"
    if sub.startswith("auto-restart"):
        return "restarting"
    if active == "activating":
        return "guard" if sub in ("start-pre", "condition") else "running"
    if active in ("active", "reloading", "refreshing"):
        # Remain-after-exit and the like: active without a process is no server.
        return "stopped" if sub == "exited" else "running"
    if active in ("deactivating", "maintenance"):
        return "stopping"
    if active == "failed":
        return "failed"
    if active == "inactive":
        return "queued" if answer.get("Job", "0") not in ("", "0") else "stopped"
    return "unknown"


def read_unit(systemd: Systemd, name: str) -> UnitState:
    """The state of one unit; phase unknown where systemd could not be asked."""
    answer = systemd.show((name,), PROPERTIES).get(name)
    if answer is None:
        return UnitState(name, "unknown")
    code = answer.get("ExecMainCode")
    return UnitState(
        name=name,
        phase=_phase(answer),
        active_state=answer.get("ActiveState") or None,
        sub_state=answer.get("SubState") or None,
        main_pid=_number(answer.get("MainPID")) or None,
        control_group=answer.get("ControlGroup", ""),
        result=answer.get("Result") or None,
        restarts=_number(answer.get("NRestarts")),
        invocation=answer.get("InvocationID", ""),
        exit_status=_number(answer.get("ExecMainStatus")) if code not in (None, "0") else None,
        exit_by_signal=code in _KILLED,
        main_started_monotonic=_moment(answer.get("ExecMainStartTimestampMonotonic")),
        changed_monotonic=_moment(answer.get("StateChangeTimestampMonotonic")),
        entered_monotonic=_moment(answer.get("InactiveExitTimestampMonotonic")),
    )
