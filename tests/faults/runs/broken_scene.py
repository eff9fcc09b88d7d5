# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One relaunch of many nodes that breaks off on each of them somewhere else. Some stand between two tasks, others are
cut off and go through rescue and always; when every node is where its row wants it, the controller gets SIGKILL.

Then everything is reachable again, the timers' time comes, somebody unlocks as told, and the next run begins.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t

from broken_runs import VARIABLES, Plan, SmallNode, destroy
from driving import until
from fault_rows import NEEDS
from gpu_host import GpuHost
from played_timers import TIMER, armed
from run_row import RunFault
from simulated_nodes import Call, Playbooks, Run, alive, started

BOOTTIME = time.CLOCK_BOOTTIME


@dataclasses.dataclass(frozen=True)
class Left:
    """A node at one moment, by the process table and its files."""

    launchers: tuple[tuple[int, int | None], ...]  # PID and start time
    leases: tuple[dict[str, t.Any], ...]
    armed_by: str
    new_files: bool
    boot_s: float

    @property
    def standing(self) -> list[dict[str, t.Any]]:
        return [lease for lease in self.leases if lease["expires"] > self.boot_s]


def look(node: SmallNode) -> Left:
    timer = ""
    if TIMER in armed(node):
        said = json.loads((node.folder / "run" / "timers" / TIMER).read_text())["Description"]
        timer = said.partition("after run ")[2].split()[0]
    return Left(
        tuple((pid, started(pid)) for pid in node.launchers()),
        tuple(node.leases()),
        timer,
        node.new_files,
        time.clock_gettime(BOOTTIME),
    )


