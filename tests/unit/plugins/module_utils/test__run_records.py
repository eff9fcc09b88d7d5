# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a line holds, and what the lines of a run amount to."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._run_records import (
    LONGEST_TEXT,
    Origin,
    Record,
    RecordRefused,
    as_line,
    make_record,
    read_lines,
    runs_of,
    seconds_of,
)

SCHEMA = pathlib.Path(__file__).parents[4] / "docs" / "run-record.schema.json"
KEY = "sk-0123456789abcdefghij"
NOW = 1_790_000_000.25
HOLDER = {
    "pid": 71,
    "start_time": 8123,
    "comm": "python3",
    "cmdline": f"python3 -m sglang.launch_server --api-key {KEY} --port 30000",
    "user": "sglang",
    "unit": "sglang.service",
    "container": {"kind": "lxc", "id": "101"},
    "gpus": ["GPU-a"],
    "disposition": "target",
    "reason": "belongs to sglang.service",
    "exe": "/usr/bin/python3",
}
FULL = {
    "run_id": "20261129T160902Z-k3x9qa",
    "who": "anna",
    "playbook": "relaunch.yml",
    "node": "gpu1",
    "unit": "sglang.service",
    "profile": "qwen",
    "mode": "drain",
    "verdict": "failed",
    "failed_step": "Release the GPUs",
    "reason": f"GPU 1 still holds 76115 MiB (HF_TOKEN={KEY})",
    "gpus_before": [{"index": 0, "uuid": "GPU-a", "used_mib": 500, "name": "H200"}],
    "gpus_after": [{"index": 0, "uuid": "GPU-a", "used_mib": None}],
    "holders": [HOLDER],
    "signals": [{"pid": 71, "signal": "KILL", "after_s": 5.00049}],
    "seconds": {"stop": 3.14159, "gate": float("nan")},
    "rollback": {"profile": "former", "outcome": "ready", "api_key": KEY},
    "evidence": "/var/log/cleanslate/evidence/x",
}


def line(event: t.Any = "ended", at: float = NOW, **fields: t.Any) -> Record:
    return make_record(event, {**FULL, **fields}, Origin(at, "pve1", "b00t"))


