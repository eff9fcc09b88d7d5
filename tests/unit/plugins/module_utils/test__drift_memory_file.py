# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of drift's memory: compared and set, never written over unread, kept across boots."""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory, _drift_memory_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import (
    Limits,
    Memory,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory_file import MemoryRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import Moment
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import START, UNIT, Node

OTHER = "sglang@b.service"


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def begin(node: Node, run_id: str = "r", **options: t.Any) -> str:
    revision = options.pop("revision", node.memory().revision)
    return node.remember("begun", run_id=run_id, action="relaunch", revision=revision, **options).verdict


def test_who_decided_on_something_else_does_not_write(node: Node) -> None:
    assert node.remember("noted", key="hung: a", revision=0).verdict == "written"
    for state, options in {
        "noted": {"key": "x"},
        "cleared": {},
        "begun": {"run_id": "r", "action": "relaunch"},
    }.items():
        before = pathlib.Path(node.path).read_text()
        found = node.remember(state, revision=0, **options)
        assert (found.verdict, found.failed, found.changed) == ("moved", True, False)
        assert "is at revision 1, and the decision was made on 0" in found.reason
        assert pathlib.Path(node.path).read_text() == before
    assert begin(node, revision=1) == "written"
    assert node.memory().revision == 2


def test_of_two_runs_at_once_one_begins(node: Node) -> None:
    node.remember("noted", key="hung: a", revision=0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.starmap(begin, [(node, f"run-{number}") for number in range(2)])
    assert sorted(found) != ["written", "written"]
    assert len(node.memory().remediations) == 1


def test_clearing_nothing_makes_no_file(node: Node) -> None:
    assert node.remember("cleared", revision=0).verdict == "unchanged"
    assert not os.path.exists(os.path.dirname(node.path))


def test_only_a_look_that_suspects_nothing_clears(node: Node) -> None:
    node.remember("noted", key="hung: a", revision=0)
    assert node.remember("cleared", revision=1).changed
    assert node.memory() == Memory(2)


def test_a_note_of_another_key_replaces_the_first(node: Node) -> None:
    node.remember("noted", key="hung: a", revision=0)
    node.remember("noted", key="half_dead: a", revision=1)
    assert [one.key for one in node.memory().suspicions] == ["half_dead: a"]


def test_units_beside_each_other(node: Node) -> None:
    begin(node)
    request = MemoryRequest("begun", OTHER, 0, run_id="o", action="release")
    assert _drift_memory_file.change(request, node.path, "b", node.clock).changed
    assert node.remember("reset").changed
    document = json.loads(pathlib.Path(node.path).read_text())
    assert document["version"] == 1
    assert document["units"][OTHER]["remediations"][0]["action"] == "release"
    assert (node.memory().revision, node.memory().remediations) == (2, ())


def test_begun_spends_and_waits_before_anything_is_known(node: Node) -> None:
    assert begin(node) == "written"
    memory = node.memory()
    assert (memory.spent(node.policy.limits, memory.remediations[0].began), memory.remediations[0].outcome) == (1, None)
    assert begin(node, "again") == "held_back"


def test_ended_is_said_by_who_began(node: Node) -> None:
    begin(node)
    found = node.remember("ended", run_id="another", outcome="ready")
    assert (found.verdict, found.failed) == ("refused", True)
    assert "run another has begun no remediation" in found.reason
    node.remember("ended", run_id="r", outcome="failed", reason="--api-key sk-very-secret is wrong")
    assert "sk-very-secret" not in pathlib.Path(node.path).read_text()
    assert node.remember("ended", run_id="r", outcome="ready").failed, "once"
    assert node.memory().remediations[0].outcome == "failed"


def test_success_ends_the_row_of_failures(node: Node) -> None:
    for outcome in ("failed", "ready", "failed"):
        memory = node.memory()
        node.pass_time(86400)
        assert begin(node, outcome) == "written", memory
        node.remember("ended", run_id=outcome, outcome=outcome)
    assert node.memory().gave_up is None
    node.pass_time(86400)
    begin(node, "last")
    node.remember("ended", run_id="last", outcome="failed", reason="the gate did not open")
    gave_up = node.memory().gave_up
    assert gave_up is not None
    assert gave_up.reason.endswith(
        "the last 2 remediations brought no serving server, the last one: the gate did not open"
    )


def test_runs_that_never_came_back_add_up_to_giving_up(node: Node) -> None:
    for number in range(2):
        begin(node, f"lost-{number}")
        node.pass_time(86400)
    found = node.remember("begun", run_id="third", action="relaunch", revision=node.memory().revision)
    assert (found.verdict, found.changed, len(node.memory().remediations)) == ("held_back", True, 2)
    assert node.memory().gave_up is not None


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"version": 2, "units": {}}', '{"version": 1}', "\xff"])
def test_what_cannot_be_read_is_left_alone(node: Node, text: str) -> None:
    path = pathlib.Path(node.path)
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    requests: dict[t.Any, dict[str, t.Any]] = {
        "noted": {"key": "x", "revision": 0},
        "cleared": {"revision": 0},
        "begun": {"run_id": "r", "action": "relaunch", "revision": 0},
        "ended": {"run_id": "r", "outcome": "ready"},
    }
    for state, options in requests.items():
        found = node.remember(state, **options)
        assert (found.verdict, found.failed, found.changed) == ("unreadable", True, False)
        assert "sglang_drift_memory, state: reset" in found.reason
    assert path.read_bytes() == text.encode("latin-1")
    problem = _drift_memory_file.shown(node.path, UNIT)[1]
    assert problem is not None
    assert node.path in problem
    found = node.remember("reset")
    assert (found.verdict, found.changed) == ("written", True)
    assert path.with_name("drift.json.unreadable").read_bytes() == text.encode("latin-1")
    assert begin(node) == "written"


