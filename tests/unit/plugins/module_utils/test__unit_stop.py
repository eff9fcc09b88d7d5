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
        self.kill_refused = False
        self.dies_after_kill: float | None = None
        self.killed_at: float | None = None
        self.ask_timeouts: list[float] = []
        self.looks: list[float] = []

    def show(self, units: t.Sequence[str], properties: t.Sequence[str]) -> dict[str, dict[str, str]]:
        assert self.state is None or set(self.state) <= set(properties)
        self.looks.append(self.clock.now)
        if self.killed_at is not None and self.clock.now >= self.killed_at + (self.dies_after_kill or 1e9):
            self._end()
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
        self.ask_timeouts.append(timeout)
        return self._answer("stop", 4, "Access denied") if self.refuses else self._answer("stop")

    def kill(self, unit: str, signal: str, timeout: float = 0) -> CommandResult:
        self.killed_at = self.clock.now
        if self.dies_by_kill:
            self._end()
        return self._answer(f"kill {signal}", *((1, "Access denied") if self.kill_refused else ()))

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


def test_what_systemd_cut_off_did_not_drain() -> None:
    """Its unit's own TimeoutStopSec is shorter than the drain that was asked for."""
    manager = Manager(Clock(), stops_after=90, ends_as="failed")
    assert manager.state is not None
    manager.state["Result"] = "timeout"
    result = stop(manager, drain=600)
    assert (result.verdict, result.cleared_failure) == ("cut", True)
    assert "TimeoutStopSec is shorter than the drain of 600 s" in result.reason
    assert manager.calls == ["stop", "reset-failed"]


def test_what_survives_sigkill_fails_with_the_next_step() -> None:
    result = stop(Manager(Clock(), stops_after=None, dies_by_kill=False), drain=5)
    assert (result.verdict, result.changed) == ("still_running", True)
    assert "ordered" not in result.as_dict()
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
    assert (result.verdict, result.changed) == ("still_running", False)
    assert "Access denied" in result.reason
    assert manager.calls == ["stop"]


@pytest.mark.parametrize(("later", "verdict"), [(-0.1, "cut"), (0.6, "still_running")])
def test_a_killed_server_has_its_time_to_unpin_its_memory(later: float, verdict: str) -> None:
    manager = Manager(Clock(), stops_after=None, dies_by_kill=False)
    manager.dies_after_kill = _unit_stop.KILL_WAIT + later
    result = stop(manager, drain=5)
    assert result.verdict == verdict
    assert 5 + _unit_stop.KILL_WAIT + min(later, 0) <= result.stopped_after_s <= 5.5 + _unit_stop.KILL_WAIT


def test_systemd_has_time_to_take_the_job_beyond_the_drain() -> None:
    manager = Manager(Clock(), stops_after=1)
    stop(manager, drain=60)
    assert manager.ask_timeouts == [70.0]


def test_the_end_is_seen_soon_and_systemd_is_not_asked_all_the_time() -> None:
    """Each tenth of a second counts as downtime; so would a systemd that only answers us."""
    manager = Manager(Clock(), stops_after=0.1)
    assert stop(manager).stopped_after_s <= 0.13
    manager = Manager(Clock(), stops_after=None)
    stop(manager, drain=20)
    waits = [later - earlier for earlier, later in zip(manager.looks, manager.looks[1:])]
    assert max(waits) <= 0.5001
    assert 40 <= len(manager.looks) <= 60


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (False, "180 s after SIGKILL; "),
        (True, "10 s after systemd did not carry out SIGKILL (systemctl kill SIGKILL: exit code 1, Access denied)"),
    ],
)
def test_what_survived_is_told_with_its_state_and_what_systemd_said(refused: bool, words: str) -> None:
    manager = Manager(Clock(), stops_after=None, dies_by_kill=False)
    manager.kill_refused = refused
    reason = stop(manager, drain=5).reason
    assert f"is still active (running), 5 s after SIGTERM and {words}" in reason


def test_a_systemd_that_falls_silent_leaves_the_state_unknown() -> None:
    manager = Manager(Clock(), stops_after=None, dies_by_kill=False)
    real = manager.kill

    def kill(unit: str, signal: str, timeout: float = 0) -> CommandResult:
        manager.state = None
        return real(unit, signal, timeout)

    manager.kill = kill  # type: ignore[method-assign]
    result = stop(manager, drain=5)
    assert (result.verdict, "is still unknown, 5 s" in result.reason) == ("still_running", True)


@pytest.mark.parametrize("check_mode", [True, False])
def test_check_mode_looks_and_stops_nobody(check_mode: bool) -> None:
    manager = Manager(Clock(), stops_after=1)
    found = _unit_stop.stop_or_look(
        manager,  # type: ignore[arg-type]
        "sglang.service",
        60,
        manager.clock,
        check_mode=check_mode,
    )
    assert (found.verdict, manager.calls) == (("would_stop", []) if check_mode else ("drained", ["stop"]))


@pytest.mark.parametrize(
    ("state", "verdict", "changed", "failed", "after"),
    [
        ({"ActiveState": "active", "MainPID": "4711"}, "would_stop", True, False, "inactive"),
        ({"ActiveState": "inactive", "MainPID": "0"}, "already_stopped", False, False, "inactive"),
        ({"ActiveState": "failed"}, "already_stopped", False, False, "failed"),
        ({"ActiveState": "inactive", "LoadState": "not-found"}, "absent", False, False, "inactive"),
        (None, "still_running", False, True, "unknown"),
    ],
)
def test_what_a_look_returns(
    state: dict[str, str] | None, verdict: str, changed: bool, failed: bool, after: str
) -> None:
    manager = Manager(Clock(), stops_after=1)
    manager.state = state
    found = _unit_stop.would_stop(manager, "sglang.service")  # type: ignore[arg-type]
    assert (found.verdict, found.changed, found.failed) == (verdict, changed, failed)
    assert (found.stopped_after_s, found.cleared_failure) == (0.0, False)
    assert found.as_diff()["after"] == f"{after}\n"


@pytest.mark.parametrize(("said", "pid"), [("1", 1), ("2", 2), ("0", None), ("", None), ("-1", None), ("x", None)])
def test_a_main_process_is_one_that_has_a_number(said: str, pid: int | None) -> None:
    manager = Manager(Clock(), stops_after=1)
    manager.state = {"ActiveState": "active", "MainPID": said}
    assert _unit_stop.would_stop(manager, "sglang.service").main_pid == pid  # type: ignore[arg-type]


def test_a_failed_state_that_was_cleared_is_a_change() -> None:
    for ends_as, cleared in (("failed", True), ("inactive", False)):
        manager = Manager(Clock(), stops_after=1)
        manager.state = {"LoadState": "loaded", "ActiveState": ends_as, "Result": "signal"}
        result = stop(manager)
        assert (result.verdict, result.changed, result.cleared_failure) == ("already_stopped", cleared, cleared)
        assert (result.result, result.stopped_after_s) == ("signal", 0.0)


def test_how_an_earlier_run_ended_is_not_known_where_systemd_does_not_say() -> None:
    manager = Manager(Clock(), stops_after=1)
    manager.state = {"LoadState": "loaded", "ActiveState": "inactive"}
    assert stop(manager).result is None


def test_the_time_it_took_is_its_own_and_to_the_thousandth() -> None:
    clock = Clock()
    clock.now = 1000.0004
    manager = Manager(clock, stops_after=2.0)
    took = stop(manager).stopped_after_s
    assert 2.0 <= took < 2.6
    assert took == round(took, 3)
