# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Relaunch and drift of many simulated nodes by local connection, against the plain playbook on the same nodes."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
import typing as t

from controller import INSTANT, PINGS, PLAIN, Controller
from measuring import Report, use_collection

use_collection()

from simulated_nodes import Node, simulate  # noqa: E402

OURS, DRIFT, PLAYBOOK, PING = "relaunch.yml", "drift.yml", "plain playbook", "ping"
MITOGEN = {"linear": "mitogen_linear", "pinned": "mitogen_host_pinned"}
PEERS = {OURS: PLAYBOOK, f"{OURS}, Mitogen": PLAYBOOK, DRIFT: PING, f"{DRIFT}, Mitogen": f"{PING}, Mitogen"}
FORKS = 16
SMALL, LARGE = (1, 8), (32, 64, 128)
MOST_PINGS, MOST_MIB = 16, 1024
# Many servers that start on few cores need more time to answer.
SERVER = {**INSTANT, "time_scale": 0.1}
# One GPU each: eight ranks on each of 128 nodes would be a thousand processes more, and are no work of the controller.
VARIABLES = {
    "gpu_idle_expected_count": 1,
    "sglang_server_profiles": [{
        "name": "demo", "api_key": "demo-key-0123456789abcdef",
        "args": {"model-path": "{{ simulated_node }}/models/demo-397b", "served-model-name": "demo-397b", "tp-size": 1,
                 "port": "{{ plain_port }}"},
    }],
}  # fmt: skip


class Fleet:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.nodes: list[Node] = []
        self.controller = Controller(folder / "controller")

    def grow(self, size: int) -> None:
        new = [Node(self.folder / f"fleet{number:03}", SERVER, gpus=1) for number in range(len(self.nodes), size)]
        self.nodes += new
        if new:
            self.controller.play("start", new, variables=self.variables(), relaunch_serial="100%")

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


def measure(
    fleet: Fleet, report: Report, size: int, pings: int, repeats: int, accelerated: t.Mapping[str, str] | None
) -> None:
    case = f"{size} nodes"
    seconds: dict[str, list[float]] = {}
    memory: dict[str, float] = {}

    def note(subject: str, played: t.Any, divisor: int = 1) -> None:
        seconds.setdefault(subject, []).append(played.seconds / divisor)
        memory[subject] = max(memory.get(subject, 0.0), played.memory_mib)

    page = fleet.controller.folder / "fleet-pings.yml"
    tasks = [{"name": f"Ping {n}", "ansible.builtin.ping": {}} for n in range(pings)]
    page.write_text(json.dumps([{"name": "Ping", "hosts": "sglang_nodes", "gather_facts": False, "tasks": tasks}]))
    profile = None
    for dummy in range(repeats):
        note(PING, fleet.play(page), pings)
        ours = fleet.play("relaunch", relaunch_serial="100%")
        profile = ours.profile()
        note(OURS, ours)
        note(DRIFT, fleet.play("drift"))
        with fleet.without_guard():
            note(PLAYBOOK, fleet.play(PLAIN))
        if accelerated is not None:
            linear = {**accelerated, "ANSIBLE_STRATEGY": MITOGEN["linear"]}
            note(f"{PING}, Mitogen", fleet.play(page, linear), pings)
            note(f"{OURS}, Mitogen", fleet.play("relaunch", linear, relaunch_serial="100%",
                                                relaunch_strategy=MITOGEN["pinned"]))  # fmt: skip
            note(f"{DRIFT}, Mitogen", fleet.play("drift", linear))
    for subject, runs in seconds.items():
        report.add(case, subject, runs)
        report.counts.append(
            {"case": case, "subject": subject, "memory of the controller (MiB)": round(memory[subject])}
        )
    report.profiles[f"{OURS}, {case} (seconds overlap: hosts run side by side)"] = profile or []
    ping, whole = report.of(case, PING).median, report.of(case, OURS).median
    report.target(
        f"Relaunch of {case}", f"at most {MOST_PINGS} pings of all of them, {MOST_PINGS * ping:.0f} s",
        f"{whole:.0f} s, {whole / ping:.0f} pings", whole <= MOST_PINGS * ping,
    )  # fmt: skip
    if size == max(LARGE):
        most = max(memory.values())
        report.target(f"Memory of the controller, {case}", f"under {MOST_MIB} MiB", f"{most:.0f} MiB", most < MOST_MIB)


def slopes(report: Report, sizes: t.Sequence[int]) -> None:
    """Seconds that each further node costs, against the plain playbook's."""
    first, last = f"{sizes[0]} nodes", f"{sizes[-1]} nodes"
    step = sizes[-1] - sizes[0]
    for subject in (OURS, DRIFT, PLAYBOOK, PING):
        slope = (report.of(last, subject).median - report.of(first, subject).median) / step
        report.add(f"each further node, from {sizes[0]} to {sizes[-1]}", subject, [slope], "s")


def run_sizes(part: str, folder: pathlib.Path, sizes: t.Sequence[int], pings: int) -> Report:
    report = Report(part)
    fleet = Fleet(folder)
    accelerated = mitogen()
    if accelerated is None:
        print(f"  {part}: Mitogen is not installed in this environment: measured without it", flush=True)
    try:
        for size in sizes:
            fleet.grow(size)
            measure(fleet, report, size, pings, 1, accelerated)
        slopes(report, sizes)
    finally:
        fleet.destroy()
    return report


def run(folder: pathlib.Path, *, quick: bool) -> Report:
    return run_sizes("fleet", folder, (1, 2) if quick else SMALL, 4 if quick else PINGS)


def run_large(folder: pathlib.Path, *, quick: bool) -> Report:
    return run_sizes("fleet-large", folder, (2, 3) if quick else LARGE, 4)
