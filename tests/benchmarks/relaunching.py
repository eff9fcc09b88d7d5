# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A relaunch over SSH and a look at drift: how long the server is down, how long all of it takes, and what it costs."""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import shlex
import statistics
import subprocess
import time
import typing as t

from controller import INSTANT, PLAIN, Controller, Played
from counting import counted, ended, tracing
from loopback import Relay, Sshd
from measuring import HERE, CouldNotRun, Report, boottime, need, until, use_collection
from release_once import INTERVAL, SAMPLES
from releasing import query_costs

use_collection()

from simulated_nodes import Node, simulate, started  # noqa: E402

OURS, PLAYBOOK, TYPED, HURRIED = "relaunch.yml", "plain playbook", "typed over SSH", "typed, without its sleep"
PEERS = {OURS: PLAYBOOK, TYPED: PLAYBOOK, HURRIED: PLAYBOOK, "drift.yml": "ping"}
DOWN, WHOLE = "stop → server started", "whole"
MOST_PINGS = {DOWN: 6, WHOLE: 16, "drift": 3}
TICKS = os.sysconf("SC_CLK_TCK")


class Relaunched(t.NamedTuple):
    """Seconds without a server (from the call of `systemctl stop` to the new process), what was called on the node
    meanwhile and how often, seconds of all, and what came."""

    down: float
    called: collections.Counter[str]
    whole: float
    done: t.Any


class Bench:
    """A simulated node behind sshd, with a server that starts at once."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.sshd = Sshd(folder / "ssh")
        self.node = Node(folder / "down", INSTANT)
        self.controller = Controller(folder / "controller")

    def close(self) -> None:
        self.sshd.leave(self.controller.connections)
        self.sshd.close()
        simulate("destroy", self.node.folder, check=False)

    def plain(self) -> dict[str, t.Any]:
        node = self.node
        return {"plain_folder": str(node.folder), "plain_port": node.port,
                "plain_pattern": f"[s]glang.launch_server.*{node.folder}/"}  # fmt: skip

    @contextlib.contextmanager
    def without_guard(self) -> t.Iterator[None]:
        """The peers' unit is a plain one."""
        unit = self.node.unit
        text = unit.read_text()
        unit.write_text("".join(line for line in text.splitlines(True) if not line.startswith("ExecStartPre=")))
        try:
            yield
        finally:
            unit.write_text(text)

    def play(
        self, playbook: str | pathlib.Path, sshd: Sshd | None = None, port: int | None = None, **options: t.Any
    ) -> Played:
        variables = (sshd or self.sshd).variables(port)
        return self.controller.play(playbook, [self.node], variables=variables, **options)

    def typed(self, pause: float) -> None:
        words = ["ssh", *self.sshd.arguments()]
        environment = {
            **os.environ,
            "SSH": shlex.join(words),
            "NODE": str(self.node.folder),
            "PORT": str(self.node.port),
            "PAUSE": str(pause),
        }
        done = subprocess.run(["/bin/sh", str(HERE / "peers" / "typed_relaunch.sh")], env=environment, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)  # fmt: skip
        if done.returncode:
            raise CouldNotRun(f"relaunch: the typed commands ended with {done.returncode}: {done.stderr}")

    def relaunch(self, how: t.Callable[[], t.Any]) -> Relaunched:
        (old,) = self.node.launchers()
        seen, offset = len(self.node.calls()), time.time() - boottime()
        began = time.monotonic()
        done = how()
        whole = time.monotonic() - began
        new = until("a new server", lambda: [pid for pid in self.node.launchers() if pid != old])[0]
        stop = next((call.time for call in self.node.calls(seen) if call.verb == "stop"), None)
        ticks = started(new)
        if stop is None or ticks is None:
            raise CouldNotRun("relaunch: the node was not stopped and started.")
        born = ticks / TICKS + offset
        called = collections.Counter(call.tool for call in self.node.calls(seen) if stop <= call.time <= born)
        return Relaunched(born - stop, called, whole, done)

    def call_costs(self, repeats: int) -> float:
        """Seconds of one `systemctl show` of the simulated node, which starts a Python."""
        own = {"HOME": str(self.node.folder / "home"), "XDG_RUNTIME_DIR": str(self.node.folder / "run")}
        show = [str(self.node.folder / "bin" / "systemctl"), "--user", "show", "--property=MainPID", "sglang.service"]
        taken = []
        for dummy in range(repeats):
            began = time.monotonic()
            subprocess.run(show, env={**os.environ, **own}, check=True, stdout=subprocess.DEVNULL)
            taken.append(time.monotonic() - began)
        return statistics.median(taken)


def measure(bench: Bench, report: Report, repeats: int) -> dict[str, list[Played]]:
    """Every way in turn, so that a change of the machine's load meets them all."""
    ways: dict[str, t.Callable[[], t.Any]] = {
        OURS: lambda: bench.play("relaunch"),
        PLAYBOOK: lambda: bench.play(PLAIN, **bench.plain()),
        TYPED: lambda: bench.typed(2),
        HURRIED: lambda: bench.typed(0),
    }
    seen: dict[str, list[Relaunched]] = {way: [] for way in ways}
    pings, drifts, played = [], [], {OURS: [], "drift.yml": []}  # type: ignore[var-annotated]
    for dummy in range(repeats):
        pings.append(bench.controller.ping([bench.node], variables=bench.sshd.variables()))
        for way, how in ways.items():
            with contextlib.nullcontext() if way == OURS else bench.without_guard():
                seen[way].append(bench.relaunch(how))
            if way == OURS:
                played[OURS].append(seen[way][-1].done)
        drift = bench.play("drift")
        drifts.append(drift.seconds)
        played["drift.yml"].append(drift)
    report.add("drift look, healthy node", "ping", pings)
    report.add("drift look, healthy node", "drift.yml", drifts)
    one = bench.call_costs(5)
    for way, runs in seen.items():
        report.add(DOWN, way, [run.down for run in runs])
        report.add(WHOLE, way, [run.whole for run in runs])
        systemctl, smi = (statistics.median(run.called[tool] for run in runs) for tool in ("systemctl", "nvidia-smi"))
        report.counts.append({
            "case": DOWN, "subject": way, "calls of systemctl": int(systemctl), "of nvidia-smi": int(smi),
            "seconds in systemctl": round(systemctl * one, 2),
        })  # fmt: skip
    return played


