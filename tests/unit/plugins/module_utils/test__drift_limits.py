# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs of a schedule against a node whose clocks the tests move: what is done, when, and what holds it back."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_limits import breaker, judge, policy_of
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import (
    GPUS,
    START,
    UNIT,
    Node,
    holder,
)

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def nothing_was_written(node: Node) -> bool:
    return not pathlib.Path(node.path).parent.exists()


def test_a_healthy_node_is_left_exactly_as_it_is(node: Node) -> None:
    for dummy in range(12):
        assert node.run().row == "healthy"
        node.pass_time(5 * MINUTE)
    assert nothing_was_written(node)


def test_a_25_minute_load_under_a_5_minute_timer(node: Node) -> None:
    node.load()
    for dummy in range(6):
        assert (node.run().action, node.relaunches) == ("nothing", [])
        node.pass_time(5 * MINUTE)
    assert nothing_was_written(node)


def test_a_load_beyond_its_budget(node: Node) -> None:
    node.load()
    node.pass_time(node.policy.load_budget + 1)
    first = node.run()
    assert (first.action, first.would, first.held_back) == ("report", "relaunch", "confirmation")
    node.pass_time(5 * MINUTE)
    assert node.run().action == "relaunch"


def test_an_hour_of_busy(node: Node) -> None:
    node.health = {"verdict": "busy", "reason": "503, but the model moves", "witnesses": {}}
    for dummy in range(12):
        assert node.run().action == "nothing"
        node.pass_time(5 * MINUTE)
    assert nothing_was_written(node)


@pytest.mark.parametrize("use", [95, None])
def test_an_hour_without_an_answer_whose_model_may_work(node: Node, use: int | None) -> None:
    """No tokens could be counted: a prefill of an hour looks like this."""
    node.hang()
    node.requests["progress"], node.use = None, use
    for dummy in range(12):
        assert node.run().action == "report"
        node.pass_time(5 * MINUTE)
    assert nothing_was_written(node)


def test_hung_for_one_look_only(node: Node) -> None:
    node.hang()
    verdict = node.run()
    assert (verdict.action, verdict.held_back, verdict.remember) == ("report", "confirmation", "noted")
    node.serve()
    node.pass_time(5 * MINUTE)
    assert (node.run().action, node.memory().suspicions) == ("nothing", ())
    node.hang()
    node.pass_time(5 * MINUTE)
    assert node.run().action == "report", "the earlier hang was over"


@pytest.mark.parametrize(
    ("apart", "action"), [(179.0, "report"), (180.0, "relaunch"), (3600.0, "relaunch"), (3601.0, "report")]
)
def test_two_looks_confirm_each_other(node: Node, apart: float, action: str) -> None:
    node.hang()
    node.run()
    node.pass_time(apart)
    verdict = node.run()
    assert (verdict.action, verdict.confirmed) == (action, action == "relaunch")


def test_many_looks_close_together_do_confirm_in_the_end(node: Node) -> None:
    node.hang()
    for dummy in range(3):
        assert node.run().action == "report"
        node.pass_time(60)
    assert node.run().action == "relaunch"


@pytest.mark.parametrize("jump", [5 * HOUR, -5 * HOUR])
def test_a_clock_that_jumps_confirms_nothing(node: Node, jump: float) -> None:
    node.hang()
    node.run()
    node.pass_time(30)
    node.clock.date += jump
    node.started += jump  # it is told from the date
    assert node.run().action == "report"
    node.pass_time(170)
    assert node.run().action == "report", "counted anew from the jump"
    node.pass_time(30)
    assert node.run().action == "relaunch"


def test_a_reboot_between_looks_confirms_nothing(node: Node) -> None:
    node.hang()
    node.run()
    node.pass_time(5 * MINUTE)
    node.boot, node.clock.boot_s = "boot-2", 5300.0
    assert node.run().action == "report"


