# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How clocks jump, and what the core makes of it: time comes into it as an argument, so nobody waits here."""

from __future__ import annotations

import json
import pathlib
import typing as t

from run_row import RunFault

from ansible_collections.cleanslate.gpu.plugins.module_utils import _guard_report
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._dead_man import DeadMan
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import iso
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_record import GuardFolder
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import GPUS, UNIT, Node
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.lease_world import Host

NEXT_BOOT = "7d1f6c1e-0000-4000-8000-000000000002"


def says(row: RunFault, text: str) -> None:
    for piece in row.says:
        assert piece in text, text


def lease_and_date(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    assert host.held("A", ttl=900).verdict == "acquired"
    host.clock.date += row.options["jump"]
    host.clock.now += 899
    other = host.held("B")
    assert other.verdict == "busy"
    says(row, other.reason)
    host.clock.now += 2
    assert host.held("B").verdict == "acquired"


def lease_and_reboot(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    assert host.held("A", ttl=86400).verdict == "acquired"
    host.boot, host.clock.now = NEXT_BOOT, 12.0
    assert host.held("B").verdict == "acquired"
    assert host.runs() == ["B"]


def marker_and_date(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    host.held("A")
    host.released("A", marker_ttl=2700)
    host.clock.date += row.options["jump"]
    host.clock.now += 2699
    shown = host.shown()
    assert [marker["node"] for marker in shown.starting] == ["n1"]
    says(row, shown.reason)
    host.clock.now += 2
    assert host.shown().starting == []


def marker_and_reboot(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    host.held("A")
    host.released("A", marker_ttl=86400)
    host.boot, host.clock.now = NEXT_BOOT, 12.0
    assert host.held("B", "n2").starting == []


def _suspected(folder: pathlib.Path) -> Node:
    node = Node(folder, max_remediations=5)
    node.hang()
    node.run()
    assert node.relaunches == []
    return node


def looks_and_date(row: RunFault, folder: pathlib.Path) -> None:
    node = _suspected(folder)
    node.pass_time(300)
    node.clock.date += row.options["jump"]
    verdict = node.run()
    assert node.relaunches == []
    says(row, " ".join(verdict.reasons))
    assert [one.looks for one in node.memory().suspicions] == [1], "it begins anew"
    node.pass_time(300)
    node.run()
    # By a third look it is confirmed, unless the server seems to have been started in a time yet to come.
    assert len(node.relaunches) == (row.options["jump"] > 0)


def looks_and_reboot(row: RunFault, folder: pathlib.Path) -> None:
    node = _suspected(folder)
    node.pass_time(300)
    node.boot, node.clock.boot_s = "boot-2", 40.0
    verdict = node.run()
    assert node.relaunches == []
    says(row, " ".join(verdict.reasons))


def _spent(folder: pathlib.Path) -> Node:
    """A server that died twice and came back by two remedies."""
    node = Node(folder, max_remediations=2)
    for _time in range(2):
        node.die()
        node.run("ready")
        node.pass_time(3600)
    assert len(node.relaunches) == 2
    return node


def budget_and_date(row: RunFault, folder: pathlib.Path) -> None:
    node = _spent(folder)
    node.clock.date += row.options["jump"]
    assert node.run().held_back == "budget"
    if row.options["jump"] < 0:
        node.boot, node.clock.boot_s = "boot-2", 40.0
        assert node.run().held_back == "budget", "the date says that they are yet to come"
    assert len(node.relaunches) == 2


def backoff_and_date(row: RunFault, folder: pathlib.Path) -> None:
    node = Node(folder, max_remediations=5)
    node.die()
    node.run("failed")
    node.pass_time(60)
    node.clock.date += row.options["jump"]
    verdict = node.run()
    assert (verdict.held_back, len(node.relaunches)) == ("backoff", 1)
    says(row, " ".join(verdict.reasons))
    node.pass_time(900)
    node.run()
    assert len(node.relaunches) == 2, "and not for ever"


def pause_and_date(row: RunFault, folder: pathlib.Path) -> None:
    node = Node(folder)
    assert node.wanted is not None
    pause = {"until": iso(node.clock.date + 3600), "reason": "new cables", "who": "ana"}
    node.wanted["pause"] = pause
    node.die()
    node.pass_time(60)
    node.clock.date += row.options["jump"]
    verdict = node.run()
    assert node.relaunches == []
    says(row, " ".join(verdict.reasons))


def dead_man_and_date(row: RunFault, folder: pathlib.Path) -> None:
    clock = Host(folder).clock
    since = round((clock.now - 60) * 1e6)
    text = (
        f"LoadState=loaded\nActiveState=active\nDescription=Start {UNIT} again 1000 s after run r1 armed this\n"
        f"ActiveEnterTimestampMonotonic={since}\n"
    )

    def systemctl(argv: t.Sequence[str], timeout: float) -> CommandResult:
        return CommandResult(tuple(argv), 0, text, "", 0.01)

    clock.date += row.options["jump"]
    shown = DeadMan(UNIT, systemctl, clock).show()
    assert (shown.verdict, shown.run_id, shown.fires_in_s) == ("armed", "r1", 940.0)


GUARD = {"invocation_id": "i1", "verdict": "refused", "reason": f"GPU 3 is held ({GPUS[3]})", "refused_count": 7}


def guard_and_date(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    path = folder / "sglang.service.json"
    path.write_text(json.dumps({**GUARD, "boot_id": host.boot, "started_at": host.clock.date}))
    host.clock.sleep(20)
    host.clock.date += row.options["jump"]
    unit = UnitState(UNIT, "failed", entered_monotonic=host.clock.now - 21)
    report = _guard_report.of_this_start_at(str(path), unit, ("i1",), host.clock, host.boot)
    says(row, _guard_report.refusal(report))
    assert _guard_report.of_this_start_at(str(path), unit, ("i2",), host.clock, host.boot) is None


def guard_and_reboot(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    path = folder / "sglang.service.json"
    path.write_text(json.dumps({**GUARD, "boot_id": host.boot, "started_at": host.clock.date}))
    unit = UnitState(UNIT, "failed", entered_monotonic=5.0)
    assert _guard_report.of_this_start_at(str(path), unit, (), host.clock, NEXT_BOOT) is None
    guard = GuardFolder(str(folder), UNIT)
    assert (guard.refusals(host.boot), guard.refusals(NEXT_BOOT)) == (7, 0)


PLAYS: dict[str, t.Callable[[RunFault, pathlib.Path], None]] = {
    play.__name__: play
    for play in (
        lease_and_date, lease_and_reboot, marker_and_date, marker_and_reboot, looks_and_date, looks_and_reboot,
        budget_and_date, backoff_and_date, pause_and_date, dead_man_and_date, guard_and_date, guard_and_reboot,
    )
}  # fmt: skip
