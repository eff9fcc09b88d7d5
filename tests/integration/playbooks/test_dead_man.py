# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The timer that starts a stopped server again: when it is armed, and whose run takes it away. On played timers."""

from __future__ import annotations

import json
import subprocess
import typing as t

import pytest
from played_timers import TIMER, armed, give_timers, leave_timer
from simulated_nodes import Node, Run


def steps(run: Run, node: Node) -> list[str]:
    """What was done to the unit and to its timer, in order."""
    found = []
    for call in run.of(node):
        if call.tool == "systemd-run":
            found.append("arm")
        elif call.tool == "systemctl" and call.verb in ("start", "stop"):
            found.append("disarm" if TIMER in call.argv else call.verb if "sglang.service" in call.argv else "")
    return [step for step in found if step]


@pytest.fixture(scope="module")
def bare(make_shared_node) -> Node:
    """Nothing runs there."""
    node = make_shared_node()
    give_timers(node)
    return node


@pytest.fixture(scope="module")
def started(make_shared_node, play) -> tuple[Node, Run]:
    """It serves, with its guard, since a person has started it beside a timer that was left."""
    node = make_shared_node()
    give_timers(node)
    leave_timer(node, "an-old-run")
    run = play("start", node)
    assert run.rc == 0, str(run)
    return node, run


@pytest.fixture
def node(started) -> Node:
    return started[0]


def test_whoever_starts_takes_it_away_before_the_start(started) -> None:
    """It would fire in the midst of it, and the run would find a server that it did not start."""
    node, run = started
    assert steps(run, node) == ["disarm", "start"], str(run)
    assert armed(node) == []


def test_a_relaunch_arms_it_before_the_stop_and_takes_it_away_once_it_serves(node, play) -> None:
    run = play("relaunch", node)
    assert run.rc == 0, str(run)
    assert [step for step in steps(run, node) if step != "disarm"] == ["arm", "stop", "start"]
    assert steps(run, node)[-1] == "disarm"
    assert armed(node) == []


def test_what_somebody_wrote_by_hand_is_not_started_unattended(node, play) -> None:
    """A unit without a guard runs: between its stop and the new files a timer would start that one, on any GPUs."""
    lines = node.unit.read_text().splitlines(keepends=True)
    node.unit.write_text("".join(line for line in lines if not line.startswith("ExecStartPre=")))
    leave_timer(node, "an-old-run")
    run = play("relaunch", node)
    assert run.rc == 0, str(run)
    assert steps(run, node) == ["disarm", "stop", "start"], "nor by the timer of an earlier run"
    assert "does not run its start guard" in run.text, str(run)
    assert len(node.launchers()) == 1
    assert "arm" in steps(play("relaunch", node), node), "the new unit has a guard"


def test_whoever_stops_takes_it_away_before_the_stop(node, play) -> None:
    leave_timer(node, "an-old-run")
    run = play("stop", node)
    assert run.rc == 0, str(run)
    assert steps(run, node) == ["disarm", "stop"], str(run)
    assert armed(node) == []


def test_whoever_releases_takes_it_away_first(bare, play) -> None:
    leave_timer(bare, "an-old-run")
    run = play("release", bare)
    assert run.rc == 0, str(run)
    assert steps(run, bare)[0] == "disarm", str(run)
    assert armed(bare) == []


def pause(play, node: Node, *words: str, minutes: int = 60) -> Run:
    return play("pause", node, *words, pause_minutes=minutes, pause_reason="the rack is rewired")


def take_lease(play, node: Node, place: t.Any, run_id: str, state: str) -> None:
    lock = {"state": state, "run_id": run_id, "node": "n", "path": "{{ gpu_release_lease_dir }}"}
    tasks = [{"cleanslate.gpu.gpu_host_lock": lock}]
    environment = "{{ cleanslate_environment }}"
    place.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "environment": environment, "tasks": tasks}]))
    run = play(place, node)
    assert run.rc == 0, str(run)


def test_a_pause_takes_it_away_and_touches_nothing_else(bare, play) -> None:
    leave_timer(bare, "an-old-run")
    check = pause(play, bare, "--check")
    assert check.rc == 0, str(check)
    assert armed(bare) == [TIMER], "a rehearsal"
    processes = bare.snapshot()["processes"]
    run = pause(play, bare)
    assert run.rc == 0, str(run)
    assert steps(run, bare) == ["disarm"]
    assert armed(bare) == []
    assert bare.snapshot()["processes"] == processes


def test_a_pause_leaves_that_of_a_run_that_is_at_work_and_says_so(bare, play, tmp_path) -> None:
    leave_timer(bare, "run-7")
    take_lease(play, bare, tmp_path / "take.yml", "run-7", "held")
    run = pause(play, bare, minutes=90)
    assert run.rc == 0, str(run)
    assert (steps(run, bare), armed(bare)) == ([], [TIMER])
    for text in ("A timer of run run-7 starts sglang.service again", "unlock.yml -e unlock_run_id=run-7"):
        assert text in run.text, str(run)
    (lease,) = (bare.folder / "run" / "cleanslate").glob("leases-*.json")
    good = lease.read_text()
    lease.write_text("?")
    unclear = pause(play, bare, minutes=91)
    assert armed(bare) == [TIMER], "who is at work cannot be told"
    assert f"systemctl stop {TIMER}" in unclear.text, str(unclear)
    lease.write_text(good)
    take_lease(play, bare, tmp_path / "give.yml", "run-7", "released")
    assert pause(play, bare, minutes=0).rc == 0
    assert armed(bare) == [TIMER], "the end of a pause changes nothing else"
    assert pause(play, bare).rc == 0
    assert armed(bare) == []


def test_a_pause_fails_where_it_cannot_be_taken_away(bare, play) -> None:
    leave_timer(bare, "an-old-run")
    player = bare.folder / "bin" / "systemctl"
    text = player.read_text()
    player.write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\ncase \" $* \" in *' stop '*{TIMER}*) exit 1 ;; esac\n"))
    try:
        run = pause(play, bare, minutes=30)
    finally:
        player.write_text(text)
    assert run.rc == 2, str(run)
    assert "could not be taken away, and will start the server" in run.text, str(run)
    subprocess.run([str(player), "--user", "stop", TIMER], check=True, timeout=60)
