# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drift's rules, held against whatever can be thought of: any situation, any look, any memory."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory, _drift_memory_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_decision import Situation, decide
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_limits import judge
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import (
    Backoff,
    GaveUp,
    Memory,
    Remediation,
    Suspicion,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import Moment
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import Unreadable
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import START, UNIT, Node
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.test__drift_decision import (
    VALUES,
    broken_laws,
)

# ansible-test runs without it.
hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


@hypothesis.settings(max_examples=3000, deadline=None, derandomize=True, database=None)
@hypothesis.given(st.builds(Situation, **{column: st.sampled_from(values) for column, values in VALUES.items()}))
def test_any_situation_keeps_the_laws(situation: Situation) -> None:
    assert not broken_laws(situation, decide(situation))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["yes", "failed", UNIT]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


# What makes the relaunch of a dead server due: what it must be, else nothing is done.
DECISIVE: dict[str, dict[str, t.Callable[[t.Any], bool]]] = {
    "health": {"verdict": lambda value: value == "failed"},
    "gate": {"verdict": lambda _: False},
    "node": {
        "service": lambda _: False,
        "wanted": lambda _: False,
        "memory": lambda value: value is None,
        "leases": lambda value: value == [],
        "starting": lambda value: value == [],
        "boot_id": lambda value: isinstance(value, str) and value != "",
        "boottime_s": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
        "looked_at": lambda _: False,
    },
}
FIELDS = [(part, field) for part, fields in DECISIVE.items() for field in fields]
FUZZ = hypothesis.settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


@FUZZ
@hypothesis.given(place=st.sampled_from(FIELDS), value=ANYTHING)
def test_a_decisive_field_that_is_something_else_is_no_reason_to_act(
    node: Node, place: tuple[str, str], value: t.Any
) -> None:
    node.die()
    part, field = place
    look = node.look()
    assert judge(look, node.policy, START).action == "relaunch"
    look[part] = {**look[part], field: value}
    acts = judge(look, node.policy, START).action == "relaunch"
    assert not acts or DECISIVE[part][field](value)


@FUZZ
@hypothesis.given(part=st.sampled_from(["health", "gate", "node", "host_gate", "host_lock"]), value=ANYTHING)
def test_a_part_that_is_something_else_is_no_reason_to_act(node: Node, part: str, value: t.Any) -> None:
    node.die()
    look = {**node.look(), part: value}
    no_host = part.startswith("host") and value in (None, "")  # older Ansible makes an empty text of a template's none
    assert judge(look, node.policy, START).action != "relaunch" or no_host


@FUZZ
@hypothesis.given(st.data())
def test_no_look_can_break_it(node: Node, data: t.Any) -> None:
    look = node.look()
    part = data.draw(st.sampled_from(["health", "gate", "node"]))
    field = data.draw(st.sampled_from(sorted(look[part])))
    look[part] = {**look[part], field: data.draw(ANYTHING)}
    assert judge(look, node.policy, START).reasons


MOMENTS = st.builds(
    Moment, st.integers(0, 4102444800).map(float), st.sampled_from(["b1", "b2"]), st.integers(0, 10**7).map(float)
)
WORDS = st.text("abc: @", max_size=5)
MEMORIES = st.builds(
    Memory,
    st.integers(0, 9),
    st.lists(
        st.tuples(WORDS, st.integers(1, 5), MOMENTS, MOMENTS).map(
            lambda x: Suspicion(x[0], x[1], Moment(x[2].wall, x[3].boot_id, x[2].boot_s), x[3])
        ),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(Remediation, WORDS, st.sampled_from(["release", "relaunch"]), MOMENTS, st.none() | MOMENTS,
                  st.sampled_from([None, "ready", "failed"]), WORDS),
        max_size=3,
    ).map(tuple),
    st.none() | st.builds(Backoff, MOMENTS, st.floats(0, 1e6)),
    st.none() | st.builds(GaveUp, st.just("2026-11-29T15:02:11Z"), WORDS),
)  # fmt: skip


@hypothesis.given(MEMORIES)
def test_it_comes_back_as_it_was_written(memory: Memory) -> None:
    document = {"version": 1, "units": {UNIT: memory.document()}}
    assert _drift_memory_file.parse(json.loads(json.dumps(document))) == {UNIT: memory}
    assert _drift_memory.parse_entry(json.loads(json.dumps(memory.view()))) == memory


@hypothesis.given(MEMORIES, st.data())
def test_an_entry_that_is_not_whole_makes_the_file_unreadable(memory: Memory, data: t.Any) -> None:
    entry = memory.document()
    del entry[data.draw(st.sampled_from(sorted(entry)))]
    with pytest.raises(Unreadable):
        _drift_memory_file.parse({"version": 1, "units": {"sglang@b.service": Memory().document(), UNIT: entry}})
