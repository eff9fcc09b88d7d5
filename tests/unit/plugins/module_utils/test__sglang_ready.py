# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The waiting: its ends, its settling, its slices."""

from __future__ import annotations

import base64
import dataclasses
import json
import typing as t
import zlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Listener
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import (
    Process,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_ready import (
    FATAL_GRACE,
    WaitState,
    begin,
    from_token,
    to_token,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ready_world import (
    TARGET,
    World,
    loading,
    stamped,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import KEY, FakeClock


def test_a_start_that_works() -> None:
    world = loading(World())
    result = world.wait()
    assert (result.verdict, result.finished, result.guess) == ("ready", True, None)
    assert 100 <= result.waited <= 102
    assert dict(result.stages) == {
        "launch": 30.0,
        "init_distributed": 5.0,
        "load_weights": 30.0,
        "allocate_memory": 5.0,
        "capture_graphs": 18.0,
        "open_port": 2.0,
        "warm_up": 5.0,
    }


def test_the_settling_time_costs_one_more_look_not_one_a_second() -> None:
    world = World().at(0, health=200)
    assert world.wait(settle=30.0).verdict == "ready"
    assert world.looks == 2
    assert World().at(0, health=200).wait(settle=0.0).waited == 0.0


def test_a_server_that_dies_while_it_settles_is_not_ready() -> None:
    world = World().at(0, health=200)
    world.at(3, main=None, workers=0, health=None).unit_at(3, phase="failed", active_state="failed", result="signal")
    result = world.wait(settle=5.0)
    assert result.verdict == "failed"
    assert result.waited < 10


def test_a_server_that_is_restarted_while_it_settles_is_not_ready() -> None:
    world = World().at(0, health=200).at(3, main=Process(200, 1, 9999, "S", 0, "python"))
    result = world.wait(settle=5.0)
    assert result.verdict == "failed"
    assert "main process 100 died" in result.reason


@pytest.mark.parametrize(
    ("changes", "verdict", "seconds"),
    [
        ({"phase": "failed", "active_state": "failed", "result": "exit-code"}, "failed", 2),
        ({"phase": "stopped", "active_state": "inactive"}, "stopped", 2),
        ({"phase": "stopping", "active_state": "deactivating"}, "stopped", 2),
        ({"phase": "restarting", "restarts": 0}, "failed", 2),
        ({"phase": "restarting", "restarts": 1}, "failed", 1),
        ({"phase": "failed", "result": "start-limit-hit"}, "crash_looping", 1),
        ({"phase": "absent"}, "absent", 1),
        ({"restarts": 1}, "failed", 1),
    ],
)
def test_the_end_of_the_unit_ends_the_wait(changes: dict[str, t.Any], verdict: str, seconds: int) -> None:
    world = World().unit_at(40, **changes)
    result = world.wait()
    assert result.verdict == verdict
    assert 40 <= result.waited <= 40 + seconds


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        ({"restarts": 1}, "failed", "restarted it 1 times since the wait began"),
        ({"restarts": 3}, "crash_looping", "restarted it 3 times since the wait began"),
        ({"restarts": 2, "phase": "failed", "active_state": "failed"}, "crash_looping", "restarted it 2 times"),
    ],
)
def test_restarts_during_the_wait_are_told_from_a_crash_loop(
    changes: dict[str, t.Any], verdict: str, says: str
) -> None:
    result = World().unit_at(40, **changes).wait()
    assert (result.verdict, says in result.reason) == (verdict, True)
    assert result.waited <= 41


def test_a_unit_that_loops_when_the_wait_begins_is_found_at_once() -> None:
    result = World().unit_at(0, restarts=5).wait()
    assert (result.verdict, result.waited) == ("crash_looping", 0.0)
    assert "5 times already" in result.reason
    assert World().unit_at(0, restarts=1).at(5, health=200).wait().verdict == "ready"
    serving = World().unit_at(0, restarts=5).at(0, health=200)
    assert serving.wait().verdict == "ready"


def test_a_guard_that_let_it_start_accuses_nobody() -> None:
    world = World().unit_at(10, phase="failed", exit_status=3)
    world.guard = {"verdict": "start", "reason": "all 8 GPUs are idle"}
    result = world.wait()
    assert (result.verdict, result.guard) == ("failed", world.guard)
    assert "guard" not in result.reason


@pytest.mark.parametrize("changes", [{"phase": "failed"}, {"phase": "restarting", "restarts": 4}, {"restarts": 1}])
def test_a_refusal_of_the_guard_is_named_as_the_cause(changes: dict[str, t.Any]) -> None:
    world = World().at(0, main=None, workers=0).unit_at(10, **changes)
    world.guard = {"verdict": "refused", "reason": "GPU 3 is held by 4711 (python train.py)", "refused_count": 1}
    result = world.wait()
    assert result.verdict == "failed"
    assert result.waited <= 12
    assert "its start guard did not let it start: GPU 3 is held by 4711" in result.message()
    assert "Release the holder it names" in result.message()


def test_what_a_look_in_the_middle_of_a_change_shows_once_ends_nothing() -> None:
    world = World().unit_at(10, phase="stopped").unit_at(10.5, phase="running").at(20, health=200)
    assert world.wait().verdict == "ready"


def test_a_unit_that_is_not_started_yet_but_queued_is_waited_for() -> None:
    world = World().unit_at(0, phase="queued", active_state="inactive").unit_at(30, phase="running").at(60, health=200)
    assert world.wait().verdict == "ready"


def test_the_guard_is_a_stage_and_its_waiting_is_not_standing_still() -> None:
    world = World().unit_at(0, phase="guard").unit_at(900, phase="running").at(960, health=200)
    world.at(0, main=None, workers=0).at(900, main=world.now_is["main"], workers=2)
    result = world.wait(progress_timeout=100.0)
    assert result.verdict == "ready"
    assert result.stages["guard"] == 900.0


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"foreign": Listener("0.0.0.0", 900, cmdline="python old")}, "port_taken"),
        ({"health": 200, "model": "other"}, "wrong_model"),
        ({"health": 200, "models_status": 401}, "unauthorized"),
        ({"health": 200, "models_status": 403}, "unauthorized"),
        ({"health": 200, "workers": 1}, "failed"),
        ({"health": 404}, "failed"),
    ],
)
def test_what_cannot_get_better_ends_the_wait(changes: dict[str, t.Any], verdict: str) -> None:
    result = World().at(5, **changes).wait()
    assert result.verdict == verdict
    assert result.waited <= 7