def judge(bench: Bench, report: Report, played: t.Mapping[str, list[Played]]) -> None:
    ping = report.of("drift look, healthy node", "ping").median
    query = query_costs(bench.node, 5)[1]
    gates = 2 * SAMPLES * (INTERVAL + query)
    down = report.of(DOWN, OURS).median
    most = MOST_PINGS[DOWN] * ping + gates
    shown = f"{down:.2f} s ({(down - gates) / ping:.1f} pings and the two gates)"
    report.target(
        "Stop → start",
        f"at most 6 pings and two gates, {most:.2f} s (ping {ping:.2f} s, look {query:.2f} s)",
        shown,
        down <= most,
        "Profile: relaunch.yml, between stop and start.",
    )
    plain, typed = report.of(DOWN, PLAYBOOK).median, report.of(DOWN, TYPED).median
    report.target(
        "Stop → start, plain playbook",
        f"at most half of its {plain:.2f} s",
        f"{down:.2f} s, {down / plain:.2f} of it",
        down <= plain / 2,
    )
    report.target(
        "Stop → start, typed commands",
        f"no more than their {typed:.2f} s",
        f"{down:.2f} s, {down / typed:.2f} of it",
        down <= typed,
        f"Without the recipe's sleep of 2 s they take {report.of(DOWN, HURRIED).median:.2f} s.",
    )
    whole = report.of(WHOLE, OURS).median
    report.target(
        "Relaunch of one node",
        f"at most 16 pings, {16 * ping:.1f} s, and the settle time (here 0)",
        f"{whole:.1f} s, {whole / ping:.0f} pings",
        whole <= 16 * ping,
        "Profile: relaunch.yml.",
    )
    drift = report.of("drift look, healthy node", "drift.yml").median
    report.target("Drift look", f"at most 3 pings, {3 * ping:.1f} s", f"{drift:.1f} s, {drift / ping:.0f} pings",
                  drift <= 3 * ping, "Profile: drift.yml.")  # fmt: skip
    for name, runs in played.items():
        middle = sorted(runs, key=lambda run: run.seconds)[(len(runs) - 1) // 2]
        report.profiles[name] = middle.profile()
    report.profiles[f"{OURS}, between stop and start"] = between(played[OURS])


def between(runs: t.Sequence[Played]) -> list[dict[str, t.Any]]:
    """Medians of the tasks from the stop to the start, in their order."""
    costs: dict[str, list[float]] = {}
    for run in runs:
        actions = [task["action"].rpartition(".")[2] for task in run.tasks]
        first, last = actions.index("gpu_force_release"), actions.index("sglang_unit_start")
        for task in run.tasks[first : last + 1]:
            costs.setdefault(f"{task['task']} ({task['action'].rpartition('.')[2]}, {task['status']})", []).append(
                task["seconds"]
            )
    return [{"seconds": round(statistics.median(seconds), 2), "times": len(seconds) // len(runs) or 1, "task": name}
            for name, seconds in costs.items()]  # fmt: skip


def count_costs(bench: Bench, report: Report) -> None:
    """One run of each under strace and through a counting relay: processes, round trips, bytes. Not timed."""
    for number, (name, playbook, extra) in enumerate(
        ((OURS, "relaunch", {}), (PLAYBOOK, PLAIN, bench.plain()), ("drift.yml", "drift", {}))
    ):
        place = bench.folder / f"counted{number}"
        place.mkdir()
        sshd = Sshd(place / "ssh", under=tracing(place / "node.trace"))
        relay = Relay(sshd.port)
        paths = place / "cp"
        try:
            with bench.without_guard() if name == PLAYBOOK else contextlib.nullcontext():
                bench.play(playbook, sshd, relay.port, under=tracing(place / "controller.trace", aside=True),
                           environment={"ANSIBLE_SSH_CONTROL_PATH_DIR": str(paths)}, **extra)  # fmt: skip
            wire = relay.counted()
        finally:
            sshd.leave(paths)
            relay.close()
            sshd.close()
        ended(place / "controller.trace")
        here, there = counted(place / "controller.trace"), counted(place / "node.trace")
        if not here["programs"] or not there["programs"] or not wire["connections"]:
            raise CouldNotRun(f"relaunch: nothing was counted for {name}: {here}, {there}, {wire}")
        entry = {
            "case": name,
            "processes on the controller": here["processes"],
            "programs on the controller": here["programs"],
            "processes on the node": there["processes"],
            "programs on the node": there["programs"],
            **wire,
        }
        report.counts.append(entry)
        print(f"  relaunch: {entry}", flush=True)


def run(folder: pathlib.Path, *, quick: bool) -> Report:
    need("sshd", "ssh", "strace", "fuser", "pkill", "curl")
    report = Report("relaunch")
    bench = Bench(folder)
    try:
        bench.play("start")
        played = measure(bench, report, 1 if quick else 3)
        judge(bench, report, played)
        count_costs(bench, report)
    finally:
        bench.close()
    return report
