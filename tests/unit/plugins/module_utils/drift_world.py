# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that scheduled runs look at: its looks in the shape of the modules' results, its memory in a real file, and
clocks that tests move."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_limits, _drift_memory_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_limits import Policy, Verdict, policy_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import Memory
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory_file import MemoryRequest, MemoryResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import iso

UNIT = "sglang.service"
START = 1.8e9  # a date
GPUS = tuple(f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0f{number}" for number in range(8))
RUNNING = {"active_state": "active", "sub_state": "running", "result": "success", "restarts": 0, "frozen": False}


class SteppedClock:
    def __init__(self) -> None:
        self.date, self.boot_s = START, 5000.0

    def monotonic(self) -> float:
        return self.boot_s

    def wall(self) -> float:
        return self.date

    def sleep(self, seconds: float) -> None:
        self.date += seconds
        self.boot_s += seconds


def holder(pid: int = 4801, unit: str | None = UNIT, disposition: str = "target", **more: t.Any) -> dict[str, t.Any]:
    return {
        "pid": pid,
        "start_time": 900 + pid,
        "comm": "sglang",
        "unit": unit,
        "disposition": disposition,
        "computes": True,
        "gpus": [],
        **more,
    }


class Node:
    """A healthy server that people have asked for; tests break it."""

    def __init__(self, folder: pathlib.Path, **policy: t.Any) -> None:
        self.path = str(folder / "state" / "drift.json")
        self.clock = SteppedClock()
        self.boot = "boot-1"
        self.policy: Policy = policy_of({"unit": UNIT, "mode": "remediate", **policy})
        self.started = START - 90000.0
        self.pid: int | None = 4711
        self.health: dict[str, t.Any] = {"verdict": "ready", "reason": "it serves", "witnesses": {}}
        self.requests: dict[str, t.Any] = {"running": 0, "queued": 0, "progress": None}
        self.gate: dict[str, t.Any] = {"verdict": "busy", "msg": "8 GPUs are held", "holders": [holder()]}
        self.use: int | None = 0
        self.service: dict[str, t.Any] | None = {**RUNNING}
        self.wanted: dict[str, t.Any] | None = {
            "state": "serving",
            "profile": "kimi",
            "by": "relaunch.yml",
            "who": "ana",
            "at": "2026-11-29T15:02:11Z",
            "run_id": "r1",
            "outcome": "ready",
            "pause": None,
        }
        self.differences: list[dict[str, t.Any]] = []
        self.more: dict[str, t.Any] = {}
        self.relaunches: list[float] = []

    def look(self) -> dict[str, t.Any]:
        memory, problem = _drift_memory_file.shown(self.path, UNIT)
        rows = [{"uuid": uuid, "utilization_pct": self.use} for uuid in GPUS]
        node = {
            "config": {"verdict": "drifted" if self.differences else "same", "differences": self.differences},
            "service": self.service,
            "wanted": self.wanted,
            "wanted_problem": None,
            "memory": memory.view() if memory is not None else None,
            "memory_problem": problem,
            "leases": [],
            "starting": [],
            "leases_problem": None,
            "boot_id": self.boot,
            "boottime_s": self.clock.boot_s,
            "looked_at": iso(self.clock.date),
        }
        since = {"since": iso(self.started), "main_pid": self.pid, "requests": self.requests}
        look = {"health": {**self.health, **since}, "gate": {**self.gate, "gpus": rows}, "node": node, "unmet": []}
        return {**look, "unreachable": "", **self.more}

    def judge(self) -> Verdict:
        return _drift_limits.judge(self.look(), self.policy, self.clock.date)

    def remember(self, state: t.Any, **options: t.Any) -> MemoryResult:
        request = MemoryRequest(state, UNIT, limits=self.policy.limits, **options)
        return _drift_memory_file.change(request, self.path, self.boot, self.clock)

    def memory(self) -> Memory:
        return _drift_memory_file.shown(self.path, UNIT)[0] or Memory()

    def run(self, outcome: str = "ready") -> Verdict:
        """One scheduled run as the playbook makes it; outcome: how its relaunch ends, if there is one."""
        verdict = self.judge()
        step = verdict.as_dict()["memory"]
        if step["state"] != "none":
            assert not self.remember(step["state"], key=step["key"], revision=step["revision"]).failed
        if verdict.action in ("release", "relaunch"):
            run_id = f"run-{len(self.relaunches)}"
            begun = self.remember("begun", revision=step["revision"], run_id=run_id, action=verdict.action)
            assert not begun.failed, begun.reason
            self.relaunches.append(self.clock.date)
            if outcome != "lost":
                assert not self.remember("ended", run_id=run_id, outcome=outcome, reason="it did not serve").failed
        return verdict

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    # What befalls it.

    def hang(self) -> None:
        self.health = {"verdict": "hung", "reason": "no sign of life", "witnesses": {}}
        self.requests = {"running": 1, "queued": 3, "progress": False}

    def load(self) -> None:
        self.health = {"verdict": "starting", "reason": "loads", "witnesses": {}}
        self.requests = {"running": None, "queued": None, "progress": None}
        self.started, self.pid = self.clock.date, 9000 + int(self.clock.date) % 1000

    def serve(self) -> None:
        self.health = {"verdict": "ready", "reason": "it serves", "witnesses": {}}
        self.requests = {"running": 0, "queued": 0, "progress": None}

    def die(self, state: str = "failed", verdict: str = "failed", **service: t.Any) -> None:
        self.health = {"verdict": verdict, "reason": "it is dead", "witnesses": {}}
        self.pid = None
        times = {"restart": "always", "left_active_us": 200, "main_ended_us": 100}
        self.service = {**RUNNING, "active_state": state, "sub_state": "dead", **times, **service}
        self.gate = {"verdict": "idle", "msg": "All 8 GPUs report 0 MiB.", "holders": []}
