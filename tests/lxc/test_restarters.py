# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Holders that something starts again: stopped through it, or named and refused; a server is never started on top."""

from __future__ import annotations

import typing as t

import commands
import evidence
import pytest
import serving
from cases import Case
from inside import Inside, end_holders, memory
from playing import Play, play

GPUS = [0, 1, 2, 3]
HOLD = '{"gpu": 2, "mib": 500}'
SUPERVISOR = "import subprocess, sys, time\nwhile True:\n    subprocess.call(sys.argv[1:])\n    time.sleep(0.3)"


@pytest.fixture
def inside(scene: tuple[Inside, Inside]) -> t.Iterator[Inside]:
    """101 serves, and nobody else holds a GPU."""
    serving.serve(scene[0], GPUS)
    yield scene[0]
    end_holders()


def server_was_not_started(case: Case, played: Play) -> None:
    """By systemd's own account."""
    before, after = case.units[101], case.units_after[101]
    new = after.journal[len(before.journal) :]
    assert ": Started sglang.service" not in new
    assert after.shown["ActiveEnterTimestampMonotonic"] == before.shown["ActiveEnterTimestampMonotonic"]
    assert after.shown["NRestarts"] == before.shown["NRestarts"]
    assert not played.of("Start the server")
    assert "server_args" not in after.log[len(before.log) :]


def second_unit(inside: Inside) -> int:
    inside.pct("systemd-run", "--quiet", "--unit=test-second", "-p", "Restart=always", "-p", "RestartSec=300ms",
               "-p", "StartLimitIntervalSec=0", *inside.hold_command(HOLD))  # fmt: skip
    commands.wait_for("the second unit holds its GPU", lambda: memory()[2] > 76115, 20)
    return inside.main_pid("test-second.service")


def test_another_unit_of_the_container_is_named_and_refused_before_the_stop(inside: Inside, watch: t.Any) -> None:
    pid = second_unit(inside)
    with watch("a second unit in 101 holds GPU 2, Restart=always", 101) as case:
        played = play("relaunch.yml", "ct101")
    case.outcome = "refused: " + played.why()[:240]
    assert case.holder(pid)["unit"] == "test-second.service"
    assert played.code != 0
    assert "test-second.service" in played.why()
    assert not played.stopped("ct101")
    case.untouched(101)


def test_another_unit_that_is_named_is_stopped_or_refused(inside: Inside, watch: t.Any) -> None:
    pid = second_unit(inside)
    hosts = {"ct101": {"sglang_server_profile": "low", "gpus": GPUS,
                       "gpu_release_units": ["sglang.service", "test-second.service"]}}  # fmt: skip
    with watch("the same, named in gpu_release_units", 101) as case:
        played = play("relaunch.yml", "ct101", hosts=hosts)
    case.outcome = "ready" if played.code == 0 else "refused: " + played.why()[:240]
    assert pid not in case.tables_after[101]
    if played.code == 0:
        state = inside.pct("systemctl", "is-active", "test-second.service", check=False).strip()
        assert state in ("inactive", "unknown"), "stopped through its manager"
        assert memory()[:4] == [76115] * 4
    else:
        assert "test-second.service" in played.why()
        server_was_not_started(case, played)


@pytest.mark.parametrize("who", ["supervisor", "shell loop"])
def test_what_is_started_again_is_named_and_the_server_stays_down(inside: Inside, watch: t.Any, who: str) -> None:
    hold = inside.hold_command(HOLD)
    if who == "supervisor":
        serving.outside_every_unit(inside, "/usr/bin/python3", "-c", SUPERVISOR, *hold)
    else:
        words = " ".join(f"'{word}'" for word in hold)
        serving.outside_every_unit(inside, "sh", "-c", f"while true; do {words}; done")
    commands.wait_for("it holds its GPU", lambda: memory()[2] > 76115, 20)
    with watch(f"a {who} in 101 starts its holder again", 101) as case:
        played = play("relaunch.yml" if who == "supervisor" else "release.yml", "ct101")
    case.outcome = "refused: " + played.why()[:240]
    assert played.code != 0
    told = played.release("ct101")
    assert told["verdict"] == "respawned"
    culprit = "subprocess.call" if who == "supervisor" else "while true"
    assert culprit in told["respawned_by"]
    assert told["respawned_by"] in told["msg"]
    named = [pid for pid in case.tables[101] if f"PID {pid} " in told["respawned_by"]]
    assert len(named) == 1
    assert named[0] in case.tables_after[101], "who starts it again is named, not signalled"
    server_was_not_started(case, played)
    assert evidence.unit_state(inside).shown["ActiveState"] == "inactive"
