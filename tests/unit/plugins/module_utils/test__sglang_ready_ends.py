# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The edges of a wait: to the second, to the count, and what is said at each of its ends."""

from __future__ import annotations

import base64
import json
import typing as t
import zlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_guess import CLEAN_EXIT
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_ready import begin, from_token, to_token
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ready_world import World
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import FakeClock


def test_a_short_settling_is_not_made_long_nor_shorter_than_a_look() -> None:
    result = World().at(0, health=200).wait(settle=0.05)
    assert result.verdict == "ready"
    assert 0.1 <= round(result.waited, 6) < 0.2


def test_a_slice_ends_with_its_time() -> None:
    """A short one too: whoever asked for it shows a progress in between."""
    for seconds in (0.5, 1.5, 3.0):
        world = World()
        assert not world.wait(slice=seconds).finished
        assert round(world.elapsed, 6) == seconds


def test_nothing_is_guessed_while_it_is_not_over() -> None:
    world = World().says(1, "Init parallel begin.")
    assert world.wait(slice=5.0).guess is None
    assert world.wait(progress_timeout=20.0).guess is not None
    assert World().at(0, health=200).wait().guess is None


@pytest.mark.parametrize(
    ("changes", "quietly"),
    [
        ({"phase": "failed", "exit_status": 0}, True),
        ({"phase": "failed", "exit_status": 1}, False),
        ({"phase": "failed", "exit_status": None}, False),
        ({"phase": "stopped", "active_state": "inactive", "exit_status": 0}, False),
    ],
)
def test_a_server_that_ended_without_an_error_is_called_that(changes: dict[str, t.Any], quietly: bool) -> None:
    result = World().unit_at(5, **changes).at(5, main=None, workers=0).wait()
    assert result.finished
    assert (result.guess == CLEAN_EXIT) is quietly


@pytest.mark.parametrize(("restarts", "verdict"), [(1, "starting"), (2, "crash_looping"), (3, "crash_looping")])
def test_from_which_restart_on_it_loops_when_the_wait_begins(restarts: int, verdict: str) -> None:
    assert World().unit_at(0, restarts=restarts).wait(slice=1.0).verdict == verdict


def test_restarts_before_the_wait_are_not_counted_again() -> None:
    result = World().unit_at(0, restarts=1).unit_at(10, restarts=2).wait()
    assert (result.verdict, result.reason) == ("failed", "systemd has restarted it 1 times since the wait began")


def test_the_total_time_ends_it_to_the_second() -> None:
    result = World().wait(timeout=50.0)
    assert (result.verdict, round(result.waited, 6)) == ("starting", 50.0)
    assert result.reason.startswith("not ready within 50 s: ")


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({"health": 200}, "starting"), ({"phase": "unknown"}, "unknown")],
    ids=["it was still settling", "systemd is silent"],
)
def test_what_it_is_called_when_the_time_is_over(changes: dict[str, t.Any], verdict: str) -> None:
    """Not ready: what has not settled may die yet."""
    world = World()
    (world.at if "health" in changes else world.unit_at)(30, **changes)
    result = world.wait(timeout=40.0, settle=60.0, slice=4.0)
    while not result.finished:
        result = world.wait(result.state, timeout=40.0, settle=60.0, slice=4.0)
    assert (result.verdict, round(result.waited, 6)) == (verdict, 40.0)


def test_one_look_without_a_worker_does_not_end_it_and_a_second_does() -> None:
    result = World().at(10, workers=1).wait()
    assert (result.verdict, result.reason, round(result.waited, 6)) == ("failed", "1 of 2 workers are left", 11.0)
    again = World().at(10, workers=1).at(11, workers=2).at(20, health=200).wait()
    assert again.verdict == "ready"


def test_doubts_of_two_kinds_do_not_add_up() -> None:
    world = World().at(10, workers=1).at(11, workers=2).unit_at(11, phase="stopping", active_state="deactivating")
    world.unit_at(12).at(20, health=200)
    assert world.wait().verdict == "ready"


