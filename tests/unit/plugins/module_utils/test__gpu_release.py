# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scanning again and again with one list of compute processes, and who may be signalled at all."""

from __future__ import annotations

import dataclasses
import os
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _gpu_release
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, Gpu, GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_release import Rescanner, refusal, release_gpus
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder import ReleaseOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import ReleaseResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc

UUID = "GPU-00000000-1111-2222-3333-444444444444"


@dataclasses.dataclass
class Clock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class World(GpuWorld):
    """Scans and looks are given; which list each scan was made with is kept."""

    def __init__(self, listed: t.Sequence[int]) -> None:
        self.ticker = Clock()
        super().__init__(ScanRequest(Scope("own")), self.ticker, runner=t.cast(t.Any, None))
        self.listed = list(listed)
        self.state: t.Any = "ok"
        self.asked = 0
        self.with_pids: list[list[int]] = []
        self.holders: list[Holder] = []
        self.used: list[int | None] = [5, 7]

    def look(self, processes: bool = True) -> GpuLook:
        self.asked += 1
        gpus = tuple(Gpu(n, UUID, "", "", used_mib=mib) for n, mib in enumerate(self.used))
        return GpuLook(self.state, 0, gpus, tuple(GpuProcess(UUID, pid, None, 1) for pid in self.listed))

    def scan(self, processes: t.Sequence[GpuProcess]) -> HolderScan:
        self.with_pids.append([process.pid for process in processes])
        return HolderScan(holders=tuple(self.holders))


def holder(pid: int, start: int = 1, disposition: t.Any = "target") -> Holder:
    return Holder(pid=pid, start_time=start, comm="x", ppid=1, disposition=disposition)


def test_nvidia_smi_is_asked_once_where_nobody_new_comes() -> None:
    world = World([10])
    world.holders = [holder(10), holder(30, disposition="monitor")]
    scan = Rescanner(world)
    for dummy in range(20):
        scan()
        world.ticker.now += 1
    assert world.asked == 1
    assert world.with_pids == [[10]] * 20


def test_a_dead_pid_stays_on_the_list() -> None:
    """A child that inherited its context may still be there."""
    world = World([10])
    world.holders = [holder(10)]
    scan = Rescanner(world)
    scan()
    world.holders = []
    scan()
    assert world.with_pids == [[10], [10]]


def test_a_listed_pid_that_another_process_took_over_is_dropped() -> None:
    world = World([10, 11])
    world.holders = [holder(10), holder(11)]
    scan = Rescanner(world)
    scan()
    world.holders = [holder(10, start=2), holder(11)]
    scan()
    assert world.with_pids == [[10, 11], [10, 11], [11]]


def test_somebody_new_makes_it_ask_again_but_not_at_once() -> None:
    world = World([10])
    world.holders = [holder(10)]
    scan = Rescanner(world)
    scan()
    world.holders = [holder(12, disposition="monitor")]
    world.listed = [12]
    world.ticker.now += 1
    scan()
    assert world.asked == 1
    world.holders.append(holder(13, disposition="foreign"))
    world.ticker.now += 2
    scan()
    assert world.asked == 2
    assert world.with_pids[-1] == [12, 10]


def test_whoever_came_later_stays_new_until_it_is_listed() -> None:
    """A holder that a loop starts again opens the devices first, and computes when nvidia-smi has just been asked."""
    world = World([10])
    scan = Rescanner(world)
    scan()
    world.holders = [holder(12, disposition="monitor")]
    scan()
    world.ticker.now += 2
    world.listed = [12]
    scan()
    assert world.asked == 2
    assert world.with_pids[-1] == [12, 10]


def test_a_new_target_needs_no_list() -> None:
    world = World([10])
    scan = Rescanner(world)
    scan()
    world.holders = [holder(12)]
    world.ticker.now += 9
    scan()
    assert world.asked == 1


def test_somebody_dying_who_is_only_listed_is_asked_about_soon() -> None:
    """A dead child whose parent does not collect it holds nothing any more once nvidia-smi stops listing it."""
    world = World([10])
    world.holders = [dataclasses.replace(holder(10), devices=("nvidia0",))]
    scan = Rescanner(world)
    scan()
    world.holders = [dataclasses.replace(holder(10), dying=True)]
    world.listed = []
    scan()
    assert world.asked == 1
    world.ticker.now += 0.25
    scan()
    assert world.asked == 2
    assert world.with_pids[-1] == []


def test_a_hung_nvidia_smi_is_not_asked_again() -> None:
    world = World([])
    world.state = "hung"
    scan = Rescanner(world)
    scan()
    world.holders = [holder(12, disposition="monitor")]
    world.ticker.now += 9
    scan()
    assert world.asked == 1


def test_the_memory_of_all_gpus_together() -> None:
    world = World([])
    assert world.used_mib() == 12
    world.used = [5, None]
    assert world.used_mib() is None
    world.used, world.state = [5], "error"
    assert world.used_mib() is None
    world.state = "hung"
    assert world.used_mib() == "hangs"


def test_what_the_release_saw_last_is_what_the_gate_begins_with() -> None:
    world = World([10])
    scan = Rescanner(world)
    world.holders = [holder(10)]
    first = scan()
    assert scan.latest is first
    world.holders = []
    assert scan() is scan.latest
    assert scan.latest.holders == ()


@pytest.mark.parametrize("gate", [None, GateOptions(Expectation(count=1), timeout=0.0)])
def test_the_ladder_knows_whether_a_gate_follows(gate: GateOptions | None, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool] = []

    def release(scan: t.Any, options: ReleaseOptions, **dummy: t.Any) -> ReleaseResult:
        said.append(options.gate_follows)
        return ReleaseResult("released", "")

    monkeypatch.setattr(_gpu_release, "release", release)
    monkeypatch.setattr(_gpu_release, "refusal", lambda *dummy: None)
    release_gpus(World([]), ReleaseOptions(), gate=gate)
    assert said == [gate is not None]


@pytest.mark.parametrize(
    ("stopped_at", "last_signal_at", "killed_at"),
    [(None, None, None), (40.0, None, 40.0), (None, 50.0, 50.0), (40.0, 50.0, 50.0)],
)
def test_the_gate_counts_from_the_stop_as_from_a_signal(
    stopped_at: float | None, last_signal_at: float | None, killed_at: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of a server that systemd cut off is still coming back, and no orphan's."""
    asked: list[float | None] = []
    result = ReleaseResult("free", "", last_signal_at=last_signal_at)
    monkeypatch.setattr(_gpu_release, "release", lambda *dummy, **named: result)
    monkeypatch.setattr(_gpu_release, "refusal", lambda *dummy: None)
    monkeypatch.setattr(
        _gpu_release, "wait_idle", lambda look, scan, options, *dummy, **named: asked.append(options.killed_at)
    )
    gate = GateOptions(Expectation(count=1), timeout=0.0)
    release_gpus(World([]), ReleaseOptions(), gate=gate, stopped_at=stopped_at)
    assert asked == [killed_at]


def test_numbers_of_another_pid_namespace_are_not_signalled_by(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Under /proc of the host a process of our own namespace with the same number would get the signal."""
    none = str(tmp_path_factory.mktemp("none") / "allowed.json")
    request = ScanRequest(Scope("own"))
    assert refusal(request, None, none) is None
    monkeypatch.setattr(Proc, "own_pid", lambda self: os.getpid() + 1)
    assert "another PID namespace" in (refusal(request, None, none) or "")
    assert refusal(ScanRequest(Scope("own"), proc_root="/elsewhere"), None, none) is None, "a folder that plays /proc"
