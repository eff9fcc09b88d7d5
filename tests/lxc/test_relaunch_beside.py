# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two containers share the host's GPUs; a relaunch of one from the host ends its own holders and nobody else's."""

from __future__ import annotations

import dataclasses
import subprocess
import typing as t

import pytest
import serving
from cases import Case
from inside import Inside, host_smi, memory
from playing import Play, play, uuids
from serving import allowed

APPS = "--query-compute-apps=pid,process_name"


@dataclasses.dataclass
class Beside:
    """What stood beside the server in a relaunch."""

    case: Case
    played: Play
    pids: dict[str, int]
    server: set[int]
    daemon: subprocess.Popen[str]


@pytest.fixture(scope="module")
def both_serve(scene: tuple[Inside, Inside]) -> tuple[Inside, Inside]:
    """101 on GPUs 0 to 3, 102 on 4 to 7."""
    serving.serve(scene[0], [0, 1, 2, 3])
    serving.serve(scene[1], [4, 5, 6, 7])
    return scene


@pytest.fixture(scope="module")
def low(both_serve: tuple[Inside, Inside], watch: t.Any, report: t.Any) -> t.Iterator[Beside]:
    """Relaunch of 101, with a holder from `pct exec`, a daemon here and there, and a monitor."""
    inside, other = both_serve
    daemon = serving.daemon_on_host()
    pids = {
        "by pct exec": inside.hold(1, 700),
        "monitor": inside.hold(0, 0, ', "no_map": true'),
        "daemon": serving.daemon_in(inside),
        "daemon of 102": serving.daemon_in(other),
        "of 102, by pct exec": other.hold(5, 300),
        "daemon on the host": daemon.pid,
    }
    with watch(
        "101 (GPUs 0-3) relaunched beside 102 (4-7), with a holder by pct exec, daemons, a monitor", 101
    ) as case:
        server = set(case.units[101].processes)
        played = play("relaunch.yml", "ct101")
    case.outcome = "ready; 102 untouched"
    report.timed.append(("A whole relaunch in 101 over SSH, step by step", played, "ct101"))
    yield Beside(case, played, pids, server, daemon)
    daemon.kill()
    daemon.wait()


def test_the_relaunch_of_101_ends_in_ready(low: Beside, both_serve: tuple[Inside, Inside]) -> None:
    assert low.played.code == 0, low.played.why()
    assert serving.answers(both_serve[0])
    assert low.server.isdisjoint(low.case.tables_after[101])
    named = [name for _pid, name in host_smi(APPS) if name.startswith("sglang::scheduler")]
    assert sorted(named) == sorted(f"sglang::scheduler_TP{n}" for n in (0, 1, 2, 3, 0, 1, 2, 3))
    assert memory() == [76115, 76115, 76115, 76115, 76115, 76115 + 300, 76115, 76115]


def test_102_did_not_notice_and_got_no_signal(low: Beside) -> None:
    low.case.untouched(102)


def test_what_pct_exec_started_is_found_and_ended(low: Beside) -> None:
    pid = low.pids["by pct exec"]
    found = low.case.holder(pid)
    assert (found["unit"], found["disposition"]) == (None, "target")
    assert found["container"] == {"kind": "lxc", "id": "101"}
    told = low.played.release("ct101")
    assert [(one["pid"], one["signal"]) for one in told["signalled"]] == [(pid, "TERM")]
    assert [(one.name, one.pid) for one in low.case.signals if one.pid == pid] == [("TERM", pid)]
    assert pid not in low.case.tables_after[101]


@pytest.mark.parametrize("who", ["daemon", "daemon of 102", "daemon on the host"])
def test_a_protected_daemon_is_listed_as_such_and_survives(low: Beside, who: str) -> None:
    pid = low.pids[who]
    told = {one["pid"]: one for one in low.played.release("ct101")["holders"]}
    assert told[pid]["disposition"] == "protected"
    assert "nvidia-persistenced" in told[pid]["reason"]
    assert [one for one in low.case.signals if one.pid == pid] == []
    assert low.daemon.poll() is None
    if who != "daemon on the host":
        vmid = 101 if who == "daemon" else 102
        assert low.case.tables_after[vmid][pid] == low.case.tables[vmid][pid]


def test_a_monitor_survives(low: Beside) -> None:
    pid = low.pids["monitor"]
    assert low.case.holder(pid)["disposition"] == "monitor"
    assert [one for one in low.case.signals if one.pid == pid] == []
    assert low.case.tables_after[101][pid] == low.case.tables[101][pid]


def test_fuser_and_lsof_see_101_and_nobody_of_102(low: Beside) -> None:
    here = low.case.truth & set(low.case.tables[101])
    there = low.case.truth & set(low.case.tables[102])
    assert len(there) >= 5
    for seen in (low.case.fuser, low.case.lsof):
        assert here <= seen
        assert not there & seen


def test_the_unit_with_restart_always_did_not_come_back_before_the_gate(low: Beside) -> None:
    """Of one start and one stop in the journal, nothing was in between."""
    new = low.case.units_after[101].journal[len(low.case.units[101].journal) :].splitlines()
    words = [word for line in new for word in ("Stopping", "Stopped", "Started") if f": {word} " in line]
    assert words == ["Stopping", "Stopped", "Started"]
    assert low.case.units_after[101].shown["NRestarts"] == "0"
    assert low.case.units_after[101].shown["InvocationID"] != low.case.units[101].shown["InvocationID"]


def test_only_the_launcher_was_told_to_stop(low: Beside) -> None:
    """KillMode=mixed: systemd asks the main process, the launcher ends its own children."""
    by_systemd = [one for one in low.case.signalled(101) if one.sender_name == "systemd" and one.pid in low.server]
    assert [one.name for one in by_systemd if one.name == "TERM"] == ["TERM"]


# ---- the other way round ----


@pytest.fixture(scope="module")
def high(low: Beside, both_serve: tuple[Inside, Inside], watch: t.Any) -> Case:
    """Relaunch of 102, whose holders fuser and lsof on the host cannot see."""
    with allowed(lxc=["102"], gpus=uuids([4, 5, 6, 7])), watch(
        "102 (GPUs 4-7) relaunched beside 101 (0-3), with an allow-list that allows just that", 102
    ) as case:  # fmt: skip
        played = play("relaunch.yml", "ct102")
    assert played.code == 0, played.why()
    case.outcome = "ready; 101 untouched"
    return case


def test_the_relaunch_of_102_leaves_101_alone(high: Case, low: Beside, both_serve: tuple[Inside, Inside]) -> None:
    high.untouched(101)
    assert serving.answers(both_serve[1])
    assert high.units_after[102].shown["InvocationID"] != high.units[102].shown["InvocationID"]
    assert low.pids["of 102, by pct exec"] not in high.tables_after[102]
    assert low.pids["daemon of 102"] in high.tables_after[102]