def begun(at: float, **fields: t.Any) -> Record:
    return line("begun", at, **fields)


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("begun", {"run_id": "1", "playbook": "stop.yml", "node": "n"}),
        ("ended", FULL),
        ("ended", {**FULL, "holders": [HOLDER] * 300, "gpus_after": None}),
        ("drift", {**FULL, "decision": {"action": "report", "reasons": ["a sentence"], "key": "x"}}),
    ],
)
def test_every_line_fits_the_published_schema(event: t.Any, fields: dict[str, t.Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    record = make_record(event, fields, Origin(NOW, "pve1"))
    assert set(record) == set(schema["properties"]), "each key is described, and each described key is written"
    jsonschema.validate(json.loads(as_line(record)), schema)


def test_the_schema_refuses_an_end_without_a_verdict_and_drift_without_a_decision() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    for wrong in ({**line(), "verdict": None}, {**line(), "event": "drift"}, {**line(), "version": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_no_secret_stands_in_a_line_and_it_is_one_line() -> None:
    written = as_line(line(who="anna\nbert", reason=f"a\nb --api-key {KEY}\nc"))
    assert KEY.encode() not in written
    assert written.count(b"\n") == 1
    record = json.loads(written)
    assert record["holders"][0]["cmdline"].endswith("--port 30000"), "the rest of the command line stays"
    assert "exe" not in record["holders"][0]
    assert record["rollback"] == {"profile": "former", "outcome": "ready", "api_key": "********"}


def test_a_secret_at_the_border_of_a_long_text_is_masked() -> None:
    text = "x" * (LONGEST_TEXT - 20) + f" --api-key {KEY} " + "y" * 9000
    shown = line(reason=text)["reason"]
    assert KEY[:4] not in shown
    assert len(shown) < LONGEST_TEXT + 30


def test_unknown_is_null_and_never_zero() -> None:
    record = line()
    assert record["gpus_after"] == [{"index": 0, "uuid": "GPU-a", "used_mib": None}]
    assert record["seconds"] == {"stop": 3.142}
    assert line(duration_s=float("inf"))["duration_s"] is None


def test_what_is_too_much_is_left_out_and_counted() -> None:
    record = line(holders=[HOLDER] * 300)
    assert (len(record["holders"]), record["holders_left_out"]) == (256, 44)
    huge = line(holders=[{**HOLDER, "cmdline": "x " * 2000, "reason": "y " * 2000}] * 200)
    assert (huge["holders"], huge["holders_left_out"]) == ([], 200)


def test_a_name_of_odd_bytes_is_still_text_for_every_reader() -> None:
    written = as_line(line(holders=[{**HOLDER, "comm": "a\udcff"}]))
    comm = json.loads(written)["holders"][0]["comm"]
    assert comm == "a\\udcff"
    assert comm.encode("utf-8"), "no lone surrogate"


@pytest.mark.parametrize(
    ("event", "fields", "part"),
    [
        ("ended", {"run_id": ""}, "run_id must be given"),
        ("begun", {"node": None, "playbook": " "}, "node and playbook must be given"),
        ("ended", {"verdict": ""}, "verdict must be given"),
        ("drift", {"decision": {"reasons": []}}, "decision must be given"),
        ("paused", {}, "event is 'paused'"),
    ],
)
def test_what_nobody_could_find_again_is_refused(event: t.Any, fields: dict[str, t.Any], part: str) -> None:
    with pytest.raises(RecordRefused, match=part):
        line(event, **fields)


def test_a_beginning_has_no_outcome_yet() -> None:
    record = line("begun", decision={"action": "relaunch"})
    assert (record["verdict"], record["failed_step"], record["decision"]) == (None, None, None)


def test_a_torn_line_costs_that_line_only() -> None:
    whole = as_line(line())
    newer = json.dumps({**line(), "version": 2}).encode() + b"\n"
    read = read_lines(whole + whole[:40] + b"\n" + newer + b'"text"\n' + whole + b"\xff\n")
    assert (len(read.records), read.damaged, read.foreign) == (2, 2, 2)


def test_a_moment_survives_the_way_through_a_line() -> None:
    assert seconds_of(line()["at"]) == NOW
    assert seconds_of("yesterday") is None
    assert seconds_of(None) is None


def test_begun_and_ended_make_one_run_with_its_duration() -> None:
    (run,) = runs_of([begun(NOW), line(at=NOW + 458.4, verdict="ready")], NOW + 500)
    assert (run["verdict"], run["interrupted"], run["duration_s"]) == ("ready", False, 458.4)
    assert run["began_at"] == begun(NOW)["at"]
    assert run["ended_at"] == line(at=NOW + 458.4)["at"]


def test_a_run_without_an_end_is_running_at_first_and_then_interrupted() -> None:
    early = runs_of([begun(NOW)], NOW + 3000)
    assert [(run["verdict"], run["interrupted"], run["ended_at"]) for run in early] == [("running", False, None)]
    late = runs_of([begun(NOW)], NOW + 7201)
    assert [(run["verdict"], run["interrupted"]) for run in late] == [("interrupted", True)]


def test_a_later_run_of_the_same_unit_shows_that_the_former_was_interrupted() -> None:
    runs = runs_of([begun(NOW, run_id="a"), begun(NOW + 60, run_id="b")], NOW + 61)
    assert [run["verdict"] for run in runs] == ["interrupted", "running"]


def test_another_unit_or_node_says_nothing_about_it() -> None:
    others = [begun(NOW + 1, run_id="b", unit="sglang@two.service"), begun(NOW + 2, run_id="c", node="gpu2")]
    runs = runs_of([begun(NOW, run_id="a"), *others], NOW + 3)
    assert [run["verdict"] for run in runs] == ["running"] * 3


def test_an_end_that_comes_after_all_counts() -> None:
    """The second run was refused, because the first one had the lease."""
    lines = [begun(NOW, run_id="a"), begun(NOW + 1, run_id="b"), line(at=NOW + 2, run_id="b")]
    runs = runs_of([*lines, line(at=NOW + 9, run_id="a", verdict="ready")], NOW + 10)
    assert [(run["run_id"], run["verdict"], run["interrupted"]) for run in runs] == [
        ("a", "ready", False),
        ("b", "failed", False),
    ]
    assert runs[0]["duration_s"] == 9


def test_a_clock_that_was_set_back_gives_no_duration() -> None:
    (run,) = runs_of([begun(NOW), line(at=NOW - 3600)], NOW)
    assert run["duration_s"] is None
    assert runs_of([begun(NOW), line(at=NOW + 5, duration_s=4.5)], NOW)[0]["duration_s"] == 4.5


def test_an_end_without_a_beginning_and_a_drift_look_are_runs_of_their_own() -> None:
    drift = line("drift", verdict=None, decision={"action": "report"})
    runs = runs_of([line(), drift], NOW)
    assert [(run["verdict"], run["began_at"]) for run in runs] == [("failed", None), ("report", drift["at"])]


def test_a_value_is_kept_so_deep_and_so_long_and_no_further() -> None:
    deep: t.Any = {"a": {"b": {"c": {"d": {"e": 1}}}}}
    kept = line(rollback=deep)["rollback"]["a"]["b"]["c"]["d"]
    assert kept == "{'e': 1}"
    assert line(rollback=[[[[[1]]]]])["rollback"] == [[[["[1]"]]]]
    assert list(line(rollback={"n" * 200: 1})["rollback"]) == ["n" * 100]
    assert list(line(seconds={"n" * 200: 1})["seconds"]) == ["n" * 64]
    assert line(rollback=[True, None, 1.00049, "x", 7])["rollback"] == [True, None, 1.0, "x", 7]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (1.23456, 1.235),
        ("2.5", 2.5),
        (7, 7),
        (True, None),
        (None, None),
        ("soon", None),
        ([], None),
        (float("inf"), None),
    ],
)
def test_what_is_no_number_of_seconds_is_unknown(given: t.Any, kept: t.Any) -> None:
    assert line(duration_s=given)["duration_s"] == kept


def test_a_text_is_cut_where_a_line_would_be_too_long_for_people() -> None:
    assert line(reason="ab " * 1333 + "c")["reason"] == "ab " * 1333 + "c"
    assert line(reason="ab " * 1333 + "cd")["reason"].endswith("… (4001 characters)")


@pytest.mark.parametrize(("count", "left_out"), [(1, 0), (256, 0), (257, 1)])
def test_how_many_holders_were_left_out_is_told(count: int, left_out: int) -> None:
    record = line(holders=[{"pid": number} for number in range(count)])
    assert (len(record["holders"]), record["holders_left_out"]) == (count - left_out, left_out)


def test_a_moment_has_milliseconds() -> None:
    assert line(at=1.9996)["at"] == "1970-01-01T00:00:01.999Z"


def test_one_bad_line_costs_that_line_only() -> None:
    good = as_line(line())
    found = read_lines(b"\n" + good + b"{cut\n" + good + b"[" * 100_000 + b"\n" + b'{"version": 9}\n' + good)
    assert (len(found.records), found.damaged, found.foreign) == (3, 2, 1)
    assert read_lines(b"") == type(found)((), 0, 0)


@pytest.mark.parametrize(
    ("between", "seconds"),
    [(0.0, 0.0), (0.5, 0.5), (12.3456, 12.346), (-0.5, None)],
    ids=["0", "0.5", "12", "set back"],
)
def test_how_long_a_run_took_where_it_does_not_say(between: float, seconds: float | None) -> None:
    began = 1_790_000_000.0
    records = [begun(began), line("ended", began + between, duration_s=None)]
    assert runs_of(records, began + 60)[0]["duration_s"] == (
        None if seconds is None else pytest.approx(seconds, abs=1e-3)
    )


@pytest.mark.parametrize(("age", "verdict"), [(7200.0, "running"), (7200.5, "interrupted")])
def test_after_two_hours_without_an_end_a_run_is_interrupted(age: float, verdict: str) -> None:
    assert runs_of([begun(1_790_000_000.0)], 1_790_000_000.0 + age)[0]["verdict"] == verdict


@pytest.mark.parametrize(
    "name", ["version", "event", "at", "run_id", "node", "playbook", "unit", "decision", "verdict"]
)
@pytest.mark.parametrize("value", [[], {}, [{}], {"a": []}, 5, True, None, "text"])
@pytest.mark.parametrize("event", ["begun", "ended", "drift"])
def test_a_line_with_a_field_of_another_shape_costs_no_more_than_itself(name: str, value: t.Any, event: str) -> None:
    odd = {**json.loads(as_line(line())), "event": event, "verdict": None, name: value}
    runs = runs_of(read_lines(json.dumps(odd).encode() + b"\n" + as_line(line(run_id="the good one"))).records, 1e9)
    assert [run["run_id"] for run in runs][-1] == "the good one"
