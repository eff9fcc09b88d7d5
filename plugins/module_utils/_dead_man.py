# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""A timer on the node that starts a stopped unit again where nobody comes back to do it.

The node's own systemd keeps the time, so it survives the controller, the connection and this process. It is a
transient unit: a reboot ends it, and starts an enabled unit itself. Starting a unit that runs does nothing.
"""

from __future__ import annotations

import dataclasses
import re
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult, Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_unit, shown
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import (
    QUERY_TIMEOUT,
    Systemd,
    SystemdScope,
    what_it_said,
)

DeadManVerdict = t.Literal["armed", "disarmed", "not_armed", "would_arm", "would_disarm", "unguarded", "unsupported"]

LEAST_AFTER, MOST_AFTER = 5, 7 * 86400  # seconds
_PROPERTIES = ("LoadState", "ActiveState", "Description", "ActiveEnterTimestampMonotonic")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")
_DESCRIPTION = re.compile(r"Start (\S+) again (\d+) s after run (\S+) armed this\Z")


@dataclasses.dataclass(frozen=True)
class Timer:
    """One that is armed. What it says of itself is None where somebody else made it."""

    run_id: str | None = None
    fires_in_s: float | None = None


class _UntoldError(Exception):
    """systemd did not say whether a timer is armed."""


@dataclasses.dataclass(frozen=True)
class DeadManResult:
    """verdict, with one sentence for people. The timer's numbers are those of the one that is armed afterwards."""

    verdict: DeadManVerdict
    reason: str
    timer: str
    changed: bool = False
    failed: bool = False
    run_id: str | None = None
    fires_in_s: float | None = None
    fires_at: str | None = None


def check_names(unit: str, run_id: str | None, after: int | None) -> None:
    """ValueError: a sentence that names the option and its value."""
    check_unit("unit", unit)
    if run_id is not None and not _RUN_ID.match(run_id):
        raise ValueError(f"run_id is {shown(run_id)}; it has to be 1 to 128 letters, digits, dots, colons or dashes")
    if after is not None and not LEAST_AFTER <= after <= MOST_AFTER:
        raise ValueError(f"after is {shown(after)}; it has to be between {LEAST_AFTER} and {MOST_AFTER} seconds")


def timer_name(unit: str) -> str:
    """An instance (sglang@left) is escaped as systemd-escape does, since a timer of a template is another thing."""
    return "cleanslate-dead-man-" + unit[: -len(".service")].replace("@", "\\x40")


