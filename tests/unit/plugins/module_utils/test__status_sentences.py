# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sentences of a node's status: their ends, how many are named, and when something is no finding."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._status_findings import findings, notes


def status(**changes: t.Any) -> dict[str, t.Any]:
    """A node on which all is well, otherwise than said. Keys with two parts change one part."""
    made: dict[str, t.Any] = {
        "host": "n1",
        "gpu_host": "p1",
        "reached": True,
        "unreached_reason": "",
        "expected_uuids": [],
        "server": {"verdict": "ready", "reason": "", "stage": None},
        "gpu": {"verdict": "busy", "reason": "GPU 0 holds 9 MiB", "gpus": []},
        "holders": {"verdict": "some", "processes": [], "seen_on": "p1", "incomplete_reason": ""},
        "wanted": {"value": None, "problem": None},
        "drift": {"value": None, "problem": None},
        "runs": {"value": [], "problem": None},
        "lock": {"known": True, "reason": "", "leases": [], "starting": [], "unreadable": False},
    }
    for name, value in changes.items():
        part, dash, key = name.partition("__")
        if dash:
            made[part][key] = value
        else:
            made[part] = value
    return made


def whats(**changes: t.Any) -> list[str]:
    return [one.what for one in findings(t.cast(t.Any, status(**changes)))]


@pytest.mark.parametrize(
    ("reason", "ends"),
    [
        ("x", "x."),
        ("why?", "why?"),
        ("so!", "so!"),
        ("done.", "done."),
        ("a. b", "a. b."),
        ("? or", "? or."),
        ("e.g. this", "e.g. this."),
    ],
)
def test_every_reason_ends_as_a_sentence(reason: str, ends: str) -> None:
    assert whats(server__verdict="failed", server__reason=reason)[0] == f"The server is failed: {ends}"


def test_nothing_said_is_not_a_full_stop() -> None:
    assert whats(server__verdict="failed", server__reason="")[0] == "The server is failed: "


def test_a_step_is_narrowed_down_to_the_node_once() -> None:
    (found,) = findings(t.cast(t.Any, status(server__verdict="stopped", holders__verdict="none", gpu__verdict="idle")))
    assert found.step.count("-l n1") == 1
    assert found.step.startswith("start.yml -l n1 starts it")


def process(pid: int, **fields: t.Any) -> dict[str, t.Any]:
    return {"pid": pid, "comm": "python", "computes": True, "disposition": "foreign", "gpus": [], **fields}


@pytest.mark.parametrize(("count", "more"), [(1, ""), (3, ""), (4, ""), (5, "; and 1 more"), (9, "; and 5 more")])
def test_at_most_four_of_others_are_named(count: int, more: str) -> None:
    named = "; ".join(f"pid {pid} (python)" for pid in range(1, min(count, 4) + 1))
    (what,) = whats(holders__processes=[process(pid) for pid in range(1, count + 1)])
    assert what == f"Somebody else uses its GPUs, seen on p1: {named}{more}."


def test_whose_a_process_is_is_told_as_far_as_it_is_known() -> None:
    known = process(7, user="ann", unit="a.service", container={"kind": "docker", "id": "ab"})
    (what,) = whats(holders__processes=[known])
    assert "pid 7 (python), user ann, docker container ab, unit a.service." in what


DOWN = {"server__verdict": "failed", "server__reason": "x"}


@pytest.mark.parametrize("disposition", ["foreign", "target"])
def test_memory_with_a_holder_is_not_called_memory_without_one(disposition: str) -> None:
    assert any("no holder is to be seen" in what for what in whats(**DOWN))
    held = whats(**DOWN, holders__processes=[process(7, disposition=disposition)])
    assert not any("no holder is to be seen" in what for what in held)


@pytest.mark.parametrize(
    ("lock", "count"),
    [
        ({"known": False, "reason": "no answer"}, 1),
        ({"known": False, "reason": ""}, 0),
        ({"known": True, "reason": "held by run 1"}, 0),
    ],
)
def test_a_lease_that_is_known_is_no_finding(lock: dict[str, t.Any], count: int) -> None:
    found = [
        what for what in whats(**{f"lock__{key}": value for key, value in lock.items()}) if "run is at work" in what
    ]
    assert len(found) == count


@pytest.mark.parametrize(("runs", "told"), [((True, False), False), ((False, True), True)])
def test_only_the_last_run_matters(runs: tuple[bool, bool], told: bool) -> None:
    value = [{"run_id": number, "interrupted": interrupted} for number, interrupted in enumerate(runs)]
    assert any("never ended" in what for what in whats(runs__value=value)) is told


@pytest.mark.parametrize(("reason", "words"), [("", "It was not looked at"), ("timed out", "could not be reached")])
def test_a_node_that_was_not_reached(reason: str, words: str) -> None:
    (what,) = whats(reached=False, unreached_reason=reason)
    assert words in what
    assert notes(t.cast(t.Any, status(reached=False, unreached_reason=reason))) == []


def said(**changes: t.Any) -> list[str]:
    return notes(t.cast(t.Any, status(**changes)))


@pytest.mark.parametrize(("stage", "words"), [("load_weights", " (load_weights): x."), (None, ": x.")])
def test_how_far_a_start_is_stands_there_where_it_is_known(stage: str | None, words: str) -> None:
    changes = {"server__verdict": "starting", "server__reason": "x", "server__stage": stage}
    assert said(**changes) == [f"The server is starting{words}"]


STOPPED = {"wanted__value": {"state": "stopped", "who": "ann", "at": "T", "by": "stop.yml"}}


@pytest.mark.parametrize(
    ("verdict", "wanted", "told"),
    [
        ("stopped", STOPPED, True),
        ("absent", STOPPED, True),
        ("ready", STOPPED, False),
        ("stopped", {"wanted__value": {"state": "serving"}}, False),
        ("stopped", {}, False),
    ],
)
def test_a_stop_on_purpose_is_told_where_it_is_one(verdict: str, wanted: dict[str, t.Any], told: bool) -> None:
    assert any("on purpose by ann" in text for text in said(server__verdict=verdict, **wanted)) is told


@pytest.mark.parametrize(("gave_up", "told"), [(None, True), ({"at": "T"}, False)])
def test_who_gave_up_waits_for_nothing(gave_up: dict[str, str] | None, told: bool) -> None:
    value = {"backoff_until": "T2", "gave_up": gave_up}
    assert (said(drift__value=value) == ["After its last attempt remediation waits until T2."]) is told


def test_a_suspicion_is_named_whole() -> None:
    value = {"suspicions": [{"key": "hung", "first_at": "T"}, "not one"]}
    assert said(drift__value=value) == ["Drift suspects hung since T and waits for a second look."]
