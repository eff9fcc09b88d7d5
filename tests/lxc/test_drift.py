# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scheduled looks on real systemd: what depends on results, restarts, cgroups and a frozen container."""

from __future__ import annotations

import json
import os
import time
import typing as t

import commands
import layout
import pytest
import serving
from evidence import unit_state
from inside import Inside, end_holders, memory
from playing import Play, play

UNIT = "sglang.service"
CONFIRM = 3
POLICY = {"gpu_drift_mode": "remediate", "gpu_drift_confirm_after": CONFIRM, "gpu_drift_max_remediations": 9,
          "gpu_drift_backoff": 1, "gpu_drift_look_timeout": 20}  # fmt: skip


def look(*words: str, **extra: t.Any) -> tuple[dict[str, t.Any], Play]:
    """One scheduled run for 101: its row, and the run."""
    path = os.path.join(layout.STATE, "log", "drift.json")
    played = play("drift.yml", "ct101", *words, extra={**POLICY, "gpu_drift_result_file": path, **extra})
    with open(path, encoding="utf-8") as handle:
        (row,) = json.load(handle)
    return row, played


@pytest.fixture(scope="module")
def wanted(scene: tuple[Inside, Inside]) -> Inside:
    """A server that a person relaunched: it is wanted, and its files are ours."""
    end_holders()
    inside = scene[0]
    serving.behave(inside)
    inside.pct(
        "sh", "-c", f"rm -rf /etc/sglang /etc/systemd/system/{UNIT}* /var/lib/cleanslate; systemctl daemon-reload"
    )
    played = play("relaunch.yml", "ct101")
    assert played.code == 0, played.why()
    return inside


@pytest.fixture
def serves(wanted: Inside) -> Inside:
    if not serving.answers(wanted):
        serving.behave(wanted)
        played = play("relaunch.yml", "ct101")
        assert played.code == 0, played.why()
    return wanted


def test_a_look_at_a_healthy_server_changes_nothing_at_all(serves: Inside) -> None:
    places = "/etc /var/lib /var/log/cleanslate /run/cleanslate* /dev/shm"
    # The simulator writes down who asks it.
    files = f"find {places} -xdev -type f -not -path '{layout.STATE}/*' -exec stat -c '%n %Z %s %a' {{}} +"
    before = unit_state(serves), serves.pct("sh", "-c", files)
    row, played = look()
    assert played.code == 0, played.why()
    assert (row["action"], row["server"], row["gpus"], row["config"]) == ("nothing", "ready", "busy", "same"), row
    assert (unit_state(serves), serves.pct("sh", "-c", files)) == before
    on_node = [one for one in played.steps if one.action.startswith("cleanslate.gpu.") and one.delegated is None]
    assert len(on_node) <= 3, [one.task for one in on_node]


def test_an_operators_stop_is_not_undone(serves: Inside) -> None:
    serves.pct("systemctl", "stop", UNIT)
    for _look in range(2):
        row, played = look()
        assert played.code == 0, played.why()
        assert (row["action"], row["outcome"]) == ("report", None), row
        time.sleep(CONFIRM)
    assert unit_state(serves).shown["ActiveState"] == "inactive"


def test_a_server_that_died_and_stays_down_is_started_again(serves: Inside) -> None:
    """With exit code 0, as an engine's death looks, and nothing that restarts it."""
    drop_in = f"/run/systemd/system/{UNIT}.d"
    serves.pct("mkdir", "-p", drop_in)
    serves.put(drop_in + "/test.conf", "[Service]\nRestart=on-failure\n")
    serves.pct("systemctl", "daemon-reload")
    try:
        serving.behave(serves, die_after_s=1, die={"exit_code": 0})
        serves.pct("systemctl", "restart", UNIT)
        commands.wait_for("it died", lambda: unit_state(serves).shown["ActiveState"] in ("inactive", "failed"), 40)
        serving.behave(serves)
        commands.wait_for("memory is given back", lambda: not any(memory()[:4]), 10)
        row, played = look()
        assert (row["action"], row["outcome"]) == ("relaunch", "ready"), f"{row} {played.why()}"
        assert serving.answers(serves)
    finally:
        serves.pct("rm", "-r", drop_in)
        serves.pct("systemctl", "daemon-reload")


def test_a_crash_loop_that_systemd_gave_up_is_relaunched(serves: Inside) -> None:
    serving.behave(serves, die_at={"stage": "init", "exit_code": 1})
    drop_in = f"/run/systemd/system/{UNIT}.d"
    serves.pct("mkdir", "-p", drop_in)
    serves.put(drop_in + "/test.conf", "[Service]\nRestartSec=200ms\n")
    serves.pct("systemctl", "daemon-reload")
    try:
        serves.pct("systemctl", "kill", "--signal=KILL", UNIT)
        commands.wait_for("systemd gave up", lambda: unit_state(serves).shown["ActiveState"] == "failed", 60, 0.5)
        serving.behave(serves)
        for _look in range(3):
            row, played = look()
            if row["outcome"]:
                break
            time.sleep(CONFIRM)
        assert (row["action"], row["outcome"]) == ("relaunch", "ready"), f"{row} {played.why()}"
        assert serving.answers(serves)
    finally:
        serves.pct("rm", "-rf", drop_in)
        serves.pct("systemctl", "daemon-reload")


def test_a_hang_is_mended_after_two_looks_and_nothing_else_is_touched(serves: Inside, watch: t.Any) -> None:
    serves.pct("sh", "-c", "pkill -STOP -f '^sglang::scheduler'")
    with watch("drift.yml in 101: a server that hangs", 101) as case:
        first, _played = look()
        time.sleep(CONFIRM + 1)
        second, played = look()
    case.outcome = f"{first['held_back']}, then {second['action']}: {second['outcome']}"
    assert (first["would"], first["held_back"]) == ("relaunch", "confirmation"), first
    assert (second["action"], second["outcome"]) == ("relaunch", "ready"), f"{second} {played.why()}"
    assert serving.answers(serves)
    case.untouched(102)
    index = serves.pct("cat", second["evidence_path"] + "/index.json")
    assert {part["part"] for part in json.loads(index)["parts"]} >= {"processes", "unit", "journal", "log"}


def test_a_colleagues_job_on_the_gpus_is_reported_and_lives(serves: Inside, watch: t.Any) -> None:
    pid = serves.hold(1, 900)
    with watch("drift.yml in 101: somebody's job beside the server", 101) as case:
        for _look in range(2):
            row, played = look()
            assert played.code == 0, played.why()
            time.sleep(CONFIRM)
    case.outcome = f"{row['action']}: {' '.join(row['reasons'])}"[:200]
    assert row["outcome"] is None, row
    assert pid in case.tables_after[101]
    assert case.signalled(101) == []
    end_holders()


def test_a_container_that_a_backup_has_frozen_is_left_alone(serves: Inside) -> None:
    before = unit_state(serves)
    lxc = ["-P", os.path.join(layout.STATE, "lxc"), "-n", "101"]
    commands.run(["lxc-freeze", *lxc])
    try:
        row, _played = look("--timeout", "5")
    finally:
        commands.run(["lxc-unfreeze", *lxc])
    assert (row["action"], row["outcome"]) == ("report", None), row
    after = unit_state(serves)
    assert after.shown["InvocationID"] == before.shown["InvocationID"]
    assert after.processes == before.processes
