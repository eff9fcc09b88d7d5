# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A made-up node for the gate: scripted looks and scans, and a clock that only moves when somebody waits."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions, GateResult, wait_idle
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, Gpu, GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan

UUIDS = tuple(f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in range(8))
COST = 0.035
TWO = Expectation(count=2)


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0, "a busy loop"
        self.slept.append(seconds)
        self.now += seconds


def gpus(*used: int | None, **fields: t.Any) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(index=n, uuid=UUIDS[n], bus_id=f"00000000:0{n}:00.0", name="X", used_mib=mib, **fields)
        for n, mib in enumerate(used)
    )


def ok(*used: int | None, processes: t.Sequence[GpuProcess] = (), **fields: t.Any) -> GpuLook:
    return GpuLook(
        state="ok",
        exit_code=0,
        gpus=gpus(*used, **fields),
        processes=tuple(processes),
        processes_verdict="some" if processes else "none",
    )


def holder(pid: int = 10, disposition: str = "target", **fields: t.Any) -> Holder:
    fields = {"computes": disposition in ("target", "foreign"), "devices": ("/dev/nvidia1",), **fields}
    return Holder(pid=pid, start_time=1, comm="python3", ppid=1, disposition=t.cast(t.Any, disposition), **fields)


def scan(*holders: Holder, **fields: t.Any) -> HolderScan:
    return HolderScan(holders=holders, **fields)


class Node:
    """Looks by time or by turn; holders as a function of the seconds since the start."""

    def __init__(
        self,
        looks: t.Sequence[GpuLook] | t.Callable[[float], GpuLook],
        holders: t.Callable[[float], HolderScan] | HolderScan | None = None,
        cost: float = COST,
    ) -> None:
        self.clock = Clock()
        self.looks, self.holders, self.cost = looks, holders, cost
        self.asked = 0
        self.with_processes: list[bool] = []
        self.scanned: list[float] = []

    @property
    def elapsed(self) -> float:
        return self.clock.now - 5000.0

    def look(self, processes: bool) -> GpuLook:
        self.asked += 1
        self.with_processes.append(processes)
        found = self.looks(self.elapsed) if callable(self.looks) else self.looks[min(self.asked, len(self.looks)) - 1]
        self.clock.now += self.cost
        return found

    def scan(self, processes: t.Sequence[GpuProcess]) -> HolderScan:
        self.scanned.append(self.elapsed)
        if self.holders is None:
            return HolderScan()
        return self.holders(self.elapsed) if callable(self.holders) else self.holders

    def wait(
        self,
        expectation: Expectation = TWO,
        *,
        with_holders: bool = True,
        seen: HolderScan | None = None,
        **options: t.Any,
    ) -> GateResult:
        scanner = self.scan if with_holders else None
        return wait_idle(self.look, scanner, GateOptions(expectation, **options), self.clock, seen=seen)


def faulty(*used: int | None, index: int = 1) -> GpuLook:
    look = ok(*used)
    rows = tuple(
        dataclasses.replace(gpu, problems=("[GPU is lost]",)) if gpu.index == index else gpu for gpu in look.gpus
    )
    return dataclasses.replace(look, gpus=rows, faulty=(index,))
