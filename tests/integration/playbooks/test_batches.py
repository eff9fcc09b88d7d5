# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node at a time: what goes wrong with the first keeps the second serving."""

from __future__ import annotations

import pytest
from simulated_nodes import Node
from test_lost_hosts import BREAKS


@pytest.fixture(scope="module")
def nodes(make_shared_node, play) -> list[Node]:
    """In the order of the inventory, which is that of the batches."""
    nodes = [make_shared_node() for dummy in range(3)]
    run = play("start", nodes, relaunch_serial="100%")
    assert run.rc == 0, str(run)
    return nodes


def launchers(nodes: list[Node]) -> list[list[int]]:
    return [node.launchers() for node in nodes]


def test_preflight_failure_of_the_last_keeps_all_serving(nodes, play) -> None:
    old = launchers(nodes)
    nodes[2].script(faults=[{"effect": "lost", "gpus": [7]}])
    run = play("relaunch", nodes, relaunch_serial=1)
    nodes[2].script()
    assert run.rc == 2, str(run)
    assert launchers(nodes) == old
    assert all(call.asks for node in nodes for call in run.of(node))


def test_preflight_with_an_unreachable_host_keeps_all_serving(nodes, play) -> None:
    old = launchers(nodes)
    (nodes[2].folder / "lost").touch()
    run = play("relaunch", nodes, variables=BREAKS, relaunch_serial=1)
    (nodes[2].folder / "lost").unlink()
    # 2: the preflight says who was lost; 4: Ansible does.
    assert run.rc in (2, 4), str(run)
    assert launchers(nodes) == old
    assert all(call.asks for node in nodes for call in run.of(node))


def test_half_a_failed_batch_keeps_the_next_serving(nodes, play) -> None:
    """The second came through, so Ansible itself would go on."""
    first, second, last = nodes
    old = last.launchers()
    first.script({"die_at": {"stage": "weights", "exit_code": 1}})
    run = play("relaunch", nodes, relaunch_serial=2)
    first.script()
    assert run.rc == 2, str(run)
    assert "start" in run.verbs(first, "stop", "start"), run.of(first)
    assert run.verbs(second, "stop", "start") == ["stop", "start"], run.of(second)
    assert not run.verbs(last, "stop", "start"), run.of(last)
    assert len(old) == 1
    assert last.launchers() == old
    said = f"{last.name} was not touched: {first.name} began before it and did not come back"
    assert said in run.failures(last)[-1], str(run)


def test_a_failure_keeps_those_of_its_own_batch_serving_that_have_not_begun(nodes, play) -> None:
    """More hosts in a batch than forks: how many are lost must not depend on how many were asked for at once."""
    first, *others = nodes
    old = launchers(others)
    first.script({"die_at": {"stage": "weights", "exit_code": 1}})
    run = play("relaunch", nodes, environment={"ANSIBLE_FORKS": "1"}, relaunch_serial="100%")
    first.script()
    assert run.rc == 2, str(run)
    assert "start" in run.verbs(first, "stop", "start"), run.of(first)
    assert launchers(others) == old
    for node in others:
        assert f"{node.name} was not touched: {first.name} began before it" in run.failures(node)[-1], str(run)


def test_a_lost_batch_keeps_the_next_serving(nodes, play) -> None:
    # Last in this file: the lease of the lost node stands until it runs out.
    first, dummy, last = nodes
    old = last.launchers()
    first.wrap_systemctl({"start": f"touch {first.folder}/lost"})
    run = play("relaunch", [first, last], variables=BREAKS, relaunch_serial=1)
    first.unwrap_systemctl()
    (first.folder / "lost").unlink(missing_ok=True)
    assert run.rc in (2, 4), str(run)
    assert "start" in run.verbs(first, "stop", "start"), run.of(first)
    assert not run.verbs(last, "stop", "start"), run.of(last)
    assert len(old) == 1
    assert last.launchers() == old
    assert any(text.lstrip("'\"").startswith(f"{first.name}: ") for text in run.failures(first)), str(run)
