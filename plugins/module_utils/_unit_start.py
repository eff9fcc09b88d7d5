# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Starting a server's unit with the files that are staged for it, and saying why where nothing was started.

Both in one go, because both are downtime. systemd is asked first: where something else has started the unit meanwhile,
that server keeps the files it was started with.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _guard_report, _unit_files
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd, what_it_said

StartVerdict = t.Literal["started", "would_start", "already_active", "unprepared", "refused", "failed"]

PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload")
LEFT_INACTIVE = "InactiveExitTimestampMonotonic"  # microseconds
RELOAD_TIMEOUT = 90.0  # seconds: systemd reads all units anew, and runs the generators
STOP_TIMEOUT = 30.0  # seconds: nothing of the unit runs
_RUNS = ("active", "activating", "reloading", "refreshing")
_NOT_ENABLED = ("disabled", "linked", "linked-runtime", "bad", "")


@dataclasses.dataclass(frozen=True)
class StartRequest:
    """files: what is staged for these is swapped in first. enable: have it started at boot too. timeout: seconds for
    systemd to start it, its guard included. guard_report: where its start guard leaves its verdict."""

    unit: str
    timeout: float
    files: tuple[str, ...] = ()
    enable: bool = False
    guard_report: str = ""


@dataclasses.dataclass(frozen=True)
class StartResult:
    """verdict, with one sentence for people. swapped: the files that are live now and were not before."""

    verdict: StartVerdict
    reason: str
    state_before: str = "unknown"
    swapped: tuple[str, ...] = ()
    reloaded: bool = False
    enabled: bool = False
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.verdict not in ("started", "would_start")


def _look(systemd: Systemd, request: StartRequest) -> tuple[dict[str, str], StartResult | None]:
    """The unit's state, and the end of it where systemd does not tell."""
    answer = systemd.show([request.unit], PROPERTIES).get(request.unit, {})
    if "ActiveState" not in answer:
        reason = (
            f"systemd did not answer when it was asked about {request.unit}; nothing was changed. Does it run here?"
        )
        return answer, StartResult("unprepared", reason)
    return answer, None


def would_start(systemd: Systemd, request: StartRequest) -> StartResult:
    """What starting would do, from one look. That it still runs is no hindrance: nothing was stopped."""
    answer, end = _look(systemd, request)
    waiting = _unit_files.staged(request.files)
    reason = f"{request.unit} would be started" + (f" with {', '.join(waiting)}" if waiting else "")
    return end or StartResult("would_start", reason, answer["ActiveState"], waiting)


def start_unit(systemd: Systemd, request: StartRequest, clock: Clock, boot_id: str) -> StartResult:
    """Swap in what is staged, have systemd read it, start the unit. Never raises."""
    unit, began = request.unit, clock.monotonic()
    answer, end = _look(systemd, request)
    if end is not None:
        return end
    before = answer["ActiveState"]
    if "auto-restart" in answer.get("SubState", ""):
        # Nobody runs: systemd waits for its next attempt, and would make it with the former files. Ended, not raced.
        done = systemd.stop(unit, STOP_TIMEOUT)
        if done.exit_code != 0:
            reason = f"{unit} was not started: systemd is about to start it by itself ({what_it_said(done)})"
            return StartResult("unprepared", f"{reason}: stop.yml first", before)
    elif before in _RUNS:
        reason = (
            f"{unit} was {before} ({answer.get('SubState', 'unknown')}) before this run started it: something else"
            " starts it (another unit, a timer, a person). Find out what, then relaunch"
        )
        return StartResult("already_active", reason, before)
    try:
        swapped = _unit_files.install(request.files)
    except _unit_files.UnitFileError as error:
        return StartResult("unprepared", f"{unit} was not started: {error}", before)
    result = StartResult("unprepared", "", before, swapped)
    # Not told counts as yes: a systemd that does not know the new unit would start the old one.
    if swapped or answer.get("NeedDaemonReload") != "no":
        done = systemd.reload(RELOAD_TIMEOUT)
        if done.exit_code != 0:
            reason = f"{unit} was not started: systemd could not be made to read its files: {what_it_said(done)}"
            return dataclasses.replace(result, reason=reason)
        result = dataclasses.replace(result, reloaded=True)
    if request.enable and answer.get("UnitFileState", "") in _NOT_ENABLED:
        done = systemd.enable(unit, RELOAD_TIMEOUT)
        if done.exit_code != 0:
            reason = f"{unit} was not started: it could not be enabled for the next boot: {what_it_said(done)}"
            return dataclasses.replace(result, reason=reason)
        result = dataclasses.replace(result, enabled=True)
    # An ordered start is none of those that systemd counts to see a unit that fails again and again; without this the
    # fourth relaunch of an afternoon ends with "start request repeated too quickly", the old server stopped.
    systemd.reset_failed(unit)
    asked_at = clock.monotonic()
    done = systemd.start(unit, request.timeout)
    result = dataclasses.replace(result, seconds=round(clock.monotonic() - began, 3))
    if done.exit_code == 0:
        return dataclasses.replace(result, **_who_started(systemd, unit, asked_at))
    said = _guards_no(systemd, request, clock, boot_id, asked_at)
    return dataclasses.replace(
        result,
        verdict="refused" if said else "failed",
        reason=f"{unit} was not started: {said or what_it_said(done)}",
    )


def _who_started(systemd: Systemd, unit: str, asked_at: float) -> dict[str, t.Any]:
    """systemctl start is content with a unit that runs already. Whoever started that between the first look and the
    order may have done so with the former files. Both moments are of CLOCK_MONOTONIC."""
    shown = systemd.show([unit], (LEFT_INACTIVE,)).get(unit, {}).get(LEFT_INACTIVE, "")
    since = int(shown) / 1e6 if shown.isdigit() else 0.0
    if not since or since >= asked_at:
        return {"verdict": "started", "reason": f"{unit} was started"}
    return {
        "verdict": "already_active",
        "reason": f"{unit} was started {asked_at - since:.1f} s before this run ordered it: something else starts it"
        " (another unit, a timer, a person), and with which files is not known. Find out what, then relaunch",
    }


def _guards_no(systemd: Systemd, request: StartRequest, clock: Clock, boot_id: str, asked_at: float) -> str:
    """Why the guard did not let this very start through; empty where it did not say no. One that ended before it could
    write leaves the words of an earlier start."""
    report = _guard_report.read(request.guard_report) if request.guard_report else None
    if report is None:
        return ""
    shown = systemd.show([request.unit], ("InvocationID",)).get(request.unit, {})
    ours = _guard_report.of_this_start(
        report,
        UnitState(request.unit, "guard", entered_monotonic=asked_at),
        boot_id=boot_id,
        invocations=[shown.get("InvocationID", "")],
        now=clock.wall(),
        uptime=clock.monotonic(),
    )
    return _guard_report.refusal(report) if ours else ""