def test_a_refused_key_ends_a_wait_without_a_unit_at_once() -> None:
    world = World().at(0, unit=None, health=200, models_status=401)
    world.now_is["unit"] = None
    result = world.wait()
    assert (result.verdict, result.waited) == ("unauthorized", 0.0)


def test_a_server_without_a_unit_may_come_later() -> None:
    world = World().at(0, unit=None, main=None, workers=0).at(30, health=200, workers=2)
    assert world.wait().verdict == "ready"


def test_a_dying_server_is_listened_to_for_a_moment() -> None:
    """The rest of its traceback says why."""
    world = World().says(10, "Scheduler hit an exception: Traceback").says(14, "OSError: No space left on device")
    result = world.wait()
    assert (result.verdict, round(result.waited, 6)) == ("failed", 15.0)
    assert "No space left" in result.message()
    gone = World().says(10, "Scheduler hit an exception: Traceback").unit_at(11, phase="failed")
    assert gone.wait().waited <= 12, "one that is gone is not waited for"


@pytest.mark.parametrize(("ticks", "moves"), [(9, False), (10, True), (11, True)])
def test_a_tenth_of_a_core_is_a_sign_of_life(ticks: int, moves: bool) -> None:
    world = World()
    world.cpu = lambda now: int(now) * ticks
    assert (world.wait(progress_timeout=30.0, timeout=100.0).verdict == "starting") is moves


def test_what_a_person_reads_is_short() -> None:
    world = World()
    for second in range(20):
        world.says(second, f"line {second} " + "x" * 300)
    result = world.wait(timeout=30.0)
    text = result.message()
    assert text.startswith("sglang.service on 127.0.0.1:30000: not ready within 30 s: ")
    assert "(stage launch, after 30 s)." in text
    lines = text.split("Last lines of the log:\n")[1].splitlines()
    assert [len(line) for line in lines] == [200] * 8
    assert lines[-1].startswith("[")
    assert "line 19" in lines[-1]
    assert len(result.message(3).split("Last lines of the log:\n")[1].splitlines()) == 3


def test_how_far_it_came_is_told_where_nothing_runs_any_more() -> None:
    world = World().says(5, "Load weight begin. avail mem=94.00 GB")
    result = world.unit_at(10, phase="stopped", active_state="inactive").at(10, main=None, workers=0).wait()
    assert result.verdict == "stopped"
    assert "(stage load_weights, after " in result.message()


def packed(data: object) -> str:
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(data).encode())).decode()


def unpacked(token: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(zlib.decompress(base64.urlsafe_b64decode(token))))


def test_a_token_is_good_from_its_first_moment() -> None:
    clock = FakeClock()
    assert from_token(to_token(begin(clock), "x"), "x", clock) == begin(clock)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_token_of_another_version_is_not_guessed_at(version: object) -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match="leave it out to begin a new wait"):
        from_token(packed({**unpacked(to_token(begin(clock), "x")), "version": version}), "x", clock)


@pytest.mark.parametrize("spoil", ["list", "number", "state", "log", "stages", "started", "deep", "cut"])
def test_whatever_is_wrong_with_a_token_is_one_sentence(spoil: str) -> None:
    clock = FakeClock()
    data = unpacked(to_token(begin(clock), "x"))
    log = data["state"]["log"]
    token = {
        "list": lambda: packed([1]),
        "number": lambda: packed(7),
        "state": lambda: packed({**data, "state": 7}),
        "log": lambda: packed({**data, "state": {**data["state"], "log": None}}),
        "stages": lambda: packed({**data, "state": {**data["state"], "log": {**log, "stages": 7}}}),
        "started": lambda: packed({**data, "state": {**data["state"], "started": "soon"}}),
        "deep": lambda: base64.urlsafe_b64encode(zlib.compress(b"[" * 200_000)).decode(),
        "cut": lambda: packed(data)[:40],
    }[spoil]()
    with pytest.raises(ValueError, match="resume is not what was returned for x; leave it out to begin a new wait"):
        from_token(token, "x", clock)
