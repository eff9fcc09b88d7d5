# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the witnesses of a look say, each for itself, and how far a start is said to have come."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Listener
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import (
    LOAD_INTERVAL,
    REQUEST_TIMEOUT,
    SLOW_REFUSAL,
    HealthLook,
    Observation,
    Target,
    Verdict,
    judge,
    witnesses_of,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import Process, ServerProcesses
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_questions import Generation, Models
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState

TARGET = Target("sglang.service", "127.0.0.1", 30000, served_model_name="kimi", expected_workers=4)
UNIT = UnitState("sglang.service", "running", "active", "running", main_pid=100, restarts=0)
MAIN = Process(100, 1, 4711, "S", 10, "python -m sglang.launch_server")
OK = Answer(status=200, seconds=1.0)


def workers(*ranks: int) -> tuple[Process, ...]:
    return tuple(Process(110 + rank, 100, 4800, "S", 10, f"sglang::scheduler_TP{rank}") for rank in ranks)


PROCESSES = ServerProcesses(MAIN, (100,), workers(0, 1, 2, 3), (Listener("127.0.0.1", 100),), True)
READY = Observation(
    UNIT, PROCESSES, LogState(stage="ready", ready=True), OK, Models(OK, ("kimi",)), Generation(True, OK)
)


def said(name: str, seen: Observation = READY, target: Target = TARGET) -> tuple[bool | None, str]:
    witness = witnesses_of(target, seen, lambda text: text)[name]
    return witness.ok, witness.detail


def with_processes(**changes: t.Any) -> Observation:
    return dataclasses.replace(READY, processes=dataclasses.replace(PROCESSES, **changes))


def test_how_long_a_look_may_take() -> None:
    """SGLang itself waits 20 s for a sign of life: its refusal must still be heard, and told from one at once."""
    assert 20.0 < REQUEST_TIMEOUT == 25.0
    assert SLOW_REFUSAL == 10.0
    assert LOAD_INTERVAL == 5.0


@pytest.mark.parametrize(("unit", "name"), [("a.service", "a.service on h:1"), ("", "the server on h:1")])
def test_which_server_it_is(unit: str, name: str) -> None:
    assert Target(unit, "h", 1).name == name


@pytest.mark.parametrize(
    ("alive", "words"),
    [
        ((0, 1, 3), (False, "only 3 of 4 workers are alive, without TP2")),
        ((1,), (False, "only 1 of 4 workers are alive, without TP0, TP2, TP3")),
        ((), (False, "only 0 of 4 workers are alive")),
        ((0, 1, 7), (False, "only 3 of 4 workers are alive")),  # ranks of another layout: nobody can be named
        ((0, 1, 2, 3), (True, "4 of 4 workers are alive")),
    ],
)
def test_which_workers_are_missing(alive: tuple[int, ...], words: tuple[bool, str]) -> None:
    assert said("workers", with_processes(workers=workers(*alive))) == words


def test_workers_that_cannot_be_seen_are_not_called_dead() -> None:
    ok, words = said("workers", with_processes(workers=(), outside=True))
    assert (ok, "cannot be seen from here" in words) == (None, True)
    assert said("workers", with_processes(workers=workers(0), outside=True))[0] is False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, (True, "port 30000 belongs to the server")),
        ({"ours": False}, (False, "port 30000 belongs to the server")),
        ({"listeners": None, "ours": None}, (None, "the kernel's table of sockets could not be read")),
        ({"listeners": (), "ours": None}, (None, "nobody listens on port 30000")),
        ({"ours": None}, (None, "who listens on port 30000 cannot be told from here")),
    ],
)
def test_whose_the_port_is(changes: dict[str, t.Any], words: tuple[bool | None, str]) -> None:
    assert said("port", with_processes(**changes)) == words


def test_whoever_has_the_port_is_named_in_few_words() -> None:
    who = Listener("0.0.0.0", 900, cmdline="x" * 300)
    assert said("port", with_processes(foreign=who)) == (
        False,
        f"0.0.0.0:30000 belongs to process 900 ({'x' * 80}), which is not part of sglang.service",
    )