def test_a_restart_of_its_container_between_looks_confirms_nothing(node: Node) -> None:
    """The boot is the host's, and the process id often is the same one."""
    node.hang()
    node.run()
    node.pass_time(5 * MINUTE)
    node.started = node.clock.date - 100
    assert node.run().action == "report"


def test_another_process_is_another_suspicion(node: Node) -> None:
    node.hang()
    node.run()
    node.pass_time(5 * MINUTE)
    node.pid = 4712
    assert node.run().action == "report"
    assert [one.key for one in node.memory().suspicions] == [f"hung: {UNIT}, process 4712"]


def test_one_hang_then_quiet_then_a_second_hang(node: Node) -> None:
    for dummy in range(2):
        node.hang()
        node.run()
        node.pass_time(5 * MINUTE)
        assert node.run().action == "relaunch"
        node.load()
        for dummy in range(4):
            node.pass_time(5 * MINUTE)
            assert node.run().action == "nothing"
        node.serve()
        for dummy in range(12):
            node.pass_time(5 * MINUTE)
            assert node.run().action == "nothing"
    assert len(node.relaunches) == 2
    node.hang()
    node.run()
    node.pass_time(5 * MINUTE)
    third = node.run()
    assert (third.action, third.held_back, len(node.relaunches)) == ("report", "budget", 2)
    assert "2 remediations began in the last 24 hours, and 2 in 24 hours are allowed" in third.reasons[-1]


def test_the_budget_comes_back_with_the_window(node: Node) -> None:
    for dummy in range(2):
        node.die()
        assert node.run().action == "relaunch"
    first = node.relaunches[0]
    node.pass_time(DAY - 1)
    assert node.run().held_back == "budget"
    node.pass_time(1)
    assert (node.run().action, node.clock.date - first) == ("relaunch", DAY)


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_a_relaunch_that_never_helps(node: Node, outcome: str) -> None:
    """Dead at every look of three days: the cap, then the latch."""
    node.die()
    words = []
    for dummy in range(3 * 24 * 12):
        words.append(node.run(outcome).held_back)
        node.pass_time(5 * MINUTE)
    assert len(node.relaunches) == node.policy.limits.max_remediations == 2
    assert node.relaunches[1] - node.relaunches[0] == 15 * MINUTE, "the back-off"
    assert words[1] == "backoff"
    assert words[-1] == "gave_up"
    node.boot, node.clock.boot_s = "boot-2", 10.0
    assert node.run().held_back == "gave_up", "it lasts across a reboot"
    assert node.remember("reset").changed
    assert node.run().action == "relaunch", "a person has reset it"


def test_the_back_off_doubles_up_to_its_most(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, max_remediations=6, backoff=600, backoff_most=3000, window=DAY)
    node.die()
    for dummy in range(24 * 60):
        node.run("failed")
        node.pass_time(MINUTE)
    gaps = [later - earlier for earlier, later in zip(node.relaunches, node.relaunches[1:])]
    assert gaps == [600, 1200, 2400, 3000, 3000]


@pytest.mark.parametrize("jump", [-30 * DAY, 30 * DAY])
def test_a_clock_that_jumps_ends_no_back_off(node: Node, jump: float) -> None:
    node.die()
    node.run("failed")
    node.pass_time(30)
    node.clock.date += jump
    assert node.run().held_back == "backoff"
    node.pass_time(15 * MINUTE)
    assert node.run().action == "relaunch", "nor prolongs it"


def test_after_a_boot_in_the_past_the_budget_stays_spent(node: Node) -> None:
    for dummy in range(2):
        node.die()
        node.run()
    node.boot, node.clock.boot_s, node.clock.date = "boot-2", 10.0, START - 300 * DAY
    assert node.run().held_back == "budget"


def test_after_a_boot_in_the_past_a_back_off_is_no_longer_than_it_was(node: Node) -> None:
    node.die()
    node.run("failed")
    node.boot, node.clock.boot_s, node.clock.date = "boot-2", 10.0, START - 300 * DAY
    assert "the next one may begin in 15 minutes" in node.run().reasons[-1]