def test_a_worker_that_disappears_ends_the_wait_long_before_the_launcher_notices() -> None:
    world = loading(World()).at(50, workers=1)
    result = world.wait()
    assert (result.verdict, result.reason) == ("failed", "1 of 2 workers are left")
    assert result.waited <= 52


def test_a_worker_that_disappears_is_missed_although_no_number_was_asked_for() -> None:
    world = World().at(5, workers=1, health=200)
    world.target = dataclasses.replace(TARGET, expected_workers=None)
    assert world.wait(settle=0.0).verdict == "failed"


def test_workers_that_come_late_are_no_loss() -> None:
    world = World().at(0, workers=0).at(10, workers=1).at(20, workers=2).at(30, health=200)
    assert world.wait().verdict == "ready"


def test_a_fatal_line_ends_the_wait_after_the_rest_of_it_was_read() -> None:
    world = loading(World()).says(50, "Scheduler hit an exception: Traceback (most recent call last):")
    world.log.append((51, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"))
    world.log.sort()
    result = world.wait()
    assert result.verdict == "failed"
    assert "Scheduler hit an exception" in result.reason
    assert 50 + FATAL_GRACE - 1 <= result.waited <= 52 + FATAL_GRACE
    assert result.guess is not None
    assert "out of memory" in result.guess.cause
    message = result.message()
    assert "stage load_weights" in message
    assert "Tried to allocate" in message
    assert "mem-fraction-static" in message
    assert KEY not in message


def test_an_error_that_the_start_survived_is_not_taken_for_the_cause() -> None:
    world = loading(World()).says(5, "ModuleNotFoundError: No module named 'smg_grpc_servicer'")
    world.says(50, "Scheduler hit an exception: Traceback (most recent call last):")
    world.log.append((51, "PermissionError: [Errno 13] Permission denied: '/models/demo/model-00001.safetensors'"))
    world.log.sort()
    guess = world.wait().guess
    assert guess is not None
    assert "may not read" in guess.cause


def test_a_fatal_line_and_a_dead_unit_end_it_at_once() -> None:
    world = loading(World()).says(50, "Scheduler hit an exception: x").unit_at(50, phase="failed")
    world.log.sort()
    assert world.wait().waited <= 51


def test_lines_of_an_earlier_run_are_not_taken_for_this_one() -> None:
    world = World().at(30, health=200)
    world.log = [(0, stamped(-60, "Scheduler hit an exception: old")), (0, stamped(-59, "The server is fired up"))]
    assert world.wait().verdict == "ready"
    world = World().at(30, health=200)
    world.log = [(0, stamped(-60, "Scheduler hit an exception: old"))]
    assert world.wait(begin(world.clock, position={"n": 1})).verdict == "ready"
    world = World()
    world.journal = True
    world.log = [(0, "launch_server.py: error: unrecognized arguments: --nonsense")]
    world.unit_at(1, phase="failed", exit_status=2)
    result = world.wait()
    assert result.guess is not None
    assert "arguments" in result.guess.cause
    assert "may be an earlier" not in result.message()


@pytest.mark.parametrize("hours", [-13, -1, 0, 1, 9])
def test_the_time_zone_of_a_container_hides_no_line_of_a_server_that_is_watched(hours: int) -> None:
    """What it writes while it runs is its own, whatever the clock says that it goes by."""
    off = hours * 3600
    world = World()
    world.log = [(0, stamped(off - 90, "server_args={}")), (0, stamped(off - 60, "Scheduler hit an exception: old"))]
    for second, text in (
        (20, "server_args=ServerArgs(port=1)"),
        (30, "Init parallel begin."),
        (35, "Load weight begin."),
    ):
        world.log.append((second, stamped(off + second, text)))
    result = world.wait()
    assert (result.verdict, result.state.log.stage) == ("no_progress", "load_weights")
    assert "stage load_weights" in result.message()
    assert "old" not in result.message()


def test_doubtful_lines_are_called_so() -> None:
    world = World().at(0, main=None, workers=0).unit_at(0, phase="failed", active_state="failed")
    world.log = [(0, stamped(-60, "server_args={}")), (0, stamped(-59, "x Error y"))]
    message = world.wait().message()
    assert "may be an earlier run's" in message
    assert "x Error y" in message


def test_no_log_at_all_is_said() -> None:
    message = World().unit_at(0, phase="failed", exit_status=203).wait().message()
    assert "The log shows no line of this run." in message
    assert "could not execute" in message


def test_the_exit_status_helps_to_guess() -> None:
    result = World().unit_at(0, phase="failed", exit_status=75).wait()
    assert result.guess is not None
    assert "lock" in result.guess.cause


def test_the_journal_of_the_run_that_died_is_read_to_its_end() -> None:
    world = World().unit_at(0, invocation="first").unit_at(10, invocation="second", restarts=1)
    world.wait()
    assert set(world.invocations) == {"first"}


def test_slices_come_to_the_same_end_as_one_wait() -> None:
    whole = loading(World()).wait()
    world = loading(World())
    state: WaitState = begin(world.clock)
    slices = 0
    while True:
        result = world.wait(state, slice=7.0)
        slices += 1
        if result.finished:
            break
        assert result.verdict == "starting"
        token = to_token(result.state, "a b")
        assert KEY not in token
        assert KEY not in zlib.decompress(base64.urlsafe_b64decode(token)).decode()
        state = from_token(token, "a b", world.clock)
        assert state == result.state
    assert slices > 10
    assert (result.verdict, dict(result.stages)) == (whole.verdict, dict(whole.stages))
    assert abs(result.waited - whole.waited) <= 2


def test_both_clocks_go_on_over_slices() -> None:
    for options, verdict in (({"timeout": 50.0}, "starting"), ({"progress_timeout": 50.0}, "no_progress")):
        world = World()
        result = world.wait(slice=4.0, **options)
        while not result.finished:
            result = world.wait(from_token(to_token(result.state, "s"), "s", world.clock), slice=4.0, **options)
        assert result.verdict == verdict
        assert 50 <= result.waited <= 56


@pytest.mark.parametrize(
    "token", ["", "x", "e30=", "ümlaut", "AAAA", base64.urlsafe_b64encode(zlib.compress(b"{}")).decode()]
)
def test_what_is_no_token_gets_a_sentence(token: str) -> None:
    with pytest.raises(ValueError, match="leave it out to begin a new wait"):
        from_token(token, "a b", FakeClock())


def test_a_token_serves_no_other_wait_and_no_other_boot() -> None:
    clock = FakeClock()
    token = to_token(begin(clock), "a b")
    with pytest.raises(ValueError, match="leave it out"):
        from_token(token, "a c", clock)
    with pytest.raises(ValueError, match="last boot"):
        from_token(token, "a b", FakeClock(1.0))
    data = json.loads(zlib.decompress(base64.urlsafe_b64decode(token)))
    data["state"]["more"] = 1
    with pytest.raises(ValueError, match="leave it out"):
        from_token(base64.urlsafe_b64encode(zlib.compress(json.dumps(data).encode())).decode(), "a b", clock)
