# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody starts it again: the ladder, its watch and the rules for telling a restart from a late worker."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Rung
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ladder_world import Fake, World


def looping_supervisor(delay: float, **child: t.Any) -> World:
    """A shell loop: whenever its child has died, there is a new one after a while."""

    def start_again(world: World) -> None:
        number = len(world.processes)
        world.processes.append(
            Fake(
                100 + number,
                ppid=30,
                start=1000 + number,
                born_at=world.clock.now + delay,
                on_death=start_again,
                **child,
            )
        )

    return World(Fake(30, comm="bash", holds=False), Fake(10, ppid=30, on_death=start_again, cmdline="serve", **child))


def test_a_loop_that_starts_it_at_once_is_named() -> None:
    world = looping_supervisor(0.01)
    result = world.release()
    assert (result.verdict, result.failed) == ("respawned", True)
    assert result.respawned_by == "PID 30 (bash)"
    assert "PID 30 (bash)" in result.message
    assert len(result.signalled) <= 4


def test_one_that_comes_back_after_five_seconds_is_caught_by_the_watch() -> None:
    world = looping_supervisor(5.0)
    result = world.release()
    assert result.verdict == "respawned"
    assert 5 <= result.elapsed_s < 6
    assert [one.pid for one in result.signalled] == [10], "the new one is not signalled any more"


def test_a_living_parent_is_watched_and_that_is_said() -> None:
    world = World(Fake(30, comm="bash", holds=False), Fake(10, ppid=30))
    result = world.release()
    assert result.verdict == "released"
    assert 10 <= result.elapsed_s < 11
    assert "PID 30 (bash)" in result.message


def test_a_look_that_misses_something_does_not_begin_the_watch_anew() -> None:
    world = World(Fake(30, comm="bash", holds=False), Fake(10, ppid=30))
    scan = world.scan

    def miss_something_after_nine_seconds() -> HolderScan:
        found = scan()
        return dataclasses.replace(found, complete=not 1009 <= world.clock.now <= 1009.5)

    world.scan = miss_something_after_nine_seconds  # type: ignore[method-assign]
    result = world.release()
    assert result.verdict == "released"
    assert 10 <= result.elapsed_s < 11
    assert result.message.count("Watched") == 1


def test_a_late_worker_that_shows_up_during_the_watch_is_signalled() -> None:
    """It is nobody's restart, and a release that ended without it would have the gate shut on it."""
    world = World(Fake(30, comm="bash", holds=False), Fake(10, ppid=30, cmdline="serve"), Fake(77, born_at=1004.0))
    result = world.release()
    assert result.verdict == "released"
    assert world.got() == {10: ["TERM"], 77: ["TERM"]}
    assert 14 <= result.elapsed_s < 15, "the watch counts from the last end"


def test_a_watch_that_ends_without_a_complete_look_has_released_nothing() -> None:
    world = World(Fake(30, comm="bash", holds=False), Fake(10, ppid=30))
    scan = world.scan

    def blind_from_the_fifth_second_on() -> HolderScan:
        return dataclasses.replace(scan(), complete=world.clock.now < 1005)

    world.scan = blind_from_the_fifth_second_on  # type: ignore[method-assign]
    result = world.release()
    assert (result.verdict, result.failed) == ("incomplete", True)


@pytest.mark.parametrize("seconds", [0.5, 1.0])
def test_a_short_watch_is_one_and_is_said(seconds: float) -> None:
    world = World(Fake(30, comm="bash", holds=False), Fake(10, ppid=30))
    result = world.release(respawn_watch=seconds)
    assert seconds <= result.elapsed_s < seconds + 0.5
    assert f"Watched up to {seconds:g} s for a restart by PID 30 (bash)" in result.message
    assert "Watched" not in World(Fake(10)).release().message
    assert "Watched" not in World(Fake(30, holds=False), Fake(10, ppid=30)).release(respawn_watch=0.0).message


def test_the_watch_can_be_shortened() -> None:
    world = World(Fake(30, comm="bash", holds=False), Fake(10, ppid=30))
    assert world.release(respawn_watch=0.0).elapsed_s < 1


def test_the_watch_ends_with_the_parent() -> None:
    world = World(Fake(30, comm="bash", holds=False, dies_at=1002.0), Fake(10, ppid=30))
    assert 2 <= world.release().elapsed_s < 3


@pytest.mark.parametrize("parent", [1, 40, 50])
def test_nobody_is_watched_who_starts_nothing_again(parent: int) -> None:
    """init, an adopter (systemd --user, a shim), and a parent that was a target itself."""
    world = World(Fake(40, comm="systemd", holds=False), Fake(50, term=0.1), Fake(10, ppid=parent, term=0.1))
    world.adopters.add(40)
    result = world.release()
    assert result.verdict == "released"
    assert result.elapsed_s < 1.5


def test_one_that_init_starts_again_is_known_by_its_command_line() -> None:
    def again(world: World) -> None:
        number = len(world.processes)
        world.processes.append(
            Fake(100 + number, start=2000 + number, born_at=world.clock.now + 0.1, cmdline="serve", on_death=again)
        )

    world = World(Fake(20, term=2.0), Fake(10, cmdline="serve", on_death=again))
    result = world.release()
    assert result.verdict == "respawned"
    assert "PID 1" in (result.respawned_by or "")


def test_forks_with_the_same_command_line_are_no_restart() -> None:
    """A server forks its workers: their parent is a target."""
    late = [Fake(11 + n, ppid=10, start=200 + n, born_at=1000.1 + n / 10, cmdline="serve") for n in range(6)]
    world = World(Fake(10, term=1.0, cmdline="serve"), *late)
    assert world.release().verdict == "released"


def test_workers_that_come_and_go_below_a_living_target_are_no_restart() -> None:
    late = [
        Fake(11 + n, ppid=10, start=200 + n, born_at=1000.1 + n / 2, dies_at=1000.9 + n / 2, cmdline="worker")
        for n in range(8)
    ]
    world = World(Fake(10, term=6.0, cmdline="serve"), *late)
    assert world.release([Rung("TERM", 15), Rung("KILL", 5)]).verdict == "released"


def test_forks_that_were_born_before_their_parent_ended_are_no_restart() -> None:
    """They open the devices, or are noticed, only afterwards."""
    late = [Fake(11 + n, start=100, cmdline="serve", holds=False, term=0.1) for n in range(5)]
    world = World(Fake(10, term=0.1, cmdline="serve"), Fake(20, term=1.5), *late)
    scan = world.scan

    def noticed_one_by_one() -> HolderScan:
        found = scan()
        if world.find(10) is None:
            for one in late:
                one.holds = world.clock.now > 1000.2 + one.pid / 20
        return found

    world.scan = noticed_one_by_one  # type: ignore[method-assign]
    assert world.release([Rung("TERM", 5), Rung("KILL", 5)]).verdict == "released"
