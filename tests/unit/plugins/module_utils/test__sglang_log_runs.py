# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose line it is, earlier run or this one; how long a stage took; and how much of a log is kept."""

from __future__ import annotations

import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import (
    LINE_LENGTH,
    LogState,
    Steps,
    advance,
    enter_guard,
    leave_guard,
    parse_bar,
    split_lines,
    time_stamp,
)

BASE = 1_700_000_000


def at(second: float, text: str, rank: str = "") -> str:
    return time.strftime("[%Y-%m-%d %H:%M:%S", time.localtime(BASE + second)) + f"{rank}] {text}"


def after(
    *lines: str,
    state: LogState | None = None,
    now: float = 5.0,
    since: float | None = None,
    until: float | None = None,
    rest: str = "",
) -> LogState:
    return advance(state or LogState(), lines, now, redact=lambda text: text, since=since, until=until, rest=rest)


EARLIER = LogState(accepting=False)


@pytest.mark.parametrize(("second", "mine"), [(-1, False), (0, True), (1, True), (60, True), (61, False)])
def test_whose_a_line_is_by_its_time(second: int, mine: bool) -> None:
    """In the very second in which the process began it is its own; a clock may be a minute ahead, and no more."""
    state = after(at(second, "server_args={}"), state=EARLIER, since=BASE + 0.7, until=float(BASE))
    assert (state.accepting, state.begun) == (mine, mine)
    assert bool(state.doubtful) is not mine


def test_without_the_time_of_day_a_line_of_later_is_this_runs() -> None:
    assert after(at(5000, "x"), state=EARLIER, since=float(BASE)).accepting


def test_without_the_beginning_of_the_run_no_line_is_of_it() -> None:
    assert not after(at(5, "x"), state=EARLIER, until=float(BASE + 10)).accepting
    assert not after("no stamp", state=EARLIER, since=float(BASE), until=float(BASE)).accepting


def test_what_stood_between_the_last_old_line_and_the_first_new_one_is_kept() -> None:
    lines = [at(-9, "old a"), "old b", at(-8, "old c"), "warning d", "warning e", at(1, "new f")]
    state = after(*lines, state=EARLIER, since=float(BASE))
    assert [line.rpartition("] ")[2] for line in state.tail] == ["warning d", "warning e", "new f"]
    assert state.doubtful == ()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_where_no_old_line_has_a_stamp_all_of_them_may_be_new(count: int) -> None:
    lines = [f"warning {number}" for number in range(count)]
    state = after(*lines, at(1, "new"), state=EARLIER, since=float(BASE))
    assert len(state.tail) == count + 1


def test_an_old_line_right_before_the_new_one_leaves_nothing_between() -> None:
    state = after("older", at(-1, "old"), at(1, "new"), state=EARLIER, since=float(BASE))
    assert [line.rpartition("] ")[2] for line in state.tail] == ["new"]


def test_where_no_line_is_of_this_run_the_end_of_the_last_one_is_shown() -> None:
    lines = [at(-90, "a"), at(-80, "server_args=1"), at(-70, "b"), at(-60, "server_args=2"), at(-50, "c")]
    shown = after(*lines, state=EARLIER, since=float(BASE)).last_lines()
    assert [line.rpartition("] ")[2] for line in shown] == ["server_args=2", "c"]
    shown = after(*lines[2:3], *lines[4:], state=EARLIER, since=float(BASE)).last_lines()
    assert [line.rpartition("] ")[2] for line in shown] == ["b", "c"]
    assert EARLIER.last_lines() == ()


def test_the_first_stage_began_with_the_process() -> None:
    """Not with its first line, which may come half a minute later; and only the first stage did."""
    state = after(at(20, "server_args={}"), at(30, "Init parallel begin."), since=float(BASE), now=1000.0)
    assert state.stages == (("launch", 30.0),)
    state = after(at(40, "Load weight begin."), state=state, since=float(BASE + 39), now=2000.0)
    assert state.stages[1] == ("init_distributed", 10.0)


def test_two_lines_of_the_same_second_are_no_time_apart() -> None:
    """Although they were read long after each other."""
    state = after(at(5, "Init parallel begin."), now=10.0)
    assert after(at(5, "Load weight begin."), state=state, now=99.0).stages[-1] == ("init_distributed", 0.0)


def test_without_stamps_the_readings_count() -> None:
    state = after("Init parallel begin.", state=LogState(since=100.0), now=110.0)
    assert state.stages == (("launch", 10.0),)
    state = after("Load weight begin.", state=state, now=110.25)
    assert state.stages[-1] == ("init_distributed", 0.25)


@pytest.mark.parametrize("stamped", [True, False])
def test_a_clock_that_was_put_back_gives_no_negative_seconds(stamped: bool) -> None:
    state = after(at(50, "Init parallel begin.") if stamped else "Init parallel begin.", now=10.0)
    line = at(40, "Load weight begin.") if stamped else "Load weight begin."
    assert after(line, state=state, now=9.0).stages[-1] == ("init_distributed", 0.0)
    assert after(line, state=state, now=10.0).stages[-1] == ("init_distributed", 0.0)
    assert after(line, state=state, now=12.345).stages[-1] == ("init_distributed", 2.35)