def test_crashed_and_left_over(node: Node) -> None:
    node.die()
    node.gate = {"verdict": "busy", "msg": "held", "holders": [holder()]}
    first = node.run()
    assert (first.row, first.held_back) == ("dead_with_leftovers", "confirmation")
    assert first.key == f"dead_with_leftovers: {UNIT}, left over 4801@5701"
    node.pass_time(5 * MINUTE)
    assert node.run().action == "relaunch"


@pytest.mark.parametrize(
    ("policy", "held_back"),
    [({"mode": "report"}, "mode"), ({"enabled": False}, "opt_out"), ({"max_remediations": 0}, "budget")],
)
def test_what_a_person_does_not_allow(tmp_path: pathlib.Path, policy: dict[str, t.Any], held_back: str) -> None:
    node = Node(tmp_path, **policy)
    node.die()
    for dummy in range(3):
        verdict = node.run()
        assert (verdict.action, verdict.would, verdict.held_back) == ("report", "relaunch", held_back)
        node.pass_time(5 * MINUTE)
    assert nothing_was_written(node)


@pytest.mark.parametrize("policy", [{"mode": "report"}, {"enabled": False}])
def test_a_host_that_is_only_reported_on_is_left_as_it_is(tmp_path: pathlib.Path, policy: dict[str, t.Any]) -> None:
    node = Node(tmp_path, **policy)
    node.hang()
    for dummy in range(3):
        assert node.run().would == "relaunch"
        node.pass_time(5 * MINUTE)
    assert nothing_was_written(node)


def test_only_at_its_time(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, windows=["Mon-Fri 22:00-06:00 UTC"])
    node.clock.date = 1796241600.0  # Wednesday, 2 December 2026, 20:00 in UTC
    node.started = node.clock.date - HOUR
    node.hang()
    acted = []
    for dummy in range(30):
        verdict = node.run()
        acted += [node.clock.date] if verdict.action == "relaunch" else []
        assert acted or verdict.held_back in ("window", "confirmation")
        if acted:
            break
        node.pass_time(5 * MINUTE)
    assert acted == [1796241600.0 + 2 * HOUR], "at the first minute: earlier looks have confirmed it"


def test_corrupt_memory_is_left_alone(node: Node) -> None:
    path = pathlib.Path(node.path)
    path.parent.mkdir()
    path.write_text("{")
    node.die()
    verdict = node.run()
    assert (verdict.row, verdict.action, verdict.remember) == ("memory_unreadable", "report", "none")
    assert "A budget that is not known is spent" in verdict.reasons[0]
    begun = node.remember("begun", revision=0, run_id="r", action="relaunch")
    assert (begun.verdict, begun.failed, path.read_text()) == ("unreadable", True, "{")


class TestBreaker:
    SICK: t.ClassVar[dict[str, t.Any]] = {"would": "relaunch", "held_back": None}

    def fleet(self, sick: int, well: int, unseen: int = 0, **change: t.Any) -> dict[str, t.Any]:
        hosts: dict[str, t.Any] = {f"s{number}": {**self.SICK, **change} for number in range(sick)}
        hosts.update({f"w{number}": {"would": "nothing", "held_back": None} for number in range(well)})
        hosts.update({f"u{number}": None for number in range(unseen)})
        return hosts

    @pytest.mark.parametrize(
        ("sick", "well", "most", "tripped"),
        [
            (1, 0, None, False),
            (2, 0, None, True),
            (1, 9, None, False),
            (3, 7, None, False),
            (4, 6, None, True),
            (3, 7, 2, True),
            (2, 8, 2, False),
        ],
    )
    def test_borders(self, sick: int, well: int, most: int | None, tripped: bool) -> None:
        found = breaker(self.fleet(sick, well), 0.3, most)
        assert (found.tripped, len(found.hosts)) == (tripped, sick)

    def test_hosts_that_were_not_seen_make_no_room(self) -> None:
        assert breaker(self.fleet(2, 3, unseen=20), 0.3, None).tripped

    @pytest.mark.parametrize(
        ("held_back", "tripped"),
        [("confirmation", True), ("window", True), ("backoff", True), ("gave_up", False), ("opt_out", False)],
    )
    def test_who_counts(self, held_back: str, tripped: bool) -> None:
        assert breaker(self.fleet(5, 5, held_back=held_back), 0.3, None).tripped is tripped

    def test_it_says_who_and_what_to_look_at(self) -> None:
        reason = breaker(self.fleet(3, 0), 0.5, None).reason
        assert reason.startswith("3 of 3 hosts would be acted on, 1 at most may be: s0, s1, s2. Nothing is done")


