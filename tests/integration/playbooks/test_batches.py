# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node at a time: what goes wrong with the first keeps the second serving."""

from __future__ import annotations

import pytest
from simulated_nodes import Node
from test_lost_hosts import BREAKS


@pytest.fixture(scope="module")
def pair(make_shared_node, play) -> tuple[Node, Node]:
    """The first of the inventory is the first batch."""
    first, second = make_shared_node(), make_shared_node()
    run = play("start", [first, second], relaunch_serial="100%")
    assert run.rc == 0, run
    return first, second


def test_preflight_failure_of_the_last_keeps_all_serving(pair, play) -> None:
    first, second = pair
    second.script(faults=[{"effect": "lost", "gpus": [7]}])
    old = first.launchers(), second.launchers()
    run = play("relaunch", [first, second], relaunch_serial=1)
    second.script()
    assert run.rc == 2, run
    assert (first.launchers(), second.launchers()) == old
    assert all(call.asks for node in pair for call in run.of(node))


def test_preflight_with_an_unreachable_host_keeps_all_serving(pair, play) -> None:
    first, second = pair
    old = first.launchers(), second.launchers()
    (second.folder / "lost").touch()
    run = play("relaunch", [first, second], variables=BREAKS, relaunch_serial=1)
    (second.folder / "lost").unlink()
    assert run.rc == 4, run
    assert (first.launchers(), second.launchers()) == old
    assert all(call.asks for node in pair for call in run.of(node))


@pytest.mark.parametrize("how", ["failed", "unreachable"])
def test_the_second_batch_is_not_touched(how, pair, play) -> None:
    first, second = pair
    old = second.launchers()
    assert len(old) == 1
    if how == "failed":
        first.script({"die_at": {"stage": "weights", "exit_code": 1}})
        run = play("relaunch", [first, second], relaunch_serial=1)
        first.script()
    else:
        first.wrap_systemctl({"start": f"touch {first.folder}/lost"})
        run = play("relaunch", [first, second], variables=BREAKS, relaunch_serial=1)
        first.unwrap_systemctl()
        (first.folder / "lost").unlink()
    assert run.rc in (2, 4), run
    assert "start" in run.verbs(first, "stop", "start"), run.of(first)
    assert not run.verbs(second, "stop", "start"), run.of(second)
    assert second.launchers() == old
    assert f"{second.name} was not touched: {first.name} did not come back in an earlier batch" in run.text, run