def test_the_stage_that_goes_on_is_counted_up_to_now() -> None:
    state = LogState(stage="load_weights", since=100.0, stages=(("launch", 10.25), ("load_weights", 4.0)))
    assert state.stage_seconds(now=103.5) == {"launch": 10.2, "load_weights": 7.5}
    assert state.stage_seconds(now=90.0) == {"launch": 10.2, "load_weights": 4.0}
    assert LogState(since=100.0).stage_seconds(now=100.0) == {"launch": 0.0}


def test_a_fresh_state_has_said_nothing() -> None:
    state = LogState()
    assert (state.since, state.unanswered, state.shutting_down, state.lines) == (0.0, False, False, 0)


@pytest.mark.parametrize(
    ("line", "unanswered", "shutting_down", "lines"),
    [
        ("Health check failed. Server couldn't get a response", True, False, 0),
        ("Health check request received during shutdown", False, True, 0),
        ("Decode batch.", False, False, 1),
        ('INFO:     127.0.0.1:41732 - "GET /health HTTP/1.1" 503', False, False, 0),
        ("Receive: obj=GenerateReqInput(text='Scheduler hit an exception')", False, False, 0),
    ],
)
def test_what_counts_as_a_sign_that_it_moves(line: str, unanswered: bool, shutting_down: bool, lines: int) -> None:
    state = after(at(1, line))
    assert (state.unanswered, state.shutting_down, state.lines) == (unanswered, shutting_down, lines)
    assert after(at(1, line), at(2, line)).lines == 2 * lines


def test_the_first_reason_stays_the_reason() -> None:
    """What comes after it is what the others say of its end."""
    state = after(
        at(1, "Scheduler hit an exception: out of room"), at(2, "more"), at(3, "Received sigquit from a child process")
    )
    assert "out of room" in state.fatal
    assert "more" not in state.fatal


def test_only_the_end_of_a_log_is_kept() -> None:
    state = after(*(at(second, f"line {second} Error") for second in range(50)))
    assert (len(state.tail), len(state.failures)) == (20, 10)
    assert state.tail[0].endswith("line 30 Error")
    assert state.failures[0].endswith("line 40 Error")
    assert len(after(*(f"line {number}" for number in range(50)), state=EARLIER, since=float(BASE)).doubtful) == 20


@pytest.mark.parametrize(("length", "kept"), [(399, 399), (400, 400), (401, 400), (90_000, 400)])
def test_a_long_line_is_cut(length: int, kept: int) -> None:
    assert len(after("x" * length).tail[-1]) == kept
    assert kept <= LINE_LENGTH


@pytest.mark.parametrize(("before", "fatal"), [(0, True), (16_384 - 23, True), (16_384 - 22, False)])
def test_how_much_of_a_line_is_looked_at(before: int, fatal: bool) -> None:
    """A server prints its whole configuration in one line; a megabyte of it must not cost the wait its time."""
    words = "Initialization failed. "
    assert len(words) == 23
    assert bool(after("x" * before + words).fatal) is fatal


@pytest.mark.parametrize(
    ("line", "what"),
    [("x" * 59, "x" * 59), ("x" * 60, "x" * 60), ("x" * 61, "x" * 60), ("shards (bs=1)", "shards")],
)
def test_the_name_of_a_bar_is_cut(line: str, what: str) -> None:
    assert parse_bar(f"{line}: 50% Completed | 1/2 [x]") == Steps(what, 1, 2)


@pytest.mark.parametrize(("total", "steps"), [(0, None), (1, Steps("x", 0, 1)), (2, Steps("x", 0, 2))])
def test_a_bar_of_nothing_is_none(total: int, steps: Steps | None) -> None:
    assert parse_bar(f"x:  0% Completed | 0/{total} [x]") == steps


def test_an_unfinished_bar_counts_only_where_the_lines_are_this_runs() -> None:
    progress = "shards: 50% Completed | 1/2 ["
    assert after(rest=progress).steps == Steps("shards", 1, 2)
    assert after(rest=progress, state=EARLIER).steps is None
    assert after(rest="").steps is None


def test_where_a_line_begins_with_its_stamp_it_is_not_taken_apart() -> None:
    line = at(5, "x: 50% Completed | 1/2 ")
    assert split_lines(f"{line}\n") == ([line], "")
    assert split_lines(f" {line}\n") == ([f" {line}"], "")


@pytest.mark.parametrize("stamp", ["[0000-01-01 00:00:00] x", "[9999-99-99 99:99:99] x", "[2026-02-30 10:00:00] x"])
def test_a_stamp_that_is_no_moment(stamp: str) -> None:
    assert time_stamp(stamp) is None


def test_a_moment_that_the_clock_cannot_count_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def beyond(moment: object) -> float:
        raise OverflowError("mktime argument out of range")

    monkeypatch.setattr(time, "mktime", beyond)
    assert time_stamp("[2026-11-29 15:02:11] x") is None


def test_the_guard_is_over_once_the_server_has_said_something() -> None:
    spoken = after(at(1, "hello"))
    assert enter_guard(spoken, 9.0) is spoken
    loading = LogState(stage="load_weights")
    assert enter_guard(loading, 9.0) is loading
    waiting = enter_guard(LogState(), 9.0)
    assert (waiting.stage, waiting.since) == ("guard", 9.0)
    assert leave_guard(loading, 9.0) is loading
