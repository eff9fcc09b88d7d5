# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parts of a look that are odd, cut short or missing: what is then known, and how long the sentences may become."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_evidence import Evidence, gather
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import Memory
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import iso
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import GPUS, UNIT, Node, holder


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def gathered(look: t.Any, gpus: tuple[str, ...] = ()) -> Evidence:
    return gather(look, unit=UNIT, config="report", gpus=gpus, load_budget=2700.0)


def seen(node: Node, **parts: t.Any) -> Evidence:
    return gathered({**node.look(), **parts})


def changed(node: Node, **fields: t.Any) -> Evidence:
    """The node's own part, changed."""
    look = node.look()
    return gathered({**look, "node": {**look["node"], **fields}})


def test_a_healthy_look(node: Node) -> None:
    found = seen(node)
    assert (found.situation.server, found.said["server"], found.profile) == ("ready", "it serves", "kimi")
    assert (found.situation.memory, found.memory, found.age) == ("readable", Memory(), 90000.0)
    assert found.now is not None


@pytest.mark.parametrize(
    ("unreachable", "told"),
    [
        ("ssh: no route", "ssh: no route"),
        ("  ", "the server was not looked at"),
        (["", "ssh: no route"], "ssh: no route"),
        (None, "the server was not looked at"),
        (7, "the server was not looked at"),
    ],
)
def test_why_nothing_is_known(unreachable: t.Any, told: str) -> None:
    found = gathered({"unreachable": unreachable})
    assert (found.said["server"], found.situation.server) == (told, "unknown")
    assert found.situation.memory == "unreadable"


def test_without_any_look_that_is_told() -> None:
    assert gathered(None).said["server"] == "no look was made"


@pytest.mark.parametrize("word", ["on fire", "server", "s", None, 3])
def test_a_word_that_the_table_does_not_have_is_unknown(node: Node, word: t.Any) -> None:
    node.health["verdict"] = word
    assert seen(node).situation.server == "unknown"


@pytest.mark.parametrize(
    ("verdict", "age", "told"),
    [
        ("starting", 600.0, "it serves It has been starting for 10 minutes; 45 minutes are allowed."),
        ("ready", 600.0, "it serves"),
        ("starting", None, "it serves"),
    ],
)
def test_how_long_it_has_been_starting(node: Node, verdict: str, age: float | None, told: str) -> None:
    node.health["verdict"] = verdict
    look = node.look()
    look["health"]["since"] = None if age is None else iso(node.clock.date - age)
    look["health"] = {name: value for name, value in look["health"].items() if value is not None}
    assert gathered(look).said["server"] == told


@pytest.mark.parametrize(
    ("ahead", "age"), [(-10.0, 10.0), (0.0, 0.0), (30.0, 0.0), (60.0, 0.0), (61.0, None), (3600.0, None)]
)
def test_a_start_that_is_yet_to_come(node: Node, ahead: float, age: float | None) -> None:
    """By a minute at most it is a matter of rounding; beyond that somebody set a clock."""
    node.started = node.clock.date + ahead
    assert seen(node).age == age


def test_the_age_is_that_of_a_process(node: Node) -> None:
    node.pid = None
    assert seen(node).age is None


@pytest.mark.parametrize("since", ["yesterday", "", None])
def test_a_start_that_is_no_date(node: Node, since: t.Any) -> None:
    look = node.look()
    look["health"]["since"] = since
    assert (gathered(look).age, gathered(look).situation.load) == (None, "unknown")


@pytest.mark.parametrize(
    "fields",
    [{"looked_at": None}, {"looked_at": "now"}, {"boottime_s": None}, {"boottime_s": "5 s"}, {"boot_id": None}],
)
def test_a_time_that_cannot_be_read_makes_what_is_wanted_unreadable(node: Node, fields: dict[str, t.Any]) -> None:
    found = changed(node, **fields)
    assert (found.now, found.situation.wanted) == (None, "unreadable")


@pytest.mark.parametrize("missing", ["looked_at", "boottime_s", "boot_id"])
def test_so_does_a_time_that_is_missing(node: Node, missing: str) -> None:
    look = node.look()
    del look["node"][missing]
    assert gathered(look).now is None


