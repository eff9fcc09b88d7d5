# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate and a nvidia-smi that hangs: somebody may be giving pinned memory back, or the driver is stuck."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import (
    Node,
    holder,
    ok,
    scan,
)

LEFT_BEHIND = GpuLook("hung", None, hung_pid=55)
KILLED = GpuLook("hung", None, query_seconds=60.0)
DYING = scan(holder(4711, dying=True))


def held_up(seconds: float, first: GpuLook, after: GpuLook) -> Node:
    """A node whose first look takes so long."""

    def look(elapsed: float) -> GpuLook:
        if elapsed > 0:
            return after
        node.clock.now += seconds
        return first

    node = Node(look, cost=0.0)
    return node


def test_one_that_is_left_behind_is_waited_for_as_long_as_the_gate_has_time() -> None:
    """It blocks while 500 GiB are unpinned, and has gone a moment after that."""
    node = Node(lambda at: LEFT_BEHIND if at < 100 else ok(0, 0), cost=0.001)
    result = node.wait()
    assert (result.verdict, result.passed, result.smi_state) == ("idle", True, "ok")
    assert 100 <= result.waited_s < 101


def test_one_that_does_not_come_back_ends_it_with_its_time() -> None:
    node = Node([ok(0, 900), LEFT_BEHIND], scan())
    result = node.wait(timeout=60.0)
    assert (result.verdict, result.passed, result.smi_state) == ("unknown", False, "hung")
    assert 60 <= result.waited_s < 62
    for words in ("pid 55", "no other one is started", "pinned host memory", "another container", "Xid"):
        assert words in result.message
    assert result.message.index("pinned") < result.message.index("Xid") < result.message.index("reboot")


def test_who_is_known_to_be_dying_is_named() -> None:
    result = Node([LEFT_BEHIND]).wait(timeout=5.0, seen=DYING)
    assert "pid 4711" in result.message
    assert "another container" not in result.message
    living = Node([LEFT_BEHIND]).wait(timeout=5.0, seen=scan(holder(4712)))
    assert "4712" not in living.message


@pytest.mark.parametrize(
    ("known", "again"),
    [
        pytest.param({}, False, id="nobody is known to die"),
        pytest.param({"seen": scan(holder())}, False, id="somebody lives"),
        pytest.param({"seen": DYING}, True, id="somebody is dying"),
        pytest.param({"killed_at": 5000.0}, True, id="somebody was killed"),
        pytest.param({"killed_at": 5000.0 - 181}, False, id="somebody was killed long ago"),
    ],
)
def test_one_that_could_be_killed_is_asked_again_only_where_somebody_may_be_unpinning(
    known: dict[str, t.Any], again: bool
) -> None:
    node = held_up(60.0, KILLED, ok(0, 0))
    result = node.wait(**known)
    assert result.passed is again
    assert result.waited_s < 64
    if not again:
        assert (result.verdict, node.asked) == ("unknown", 1)
        assert "No second one is started" in result.message


@pytest.mark.parametrize("look", [LEFT_BEHIND, KILLED])
def test_a_single_look_waits_for_nothing_and_says_what_it_said(look: GpuLook) -> None:
    node = Node([look])
    result = node.wait(check_mode=True, killed_at=5000.0, seen=DYING)
    assert (result.verdict, result.passed, node.asked, node.clock.slept) == ("unknown", False, 1, [])
    assert "No second one is started while one is stuck." in result.message
    assert "pinned" not in result.message


def test_a_look_that_was_held_up_is_not_waited_for_twice() -> None:
    """Forty seconds of somebody else's unpinning, and then 0 MiB: another forty would be downtime for nothing."""
    node = held_up(40.0, ok(0, 0), ok(0, 0))
    result = node.wait()
    assert result.passed
    assert node.clock.slept == [2.0]


def test_nor_is_one_that_hung_and_is_left_behind() -> None:
    node = held_up(61.0, LEFT_BEHIND, LEFT_BEHIND)
    node.wait(timeout=64.0)
    assert node.clock.slept[:3] == [2.0, 0.1, 0.1]
