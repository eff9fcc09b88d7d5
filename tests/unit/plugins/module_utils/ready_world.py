# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A world in which a server starts, on a clock that passes only when somebody sleeps."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_fill import GpuFill
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Listener
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import (
    HealthLook,
    Observation,
    Target,
    judge,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log_source import Chunk
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import (
    Process,
    ServerProcesses,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_questions import Generation, Models
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_ready import (
    Wait,
    WaitOptions,
    WaitResult,
    WaitState,
    begin,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import KEY, FakeClock

TARGET = Target("sglang.service", "127.0.0.1", 30000, served_model_name="kimi", expected_workers=2)
OK = Answer(status=200, seconds=1.0)
START = 1_700_000_000.0


def stamped(second: float, text: str, rank: str = "") -> str:
    return time.strftime("[%Y-%m-%d %H:%M:%S", time.localtime(START + second)) + f"{rank}] {text}"


class World:
    """A server whose parts change at given seconds after the wait began."""

    def __init__(self, *, memory: t.Callable[[float], int | None] | None = None) -> None:
        self.clock = FakeClock()
        self.began = self.clock.now
        self.events: list[tuple[float, dict[str, t.Any]]] = []
        self.log: list[tuple[float, str]] = []
        self.written = 0
        self.cpu: t.Callable[[float], int] = lambda now: 0
        self.memory = memory
        self.looks = 0
        self.journal = False
        self.target = TARGET
        self.invocations: list[str] = []
        self.guard: dict[str, t.Any] | None = None
        self.now_is = {
            "unit": UnitState("sglang.service", "running", "active", "running", main_pid=100, restarts=0),
            "main": Process(100, 1, 4711, "S", 0, "python -m sglang.launch_server"),
            "workers": 2,
            "health": None,
            "model": "kimi",
            "foreign": None,
            "models_status": 200,
        }

    def at(self, second: float, **changes: t.Any) -> World:
        self.events.append((second, changes))
        return self

    def unit_at(self, second: float, **changes: t.Any) -> World:
        return self.at(second, unit=dataclasses.replace(t.cast(UnitState, self.now_is["unit"]), **changes))

    def says(self, second: float, text: str, rank: str = " TP0") -> World:
        self.log.append((second, stamped(second, text, rank)))
        return self

    @property
    def elapsed(self) -> float:
        return self.clock.now - self.began

    def look(self, update_log: t.Callable[..., t.Any]) -> HealthLook:
        self.looks += 1
        for second, changes in self.events:
            if second <= self.elapsed:
                self.now_is.update(changes)
        self.events = [event for event in self.events if event[0] > self.elapsed]
        state = t.cast(t.Any, self.now_is)
        unit, main = state["unit"], state["main"]
        log = update_log(unit, START if main is not None else None)
        up = state["health"] is not None
        workers = tuple(Process(110 + i, 100, 1, "S", 0, f"sglang::scheduler_TP{i}") for i in range(state["workers"]))
        mine = (Listener("127.0.0.1", 100),) if up else ()
        processes = ServerProcesses(
            main=main,
            members=(100,),
            workers=workers,
            listeners=(state["foreign"],) if state["foreign"] else mine,
            ours=False if state["foreign"] else (True if up else None),
            foreign=state["foreign"],
            cpu_ticks=self.cpu(self.elapsed),
        )
        health = Answer(status=state["health"], seconds=0.1) if up else None
        healthy = up and state["health"] == 200
        models = Models(Answer(status=state["models_status"]), (state["model"],)) if healthy else None
        seen = Observation(unit, processes, log, health, models, Generation(True, OK) if healthy else None)
        verdict, reason, witnesses = judge(self.target, seen, redact)
        return HealthLook(TARGET.name, verdict, reason, seen, witnesses, START)

    def read(self, unit: UnitState | None, since: float | None, position: t.Any) -> Chunk:
        self.invocations.append(unit.invocation if unit else "")
        first = (position or {}).get("n", 0)
        lines = [line for second, line in self.log if second <= self.elapsed]
        return Chunk(tuple(lines[first:]), position={"n": len(lines)}, this_run=self.journal)

    def ask_memory(self, patient: bool) -> GpuFill | None:
        used = self.memory(self.elapsed) if self.memory else None
        return None if used is None else GpuFill(used, 8000, 8)

    def wait(self, state: WaitState | None = None, **options: t.Any) -> WaitResult:
        chosen = {"timeout": 2700.0, "progress_timeout": 600.0, "settle": 5.0, "slice": None, **options}
        return Wait(
            WaitOptions(**chosen),
            state or begin(self.clock),
            look=self.look,
            read_log=self.read,
            clock=self.clock,
            redact=redact,
            memory=self.ask_memory if self.memory else None,
            guard=lambda unit, invocations: self.guard,
        ).run()


def loading(world: World) -> World:
    """A start that takes 100 s."""
    world.says(20, f"server_args=ServerArgs(api_key='{KEY}')", "").says(30, "Init parallel begin.")
    world.says(35, "Load weight begin. avail mem=94.00 GB").says(65, "Load weight end. elapsed=30 s")
    world.says(70, "Capture target decode CUDA graph begin. backend=full").says(
        88, "max_total_num_tokens=1, context_len=1"
    )
    world.says(90, "Uvicorn running on http://127.0.0.1:30000", "").says(
        95, "The server is fired up and ready to roll!", ""
    )
    return world.at(90, health=503).at(95, health=200)
