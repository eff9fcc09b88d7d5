# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Relaunch and drift of many simulated nodes by local connection, against the plain playbook on the same nodes."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import sys
import time
import typing as t

from controller import INSTANT, PINGS, PLAIN, Controller
from measuring import Figure, Report, Target, use_collection

use_collection()

from simulated_nodes import Node, simulate  # noqa: E402

OURS, DRIFT, PLAYBOOK, PING = "relaunch.yml", "drift.yml", "plain playbook", "ping"
MITOGEN = {"linear": "mitogen_linear", "pinned": "mitogen_host_pinned"}
PEERS = {OURS: PLAYBOOK, f"{OURS}, Mitogen": PLAYBOOK, DRIFT: PING, f"{DRIFT}, Mitogen": f"{PING}, Mitogen"}
FORKS = 16
SLOPE = "each further node"
SMALL, LARGE, WIDE = (1, 8), (32, 64, 128), (32, 128)
MOST_PINGS, MOST_MIB = 16, 1024
# Seconds for the large fleet. What would not fit any more is left out, and the page says so.
BUDGET_S = 6000.0
# Many servers that start on few cores need more time to answer.
SERVER = {**INSTANT, "time_scale": 0.1, "watch_s": 0.25}
# The drivers of 128 nodes at their usual 50 looks a second take more than both cores of a small machine, and servers at
# their usual 20 half of them.
TICK_S = 0.5
# One GPU each: eight ranks on each of 128 nodes would be a thousand processes more, and are no work of the controller.
VARIABLES = {
    "gpu_idle_expected_count": 1,
    "sglang_server_profiles": [{
        "name": "demo", "api_key": "demo-key-0123456789abcdef",
        "args": {"model-path": "{{ simulated_node }}/models/demo-397b", "served-model-name": "demo-397b", "tp-size": 1,
                 "port": "{{ plain_port }}"},
    }],
}  # fmt: skip


def own_interpreter(node: Node) -> Node:
    """Of one path each, or under Mitogen all local nodes share a process that does their work one after the other."""
    path = node.folder / "python3"
    path.symlink_to(sys.executable)
    node.variables = {**node.variables, "ansible_python_interpreter": str(path)}
    return node


class Fleet:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.nodes: list[Node] = []
        self.controller = Controller(folder / "controller")

    def grow(self, size: int) -> None:
        new = [
            own_interpreter(Node(self.folder / f"fleet{number:03}", SERVER, gpus=1, driver_tick_s=TICK_S))
            for number in range(len(self.nodes), size)
        ]
        self.nodes += new
        if new:
            # Without Mitogen: what it starts stays on the cores that it leaves to its workers.
            environment = {"ANSIBLE_FORKS": str(FORKS)}
            self.controller.play(
                "start", new, variables=self.variables(), environment=environment, relaunch_serial="100%"
            )

    def variables(self) -> dict[str, t.Any]:
        return {
            **VARIABLES,
            "plain_folder": "{{ simulated_node }}",
            "plain_port": "{{ (lookup('ansible.builtin.file', simulated_node ~ '/node.json') | from_json).port }}",
            "plain_pattern": "[s]glang.launch_server.*{{ simulated_node }}/",
        }

    @contextlib.contextmanager
    def without_guard(self) -> t.Iterator[None]:
        texts = {node.unit: node.unit.read_text() for node in self.nodes}
        for unit, text in texts.items():
            unit.write_text("".join(line for line in text.splitlines(True) if not line.startswith("ExecStartPre=")))
        try:
            yield
        finally:
            for unit, text in texts.items():
                unit.write_text(text)

    def play(
        self, playbook: str | pathlib.Path, environment: t.Mapping[str, str] | None = None, **extra: t.Any
    ) -> t.Any:
        own = {"ANSIBLE_FORKS": str(FORKS), **(environment or {})}
        return self.controller.play(
            playbook, self.nodes, variables=self.variables(), environment=own, memory=True, **extra
        )

    def destroy(self) -> None:
        for path in self.folder.glob("fleet[0-9]*"):
            simulate("destroy", path, check=False)


