# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that name a server, and how secrets are masked."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Listener
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK, redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_arguments import (
    SGLANG_ARGUMENTS,
    answers_as_dict,
    check_seconds,
    check_wait,
    iso_time,
    log_as_dict,
    log_reader,
    look_as_dict,
    redactor,
    target_of,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import HealthLook, Observation, Witness
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import Process, ServerProcesses
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_questions import Models, Requests
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import GOOD, KEY, FakeOpener, answer

PARAMS: dict[str, t.Any] = {
    **{name: spec.get("default") for name, spec in SGLANG_ARGUMENTS.items()},
    "unit": "sglang.service",
}
UUID = "GPU-8f6e2c1a-0b7d-4a35-9c1e-52d0a7f4b613"
WAIT: dict[str, t.Any] = {
    "log_position": None,
    "log_since": None,
    "profile": None,
    "starts_file": None,
    "guard_file": None,
    "expected_uuids": [],
}


def test_the_key_is_never_logged() -> None:
    assert SGLANG_ARGUMENTS["api_key"]["no_log"] is True


def test_defaults() -> None:
    target = target_of(PARAMS)
    assert (target.unit, target.host, target.port, target.request_timeout) == (
        "sglang.service",
        "127.0.0.1",
        30000,
        25.0,
    )
    assert (target.served_model_name, target.expected_workers) == (None, None)
    assert target_of({**PARAMS, "unit": None}).unit == ""
    assert target_of({**PARAMS, "served_model_name": "", "api_key": ""}).served_model_name is None


def test_the_unit_must_be_named_and_what_the_server_says_of_itself_must_be_asked_for() -> None:
    assert SGLANG_ARGUMENTS["unit"]["required"] is True
    assert PARAMS["with_server_info"] is False


@pytest.mark.parametrize("changes", [{"port": 1}, {"port": 65535}, {"expected_workers": 1}, {"expected_workers": 1024}])
def test_the_bounds_themselves_are_meant(changes: dict[str, t.Any]) -> None:
    target = target_of({**PARAMS, **changes})
    assert {name: getattr(target, name) for name in changes} == changes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"unit": "sglang"}, "unit is 'sglang'.*sglang.service"),
        ({"port": 0}, "port is 0"),
        ({"port": 65536}, "port is 65536"),
        ({"expected_workers": 0}, "expected_workers is 0"),
        ({"expected_workers": 1025}, "expected_workers is 1025: give 1 to 1024"),
        ({"request_timeout": 0.0}, "request_timeout is 0"),
        ({"request_timeout": float("nan")}, "request_timeout is nan"),
        ({"request_timeout": 1e9}, "request_timeout is 1e"),
        ({"api_key": "a\nb"}, "api_key must be printable ASCII"),
    ],
)
def test_options_that_cannot_be_meant(changes: dict[str, t.Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        target_of({**PARAMS, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"log_position": {"inode": 0, "offset": 0}},
        {"log_position": {"inode": 7, "offset": 4096}},
        {"log_position": {"cursor": "s=1;i=2"}},
        {"log_since": 0.0},
        {"log_since": 0.5},
        {"log_since": 253402300799.5},
        {"profile": "kimi", "starts_file": "/var/lib/starts.json", "guard_file": "/run/guard.json"},
        {"expected_uuids": [UUID]},
    ],
)
def test_a_wait_that_can_be_meant(changes: dict[str, t.Any]) -> None:
    check_wait({**WAIT, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"log_position": {}}, "log_position is .*what sglang_health_info returned"),
        ({"log_position": {"inode": 7}}, "log_position is "),
        ({"log_position": {"inode": -1, "offset": 0}}, "log_position is "),
        ({"log_position": {"inode": 7, "offset": True}}, "log_position is "),
        ({"log_position": {"inode": "7", "offset": 0}}, "log_position is "),
        ({"log_position": {"cursor": 7}}, "log_position is "),
        ({"log_position": {"cursor": "a\nb"}}, "log_position is "),
        ({"log_since": -0.5}, "log_since is -0.5: it must be seconds since the epoch"),
        ({"log_since": 253402300800.0}, "log_since is 2.5"),
        ({"log_since": float("nan")}, "log_since is nan"),
        ({"profile": "a\nb"}, "profile is .*a newline"),
        ({"starts_file": "starts.json"}, "starts_file is 'starts.json', which is not an absolute path"),
        ({"guard_file": "guard.json"}, "guard_file is 'guard.json', which is not an absolute path"),
        ({"expected_uuids": [UUID, "0"]}, "expected_uuids contains '0'.*nvidia-smi -L"),
    ],
)
def test_a_wait_that_cannot_be_meant(changes: dict[str, t.Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_wait({**WAIT, **changes})


def test_seconds_may_be_zero_where_that_means_something() -> None:
    check_seconds({"settle": 0.0}, "settle", zero=True)
    with pytest.raises(ValueError, match="0 or more"):
        check_seconds({"settle": -0.1}, "settle", zero=True)


def test_a_known_secret_is_masked_in_any_surroundings() -> None:
    mask = redactor(["hush", None, "", "hush-hush"])
    assert mask("x hush-hush y hushed") == f"x {MASK} y {MASK}ed"
    assert "other" not in mask("--api-key other")


def test_times_are_utc() -> None:
    assert iso_time(0.0) == "1970-01-01T00:00:00Z"
    assert iso_time(None) is None


def test_the_log_is_the_file_else_the_journal_else_nothing(tmp_path: pathlib.Path) -> None:
    calls: list[list[str]] = []

    def runner(argv: t.Sequence[str], timeout: float) -> CommandResult:
        calls.append(list(argv))
        return CommandResult(tuple(argv), 0, "from the journal\n", "", 0.0)

    (tmp_path / "log").write_text("from the file\n")
    unit = UnitState("sglang.service", "running", invocation="abc")
    target = target_of(PARAMS)
    with_file = log_reader({**PARAMS, "log_file": str(tmp_path / "log")}, target, runner)
    assert with_file(unit, None, None).lines == ("from the file",)
    assert log_reader(PARAMS, target, runner)(unit, None, None).lines == ("from the journal",)
    assert "_SYSTEMD_INVOCATION_ID=abc" in calls[0]
    assert "No log is known" in log_reader(PARAMS, target_of({**PARAMS, "unit": ""}), runner)(None, None, None).error


MAIN = Process(100, 1, 4711, "S", 10, "python -m sglang.launch_server")
UNIT = UnitState("sglang.service", "running", "active", "running", main_pid=100, restarts=3)
HEALTHY = Answer(status=200)
LISTED = Models(answer({"data": [{"id": "kimi", "api_key": KEY}]}), ("kimi",))


def a_look(**seen: t.Any) -> HealthLook:
    given: dict[str, t.Any] = {"unit": UNIT, "processes": ServerProcesses(main=MAIN), **seen}
    witnesses = {"port": Witness(False, f"python old --api-key {KEY}")}
    return HealthLook("server", "failed", f"--api-key {KEY} was refused", Observation(**given), witnesses, 0.0)


def test_what_is_returned_about_a_look_names_processes_and_restarts_and_no_key() -> None:
    workers = (Process(110, 100, 1, "S", 0, "sglang::scheduler_TP0"), Process(111, 100, 1, "S", 0, "other"))
    found = look_as_dict(
        a_look(processes=ServerProcesses(main=MAIN, workers=workers), requests=Requests(2, 1, True)), redact
    )
    assert (found["main_pid"], found["restarts"], found["since"]) == (100, 3, "1970-01-01T00:00:00Z")
    assert [worker["pid"] for worker in found["workers"]] == [110, 111]
    assert found["requests"] == {"running": 2, "queued": 1, "progress": True}
    assert (found["verdict"], found["witnesses"]["port"]["ok"]) == ("failed", False)
    assert KEY not in str(found)


def test_what_is_not_there_is_said_to_be_unknown() -> None:
    found = look_as_dict(a_look(unit=None, processes=ServerProcesses(main=None)), redact)
    assert (found["main_pid"], found["restarts"], found["workers"]) == (None, None, [])


def test_a_healthy_server_says_what_it_is_without_its_keys() -> None:
    opener = FakeOpener({**GOOD, "/server_info": answer({"tp_size": 8, "api_key": KEY})})
    found = answers_as_dict(a_look(health=HEALTHY, models=LISTED), opener, redact, wanted=True)
    assert found["server_info"] == {"tp_size": 8, "api_key": MASK}
    assert found["models"] == {"data": [{"id": "kimi", "api_key": MASK}]}


@pytest.mark.parametrize(
    "models", [None, Models(answer({"error": "no"}, status=401))], ids=["not asked", "the list could not be had"]
)
def test_models_that_could_not_be_had_are_none(models: Models | None) -> None:
    opener = FakeOpener({**GOOD, "/server_info": answer({"tp_size": 8})})
    found = answers_as_dict(a_look(health=HEALTHY, models=models), opener, redact, wanted=True)
    assert found == {"server_info": {"tp_size": 8}, "models": None}


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        pytest.param({"health": HEALTHY}, False, id="nobody wants to know"),
        pytest.param({}, True, id="nobody asked for its health"),
        pytest.param({"health": Answer(status=503)}, True, id="it is not healthy"),
        pytest.param({"health": Answer(failure="refused")}, True, id="it does not answer"),
        pytest.param(
            {"health": HEALTHY, "processes": ServerProcesses(main=MAIN, foreign=Listener("0.0.0.0", 900))},
            True,
            id="the port is somebody else's",
        ),
    ],
)
def test_nothing_is_asked_of_a_server_that_is_not_ours_and_healthy(seen: dict[str, t.Any], wanted: bool) -> None:
    opener = FakeOpener({**GOOD, "/server_info": answer({"tp_size": 8})})
    found = answers_as_dict(a_look(models=LISTED, **seen), opener, redact, wanted=wanted)
    assert (found, opener.asked) == ({"server_info": None, "models": None}, [])


def test_the_place_in_the_log_is_returned_where_there_is_one() -> None:
    assert log_as_dict(LogState(), {"inode": 7, "offset": 9})["log_position"] == {"inode": 7, "offset": 9}
    assert log_as_dict(LogState(), None) == {"log_tail": [], "log_position": None}
