# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_stop
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Manager:
    """A systemd whose unit stops after a while, survives TERM, survives everything, or does not answer."""

    def __init__(
        self, clock: Clock, *, stops_after: float | None, dies_by_kill: bool = True, ends_as: str = "inactive"
    ) -> None:
        self.clock, self.stops_after, self.dies_by_kill, self.ends_as = clock, stops_after, dies_by_kill, ends_as
        self.state: dict[str, str] | None = {
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "MainPID": "4711",
            "Result": "success",
        }
        self.asked_at: float | None = None
        self.calls: list[str] = []
        self.refuses = False

    def show(self, units: t.Sequence[str], properties: t.Sequence[str]) -> dict[str, dict[str, str]]:
        assert self.state is None or set(self.state) <= set(properties)
        if (
            self.asked_at is not None
            and self.stops_after is not None
            and self.clock.now >= self.asked_at + self.stops_after
        ):
            self._end()
        return {} if self.state is None else {units[0]: dict(self.state)}

    def _end(self) -> None:
        assert self.state is not None
        self.state.update(ActiveState=self.ends_as, SubState="dead", MainPID="0")

    def _answer(self, call: str, code: int = 0, text: str = "") -> CommandResult:
        self.calls.append(call)
        return CommandResult(("systemctl", call), code, "", text, 0.0)

    def stop(self, unit: str, timeout: float, block: bool = True) -> CommandResult:
        assert not block
        self.asked_at = self.clock.now
        return self._answer("stop", 4, "Access denied") if self.refuses else self._answer("stop")

    def kill(self, unit: str, signal: str, timeout: float = 0) -> CommandResult:
        if self.dies_by_kill:
            self._end()
        return self._answer(f"kill {signal}")

    def reset_failed(self, unit: str, timeout: float = 0) -> CommandResult:
        return self._answer("reset-failed")


def stop(manager: Manager, drain: float = 60) -> _unit_stop.StopResult:
    return _unit_stop.stop_unit(manager, "sglang.service", drain, manager.clock)  # type: ignore[arg-type]


def test_a_server_that_ends_in_time_drained_and_is_not_killed() -> None:
    manager = Manager(Clock(), stops_after=6.7)
    result = stop(manager)
    assert (result.verdict, result.main_pid) == ("drained", 4711)
    assert manager.calls == ["stop"]
    assert 6.7 <= result.stopped_after_s < 7.5


def test_a_server_that_does_not_end_is_cut_when_the_drain_is_over() -> None:
    manager = Manager(Clock(), stops_after=None)
    result = stop(manager, drain=60)
    assert result.verdict == "cut"
    assert manager.calls == ["stop", "kill SIGKILL"]
    assert 60 <= result.stopped_after_s < 62
    assert "60 s after SIGTERM" in result.reason


def test_a_failed_state_is_cleared_after_an_ordinary_stop() -> None:
    """SGLang 0.5.12 and 0.5.15 end by signal 9 on every stop."""
    manager = Manager(Clock(), stops_after=1, ends_as="failed")
    result = stop(manager)
    assert (result.verdict, result.cleared_failure) == ("drained", True)
    assert manager.calls == ["stop", "reset-failed"]


def test_what_survives_sigkill_fails_with_the_next_step() -> None:
    result = stop(Manager(Clock(), stops_after=None, dies_by_kill=False), drain=5)
    assert result.verdict == "still_running"
    assert "gpu_holders_info" in result.reason
    assert "4711" in result.reason


@pytest.mark.parametrize(
    ("state", "verdict", "calls"),
    [
        ({"LoadState": "not-found", "ActiveState": "inactive"}, "absent", []),
        ({"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead"}, "already_stopped", []),
        ({"LoadState": "loaded", "ActiveState": "failed", "SubState": "failed"}, "already_stopped", ["reset-failed"]),
        # Not running, but it would come back between the stop and the gate.
        ({"LoadState": "loaded", "ActiveState": "activating", "SubState": "auto-restart"}, "drained", ["stop"]),
    ],
)
def test_units_that_do_not_run(state: dict[str, str], verdict: str, calls: list[str]) -> None:
    manager = Manager(Clock(), stops_after=0)
    manager.state = dict(state)
    assert stop(manager).verdict == verdict
    assert manager.calls == calls


def test_a_silent_systemd_is_never_taken_for_a_stopped_unit() -> None:
    manager = Manager(Clock(), stops_after=0)
    manager.state = None
    result = stop(manager)
    assert result.verdict == "still_running"
    assert manager.calls == []


def test_a_refusal_is_passed_on_in_systemds_words() -> None:
    manager = Manager(Clock(), stops_after=None)
    manager.refuses = True
    result = stop(manager)
    assert result.verdict == "still_running"
    assert "Access denied" in result.reason
    assert manager.calls == ["stop"]