def mitogen() -> dict[str, str] | None:
    """The environment in which Mitogen's strategies are found; None where it is not installed."""
    found = importlib.util.find_spec("ansible_mitogen")
    if found is None or not found.submodule_search_locations:
        return None
    return {"ANSIBLE_STRATEGY_PLUGINS": str(pathlib.Path(found.submodule_search_locations[0], "plugins", "strategy")),
            "ANSIBLE_DEPRECATION_WARNINGS": "false"}  # fmt: skip


def linear(accelerated: t.Mapping[str, str]) -> dict[str, str]:
    return {**accelerated, "ANSIBLE_STRATEGY": MITOGEN["linear"]} if accelerated else {}


class Budget:
    """Time for a part: what something costs with more nodes is told from what it took with fewer."""

    def __init__(self, seconds: float, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._per_node: dict[str, float] = {}

    def took(self, subject: str, size: int, seconds: float) -> None:
        self._per_node[subject] = seconds / size

    def lacks(self, subject: str, size: int) -> str:
        """Why it is not measured; empty where it is."""
        # With Mitogen nothing takes longer than without.
        known = self._per_node.get(subject, self._per_node.get(subject.partition(", ")[0], 0.0))
        expected, left = known * size, self._end - self._clock()
        if expected <= left:
            return ""
        return f"it would have taken {expected:.0f} s of the {max(left, 0):.0f} s that were left"


class Measuring:
    """Of one size: each subject once, and what does not fit into the time is said. See Budget.

    wide: on a machine whose many cores leave time for every peer at every size.
    """

    def __init__(self, fleet: Fleet, report: Report, size: int, budget: Budget, *, wide: bool = False) -> None:
        self.fleet, self.report, self.size, self.budget, self.wide = fleet, report, size, budget, wide
        self.case = f"{size} nodes"
        self.named = f"{self.case}, {os.cpu_count()} cores" if wide else self.case
        self.page = fleet.controller.folder / "fleet-pings.yml"

    def note(self, subject: str, play: t.Callable[[], t.Any], divisor: int = 1) -> t.Any:
        lacking = self.budget.lacks(subject, self.size)
        if lacking:
            self.report.counts.append({"case": self.case, "not measured": subject, "why": lacking})
            return None
        played = play()
        self.budget.took(subject, self.size, played.seconds)
        self.report.add(self.case, subject, [played.seconds / divisor])
        self.report.counts.append(
            {"case": self.case, "subject": subject, "memory of the controller (MiB)": round(played.memory_mib)}
        )
        return played

    def ours(self, pings: int) -> None:
        """What the targets are about."""
        tasks = [{"name": f"Ping {n}", "ansible.builtin.ping": {}} for n in range(pings)]
        play = {"name": "Ping", "hosts": "sglang_nodes", "gather_facts": False, "tasks": tasks}
        self.page.write_text(json.dumps([play]))
        self.note(PING, lambda: self.fleet.play(self.page), pings)
        ours = self.note(OURS, lambda: self.fleet.play("relaunch", relaunch_serial="100%"))
        if ours is not None:
            title = f"{OURS}, {self.case} (seconds overlap: hosts run side by side)"
            self.report.profiles[title] = ours.profile()
            ping, whole = self.report.of(self.case, PING).median, ours.seconds
            self.report.target(
                f"Relaunch of {self.named}", f"at most {MOST_PINGS} pings of all of them, {MOST_PINGS * ping:.0f} s",
                f"{whole:.0f} s, {whole / ping:.0f} pings", whole <= MOST_PINGS * ping,
            )  # fmt: skip
        self.note(DRIFT, lambda: self.fleet.play("drift"))
        self.judge_memory()

    def beside(self, pings: int, accelerated: t.Mapping[str, str] | None) -> None:
        """Peers. On few cores the last of the larger sizes alone has an accelerated look, none the plain playbook."""
        if accelerated is not None and self.size not in LARGE[1:-1]:
            quick = linear(accelerated)
            pinned = {"relaunch_strategy": MITOGEN["pinned"]}
            self.note(f"{PING}, Mitogen", lambda: self.fleet.play(self.page, quick), pings)
            self.note(f"{DRIFT}, Mitogen", lambda: self.fleet.play("drift", quick, **pinned))
            if self.wide or self.size not in LARGE:
                self.note(
                    f"{OURS}, Mitogen", lambda: self.fleet.play("relaunch", quick, relaunch_serial="100%", **pinned)
                )
        if self.wide or self.size not in LARGE[1:]:
            with self.fleet.without_guard():
                self.note(PLAYBOOK, lambda: self.fleet.play(PLAIN))
        self.judge_memory()

    def judge_memory(self) -> None:
        if self.size != LARGE[-1]:
            return
        name = f"Memory of the controller, {self.named}"
        most = max(entry.get("memory of the controller (MiB)", 0) for entry in self.report.counts)
        self.report.targets = [target for target in self.report.targets if target.name != name]
        self.report.target(name, f"under {MOST_MIB} MiB", f"{most} MiB", most < MOST_MIB)


def slopes(report: Report, sizes: t.Sequence[int]) -> None:
    """Seconds that each further node costs, against the plain playbook's, between the sizes that were measured."""
    report.figures = [figure for figure in report.figures if not figure.case.startswith(SLOPE)]
    for subject in (OURS, f"{OURS}, Mitogen", DRIFT, f"{DRIFT}, Mitogen", PLAYBOOK, PING):
        taken = {size: figure.median for size in sizes for figure in report.figures
                 if (figure.case, figure.subject) == (f"{size} nodes", subject)}  # fmt: skip
        if len(taken) > 1:
            first, last = min(taken), max(taken)
            slope = (taken[last] - taken[first]) / (last - first)
            report.add(f"{SLOPE}, from {first} to {last}", subject, [slope], "s")


def keep(report: Report, earlier: pathlib.Path, sizes: t.Sequence[int]) -> None:
    """What an earlier run found of other sizes: each takes up to an hour, and may have one of its own."""
    if not earlier.exists():
        return
    found = json.loads(earlier.read_text(encoding="utf-8"))
    others = [f"{size} nodes" for size in LARGE if size not in sizes]
    days = {row["case"]: row["measured"] for row in found["counts"] if "measured" in row}
    for row in found["figures"]:
        if row["case"] in others:
            report.figures.append(Figure(row["case"], row["subject"], tuple(row["runs"]), row["unit"]))
    for case in others:
        report.counts += [row for row in found["counts"] if row["case"] == case and "measured" not in row]
        report.targets += [Target(**row) for row in found["targets"] if row["name"].endswith(case)]
        report.profiles.update({name: rows for name, rows in found["profiles"].items() if f", {case} (" in name})
        if any(row["case"] == case for row in found["figures"]):
            report.counts.append({"case": case, "measured": days.get(case, found["at"])})


def run_sizes(
    part: str,
    folder: pathlib.Path,
    sizes: t.Sequence[int],
    pings: int,
    budget: Budget,
    earlier: pathlib.Path | None = None,
    *,
    wide: bool = False,
) -> t.Iterator[Report]:
    """What is known after each size, its peers last. earlier: results from which other sizes are kept."""
    report = Report(part)
    if earlier is not None:
        keep(report, earlier, sizes)
    fleet = Fleet(folder)
    accelerated = mitogen()
    if accelerated is None:
        print(f"  {part}: Mitogen is not installed in this environment: measured without it", flush=True)
    try:
        for size in sizes:
            began = time.monotonic()
            further = size - len(fleet.nodes)
            if budget.lacks("further nodes", further):
                break
            fleet.grow(size)
            budget.took("further nodes", further, time.monotonic() - began)
            measuring = Measuring(fleet, report, size, budget, wide=wide)
            steps = (
                functools.partial(measuring.ours, pings),
                functools.partial(measuring.beside, pings, accelerated),
            )
            for step in steps:
                step()
                slopes(report, sizes if earlier is None else LARGE)
                yield report
    finally:
        fleet.destroy()


def run(folder: pathlib.Path, *, quick: bool) -> t.Iterator[Report]:
    return run_sizes("fleet", folder, (1, 2) if quick else SMALL, 4 if quick else PINGS, Budget(BUDGET_S))


def run_large(
    folder: pathlib.Path, *, quick: bool, sizes: t.Sequence[int] = LARGE, earlier: pathlib.Path | None = None
) -> t.Iterator[Report]:
    return run_sizes("fleet-large", folder, (2, 3) if quick else sorted(sizes), 2, Budget(BUDGET_S), earlier)


def run_wide(folder: pathlib.Path, *, quick: bool) -> t.Iterator[Report]:
    return run_sizes("fleet-wide", folder, (2, 3) if quick else WIDE, 2, Budget(BUDGET_S), wide=True)