class DeadMan:
    """The timer of one unit. booted: whether systemd runs this machine at all."""

    def __init__(
        self,
        unit: str,
        runner: Runner,
        clock: Clock,
        *,
        scope: SystemdScope = "system",
        systemd_run: str = "systemd-run",
        booted: bool = True,
    ) -> None:
        self._unit, self._runner, self._clock, self._scope = unit, runner, clock, scope
        self._systemd = Systemd(runner, scope)
        self._systemd_run = systemd_run
        self._booted = booted
        self._name = timer_name(unit)
        self._timer = f"{self._name}.timer"

    def arm(self, run_id: str, after: int, check_mode: bool = False, guard: str | None = None) -> DeadManResult:
        """Replaces one that is armed. guard: the program that systemd must run before the unit's own, or nothing is."""
        if not self._booted:
            return self._unsupported("systemd does not run this machine")
        before = self._seen()
        if guard is not None and not self._is_guarded(guard):
            return self._unguarded(guard, before, check_mode)
        if check_mode:
            instead = f" in place of that of run {before.run_id}" if before is not None else ""
            return self._result("would_arm", f"Would start {self._unit} again after {after} s{instead}", changed=True)
        self._clear()
        # The timer's start would else be refused where systemd counts too many starts of late.
        self._systemd.reset_failed(self._unit)
        made = self._runner(self._argv(run_id, after), QUERY_TIMEOUT)
        unsupported = self._why_unsupported(made)
        if unsupported:
            return self._unsupported(unsupported)
        now = self._seen()
        if made.exit_code != 0 or now is None:
            what = "It ended well, but the timer is not there" if made.exit_code == 0 else what_it_said(made)
            return self._result(
                "not_armed",
                f"The timer that starts {self._unit} again could not be armed. {what}. Nothing would start the server "
                "if the controller were lost: look at `systemctl status` on the node before anything is stopped",
                failed=True,
                changed=before is not None,
            )
        return self._result("armed", f"{self._unit} is started again unless disarmed before", now, changed=True)

    def disarm(self, run_id: str | None = None, check_mode: bool = False) -> DeadManResult:
        """run_id: only the timer of this run."""
        if not self._booted:
            return self._unsupported("systemd does not run this machine")
        try:
            return self._disarm(run_id, check_mode)
        except _UntoldError:
            return self._untold()

    def _disarm(self, run_id: str | None, check_mode: bool) -> DeadManResult:
        before = self._look()
        if before is None:
            return self._result("not_armed", f"No timer is armed for {self._unit}")
        if run_id is not None and before.run_id != run_id:
            reason = f"The timer for {self._unit} is of run {before.run_id}, not of run {run_id}, and was left alone"
            return self._result("armed", reason, before)
        if check_mode:
            reason = f"Would disarm the timer of run {before.run_id}"
            return self._result("would_disarm", reason, before, changed=True)
        stopped = self._systemd.stop(self._timer, QUERY_TIMEOUT)
        after = self._look()
        if after is not None:
            reason = (
                f"The timer of run {before.run_id} could not be disarmed ({what_it_said(stopped)}), and will start "
                f"{self._unit}: systemctl stop '{self._timer}' on the node ends it"
            )
            return self._result("armed", reason, after, failed=True)
        return self._result("disarmed", f"The timer of run {before.run_id} for {self._unit} is disarmed", changed=True)

    def show(self) -> DeadManResult:
        if not self._booted:
            return self._unsupported("systemd does not run this machine")
        try:
            now = self._look()
        except _UntoldError:
            return self._untold()
        if now is None:
            return self._result("not_armed", f"No timer is armed for {self._unit}")
        return self._result("armed", f"A timer of run {now.run_id} starts {self._unit} again", now)

    def _is_guarded(self, guard: str) -> bool:
        """By what systemd has loaded: that is what a start would run, whatever the unit's file says by now."""
        answer = self._systemd.show((self._unit,), ("ExecStartPre",)).get(self._unit, {})
        return any(_can_refuse(command, guard) for command in answer.get("ExecStartPre", "").splitlines())

    def _unguarded(self, guard: str, before: Timer | None, check_mode: bool) -> DeadManResult:
        """A unit that somebody wrote by hand, or none at all. An earlier timer for it would start it just the same."""
        if before is not None and not check_mode:
            self._clear()
            left = self._seen()
            if left is not None:
                reason = (
                    f"The timer of run {before.run_id} could not be disarmed, and would start {self._unit}, which has "
                    f"no start guard: systemctl stop '{self._timer}' on the node ends it"
                )
                return self._result("armed", reason, left, failed=True)
        reason = (
            f"No timer is armed: as systemd knows it, {self._unit} does not run its start guard ({guard}), and nothing "
            "starts it unattended on GPUs that nobody has proved idle. If the controller is lost before the new server "
            f"is started, {self._unit} stays down until relaunch.yml or start.yml is run again"
        )
        return self._result("unguarded", reason, changed=before is not None)

    def _argv(self, run_id: str, after: int) -> tuple[str, ...]:
        return (
            self._systemd_run,
            *(() if self._scope == "system" else ("--user",)),
            "--quiet",
            "--collect",
            f"--unit={self._name}",
            f"--description=Start {self._unit} again {after} s after run {run_id} armed this",
            f"--on-active={after}",
            "--timer-property=AccuracySec=1s",
            "--",
            # Only put into the queue: the guard in front of the server may take its time.
            *self._systemd.argv("--no-block", "start", self._unit),
        )

    def _clear(self) -> None:
        """A transient unit of the same name, also one that failed, would be in the way."""
        for name in (self._timer, f"{self._name}.service"):
            self._systemd.stop(name, QUERY_TIMEOUT)
            self._systemd.reset_failed(name)

    def _seen(self) -> Timer | None:
        """For arming, which asks again once it is done, and fails where it then sees none."""
        try:
            return self._look()
        except _UntoldError:
            return None

    def _look(self) -> Timer | None:
        answer = self._systemd.show((self._timer,), _PROPERTIES).get(self._timer, {})
        if "ActiveState" not in answer:
            raise _UntoldError
        if answer.get("ActiveState") != "active":
            return None
        found = _DESCRIPTION.match(answer.get("Description", ""))
        if found is None or found.group(1) != self._unit:
            return Timer()
        since = answer.get("ActiveEnterTimestampMonotonic", "")
        left = int(since) / 1e6 + int(found.group(2)) - self._clock.monotonic() if since.isdigit() else None
        return Timer(found.group(3), None if left is None else round(max(left, 0.0), 1))

    def _why_unsupported(self, made: CommandResult) -> str:
        if made.error == "not_found":
            return f"{self._systemd_run} is not there"
        if self._scope == "user" and made.exit_code != 0 and "Failed to connect to bus" in made.stderr:
            return "no systemd of this user runs"
        return ""

    def _untold(self) -> DeadManResult:
        reason = (
            f"systemd did not say whether a timer is armed for {self._unit}, so one may still start it: see `systemctl "
            f"show '{self._timer}'` on the node; systemctl stop '{self._timer}' there ends it"
        )
        return self._result("armed", reason, failed=True)

    def _unsupported(self, why: str) -> DeadManResult:
        reason = f"No timer can start {self._unit} again, since {why}: a controller that is lost leaves it stopped"
        return self._result("unsupported", reason)

    def _result(
        self,
        verdict: DeadManVerdict,
        reason: str,
        timer: Timer | None = None,
        *,
        changed: bool = False,
        failed: bool = False,
    ) -> DeadManResult:
        left = timer.fires_in_s if timer is not None else None
        fires_at = None
        if left is not None:
            fires_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock.wall() + left))
            reason = f"{reason}, at {fires_at} (in {left:.0f} s)"
        run_id = timer.run_id if timer is not None else None
        return DeadManResult(verdict, f"{reason}.", self._timer, changed, failed, run_id, left, fires_at)


def _can_refuse(command: str, guard: str) -> bool:
    """One of a unit's commands, { path=… ; argv[]=PYTHON -I GUARD … ; ignore_errors=no ; … }: whether it runs the guard
    itself, and whether the unit stays down where that says no. A command can name the guard and do neither."""
    about, found, ignoring = command.rpartition(" ; ignore_errors=")
    argv = about.partition("argv[]=")[2].split()
    return bool(found) and ignoring.split()[:1] == ["no"] and argv[1:3] == ["-I", guard]
