# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""start, status, stop and release over SSH, and what only a real systemd can show of the unit."""

from __future__ import annotations

import json
import os
import typing as t

import commands
import pytest
import serving
from evidence import unit_state
from inside import Inside, memory
from playing import HALVES, Play, play

UNIT = "/etc/systemd/system/sglang.service"
DROP_IN = UNIT + ".d"
# What systemd-analyze verify may remark about the image, not about our unit.
NOT_OURS = ("Failed to create", "man page", "Man page", "Unknown key name")


@pytest.fixture(scope="module")
def started(scene: tuple[Inside, Inside]) -> Play:
    """start.yml in 101, where nothing was installed."""
    inside = scene[0]
    serving.behave(inside)
    inside.pct("sh", "-c", f"rm -rf /etc/sglang {UNIT} {DROP_IN}; systemctl daemon-reload")
    return play("start.yml", "ct101")


def test_start_installs_and_starts_behind_the_gate(started: Play, scene: tuple[Inside, Inside]) -> None:
    assert started.code == 0, started.why()
    assert started.last("Wait for idle GPUs").result["verdict"] == "idle"
    assert serving.answers(scene[0])
    assert memory() == [76115] * 4 + [0] * 4


def test_the_unit_is_what_systemd_expects(started: Play, scene: tuple[Inside, Inside]) -> None:
    inside = scene[0]
    done = commands.run(
        [
            "lxc-attach",
            "-P",
            "/var/lib/cleanslate-lxc/lxc",
            "-n",
            "101",
            "--",
            "sh",
            "-c",
            f"systemd-analyze verify {UNIT} 2>&1",
        ],
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if "sglang" in line]
    assert (done.returncode, said) == (0, [])
    shown = dict(
        line.split("=", 1)
        for line in inside.pct(
            "systemctl",
            "show",
            "-p",
            "User,KillMode,Type,Restart,UnitFileState,LimitNOFILE,NoNewPrivileges",
            "sglang.service",
        ).splitlines()
    )
    assert shown == {
        "User": "sglang", "KillMode": "mixed", "Type": "exec", "Restart": "always", "UnitFileState": "enabled",
        "LimitNOFILE": "1048576", "NoNewPrivileges": "yes",
    }  # fmt: skip
    owner = os.stat("/proc/{}".format(inside.main_pid("sglang.service"))).st_uid
    assert owner == int(inside.pct("id", "-u", "sglang"))
    assert inside.pct("stat", "-c", "%a %U", "/etc/sglang/sglang.yaml").split() == ["600", "sglang"]
    assert "lxc-key" in inside.pct("cat", "/etc/sglang/sglang.yaml")
    assert "lxc-key" not in inside.pct("cat", UNIT)
    assert "lxc-key" not in inside.pct(
        "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; systemctl show sglang.service"
    )


def test_status_tells_server_gpus_and_holders(started: Play) -> None:
    played = play("status.yml", "ct101")
    assert played.code == 0
    assert "ct101: server ready, GPUs busy" in played.text
    assert "belongs to sglang.service" in played.text
    assert played.text.count("76115 / 97887") == 4


def test_stop_lets_the_launcher_end_its_children(started: Play, scene: tuple[Inside, Inside], watch: t.Any) -> None:
    with watch("stop.yml in 101", 101) as case:
        played = play("stop.yml", "ct101")
    case.outcome = played.text.strip().rpartition("msg: ")[2][:100]
    assert played.code == 0, played.why()
    ended = set(case.units[101].processes)
    signals = [one for one in case.signalled(101) if one.pid in ended]
    (told,) = [one for one in signals if one.sender_name == "systemd"]
    assert told.name == "TERM"
    assert {one.sender for one in signals if one.pid != told.pid} <= ended, "the rest by the launcher and its children"
    assert case.units_after[101].shown["ActiveState"] == "inactive"
    assert case.units_after[101].shown["NRestarts"] == "0"
    commands.wait_for("memory is given back", lambda: not any(memory()), 10)


def test_release_frees_the_gpus_and_starts_nothing(started: Play, scene: tuple[Inside, Inside], watch: t.Any) -> None:
    pid = scene[0].hold(2, 900, ', "ignore_term": true')
    extra = {"gpu_release_ladder": [{"signal": "TERM", "wait": 2}, {"signal": "KILL", "wait": 30}]}
    with watch("release.yml in 101: a holder by pct exec that ignores TERM, no server", 101) as case:
        played = play("release.yml", "ct101", extra=extra)
    case.outcome = "released, nothing started" if played.code == 0 else played.why()[:240]
    assert played.code == 0, played.why()
    assert [(one.name, one.pid) for one in case.signalled(101)] == [("TERM", pid), ("KILL", pid)]
    assert not any(memory())
    assert case.units_after[101].shown["ActiveState"] == "inactive"


@pytest.fixture(scope="module")
def broken(started: Play, scene: tuple[Inside, Inside]) -> tuple[Inside, Inside]:
    """101: failed, its launcher ended by signal 9. 102: crash-looping, 0.2 s between two deaths."""
    killed, looping = scene
    killed.pct("mkdir", "-p", DROP_IN)
    killed.put(DROP_IN + "/test.conf", "[Service]\nRestart=no\n")
    serving.behave(killed)
    killed.pct("sh", "-c", "systemctl daemon-reload; systemctl start sglang.service")
    killed.pct("systemctl", "kill", "--kill-whom=all", "-s", "KILL", "sglang.service")
    commands.wait_for(
        "it has failed", lambda: unit_state(killed).shown["ActiveState"] == "failed", 20
    )  # fmt: skip
    serving.behave(looping, die_at={"stage": "init", "exit_code": 1})
    text = serving.UNIT.replace("RestartSec=1", "RestartSec=200ms").replace(
        "[Service]", "StartLimitIntervalSec=0\n[Service]"
    )
    serving.install(looping, HALVES["ct102"]["gpus"], text)
    looping.pct("systemctl", "start", "sglang.service", check=False)
    commands.wait_for("it loops", lambda: int(unit_state(looping).shown["NRestarts"]) >= 4, 30)
    # From its next death on systemd waits for longer than the tests last, so that they look at one state.
    looping.pct("sh", "-c", f"sed -i s/^RestartSec=.*/RestartSec=90/ {UNIT}; systemctl daemon-reload")
    commands.wait_for("it waits", lambda: unit_state(looping).shown["ActiveState"] == "activating", 30, 1)
    return scene


def test_status_of_a_failed_and_of_a_crash_looping_unit(broken: tuple[Inside, Inside]) -> None:
    played = play("status.yml", "ct101,ct102")
    told = {step.host: step.result["verdict"] for step in played.of("Look at sglang.service")}
    assert told == {"ct101": "failed", "ct102": "crash_looping"}, json.dumps(told)


def test_stop_clears_a_failed_unit_and_ends_a_crash_loop(broken: tuple[Inside, Inside]) -> None:
    played = play("stop.yml", "ct101,ct102")
    assert played.code == 0, played.why()
    before = [unit_state(inside).shown for inside in broken]
    assert [one["ActiveState"] for one in before] == ["inactive", "inactive"]
    assert broken[0].pct("systemctl", "show", "--value", "-p", "Result", "sglang.service").strip() == "success"
    broken[1].pct("sleep", "1")
    assert [unit_state(inside).shown for inside in broken] == before, "it stays down"