@pytest.mark.parametrize("wanted", [{}, {"state": "serving"}, 3, [], {"state": 7}, {"x" * 300: 1}])
def test_what_is_wanted_in_another_shape(node: Node, wanted: t.Any) -> None:
    found = changed(node, wanted=wanted)
    assert found.situation.wanted == "unreadable"
    told = found.said["wanted"]
    assert told.startswith("what is wanted has an unknown shape (")
    assert len(told) <= len("what is wanted has an unknown shape ()") + 100


@pytest.mark.parametrize("profile", ["kimi", None])
def test_the_profile_is_a_name(node: Node, profile: t.Any) -> None:
    assert node.wanted is not None
    assert changed(node, wanted={**node.wanted, "profile": profile}).profile == profile
    assert changed(node, wanted={**node.wanted, "profile": 7}).profile is None


@pytest.mark.parametrize(
    ("fields", "state", "told"),
    [
        ({"memory_problem": "no rights"}, "unreadable", "no rights"),
        ({"memory": {"revision": "x"}}, "unreadable", "drift's memory has an unknown shape ("),
        ({"memory": None}, "readable", ""),
    ],
)
def test_drifts_memory(node: Node, fields: dict[str, t.Any], state: str, told: str) -> None:
    found = changed(node, **fields)
    assert (found.situation.memory, found.said["memory"].startswith(told)) == (state, True)


@pytest.mark.parametrize(("differences", "more"), [(5, ""), (6, "; and 1 more"), (9, "; and 4 more")])
def test_so_many_differences_are_told(node: Node, differences: int, more: str) -> None:
    node.differences = [{"where": "unit", "item": n, "found": 1, "wanted": 2} for n in range(differences)]
    told = seen(node).said["drifted"]
    assert told == "; ".join(f"unit: {n} is 1, wanted is 2" for n in range(5)) + more


@pytest.mark.parametrize(("pid", "alive"), [(4711, "yes"), (True, "unknown"), (None, "unknown"), ("4711", "unknown")])
def test_alive_is_who_has_a_number(node: Node, pid: t.Any, alive: str) -> None:
    node.pid = pid
    assert seen(node).situation.alive == alive


@pytest.mark.parametrize(
    ("left", "ended", "how"),
    [(1, 2, "on_request"), (0, 2, "alone"), (2, 2, "alone"), (3, 2, "alone"), (None, 2, "alone"), (1, None, "alone")],
)
def test_who_ended_it_by_the_order_of_its_end(node: Node, left: int | None, ended: int | None, how: str) -> None:
    node.die(left_active_us=left, main_ended_us=ended)
    assert seen(node).situation.ended == how


@pytest.mark.parametrize(("use", "moves"), [(1, "yes"), (0.5, "yes"), (0, "no"), (None, "unknown")])
def test_a_gpu_that_works_at_all_moves(node: Node, use: t.Any, moves: str) -> None:
    node.use = use
    assert seen(node).situation.moves == moves


@pytest.mark.parametrize(
    ("running", "queued", "requests"),
    [(1, 0, "some"), (0, 1, "some"), (0, 0, "none"), (None, 1, "some"), (None, 0, "unknown"), (0, None, "unknown")],
)
def test_whether_somebody_waits(node: Node, running: int | None, queued: int | None, requests: str) -> None:
    node.requests = {"running": running, "queued": queued, "progress": None}
    assert seen(node).situation.requests == requests


@pytest.mark.parametrize(("count", "named"), [(1, 1), (16, 16), (20, 16)])
def test_what_is_left_over_by_its_identity(node: Node, count: int, named: int) -> None:
    node.die()
    holders = [holder(pid=100 + n) for n in range(count)]
    node.gate = {"verdict": "busy", "msg": "held", "holders": [*holders, holder(pid=99, disposition="foreign")]}
    expected = ", ".join(f"{100 + n}@{1000 + n}" for n in range(named))
    assert seen(node).subject == f"left over {expected}"


def test_a_stranger_is_quoted_shortly(node: Node) -> None:
    stranger = holder(unit="vllm.service", cmdline="x" * 200, gpus=[GPUS[0]])
    gate = {"verdict": "busy", "msg": "held", "holders": [stranger]}
    locks = {"leases": [], "starting": [], "container_locks": [{"lock": None}]}
    found = seen(node, host_gate=gate, host_lock=locks)
    assert found.said["gpus"].endswith(f"compute on these GPUs: 4801 ({'x' * 80})")
