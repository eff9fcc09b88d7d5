# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a policy is where little is said, and the borders of what confirms a suspicion."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_evidence, _drift_limits
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_limits import policy_of
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import UNIT, Node

MINUTE = 60.0


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_what_a_policy_is_where_nothing_is_said() -> None:
    policy = policy_of({"unit": UNIT})
    assert (policy.mode, policy.config, policy.enabled, policy.load_budget) == ("report", "report", True, 2700.0)
    assert (policy.windows, policy.gpus, policy.run_id) == ((), (), "")


def test_limits_are_given_one_by_one() -> None:
    with pytest.raises(ValueError, match="the policy has limits; known are unit, mode"):
        policy_of({"unit": UNIT, "limits": {}})


@pytest.mark.parametrize(("age", "action"), [(295.0, "relaunch"), (294.0, "report"), (296.0, "relaunch")])
def test_a_server_that_is_younger_than_the_first_look_is_another_one(node: Node, age: float, action: str) -> None:
    """By more than the 5 seconds that rounded dates and two clocks explain."""
    node.hang()
    node.run()
    node.pass_time(5 * MINUTE)
    node.started = node.clock.date - age
    assert node.run().action == action


def test_where_the_time_on_the_node_is_not_known_nothing_is_confirmed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table refuses before that; this is the second lock on the door."""
    node.hang()
    node.run()
    node.pass_time(5 * MINUTE)
    assert node.judge().action == "relaunch"

    def without_time(
        parts: t.Any, *, unit: t.Any, config: t.Any, gpus: t.Any, load_budget: t.Any, run_id: t.Any
    ) -> t.Any:
        seen = _drift_evidence.gather(
            parts, unit=unit, config=config, gpus=gpus, load_budget=load_budget, run_id=run_id
        )
        return dataclasses.replace(seen, now=None)

    monkeypatch.setattr(_drift_limits, "gather", without_time)
    verdict = node.judge()
    assert (verdict.action, verdict.would, verdict.confirmed) == ("report", "relaunch", False)
    assert verdict.held_back == "confirmation"
    assert "the time on the node is not known" in verdict.reasons[-1]


def test_what_the_server_does_is_told_once_and_also_where_it_is_not_the_reason(node: Node) -> None:
    node.hang()
    assert [one for one in node.judge().reasons if one == "no sign of life"] == ["no sign of life"]
    node.serve()
    node.differences = [{"path": "x", "what": "changed"}]
    drifted = node.judge()
    assert drifted.row == "drifted"
    assert [one for one in drifted.reasons if "it serves" in one] == [drifted.reasons[-1]]


def test_what_a_verdict_without_an_action_says(node: Node) -> None:
    verdict = node.run()
    assert (verdict.action, verdict.would, verdict.key) == ("nothing", "nothing", "")
    assert (verdict.needs_confirmation, verdict.confirmed, verdict.held_back) == (False, False, None)
    assert verdict.remember == "none", "there is nothing to clear"
