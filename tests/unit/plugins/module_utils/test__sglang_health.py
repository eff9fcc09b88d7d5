# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what is seen to one word; and what one look asks of whom."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import socket
import subprocess
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Listener
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import (
    HealthLook,
    Observation,
    Target,
    judge,
    look,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import (
    Process,
    ServerProcesses,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_questions import Generation, Models, Requests
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import (
    GOOD,
    KEY,
    FakeClock,
    FakeOpener,
    free_port,
)

TARGET = Target("sglang.service", "127.0.0.1", 30000, served_model_name="kimi", expected_workers=8)
UNIT = UnitState("sglang.service", "running", "active", "running", main_pid=100, restarts=0)
MAIN = Process(100, 1, 4711, "S", 10, "python -m sglang.launch_server")
WORKERS = tuple(Process(110 + rank, 100, 4800, "S", 10, f"sglang::scheduler_TP{rank}") for rank in range(8))
OURS = Listener("127.0.0.1", 100)
PROCESSES = ServerProcesses(main=MAIN, members=(100,), workers=WORKERS, listeners=(OURS,), ours=True)
READY_LOG = LogState(stage="ready", ready=True, begun=True)
LOADING_LOG = LogState(stage="load_weights", begun=True)
OK = Answer(status=200, seconds=1.0)
MODELS = Models(OK, ("kimi",))
GENERATED = Generation(True, OK)
READY = Observation(UNIT, PROCESSES, READY_LOG, OK, MODELS, GENERATED)


def seen(base: Observation = READY, **changes: t.Any) -> Observation:
    """The ready observation, otherwise than said; without health nothing was asked."""
    unit = {key[5:]: changes.pop(key) for key in list(changes) if key.startswith("unit_")}
    processes = {key[10:]: changes.pop(key) for key in list(changes) if key.startswith("processes_")}
    if unit:
        changes["unit"] = dataclasses.replace(UNIT, **unit)
    if processes:
        changes["processes"] = dataclasses.replace(PROCESSES, **processes)
    if "health" in changes:
        changes = {"models": None, "generation": None, **changes}
    return dataclasses.replace(base, **changes)


QUIET: dict[str, t.Any] = {"health": None, "processes_listeners": (), "processes_ours": None}
FOREIGN: dict[str, t.Any] = {
    "health": None,
    "processes_ours": False,
    "processes_foreign": Listener("0.0.0.0", 900, cmdline=f"python old --api-key {KEY}"),
}
TIMEOUT = Answer(failure="timeout", error="no answer within 25 s", seconds=25.0)
SLOW_503 = Answer(status=503, seconds=20.6)
FAST_503 = Answer(status=503, seconds=0.01)

CASES: dict[str, tuple[Observation, str, str]] = {
    "everything is there": (READY, "ready", "8 of 8 workers"),
    "no unit": (seen(unit_phase="absent", **QUIET), "absent", "no unit sglang.service"),
    "no unit, but somebody listens": (seen(unit_phase="absent", **FOREIGN), "absent", "process 900"),
    "systemd does not answer": (seen(unit_phase="unknown"), "unknown", "could not be asked"),
    "stopped": (seen(unit_phase="stopped", unit_active_state="inactive", **QUIET), "stopped", "inactive"),
    "stopping": (seen(unit_phase="stopping", **QUIET), "stopped", ""),
    "stopped, but somebody listens": (seen(unit_phase="stopped", **FOREIGN), "port_taken", "process 900"),
    "failed": (seen(unit_phase="failed", unit_result="exit-code", **QUIET), "failed", "result exit-code"),
    "failed, and somebody listens": (seen(unit_phase="failed", **FOREIGN), "failed", "process 900"),
    "restarting once": (seen(unit_phase="restarting", unit_restarts=1, **QUIET), "failed", "restarted 1 times"),
    "restarting again and again": (seen(unit_phase="restarting", unit_restarts=4, **QUIET), "crash_looping", ""),
    "given up": (seen(unit_phase="failed", unit_result="start-limit-hit", **QUIET), "crash_looping", ""),
    "queued": (seen(unit_phase="queued", **QUIET), "starting", ""),
    "guard": (seen(unit_phase="guard", **QUIET), "starting", ""),
    "main process gone": (seen(processes_main=None, **QUIET), "failed", "main process 100 is gone"),
    "main process a zombie": (
        seen(processes_main=dataclasses.replace(MAIN, state="Z"), **QUIET),
        "failed",
        "main process 100 is dead",
    ),
    "loading": (seen(log=LOADING_LOG, **QUIET), "starting", "stage load_weights"),
    "loading, no log": (seen(log=None, **QUIET), "starting", "log is not known"),
    "loading with few workers": (seen(log=LOADING_LOG, processes_workers=(), **QUIET), "starting", ""),
    "refused although listed": (seen(log=LOADING_LOG, health=Answer(failure="refused")), "starting", ""),
    "was ready, does not listen": (seen(**QUIET), "failed", "said that it was ready"),
    "fatal line while loading": (
        seen(log=dataclasses.replace(LOADING_LOG, fatal="Scheduler hit an exception"), **QUIET),
        "failed",
        "Scheduler hit an exception",
    ),
    "port taken while loading": (seen(log=LOADING_LOG, **FOREIGN), "port_taken", "process 900"),
    "503 while starting": (seen(log=LOADING_LOG, health=FAST_503), "starting", "503"),
    "503 while starting, no log": (seen(log=None, health=FAST_503), "starting", "503"),
    "503 at once after ready": (seen(health=FAST_503), "stopped", "shutting down"),
    "503 and the log says it shuts down": (
        seen(log=dataclasses.replace(READY_LOG, shutting_down=True), health=FAST_503),
        "stopped",
        "shutting down",
    ),
    "503 after 20 s": (seen(health=SLOW_503), "hung", "20.6 s"),
    "503 after 20 s, no log": (seen(log=None, health=SLOW_503), "hung", ""),
    "503 and the log says that nothing came back": (
        seen(log=dataclasses.replace(READY_LOG, unanswered=True), health=FAST_503),
        "hung",
        "",
    ),
    "503 after 20 s, but it moves": (
        seen(health=SLOW_503, requests=Requests(3, 1, True)),
        "busy",
        "3 requests running",
    ),
    "503 after 20 s with requests that stand still": (
        seen(health=SLOW_503, requests=Requests(3, 1, False)),
        "hung",
        "",
    ),
    "no answer": (seen(health=TIMEOUT), "hung", "timeout"),
    "no answer while loading": (seen(log=LOADING_LOG, health=TIMEOUT), "starting", "load_weights"),
    "no answer and a worker dead": (seen(health=TIMEOUT, processes_workers=WORKERS[:7]), "failed", "without TP7"),
    "health wants a key": (seen(health=Answer(status=401)), "unauthorized", "401"),
    "no SGLang": (seen(health=Answer(status=404, body=b"nginx")), "failed", "404 (nginx)"),
    "broken": (seen(health=Answer(failure="broken", error="BadStatusLine")), "failed", "BadStatusLine"),
    "200 with a dead worker": (seen(processes_workers=WORKERS[:2] + WORKERS[3:]), "failed", "without TP2"),
    "200 with no worker": (seen(processes_workers=()), "failed", "only 0 of 8"),
    "key refused by models": (seen(models=Models(Answer(status=401))), "unauthorized", "key"),
    "key refused by models, 403": (seen(models=Models(Answer(status=403))), "unauthorized", "key"),
    "key refused by generation": (seen(generation=Generation(False, Answer(status=401))), "unauthorized", "key"),
    "models do not answer": (seen(models=Models(TIMEOUT), generation=None), "hung", "/v1/models"),
    "models fail": (seen(models=Models(Answer(status=500)), generation=None), "failed", "/v1/models answered 500"),
    "another model": (seen(models=Models(OK, ("glm",)), generation=None), "wrong_model", "serves glm; wanted is kimi"),
    "no model": (seen(models=Models(OK, ()), generation=None), "wrong_model", "serves nothing"),
    "generation fails": (
        seen(generation=Generation(False, Answer(status=500, body=b"CUDA error"))),
        "failed",
        "500 (CUDA error)",
    ),
    "queue full": (seen(generation=Generation(False, Answer(status=503))), "busy", "no more requests"),
    "generation waits behind others": (
        seen(generation=Generation(False, TIMEOUT), requests=Requests(32, 9, True)),
        "busy",
        "32 requests running, 9 queued",
    ),
    "generation waits, others stand still": (
        seen(generation=Generation(False, TIMEOUT), requests=Requests(32, 9, False)),
        "hung",
        "",
    ),
    "generation waits, nobody else is there": (
        seen(generation=Generation(False, TIMEOUT), requests=Requests(0, 0, None)),
        "hung",
        "generation",
    ),
    "200 for ever, but dead": (seen(generation=Generation(False, TIMEOUT)), "hung", "generation"),
    "whose port it is cannot be told, and its own log is not ready": (
        seen(processes_ours=None, log=LOADING_LOG),
        "starting",
        "does not say ready yet",
    ),
    "whose port it is cannot be told, but its own log is ready": (seen(processes_ours=None), "ready", ""),
    "no unit given, nobody there": (
        Observation(None, ServerProcesses(listeners=()), None),
        "absent",
        "nobody listens",
    ),
    "no unit given, ready": (seen(unit=None), "ready", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case: str) -> None:
    observation, verdict, words = CASES[case]
    found, reason, witnesses = judge(TARGET, observation, redact)
    assert (found, words in reason) == (verdict, True), reason
    assert set(witnesses) == {"unit", "port", "workers", "model", "generation"}
    assert KEY not in reason + str(witnesses)


@pytest.mark.parametrize("missing", ["unit", "workers", "model", "generation", "port", "health"])
def test_ready_needs_every_witness(missing: str) -> None:
    without = {
        "unit": seen(unit_phase="stopped"),
        "workers": seen(processes_workers=WORKERS[1:]),
        "model": seen(models=Models(OK, ("other",))),
        "generation": seen(generation=Generation(False, Answer(status=500))),
        "port": seen(processes_foreign=Listener("0.0.0.0", 9), processes_ours=False),
        "health": seen(health=FAST_503, models=MODELS, generation=GENERATED),
    }
    assert judge(TARGET, without[missing], redact)[0] != "ready"


def test_what_is_not_asked_for_is_not_needed() -> None:
    target = Target("sglang.service", "127.0.0.1", 30000)
    verdict, reason, witnesses = judge(target, seen(processes_workers=(), models=Models(OK, ("glm",))), redact)
    assert verdict == "ready", reason
    assert witnesses["workers"].ok is None
    assert witnesses["model"].detail == "serves glm"


def test_keys_in_error_bodies_are_masked_before_they_are_cut() -> None:
    body = b"x" * 170 + f" api_key='{KEY}{'z' * 500}'".encode()
    dummy, reason, dummy_witnesses = judge(TARGET, seen(health=Answer(status=500, body=body)), redact)
    assert "PLANTED" not in reason


def make_systemd(**properties: str) -> Systemd:
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    return Systemd(lambda argv, timeout: CommandResult(tuple(argv), 0, text, "", 0.0))


def one_look(
    opener: FakeOpener,
    log: t.Callable[..., LogState | None] | None = None,
    port: int = 30000,
    proc_root: str = "/proc",
    unit: str = "sglang.service",
    **properties: str,
) -> HealthLook:
    return look(
        Target(unit, "127.0.0.1", port),
        systemd=make_systemd(**{"LoadState": "loaded", "ActiveState": "active", "SubState": "running", **properties}),
        opener=opener,
        clock=FakeClock(),
        redact=redact,
        log=log or (lambda unit, since: None),
        proc_root=proc_root,
    )


@pytest.fixture
def listening() -> t.Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(1)
        yield sock.getsockname()[1]


def test_nothing_is_sent_to_a_port_of_another_process(listening: int) -> None:
    opener = FakeOpener(GOOD)
    with subprocess.Popen(["sleep", "600"]) as unit:  # this test listens, not the unit
        seen_once = one_look(opener, port=listening, MainPID=str(unit.pid))
        unit.kill()
    assert seen_once.verdict == "port_taken", seen_once.reason
    assert f"process {os.getpid()}" in seen_once.reason
    assert opener.asked == []


def test_nothing_is_sent_where_nobody_listens() -> None:
    opener = FakeOpener(GOOD)
    assert one_look(opener, port=free_port(), MainPID=str(os.getpid())).verdict == "starting"
    assert opener.asked == []


def test_a_ready_server_is_asked_few_questions_and_health_without_the_key(listening: int) -> None:
    opener = FakeOpener(GOOD)
    seen_once = one_look(opener, port=listening, MainPID=str(os.getpid()))
    assert seen_once.verdict == "ready", seen_once.reason
    # It has requests: whether they last is asked twice more.
    assert opener.asked == ["/health", "/v1/models", "/v1/completions", *["/v1/loads"] * 3]
    assert "/health" not in opener.with_key
    assert seen_once.seen.requests == Requests(2, 1, None)
    assert seen_once.stage == "ready"


def test_a_starting_server_is_asked_for_its_health_only(listening: int) -> None:
    opener = FakeOpener({**GOOD, "/health": FAST_503})
    assert one_look(opener, port=listening, MainPID=str(os.getpid())).verdict == "starting"
    assert opener.asked == ["/health"]


@pytest.mark.parametrize(("health", "unanswered"), [(SLOW_503, False), (FAST_503, True)])
def test_a_silent_server_is_asked_twice_whether_it_moves(listening: int, health: Answer, unanswered: bool) -> None:
    """Also where its own patience is short, and only its log says why it said no."""
    loads = [GOOD["/v1/loads"], dataclasses.replace(GOOD["/v1/loads"], body=b'{"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 0, "num_used_tokens": 99}]}')]  # fmt: skip  # noqa: E501
    opener = FakeOpener({**GOOD, "/health": health, "/v1/loads": loads})
    log = dataclasses.replace(READY_LOG, unanswered=unanswered)
    seen_once = one_look(opener, lambda unit, since: log, port=listening, MainPID=str(os.getpid()))
    assert seen_once.seen.requests == Requests(2, 0, True)
    assert seen_once.verdict == "busy"


def test_the_log_is_read_again_after_a_no(listening: int) -> None:
    states = [READY_LOG, dataclasses.replace(READY_LOG, unanswered=True)]
    opener = FakeOpener({**GOOD, "/health": FAST_503})
    seen_once = one_look(opener, lambda unit, since: states.pop(0), port=listening, MainPID=str(os.getpid()))
    assert seen_once.verdict == "hung"


def test_the_log_is_told_when_the_main_process_began(listening: int) -> None:
    times: list[float | None] = []

    def log(unit: UnitState | None, since: float | None) -> None:
        times.append(since)

    one_look(FakeOpener(GOOD), log, port=listening, MainPID=str(os.getpid()))
    one_look(FakeOpener(GOOD), log, port=listening, MainPID="0", ExecMainStartTimestampMonotonic="900000000")
    one_look(FakeOpener(GOOD), log, port=listening, MainPID="0")
    now = FakeClock().wall()
    assert times[0] is not None
    assert now - 7200 < times[0] <= now
    assert times[1] == now - 100
    assert times[2] is None


def test_a_stopped_unit_is_asked_nothing_and_says_since_when(tmp_path: pathlib.Path) -> None:
    opener = FakeOpener(GOOD)
    seen_once = one_look(
        opener, port=free_port(), ActiveState="inactive", SubState="dead", StateChangeTimestampMonotonic="990000000"
    )
    assert (seen_once.verdict, opener.asked, seen_once.stage) == ("stopped", [], None)
    assert seen_once.since == FakeClock().wall() - 10
