# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One case of the scenario: what was there, what was done, who got a signal; and the table of all cases."""

from __future__ import annotations

import dataclasses
import os
import time
import typing as t

import evidence
import layout
import teardown
from inside import Inside
from playing import SILENT, Play

PLACE = os.environ.get("CLEANSLATE_LXC_REPORT") or os.path.join(layout.ROOT, ".nox", "reports", "test-lxc")
VMIDS = tuple(one.vmid for one in layout.CONTAINERS)


def name_of(pid: int) -> str:
    return teardown.read(f"/proc/{pid}/comm").decode(errors="replace").strip()


@dataclasses.dataclass
class Case:
    """Filled by `watching`; the tests read it, the report prints it."""

    title: str
    vmid: int  # for whom our scan asks
    scan: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    truth: set[int] = dataclasses.field(default_factory=set)
    fuser: set[int] = dataclasses.field(default_factory=set)
    lsof: set[int] = dataclasses.field(default_factory=set)
    tables: dict[int, dict[int, str]] = dataclasses.field(default_factory=dict)
    units: dict[int, evidence.UnitState] = dataclasses.field(default_factory=dict)
    units_after: dict[int, evidence.UnitState] = dataclasses.field(default_factory=dict)
    tables_after: dict[int, dict[int, str]] = dataclasses.field(default_factory=dict)
    signals: list[evidence.Signal] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    outcome: str = ""

    def holder(self, pid: int) -> dict[str, t.Any]:
        for one in self.scan:
            if one["pid"] == pid:
                return one
        raise AssertionError(f"our scan did not find {pid}; it found {[one['pid'] for one in self.scan]}")

    def signalled(self, vmid: int) -> list[evidence.Signal]:
        """Signals to processes that this container had before, or has now."""
        there = set(self.tables.get(vmid, ())) | set(self.tables_after.get(vmid, ()))
        return [one for one in self.signals if one.pid in there]

    def untouched(self, vmid: int) -> None:
        """Nothing here was noticed: processes, unit, journal, the server's log, the kernel's record."""
        assert self.signalled(vmid) == []
        assert self.units_after[vmid] == self.units[vmid]
        held = {pid: begun for pid, begun in self.tables[vmid].items() if pid in self.truth}
        assert held.items() <= self.tables_after[vmid].items()

    def row(self) -> str:
        found = "; ".join(
            "{} {} ({}, {}): {}".format(
                one["pid"], one["comm"], (one["container"] or {}).get("id") or "host", one["unit"] or "no unit",
                one["disposition"],
            )
            for one in self.scan
        ) or "nobody"  # fmt: skip
        told = "; ".join(
            f"{one.name} to {one.pid} {one.comm} by {one.sender} {one.sender_name}"
            for one in self.signals
            if one.pid in self.truth or any(one in self.signalled(vmid) for vmid in VMIDS)
        ) or "nobody"  # fmt: skip

        def of(seen: set[int]) -> str:
            missed = self.truth - seen
            return f"{len(self.truth & seen)} of {len(self.truth)}" + (
                f", not {', '.join(map(str, sorted(missed)))}" if missed else ""
            )

        cells = (self.title, found, of({one["pid"] for one in self.scan}), of(self.fuser), of(self.lsof), told,
                 f"{self.seconds:.1f}", self.outcome)  # fmt: skip
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


class Report:
    """What the session has seen, written at its end."""

    HEAD = ("case", "our scan on the host", "scan sees", "fuser sees", "lsof sees", "signals (kernel's record)", "s",
            "outcome")  # fmt: skip

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.timed: list[tuple[str, Play, str]] = []

    def write(self) -> str:
        about = (
            "Container 101 has the host's GPU nodes by bind mount, 102 `devN:`-style nodes of its own. "
            "Holders are counted by device number in /proc; PIDs are the host's."
        )
        head = ["| " + " | ".join(self.HEAD) + " |", "|" + "---|" * len(self.HEAD)]
        lines = ["# The played Proxmox host", "", about, "", *head, *(one.row() for one in self.cases)]
        for title, played, host in self.timed:
            lines += ["", f"## {title}", "", "| step | where | s |", "|---|---|---|"]
            steps = [step for step in played.steps if step.host == host and step.action not in SILENT]
            for step in steps:
                lines.append(f"| {step.play}: {step.task} | {step.delegated or step.host} | {step.seconds:.2f} |")
            if steps:
                lines.append(f"| from the first step to the last | | {steps[-1].ended - (steps[0].began or 0):.1f} |")
        path = os.path.join(PLACE, "report.md")
        layout.write(path, "\n".join(lines) + "\n")
        return path


class Watch:
    """Makes cases: `with watch("…", 101) as case: …`."""

    def __init__(self, told: t.Callable[[], list[evidence.Signal]], report: Report) -> None:
        self._told, self._report = told, report

    def __call__(self, title: str, vmid: int) -> Watching:
        return Watching(Case(title, vmid), self._told, self._report)


class Watching:
    def __init__(self, case: Case, told: t.Callable[[], list[evidence.Signal]], report: Report) -> None:
        self._case, self._told, self._report = case, told, report
        self._already = 0
        self._began = 0.0

    def __enter__(self) -> Case:
        case = self._case
        case.truth = evidence.holders()
        case.scan = evidence.our_scan(case.vmid)
        case.fuser, case.lsof = evidence.seen_by("fuser"), evidence.seen_by("lsof")
        for vmid in VMIDS:
            case.units[vmid] = evidence.unit_state(Inside(vmid))
            case.tables[vmid] = evidence.processes(vmid)
        self._report.cases.append(case)
        found = {one["pid"] for one in case.scan}
        assert case.truth <= found, f"our scan missed {case.truth - found}"
        owners = {pid: vmid for vmid in VMIDS for pid in case.tables[vmid]}
        for one in case.scan:
            assert str(owners.get(one["pid"], "")) == (one["container"] or {}).get("id", ""), one
        devn = {pid for pid in case.truth if pid in case.tables[102]}
        assert not devn & (case.fuser | case.lsof), "fuser and lsof are said to miss these"
        self._already = len(self._told())
        self._began = time.monotonic()
        return case

    def __exit__(self, *failure: object) -> None:
        case = self._case
        case.seconds = time.monotonic() - self._began
        case.signals = self._told()[self._already :]
        for vmid in VMIDS:
            case.units_after[vmid] = evidence.unit_state(Inside(vmid))
            case.tables_after[vmid] = evidence.processes(vmid)
        self._report.write()  # for a session that is cut off
