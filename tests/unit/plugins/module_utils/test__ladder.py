# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan, Unreadable
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import DEFAULT_LADDER, Rung
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ladder_world import SCAN_COST, Fake, World

# -- nothing to do ----------------------------------------------------------------------------------------------------


def test_nobody_there_is_free_after_one_scan() -> None:
    world = World()
    result = world.release()
    assert (result.verdict, result.changed, world.scans) == ("free", False, 1)


@pytest.mark.parametrize("disposition", ["foreign", "monitor", "protected", "never", "self"])
def test_only_targets_are_ever_signalled(disposition: str) -> None:
    world = World(Fake(10, disposition=disposition))
    result = world.release()
    assert world.got() == {}
    assert not result.changed
    assert result.verdict == ("foreign" if disposition in ("foreign", "never") else "free")


@pytest.mark.parametrize("pid", [1, 500, 501])
def test_pid_1_and_our_own_ancestors_are_safe_even_where_a_scan_calls_them_targets(pid: int) -> None:
    world = World(Fake(pid), Fake(10))
    result = world.release()
    assert world.got() == {10: ["TERM"]}
    assert result.verdict == "released"


# -- an incomplete look -----------------------------------------------------------------------------------------------


def test_an_incomplete_look_signals_nobody_and_says_what_to_do() -> None:
    world = World(Fake(10))
    broken = [
        HolderScan(
            holders=(world.holder(world.processes[0]),),
            unreadable=(Unreadable(77, "vllm", "fd", "Permission denied", True, "uid 7 may open a node"),),
            complete=False,
            incomplete_reason="fd of pid 77 could not be read",
        )
    ]
    world.incomplete = broken * 99
    result = world.release()
    assert (result.verdict, result.failed, result.changed) == ("incomplete", True, False)
    assert world.got() == {}
    for text in ("77", "vllm", "Permission denied", "Nothing was signalled", "become"):
        assert text in result.message


def test_a_look_that_was_incomplete_for_a_moment_is_repeated() -> None:
    """A process that is just starting or ending."""
    world = World(Fake(10))
    world.incomplete = [HolderScan(complete=False)] * 3
    assert world.release().verdict == "released"


def test_a_look_that_was_blocked_is_not_repeated() -> None:
    world = World(Fake(10))
    world.incomplete = [HolderScan(complete=False, seconds=30.0)]
    assert world.release().verdict == "incomplete"
    assert world.scans == 1


def test_an_incomplete_look_afterwards_is_not_taken_for_free() -> None:
    world = World(Fake(10))
    broken = HolderScan(complete=False, incomplete_reason="reading blocked")
    first = HolderScan(holders=(world.holder(world.processes[0]),))
    world.incomplete = [first] + [broken] * 2000
    result = world.release()
    assert result.verdict == "incomplete"
    assert result.failed
    assert "Nothing was signalled" not in result.message


def test_it_recovers_when_the_next_look_is_complete() -> None:
    world = World(Fake(10))
    world.incomplete = [HolderScan(holders=(world.holder(world.processes[0]),)), HolderScan(complete=False)]
    assert world.release().verdict == "released"


# -- the ladder -------------------------------------------------------------------------------------------------------


def test_one_process_that_obeys() -> None:
    world = World(Fake(10, term=0.3))
    result = world.release()
    assert result.verdict == "released"
    assert result.changed
    assert not result.failed
    assert [(one.pid, one.signal) for one in result.signalled] == [(10, "TERM")]
    assert 0.3 <= result.elapsed_s < 0.35
    assert world.closed == 1


def test_our_own_share_of_the_time_is_next_to_nothing() -> None:
    """The driver takes 0.26 s; what we add is two scans."""
    world = World(Fake(10, term=None, kill=0.26, dying_after_kill=True))
    result = world.release([Rung("KILL", 180)])
    assert result.verdict == "released"
    assert result.elapsed_s < 0.26 + 10 * SCAN_COST


