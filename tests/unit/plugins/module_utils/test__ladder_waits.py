# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long the ladder waits for whom it has signalled."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Rung
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ladder_world import Fake, World


def test_one_who_ended_while_he_was_looked_at_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who unpins memory holds up the reading of his mappings until he has ended: seen as dying, and gone by then."""
    world = World(Fake(10, term=None, kill=3.0, dying_after_kill=True))
    scan = world.scan

    def blocks() -> HolderScan:
        began = world.clock.now
        found = scan()
        one = world.processes[0]
        if one.dying and one.dies_at is not None and not one.dead:
            world.clock.now = max(world.clock.now, one.dies_at)
        return dataclasses.replace(found, seconds=world.clock.now - began)

    monkeypatch.setattr(world, "scan", blocks)
    result = world.release([Rung("KILL", 60)])
    assert (result.verdict, world.got()) == ("released", {10: ["KILL"]})
    assert 3.0 <= result.elapsed_s < 3.02


def test_nobody_is_looked_at_while_the_kernel_tears_him_down() -> None:
    """A second for a process that had pinned host memory: the look would take as long, and come back too late."""
    world = World(Fake(10, term=None, kill=1.1, dying_after_kill=True))
    result = world.release([Rung("KILL", 60)])
    assert (result.verdict, world.scans) == ("released", 3)
    assert 1.1 <= result.elapsed_s < 1.12


def test_where_no_signal_was_let_through_nobody_is_waited_for() -> None:
    assert World(Fake(10, permitted=False)).release([Rung("KILL", 60)]).elapsed_s < 0.1


@pytest.mark.parametrize("gate_follows", [False, True])
def test_whom_no_scan_shows_any_more_is_waited_for_until_he_has_ended(gate_follows: bool) -> None:
    """The thread that unpins is the leader: nothing is open or mapped, and 500 GiB of host memory are still his."""
    world = World(Fake(10, term=None, kill=70.0, dying_after_kill=True, unseen=True))
    result = world.release([Rung("KILL", 180)], gate_follows=gate_follows)
    assert (result.verdict, world.got()) == ("released", {10: ["KILL"]})
    assert 70.0 <= result.elapsed_s < 71.0


def test_who_never_ends_is_named_though_no_scan_shows_him() -> None:
    world = World(Fake(10, kill=4000.0, dying_after_kill=True, unseen=True), Fake(11, kill=0.1))
    result = world.release([Rung("KILL", 60)])
    assert (result.verdict, result.failed) == ("survivors", True)
    assert [(one.pid, one.dying, one.devices) for one in result.survivors] == [(10, True, ())]
    assert "pid 10 was killed 60 s ago" in result.message
    assert 60.0 <= result.elapsed_s < 61.0


def test_who_has_a_moment_left_when_the_time_is_over_is_dying() -> None:
    world = World(Fake(10, kill=8.0, dying_after_kill=True, unseen=True))
    assert world.release([Rung("KILL", 3)]).verdict == "dying"


def test_one_that_was_asked_and_let_go_is_not_waited_for() -> None:
    """A server that answers TERM by giving its GPU back lives on."""

    def let_go(world: World) -> None:
        world.processes[0].holds = False

    world = World(Fake(10, term=None, on_term=let_go))
    result = world.release()
    assert (result.verdict, world.got()) == ("released", {10: ["TERM"]})
    assert result.elapsed_s < 0.5


def test_the_last_rung_is_prolonged_while_the_driver_does_not_answer() -> None:
    """As long as it unpins it answers nobody: for 250 s with more than a TiB."""
    world = World(Fake(10, kill=250.0, dying_after_kill=True))
    world.memory = ["hangs"]
    result = world.release([Rung("KILL", 180)], memory=True)
    assert (result.verdict, world.got()) == ("released", {10: ["KILL"]})
    assert result.elapsed_s >= 250


def test_nor_is_that_prolonged_without_end_and_a_reboot_is_not_the_first_advice() -> None:
    world = World(Fake(10, kill=4000.0, dying_after_kill=True))
    world.memory = ["hangs"]
    result = world.release([Rung("KILL", 40)], memory=True)
    assert result.verdict == "dying"
    assert 300 <= result.elapsed_s < 302
    words = ("pid 10 was killed 300 s ago and has not ended", "has not answered", "pinned", "ends by itself", "reboot")
    places = [result.message.index(word) for word in words]
    assert places[-1] == max(places)


def test_a_driver_that_answers_again_and_shows_no_change_prolongs_nothing() -> None:
    world = World(Fake(10, kill=4000.0, dying_after_kill=True))
    world.memory = ["hangs", "hangs", 4712]
    result = world.release([Rung("KILL", 60)], memory=True)
    assert (result.verdict, result.failed) == ("survivors", True)
    assert "has not answered" not in result.message
    assert 60 <= result.elapsed_s < 62


def test_a_silent_driver_prolongs_nothing_for_one_that_lives() -> None:
    world = World(Fake(10, kill=None))
    world.memory = ["hangs"]
    result = world.release([Rung("KILL", 60)], memory=True)
    assert result.verdict == "survivors"
    assert result.elapsed_s < 62
