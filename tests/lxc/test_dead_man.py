# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller is killed between stop and start: the node starts its server again by itself, through its guard."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import typing as t

import commands
import layout
import pytest
import serving
from inside import Inside, end_holders
from playing import HALVES, play, start

UNIT = "sglang.service"
TIMER = "cleanslate-dead-man-sglang.timer"
AFTER = 40  # seconds from arming to firing: stop, release and gate take ten of them here
HOOK = """- name: Wait for the test
  ansible.builtin.wait_for:
    path: %s
    timeout: 120
  delegate_to: localhost
"""


def show(inside: Inside, unit: str, name: str) -> str:
    return inside.pct("systemctl", "show", "--value", f"--property={name}", unit).strip()


def armed(inside: Inside) -> bool:
    return show(inside, TIMER, "ActiveState") == "active"


def guarded(inside: Inside) -> int:
    """How often the guard has said something."""
    lines = inside.pct("journalctl", "--no-pager", "--quiet", "--output=cat", "-t", "cleanslate-guard", "-u", UNIT)
    return len(lines.splitlines())


@pytest.fixture
def served(scene: tuple[Inside, Inside]) -> t.Iterator[Inside]:
    """A server of ours, with its guard."""
    inside = scene[0]
    serving.behave(inside)
    inside.pct("sh", "-c", f"rm -rf /etc/sglang /etc/systemd/system/{UNIT}*; systemctl daemon-reload")
    played = play("start.yml", "ct101")
    assert played.code == 0, played.why()
    yield inside
    inside.pct("systemctl", "stop", TIMER, check=False)
    end_holders()


@contextlib.contextmanager
def controller_killed(*words: str) -> t.Iterator[str]:
    """A relaunch of 101 whose controller got SIGKILL after the release and before the start. The name of its run."""
    hook, go = (os.path.join(layout.STATE, "log", name) for name in ("dead-man-hook.yml", "dead-man-go"))
    layout.write(hook, HOOK % go)
    extra = {"relaunch_hook_after_release": hook, "__sglang_server_dead_man_after": AFTER}
    running = start("relaunch.yml", "ct101", *words, extra=extra)
    try:
        running.wait_for_step("Wait for idle GPUs")
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()
        (lease, *_more) = [step for step in running.seen() if "Take the lease" in step.task]
        yield str(lease.result["leases"][0]["run_id"])
    finally:
        layout.write(go, "")  # for a worker of that run which outlived it
        running.end()
        os.unlink(go)


def unlock(run_id: str) -> None:
    """What a person does after such a night; else the lease of the dead run stands."""
    played = play("unlock.yml", "ct101", extra={"unlock_run_id": run_id})
    assert played.code == 0, played.why()


def test_the_server_comes_back_through_its_guard(served: Inside, watch: t.Any) -> None:
    before, said = show(served, UNIT, "InvocationID"), guarded(served)
    with watch("controller killed between stop and start in 101", 101) as case:
        with controller_killed() as run_id:
            assert show(served, UNIT, "ActiveState") == "inactive", "it is down, and nobody is there to start it"
            assert armed(served)
            assert run_id in show(served, TIMER, "Description")
            commands.wait_for("the server answers again", lambda: serving.answers(served), AFTER + 60)
        unlock(run_id)
    case.outcome = "serves again, started by the node's own timer"
    assert show(served, UNIT, "InvocationID") != before
    assert guarded(served) > said, "it went through the guard"
    assert show(served, UNIT, "NRestarts") == "0"
    assert not armed(served)


def test_whoever_stops_it_afterwards_is_not_undone(served: Inside) -> None:
    with controller_killed() as run_id:
        assert armed(served)
        unlock(run_id)
        stopped = play("stop.yml", "ct101")
        assert stopped.code == 0, stopped.why()
    assert show(served, TIMER, "LoadState") == "not-found", "nothing is left that could fire"
    assert show(served, UNIT, "ActiveState") == "inactive"


def test_a_run_that_comes_back_takes_its_timer_away(served: Inside) -> None:
    played = play("relaunch.yml", "ct101")
    assert played.code == 0, played.why()
    assert played.last("Arm the dead-man timer").result["verdict"] == "armed"
    assert played.last("Disarm the dead-man timer").result["verdict"] == "disarmed"
    assert show(served, TIMER, "LoadState") == "not-found"
    assert serving.answers(served)


def test_what_was_written_by_hand_gets_no_timer_and_its_successor_does(served: Inside) -> None:
    """As the real systemd knows it: the unit that is there runs no guard."""
    serving.serve(served, HALVES["ct101"]["gpus"])
    first = play("relaunch.yml", "ct101")
    assert first.code == 0, first.why()
    assert first.last("Arm the dead-man timer").result["verdict"] == "unguarded"
    second = play("relaunch.yml", "ct101")
    assert second.code == 0, second.why()
    assert second.last("Arm the dead-man timer").result["verdict"] == "armed"


def test_what_was_written_by_hand_is_not_left_to_systemd(served: Inside) -> None:
    """Its successor's guard said no, and systemd would start it in a moment, past every guard."""
    serving.serve(served, HALVES["ct101"]["gpus"])
    hook = os.path.join(layout.STATE, "log", "thief-hook.yml")
    thief = ["systemd-run", "--quiet", "--collect", "--unit=test-thief.service",
             *served.hold_command('{"gpu": 1, "mib": 5000}')]  # fmt: skip
    tasks = [{"name": "Somebody takes a GPU", "ansible.builtin.command": {"argv": thief}},
             {"name": "Wait until he has it", "ansible.builtin.wait_for": {"timeout": 2}}]  # fmt: skip
    layout.write(hook, json.dumps(tasks))
    delay = 3
    played = play("relaunch.yml", "ct101",
                  extra={"relaunch_hook_after_release": hook, "sglang_server_restart_delay": delay})  # fmt: skip
    assert played.code == 2, played.why()
    assert "has no start guard" in played.why(), played.why()
    assert "by hand" in show(served, UNIT, "Description")
    time.sleep(2 * delay)
    assert show(served, UNIT, "ActiveState") in ("inactive", "failed")


def test_a_pause_takes_the_timer_of_a_run_that_is_over_away(served: Inside) -> None:
    pause = {"pause_minutes": 60, "pause_reason": "the rack is rewired"}
    with controller_killed() as run_id:
        beside = play("pause.yml", "ct101", extra=pause)
        assert beside.code == 0, beside.why()
        assert armed(served), "its lease stands: it may be at work"
        unlock(run_id)
        after = play("pause.yml", "ct101", extra=pause)
        assert after.code == 0, after.why()
    assert show(served, TIMER, "LoadState") == "not-found"
    ended = play("pause.yml", "ct101", extra={"pause_minutes": 0})
    assert ended.code == 0, ended.why()


def test_firing_beside_a_running_server_does_nothing(served: Inside) -> None:
    """As systemd itself does it: what the timer runs is a start of a unit that is active."""
    before = show(served, UNIT, "InvocationID")
    served.pct("systemctl", "--no-block", "start", UNIT)
    assert show(served, UNIT, "Job") in ("", "0")
    assert show(served, UNIT, "InvocationID") == before
    assert serving.answers(served)