@pytest.mark.parametrize("look", [None, "?", [], {}, {"unreachable": "ssh: no route to host"}])
def test_no_look_is_told(look: t.Any) -> None:
    verdict = judge(look, policy_of({"unit": UNIT, "mode": "remediate"}), START)
    assert (verdict.action, verdict.row, verdict.remember) == ("report", "wanted_unreadable", "none")
    if isinstance(look, dict) and look:
        assert verdict.reasons[0] == "ssh: no route to host"


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"mode": "fix"}, "mode is 'fix'"),
        ({"unit": "sglang"}, "with the suffix"),
        ({"budget": 3}, "the policy has budget; known are unit, mode"),
        ({"windows": "22:00-06:00"}, "it must be a list"),
        ({"windows": ["nights"]}, "'nights' is not understood"),
        ({"confirm_within": 200}, "would hardly ever confirm"),
        ({"max_remediations": 2.5}, "must be a whole number"),
        ({"load_budget": 0}, "load_budget is 0"),
        ({"backoff": "soon"}, "backoff is 'soon'"),
        ({"enabled": "maybe"}, "enabled is 'maybe'"),
        ({"gpus": GPUS[0]}, "gpus is 'GPU-"),
    ],
)
def test_a_policy_that_cannot_be_meant(policy: dict[str, t.Any], sentence: str) -> None:
    with pytest.raises(ValueError) as raised:
        policy_of({"unit": UNIT, **policy})
    assert sentence in str(raised.value)


def test_what_templates_make_of_a_policy() -> None:
    policy = policy_of({"unit": UNIT, "enabled": "False", "load_budget": "60", "max_remediations": "3", "backoff": "5"})
    assert (policy.enabled, policy.load_budget, policy.limits.max_remediations, policy.limits.backoff) == (
        False,
        60,
        3,
        5,
    )


@pytest.mark.parametrize("budget", [0.5, 604799, "604799.5"])
def test_a_load_budget_below_a_week_is_taken(budget: t.Any) -> None:
    assert policy_of({"unit": UNIT, "load_budget": budget}).load_budget == float(budget)


@pytest.mark.parametrize("budget", [0, -1, 604800, True, "soon", None])
def test_a_load_budget_that_cannot_be_meant_is_refused(budget: t.Any) -> None:
    with pytest.raises(ValueError, match="load_budget is "):
        policy_of({"unit": UNIT, "load_budget": budget})


@pytest.mark.parametrize(("said", "meant"), [(True, True), (False, False), ("true", True), ("False", False)])
def test_switched_on_or_off_also_as_a_template_says_it(said: t.Any, meant: bool) -> None:
    assert policy_of({"unit": UNIT, "enabled": said}).enabled is meant


def test_numbers_that_a_template_made_text_of_are_numbers_again() -> None:
    limits = policy_of({"unit": UNIT, "max_remediations": "3", "window": "7200.5"}).limits
    assert (limits.max_remediations, type(limits.max_remediations), limits.window) == (3, int, 7200.5)