@dataclasses.dataclass
class Part:
    """One node of the scene, and what became of it."""

    row: RunFault
    node: SmallNode
    gpu_host: GpuHost | None
    old: Left
    left: Left | None = None  # when the controller was dead
    calls: t.Sequence[Call] = ()  # until then
    said: str = ""  # what the run said of it at its end
    warned: str = ""  # all of its output
    verdict: str = ""
    moments: t.Sequence[dict[str, t.Any]] = ()
    refused_on_dirty: str = ""  # the start guard's word, where a left-over worker stood when the timer's time came
    worker_lived: bool = True
    timer_came: Left | None = None  # when the timer's time has come
    refused: Run | None = None  # the next run, before anybody unlocked
    unlocked: Run | None = None
    again: Run | None = None
    served: Left | None = None

    @property
    def entry(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", self.row.options["entry"])


def again(row: RunFault) -> bool:
    """Whether a next run is played: unless everything is asked for, where the dead run left most behind."""
    entry = row.options["entry"]
    if NEEDS["every break"]():
        return True
    states = ("down",) if row.options["kind"] == "gpu host" else ("down", "new")
    return row.options["do"] == "hold" and bool(entry["lease"]) and entry["server"] in states


class Scene:
    """The rows are those that share a run."""

    def __init__(self, folder: pathlib.Path, rows: t.Sequence[RunFault]) -> None:
        self.folder, self.play = folder, Playbooks(folder)
        self.parts: dict[str, Part] = {}
        self.run_id = ""
        self._ends: list[t.Callable[[], None]] = []
        # Nobody's target: it only has the name of one, and no GPU.
        self.stranger = subprocess.Popen(["sleep", "infinity"], executable="/bin/sleep")
        self._stranger_started = started(self.stranger.pid)
        try:
            self._play_out(rows)
        except BaseException:
            self.end()
            raise

    def stranger_lives(self) -> bool:
        return alive(self.stranger.pid) and started(self.stranger.pid) == self._stranger_started

    def end(self) -> None:
        for end in self._ends:
            end()
        self.stranger.kill()
        self.stranger.wait()

    def _play_out(self, rows: t.Sequence[RunFault]) -> None:
        for number, row in enumerate(rows, 1):
            self._make(number, row)
        self.serve()
        self._break()
        for part in self.parts.values():
            self.time_comes(part)
        self._next_run([part for part in self.parts.values() if again(part.row)])

    def _make(self, number: int, row: RunFault) -> None:
        place = self.folder / f"node{number}"
        self._ends.append(lambda: destroy(place))
        node = SmallNode(place)
        gpu_host = GpuHost(node) if row.options["kind"] == "gpu host" else None
        if gpu_host is not None:
            self._ends.append(gpu_host.end)
        self.parts[row.name] = Part(row, node, gpu_host, look(node))

    def relaunch(self, parts: t.Sequence[Part], **options: t.Any) -> Run:
        return self.playbook("relaunch", parts, sglang_server_profile="trial", **options)

    def playbook(self, name: str, parts: t.Sequence[Part], **options: t.Any) -> Run:
        hosts: list[t.Any] = [part.node for part in parts]
        hosts += [part.gpu_host for part in parts if part.gpu_host is not None]
        limit = ",".join(part.node.name for part in parts)
        return self.play(name, hosts, "-l", limit, variables=VARIABLES, relaunch_serial="100%", **options)

    def serve(self) -> None:
        first, *others = self.parts.values()
        begun = self.playbook("start", [first])
        assert begun.rc == 0, str(begun)
        for part in others:
            part.node.take_files_of(first.node)
            assert until(lambda node=part.node: node.systemctl("start") == 0, 60), part.node.said
        assert until(lambda: all(len(part.node.launchers()) == 1 for part in self.parts.values()), 60)
        for part in self.parts.values():
            part.old = look(part.node)

    def _break(self) -> None:
        plan = Plan(self.folder)
        for part in self.parts.values():
            options, entry = part.row.options, part.entry
            lost = part.gpu_host.lost if part.gpu_host and options["who"] == "GPU HOST" else part.node.lost
            plan.at(part.node, entry["task"], options["do"], entry["nth"], lost)
        results = self.folder / "results.json"
        run = self.relaunch(
            list(self.parts.values()), environment=plan.environment(), relaunch_result_file=str(results)
        )
        assert run.rc == -signal.SIGKILL, str(run)
        rows = {row["host"]: row for row in json.loads(results.read_text())} if results.exists() else {}
        for part in self.parts.values():
            node = part.node
            part.left, part.calls = look(node), run.of(node)
            said = [text for text in run.failures(node) if text.lstrip("'\"").startswith(f"{node.name}: ")]
            part.said, part.warned = " ".join(said), run.text
            part.verdict = rows.get(node.name, {}).get("verdict") or ""
            part.moments = plan.moments(node)
        ids = {lease["run_id"] for part in self.parts.values() for lease in look(part.node).leases}
        ids |= {part.left.armed_by for part in self.parts.values() if part.left and part.left.armed_by}
        (self.run_id,) = ids

    def time_comes(self, part: Part) -> None:
        for host in (part.node, part.gpu_host):
            if host is not None:
                host.lost.unlink(missing_ok=True)
        node = part.node
        if part.row.options.get("dirty"):
            worker = node.hold("--gpu", "1", "--mib", "5000")
            assert until(lambda: sum(node.used_mib()) >= 5000, 30)
            told = node.folder / "run" / "guard" / "sglang.service.json"
            before = told.read_text()
            node.time_comes()  # without waiting for the start, so the guard may speak later
            assert until(lambda: told.read_text() not in (before, "") and '"waiting"' not in told.read_text(), 60)
            report = json.loads(told.read_text())
            part.refused_on_dirty = (
                f"{report['verdict']}: {report['reason']}, launchers {node.launchers()}, worker {worker}"
            )
            part.worker_lived = alive(worker)
            os.kill(worker, signal.SIGKILL)
            assert until(lambda: sum(node.used_mib()) == 0, 30)
            node.systemctl("reset-failed")
            node.systemctl("start")  # as Restart= does
        else:
            node.time_comes()
        until(lambda: len(node.launchers()) == 1, 30)
        part.timer_came = look(node)

    def _next_run(self, parts: t.Sequence[Part]) -> None:
        if not parts:
            return
        leased = [part for part in parts if part.left and part.left.standing]
        if leased:
            leased[0].refused = self.relaunch(leased[:1])
            unlocked = self.playbook("unlock", leased, unlock_run_id=self.run_id)
            for part in leased:
                part.unlocked = unlocked
        again = self.relaunch(parts)
        for part in parts:
            part.again, part.served = again, look(part.node)