@pytest.mark.parametrize(
    ("unit", "ok", "words"),
    [
        (None, None, "no unit was given"),
        (dataclasses.replace(UNIT, phase="unknown"), None, "systemd could not be asked about sglang.service"),
        (UNIT, True, UNIT.describe()),
        (dataclasses.replace(UNIT, phase="stopped"), False, UNIT.describe()),
    ],
)
def test_what_the_unit_says(unit: UnitState | None, ok: bool | None, words: str) -> None:
    found = said("unit", dataclasses.replace(READY, unit=unit))
    assert (found[0], words in found[1]) == (ok, True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(status=500, body=b"boom"), "/v1/models answered 500 (boom)"),
        (Answer(status=500), "/v1/models answered 500"),
        (Answer(status=201, body=b"made"), "/v1/models answered 201 (made)"),
        (Answer(status=199, body=b"odd"), "/v1/models answered 199 (odd)"),
        (Answer(status=200, body=b"[]"), "/v1/models answered 200"),
        (Answer(status=500, body=b"y" * 999), f"/v1/models answered 500 ({'y' * 200})"),
        (Answer(failure="timeout", error="slow"), "/v1/models gave no answer (timeout: slow)"),
    ],
)
def test_a_model_that_is_not_told_is_no_witness(answer: Answer, words: str) -> None:
    assert said("model", dataclasses.replace(READY, models=Models(answer, None))) == (False, words)


def verdict(seen: Observation) -> str:
    return judge(TARGET, seen, lambda text: text)[0]


def test_without_a_unit_it_is_absent_only_where_nothing_is_there() -> None:
    bare = dataclasses.replace(READY, unit=None, health=None, models=None, generation=None, log=None)
    nothing = ServerProcesses(main=None, listeners=())
    assert verdict(dataclasses.replace(bare, processes=nothing)) == "absent"
    for there in ({"listeners": None}, {"main": MAIN}):
        assert verdict(dataclasses.replace(bare, processes=dataclasses.replace(nothing, **there))) == "starting"


@pytest.mark.parametrize(("status", "expected"), [(502, "failed"), (503, "stopped"), (504, "failed")])
def test_only_a_503_says_that_it_shuts_down(status: int, expected: str) -> None:
    log = LogState(stage="warm_up", shutting_down=True)
    health = Answer(status=status, seconds=0.1)
    assert verdict(dataclasses.replace(READY, log=log, health=health)) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(9.9, "stopped"), (10.0, "hung"), (10.1, "hung")])
def test_a_refusal_that_took_long_is_no_shutdown(seconds: float, expected: str) -> None:
    assert verdict(dataclasses.replace(READY, health=Answer(status=503, seconds=seconds))) == expected


@pytest.mark.parametrize(
    ("status", "expected"), [(428, "failed"), (429, "busy"), (430, "failed"), (503, "busy"), (500, "failed")]
)
def test_a_server_that_takes_no_more_is_busy(status: int, expected: str) -> None:
    generation = Generation(False, Answer(status=status))
    assert verdict(dataclasses.replace(READY, generation=generation)) == expected


def test_models_that_were_never_told_are_silence() -> None:
    assert verdict(dataclasses.replace(READY, models=None, generation=None)) == "hung"
    assert verdict(dataclasses.replace(READY, models=Models(Answer(status=500), None), generation=None)) == "failed"


def look(word: Verdict, unit: UnitState | None = UNIT, log: LogState | None = None) -> HealthLook:
    return HealthLook("x", word, "", dataclasses.replace(READY, unit=unit, log=log), {})


LOADING = LogState(stage="load_weights")


@pytest.mark.parametrize(
    ("seen", "stage"),
    [
        (look("starting", dataclasses.replace(UNIT, phase="guard"), LOADING), "guard"),
        (look("starting", None, LOADING), "load_weights"),
        (look("starting", UNIT, LOADING), "load_weights"),
        (look("failed", UNIT, LOADING), "load_weights"),
        (look("starting"), None),
        (look("absent", None, LOADING), None),
        (look("stopped", UNIT, LOADING), None),
        (look("ready", UNIT, LOADING), "ready"),
        (look("busy"), "ready"),
    ],
)
def test_how_far_a_start_has_come(seen: HealthLook, stage: str | None) -> None:
    assert seen.stage == stage


@pytest.mark.parametrize(
    ("seen", "was"),
    [
        (look("ready"), True),
        (look("busy"), True),
        (look("hung"), False),
        (look("hung", UNIT, LOADING), False),
        (look("hung", UNIT, LogState(stage="ready", ready=True)), True),
    ],
)
def test_whether_this_run_has_ever_served(seen: HealthLook, was: bool) -> None:
    assert seen.was_ready is was