def test_the_killed_are_waited_for_together() -> None:
    """Looks while the driver takes memory back tell nothing: one when all are gone, one that proves it."""
    world = World(*(Fake(10 + place, term=None, kill=0.1 + 0.002 * place) for place in range(60)))
    result = world.release([Rung("KILL", 180)])
    assert result.verdict == "released"
    assert len(result.signalled) == 60
    assert world.scans == 3
    assert result.elapsed_s < 0.1 + 0.002 * 60 + 5 * SCAN_COST


@pytest.mark.parametrize(("gate_follows", "least", "most"), [(True, 0.1, 0.3), (False, 2.1, 2.7)])
def test_who_has_ended_and_is_only_listed_is_left_to_the_gate_if_there_is_one(
    gate_follows: bool, least: float, most: float
) -> None:
    """Nobody reaps it (PID 1 of many containers does not), and nvidia-smi lists it until the memory is back."""
    world = World(Fake(10, term=None, kill=0.1, listed=2.0), Fake(11, term=None, kill=0.05, listed=2.0))
    result = world.release([Rung("KILL", 180)], gate_follows=gate_follows)
    assert result.verdict == "released"
    assert least <= result.elapsed_s < most


def test_who_has_not_ended_is_waited_for_before_the_gate_too() -> None:
    world = World(Fake(10, term=None, kill=1.0, dying_after_kill=True))
    result = world.release([Rung("KILL", 180)], gate_follows=True)
    assert result.verdict == "released"
    assert result.elapsed_s >= 1.0


def test_a_killed_process_that_does_not_end_is_looked_at_after_half_a_second() -> None:
    world = World(Fake(10, term=None, kill=0.05), Fake(11, term=None, kill=3.0, dying_after_kill=True))
    result = world.release([Rung("KILL", 180)])
    assert result.verdict == "released"
    assert 3.0 <= result.elapsed_s < 3.6
    assert world.scans > 6


def test_term_that_is_ignored_is_followed_by_kill_at_its_time() -> None:
    world = World(Fake(10, term=None))
    result = world.release()
    assert world.got() == {10: ["TERM", "KILL"]}
    assert [one.after_s for one in result.signalled] == [pytest.approx(0, abs=0.01), pytest.approx(2.0, abs=0.05)]


def test_only_the_top_of_a_tree_gets_term_and_kill_goes_to_the_rest() -> None:
    """Through a process in between that holds nothing, as a shell wrapper is."""
    world = World(
        Fake(10, term=None), Fake(11, ppid=10, holds=False), Fake(12, ppid=11), Fake(13, ppid=10), Fake(20, term=0.1)
    )
    result = world.release()
    assert world.got() == {10: ["TERM", "KILL"], 12: ["KILL"], 13: ["KILL"], 20: ["TERM"]}
    assert [one.pid for one in result.signalled if one.signal == "KILL"] == [10, 13, 12], "parents first"


def test_children_that_end_with_their_parent_are_not_signalled() -> None:
    children = [Fake(11, ppid=10), Fake(12, ppid=10)]

    def parent_died(world: World) -> None:
        for child in children:
            child.dies_at = world.clock.now + 0.2

    world = World(Fake(10, term=1.0, on_death=parent_died), *children)
    assert world.release().verdict == "released"
    assert world.got() == {10: ["TERM"]}


def test_orphans_of_the_ladder_are_killed_soon_and_not_after_the_whole_rung() -> None:
    world = World(Fake(10, term=0.1), Fake(11, ppid=10), Fake(12, ppid=10))
    result = world.release([Rung("TERM", 15), Rung("KILL", 20)])
    assert world.got() == {10: ["TERM"], 11: ["KILL"], 12: ["KILL"]}
    assert 0.5 <= result.elapsed_s < 1.5


def test_children_that_are_ending_one_by_one_are_left_to_it() -> None:
    world = World(Fake(10, term=0.1), *(Fake(11 + n, ppid=10, dies_at=1000.4 + 0.4 * n) for n in range(5)))
    assert world.release([Rung("TERM", 15), Rung("KILL", 20)]).verdict == "released"
    assert world.got() == {10: ["TERM"]}


