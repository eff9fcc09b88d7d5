# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The waiting: what counts as progress, and what standing still comes to."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_fill import GpuFill, gpu_fill
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Gpu, GpuLook
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ready_world import (
    World,
)


def test_silence_ends_the_wait_and_names_what_may_stall() -> None:
    world = World().says(30, "Init parallel begin.")
    result = world.wait(progress_timeout=100.0)
    assert result.verdict == "no_progress"
    assert 129 <= result.waited <= 132
    assert result.guess is not None
    assert "NCCL" in result.guess.cause


@pytest.mark.parametrize(("done", "cause"), [(63, "Loading weights stands still"), (64, "Every shard was read")])
def test_silence_after_the_last_shard_is_told_from_a_slow_disk(done: int, cause: str) -> None:
    world = World().says(0, "Load weight begin.")
    world.log.append((30, f"Multi-thread loading shards: {done}% Completed | {done}/64 [x]"))
    result = world.wait(progress_timeout=100.0)
    assert (result.verdict, result.waited) == ("no_progress", 130.0)
    assert result.guess is not None
    assert cause in result.guess.cause


def test_one_line_a_minute_is_progress() -> None:
    world = World().at(1000, health=200)
    for minute in range(20):
        world.says(minute * 60, f"still compiling kernel {minute}")
    assert world.wait(progress_timeout=100.0).verdict == "ready"


def test_a_moving_bar_is_progress() -> None:
    world = World().says(0, "Load weight begin.").at(1000, health=200)
    for step in range(20):
        world.log.append((step * 50, f"Multi-thread loading shards: {step}% Completed | {step}/64 [x]"))
    assert world.wait(progress_timeout=100.0).verdict == "ready"


def test_cpu_time_is_progress() -> None:
    world = World().says(0, "Capture target decode CUDA graph begin.").at(1000, health=200)
    world.cpu = lambda now: int(now * 100)
    assert world.wait(progress_timeout=100.0).verdict == "ready"


def test_the_idling_of_waiting_processes_is_no_progress() -> None:
    world = World().says(0, "Load weight begin.")
    world.cpu = lambda now: int(now * 3)
    assert world.wait(progress_timeout=100.0).verdict == "no_progress"


def test_a_collective_that_spins_is_no_progress() -> None:
    world = World().says(0, "Init parallel begin.")
    world.cpu = lambda now: int(now * 800)
    assert world.wait(progress_timeout=100.0).verdict == "no_progress"


def test_growing_gpu_memory_is_progress_and_is_asked_for_rarely() -> None:
    asked: list[float] = []

    def memory(now: float) -> int:
        asked.append(now)
        return int(now)

    world = World(memory=memory).says(0, "Init parallel begin.").at(500, health=200)
    assert world.wait(progress_timeout=100.0).verdict == "ready"
    assert len(asked) <= 101


@pytest.mark.parametrize("memory", [lambda now: 500, lambda now: None], ids=["still", "unknown"])
def test_gpu_memory_that_stands_still_or_is_unknown_is_no_progress(memory: t.Callable[[float], int | None]) -> None:
    world = World(memory=memory).says(0, "Init parallel begin.")
    assert world.wait(progress_timeout=100.0).verdict == "no_progress"


def test_the_total_time_ends_it_whatever_moves() -> None:
    world = World().says(0, "Load weight begin.")
    world.cpu = lambda now: int(now * 100)
    result = world.wait(timeout=300.0)
    assert result.verdict == "starting"
    assert "not ready within 300 s" in result.reason
    assert 300 <= result.waited <= 302


def test_the_filling_of_the_gpus_is_told() -> None:
    world = World(memory=lambda now: int(now * 10)).says(0, "Load weight begin.")
    result = world.wait(slice=60.0)
    assert result.memory is not None
    assert result.memory.as_dict() == {"used_mib": 600, "total_mib": 8000, "gpus": 8}
    assert World(memory=lambda now: None).wait(slice=10.0).memory is None


def test_an_nvidia_smi_that_does_not_answer_is_left_alone_until_it_decides() -> None:
    asked: list[tuple[float, bool]] = []

    class Hangs(World):
        def ask_memory(self, patient: bool) -> None:
            asked.append((self.elapsed, patient))

    assert Hangs(memory=lambda now: None).wait(progress_timeout=100.0).verdict == "no_progress"
    quick = [second for second, patient in asked if not patient]
    assert quick == [0.0, 30.0]
    assert [second for second, patient in asked if patient] == [float(second) for second in range(50, 101, 5)]


@pytest.mark.parametrize("phase", ["guard", "failed"])
def test_gpus_are_not_asked_about_while_no_server_runs(phase: str) -> None:
    def memory(now: float) -> int:
        raise AssertionError("asked")

    world = World(memory=memory).at(0, main=None, workers=0).unit_at(0, phase=phase)
    world.wait(timeout=20.0)


@pytest.mark.parametrize(
    ("used", "uuids", "expected"),
    [
        ([1, 2], [], GpuFill(3, 200, 2)),
        ([1, 2], ["GPU-1"], GpuFill(2, 100, 1)),
        ([1, None], [], None),
        ([1, None], ["GPU-0"], GpuFill(1, 100, 1)),
        ([1, 2], ["GPU-1", "GPU-7"], None),
        ([], [], None),
    ],
)
def test_the_sum_over_the_expected_gpus(used: list[int | None], uuids: list[str], expected: GpuFill | None) -> None:
    gpus = [Gpu(n, f"GPU-{n}", f"{n}", "x", total_mib=100, used_mib=mib) for n, mib in enumerate(used)]
    assert gpu_fill(GpuLook(state="ok", exit_code=0, gpus=tuple(gpus)), uuids) == expected
