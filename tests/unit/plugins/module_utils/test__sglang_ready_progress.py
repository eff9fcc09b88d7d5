# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The waiting: what counts as progress, and what standing still comes to."""

from __future__ import annotations

import typing as t

import pytest

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
    assert len(asked) <= 50


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