def test_a_process_that_ends_before_its_signal_is_a_success() -> None:
    """ESRCH, at the aim and at the send."""
    world = World(Fake(10), Fake(11))
    world.before_send = lambda pid: setattr(t.cast(Fake, world.find(10) or Fake(0)), "dead", True)
    result = world.release()
    assert result.verdict == "released"
    assert world.got() == {11: ["TERM"]}


def test_a_pid_that_was_taken_over_between_scan_and_signal_is_spared() -> None:
    victim = Fake(10)
    world = World(victim)

    def reuse(pid: int) -> None:
        if not victim.dead:
            victim.dead = True
            world.processes.append(Fake(10, start=999, holds=False, comm="postgres"))

    world.before_send = reuse
    result = world.release()
    assert world.got() == {}
    assert result.verdict == "free"


def test_one_that_let_go_by_itself_is_not_signalled() -> None:
    world = World(Fake(10))
    world.before_send = lambda pid: setattr(world.processes[0], "holds", False)
    assert world.release().verdict == "free"
    assert world.got() == {}


def test_one_that_stopped_computing_is_left_to_the_next_look() -> None:
    """By exec for one, which takes mappings away and leaves files open: it may be a protected daemon by now."""
    world = World(Fake(10))

    def change(pid: int) -> None:
        world.processes[0].maps = False
        world.processes[0].disposition = "protected"

    world.before_send = change
    assert world.release().verdict == "free"
    assert world.got() == {}


def test_no_signal_is_sent_twice_on_one_rung() -> None:
    world = World(Fake(10, term=1.5), Fake(11, term=0.2), Fake(12, term=0.4))
    world.release()
    assert world.got() == {10: ["TERM"], 11: ["TERM"], 12: ["TERM"]}


def test_many_are_looked_at_together_and_only_who_still_holds_is_signalled() -> None:
    """At most AT_ONCE of them, so that no look is old when its signal goes out."""
    world = World(*(Fake(100 + number, start=number) for number in range(35)))

    def change(pid: int) -> None:
        for one in world.processes:
            if one.pid == pid and pid in (103, 120):
                one.holds = False

    world.before_send = change
    assert world.release([Rung("KILL", 5)]).verdict == "released"
    assert world.asked_again == [16, 16, 3]
    assert sorted(world.got()) == [pid for pid in range(100, 135) if pid not in (103, 120)]


# -- late born --------------------------------------------------------------------------------------------------------


def test_a_worker_born_during_the_ladder_is_found() -> None:
    world = World(Fake(10, term=1.0), Fake(11, ppid=10, born_at=1000.5, start=200, dies_at=1000.9))
    assert world.release().verdict == "released"
    assert world.got() == {10: ["TERM"]}, "its parent was still being asked"


def test_a_worker_born_after_its_family_has_gone_is_asked_on_the_same_rung() -> None:
    world = World(Fake(10, term=0.5), Fake(20, term=1.0), Fake(11, ppid=10, born_at=1000.4, start=200, term=0.1))
    assert world.release().verdict == "released"
    assert world.got() == {10: ["TERM"], 11: ["TERM"], 20: ["TERM"]}


def test_a_process_that_forks_when_it_is_asked_to_end() -> None:
    def fork(world: World) -> None:
        world.processes.append(Fake(11, ppid=10, start=300, born_at=world.clock.now, term=None))

    world = World(Fake(10, term=0.05, on_term=fork))
    result = world.release()
    assert result.verdict == "released"
    assert world.got() == {10: ["TERM"], 11: ["TERM", "KILL"]}


def test_a_child_that_the_first_empty_look_missed_is_found_by_the_second_one() -> None:
    world = World(Fake(10, term=0.0), Fake(11, ppid=10, start=100, cmdline="same", holds=False, term=0.1))
    looks = []
    scan = world.scan

    def counting() -> HolderScan:
        found = scan()
        looks.append(found)
        if not found.holders:
            world.processes[1].holds = True
        return found

    world.scan = counting  # type: ignore[method-assign]
    result = world.release()
    assert result.verdict == "released"
    assert world.got() == {10: ["TERM"], 11: ["TERM"]}


