# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Stopping a server's unit with a drain of our own.

SGLang drains running requests without any limit after SIGTERM (tokenizer_manager.py, 0.5.12 to 0.5.23), so the limit
has to come from outside: the unit is asked to stop, and what is left of it when the drain is over is killed as a
whole.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd, is_ended, what_it_said

StopVerdict = t.Literal["absent", "already_stopped", "drained", "cut", "would_stop", "still_running"]

PROPERTIES = ("LoadState", "ActiveState", "SubState", "MainPID", "Result")
ASK_TIMEOUT = 10.0  # for systemd to take the job
KILL_WAIT = 180.0  # from SIGKILL to a stopped unit: eight schedulers that unpin host memory take over 30 s
REFUSED_WAIT = 10.0  # the same where systemd did not take the order: it may have ended all the same
POLL_FIRST, POLL_MOST = 0.05, 0.5


@dataclasses.dataclass(frozen=True)
class StopResult:
    """verdict, with one sentence for people. result is systemd's own word for how the unit ended, None if unknown.
    ordered: systemd took the order to stop it, whatever came of that."""

    verdict: StopVerdict
    reason: str
    main_pid: int | None
    state_before: str
    result: str | None
    stopped_after_s: float
    cleared_failure: bool = False
    ordered: bool = False

    @property
    def changed(self) -> bool:
        return self.verdict in ("drained", "cut", "would_stop") or self.cleared_failure or self.ordered

    @property
    def failed(self) -> bool:
        return self.verdict == "still_running"

    def as_dict(self) -> dict[str, t.Any]:
        """The public shape; ordered is in `changed`."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "ordered"}

    def as_diff(self) -> dict[str, str]:
        after = "inactive" if self.changed else self.state_before
        return {"before": f"{self.state_before}\n", "after": f"{after}\n"}


def _main_pid(answer: t.Mapping[str, str]) -> int | None:
    text = answer.get("MainPID", "")
    return int(text) if text.isdigit() and int(text) > 0 else None


def look(systemd: Systemd, unit: str) -> dict[str, str] | None:
    """The unit's state now; None where systemd did not answer."""
    return systemd.show([unit], PROPERTIES).get(unit)


def is_stopped(answer: t.Mapping[str, str]) -> bool:
    """A unit that waits for its next automatic start is not stopped."""
    return is_ended(answer) and "auto-restart" not in answer.get("SubState", "")


def _wait_stopped(systemd: Systemd, unit: str, deadline: float, clock: Clock) -> dict[str, str] | None:
    """The unit's last state, once it is stopped or the deadline (monotonic seconds) is over."""
    pause = POLL_FIRST
    while True:
        answer = look(systemd, unit)
        left = deadline - clock.monotonic()
        if (answer is not None and is_stopped(answer)) or left <= 0:
            return answer
        clock.sleep(min(pause, left))
        pause = min(POLL_MOST, pause * 1.5)


def would_stop(systemd: Systemd, unit: str) -> StopResult:
    """What stopping would meet, from one look. still_running: systemd did not answer."""
    answer = look(systemd, unit)
    if answer is None:
        reason = f"systemd did not answer when it was asked about {unit}; nothing was stopped. Is systemd running here?"
        return StopResult("still_running", reason, None, "unknown", None, 0.0)
    state, main_pid, result = answer.get("ActiveState", "unknown"), _main_pid(answer), answer.get("Result")
    if not is_stopped(answer):
        return StopResult("would_stop", f"{unit} is {state} (pid {main_pid})", main_pid, state, result, 0.0)
    if answer.get("LoadState") == "not-found":
        return StopResult("absent", f"there is no unit {unit}; nothing to stop", None, state, result, 0.0)
    return StopResult("already_stopped", f"{unit} was not running ({state})", main_pid, state, result, 0.0)


def stop_or_look(systemd: Systemd, unit: str, drain: float, clock: Clock, *, check_mode: bool) -> StopResult:
    return would_stop(systemd, unit) if check_mode else stop_unit(systemd, unit, drain, clock)


def stop_unit(systemd: Systemd, unit: str, drain: float, clock: Clock) -> StopResult:
    """Stop a unit within drain seconds, by force after that, and clear its failed state. Never raises."""
    started = clock.monotonic()

    def passed() -> float:
        return round(clock.monotonic() - started, 3)

    first = would_stop(systemd, unit)
    if first.verdict in ("absent", "still_running"):
        return first
    state, main_pid = first.state_before, first.main_pid

    def ended(verdict: StopVerdict, reason: str, answer: t.Mapping[str, str]) -> StopResult:
        # Otherwise a start would count against the start limit, and the unit stands there as failed though it is
        # meant to be off.
        cleared = answer.get("ActiveState") == "failed" and systemd.reset_failed(unit).exit_code == 0
        return StopResult(verdict, reason, main_pid, state, answer.get("Result"), passed(), cleared)

    if first.verdict == "already_stopped":
        return ended(
            first.verdict, first.reason, {"ActiveState": state, **({"Result": first.result} if first.result else {})}
        )

    asked = systemd.stop(unit, ASK_TIMEOUT + drain, block=False)
    if asked.exit_code != 0 and not asked.timed_out:
        reason = f"systemd refused to stop {unit}: {what_it_said(asked)}; it may still be running as pid {main_pid}"
        return StopResult("still_running", reason, main_pid, state, None, passed())
    after = _wait_stopped(systemd, unit, started + drain, clock)
    if after is not None and is_stopped(after):
        if after.get("Result") == "timeout":
            reason = f"{unit} (pid {main_pid}) was cut off by systemd {passed():.1f} s after SIGTERM: its unit's own"
            return ended("cut", f"{reason} TimeoutStopSec is shorter than the drain of {drain:.0f} s", after)
        return ended("drained", f"{unit} (pid {main_pid}) stopped by itself {passed():.1f} s after SIGTERM", after)

    killed = systemd.kill(unit, "SIGKILL")
    wait = KILL_WAIT if killed.exit_code == 0 else REFUSED_WAIT
    after = _wait_stopped(systemd, unit, clock.monotonic() + wait, clock)
    if after is not None and is_stopped(after):
        reason = f"{unit} (pid {main_pid}) had not ended {drain:.0f} s after SIGTERM and was cut off with SIGKILL"
        return ended("cut", reason, after)
    now = "unknown" if after is None else f"{after.get('ActiveState')} ({after.get('SubState')})"
    still = f"{unit} (pid {main_pid}) is still {now}, {drain:.0f} s after SIGTERM and {wait:.0f} s after"
    if killed.exit_code == 0:
        reason = (
            f"{still} SIGKILL; a process that survives SIGKILL that long gives back a TiB of pinned memory, or is stuck"
            " in the kernel: look at its state and wchan with gpu_holders_info"
        )
    else:
        reason = f"{still} systemd did not carry out SIGKILL ({what_it_said(killed)}): see whether systemd answers"
    return StopResult("still_running", reason, main_pid, state, None, passed(), ordered=True)