def test_check_mode_tells_and_writes_nothing(node: Node) -> None:
    request = MemoryRequest("begun", UNIT, 0, run_id="r", action="relaunch")
    found = _drift_memory_file.change(request, node.path, "boot-1", node.clock, check=True)
    assert (found.verdict, found.changed, os.path.exists(os.path.dirname(node.path))) == ("written", True, False)


def test_modes_whatever_the_umask(node: Node) -> None:
    former = os.umask(0o077)
    try:
        begin(node)
    finally:
        os.umask(former)
    path = pathlib.Path(node.path)
    assert (stat.S_IMODE(path.parent.stat().st_mode), stat.S_IMODE(path.stat().st_mode)) == (0o755, 0o644)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"state": "noted", "key": "x"}, "revision is missing"),
        ({"state": "noted", "key": "", "revision": 0}, "key is ''"),
        ({"state": "noted", "key": "a\nb", "revision": 0}, "key is"),
        ({"state": "begun", "revision": 0, "run_id": "a b", "action": "relaunch"}, "run_id is 'a b'"),
        ({"state": "begun", "revision": 0, "run_id": "a", "action": "reboot"}, "one of release, relaunch"),
        ({"state": "ended", "run_id": "a", "outcome": "fine"}, "one of ready, failed"),
        ({"state": "reset", "unit": "sglang"}, "with the suffix"),
        ({"state": "reset", "limits": Limits(confirm_after=-1)}, "confirm_after is -1"),
        ({"state": "reset", "limits": Limits(backoff=99999)}, "above backoff_most"),
        ({"state": "reset", "limits": Limits(max_remediations=26)}, "whole number from 0 to 25"),
    ],
)
def test_options_that_cannot_be_meant(node: Node, options: dict[str, t.Any], sentence: str) -> None:
    request = MemoryRequest(**{"unit": UNIT, **options})
    found = _drift_memory_file.change(request, node.path, "boot-1", node.clock)
    assert (found.verdict, found.failed) == ("refused", True)
    assert sentence in found.reason
    assert found.reason.endswith("Nothing was written.")


def test_without_a_boot_or_an_absolute_path_nothing_is_written(node: Node) -> None:
    request = MemoryRequest("reset", UNIT)
    assert "which boot this is" in _drift_memory_file.change(request, node.path, None, node.clock).reason
    assert "not an absolute path" in _drift_memory_file.change(request, "drift.json", "b", node.clock).reason


def test_only_so_many_are_remembered() -> None:
    memory, limits = Memory(), Limits()
    for number in range(70):
        now = Moment(START + number * 86400, "b", number * 86400.0)
        memory = _drift_memory.begun(memory, f"r{number}", "relaunch", limits, now)
        memory = _drift_memory.ended(memory, f"r{number}", "ready", "", limits, now)
    assert [one.run_id for one in memory.remediations] == [f"r{number}" for number in range(20, 70)]