# -- the dying --------------------------------------------------------------------------------------------------------


def test_the_dying_are_waited_for_and_never_signalled() -> None:
    world = World(Fake(10, dying=True, dies_at=1008.2))
    result = world.release(DEFAULT_LADDER)
    assert world.got() == {}
    assert result.verdict == "free"
    assert not result.changed
    assert 8.2 <= result.elapsed_s < 9.0


def test_one_whose_memory_stands_still_for_seven_seconds_is_waited_for() -> None:
    world = World(Fake(10, term=None, kill=8.2, dying_after_kill=True))
    world.memory = [4712]
    result = world.release([Rung("TERM", 1), Rung("KILL", 180)], memory=True)
    assert result.verdict == "released"
    assert world.got() == {10: ["TERM", "KILL"]}


def test_the_last_rung_is_prolonged_while_memory_shrinks() -> None:
    world = World(Fake(10, kill=100.0, dying_after_kill=True))
    world.memory = list(range(90000, 10000, -5000))
    result = world.release([Rung("KILL", 40)], memory=True)
    assert result.verdict == "released"
    assert result.elapsed_s >= 100
    assert len(world.memory_asked) <= 12, "asking costs a call of nvidia-smi each"


def test_it_is_not_prolonged_without_end() -> None:
    world = World(Fake(10, kill=4000.0, dying_after_kill=True))
    world.memory = list(range(90000, 1000, -500))
    result = world.release([Rung("KILL", 40)], memory=True)
    assert result.verdict == "dying"
    assert not result.failed
    assert 300 <= result.elapsed_s < 302
    assert [one.pid for one in result.survivors] == [10]


def test_the_dying_that_do_not_shrink_are_survivors_in_the_end() -> None:
    world = World(Fake(10, kill=4000.0, dying_after_kill=True))
    world.memory = [4712]
    result = world.release([Rung("KILL", 60)], memory=True)
    assert (result.verdict, result.failed) == ("survivors", True)
    assert 60 <= result.elapsed_s < 61
    assert "reboot" in result.message
    assert "60 s ago" in result.message


def test_a_memory_that_cannot_be_told_is_asked_for_once() -> None:
    world = World(Fake(10, kill=4000.0, dying_after_kill=True))
    world.memory = [None]
    assert world.release([Rung("KILL", 60)], memory=True).verdict == "survivors"
    assert len(world.memory_asked) == 1


def test_a_wait_too_short_to_tell_says_dying() -> None:
    world = World(Fake(10, kill=8.0, dying_after_kill=True))
    assert world.release([Rung("KILL", 3)]).verdict == "dying"


def test_a_dying_parent_is_no_longer_above_its_children() -> None:
    world = World(Fake(10, dying=True, dies_at=1003.0), Fake(11, ppid=10, term=0.2))
    assert world.release([Rung("TERM", 15), Rung("KILL", 5)]).verdict == "released"
    assert world.got() == {11: ["TERM"]}


# -- survivors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        (Fake(10, term=None, kill=None, state="D"), "sleeps uninterruptibly"),
        (Fake(10, term=None, kill=None, state="R"), "outlived KILL in state R"),
        (Fake(10, term=None, kill=None, ns_pid=1), "PID 1 of its PID namespace"),
        (Fake(10, permitted=False), "operation not permitted"),
    ],
)
def test_survivors_are_named_with_the_reason(fake: Fake, words: str) -> None:
    result = World(fake).release()
    assert (result.verdict, result.failed) == ("survivors", True)
    assert words in result.message
    assert [one.pid for one in result.survivors] == [10]


def test_where_all_that_is_left_refuses_our_signals_there_is_no_waiting() -> None:
    world = World(Fake(10, permitted=False))
    assert world.release([Rung("TERM", 15), Rung("KILL", 180)]).elapsed_s < 1


def test_a_rung_without_a_wait_still_looks_afterwards() -> None:
    assert World(Fake(10)).release([Rung("KILL", 0)]).verdict == "released"
