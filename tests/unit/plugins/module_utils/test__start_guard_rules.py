# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the guard starts, refuses, waits and gives up: cell by cell."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_verdicts import GateVerdict
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_rules import (
    EXIT_CODES,
    LOOK_ON,
    QUICK_REFUSALS,
    Seen,
    Step,
    cuda_numbers,
    decide,
    looks_on,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import UUIDS, gpus

BUDGET = 300.0
PASSES_BY_ITSELF = ("settled", "dying", "draining", "orphaned", "missing", "faulty", "fabric_not_ready", "unknown")
NAMED = ("busy", "foreign")


def test_every_verdict_of_the_gate_has_a_cell() -> None:
    assert {*PASSES_BY_ITSELF, *NAMED, "idle"} == set(t.get_args(GateVerdict))


@pytest.mark.parametrize("verdict", ["idle", "settled"])
@pytest.mark.parametrize("refusals", [0, 500])
@pytest.mark.parametrize("waited", [0.2, BUDGET + 5])
def test_an_open_gate_starts_the_server_at_once(verdict: t.Any, refusals: int, waited: float) -> None:
    assert decide(Seen(verdict, passed=True), waited, BUDGET, refusals) == "start"


@pytest.mark.parametrize("verdict", ["idle", *PASSES_BY_ITSELF])
@pytest.mark.parametrize(("waited", "step"), [(0.0, "wait"), (BUDGET - 1, "wait"), (BUDGET, "give_up")])
def test_what_passes_by_itself_is_waited_for_as_long_as_the_time_lasts(
    verdict: t.Any, waited: float, step: Step
) -> None:
    """Idle that did not pass: too few looks yet."""
    assert decide(Seen(verdict, passed=False), waited, BUDGET, 0) == step


@pytest.mark.parametrize("verdict", NAMED)
@pytest.mark.parametrize("refusals", [0, 1, QUICK_REFUSALS - 1])
def test_a_named_holder_is_refused_at_once(verdict: t.Any, refusals: int) -> None:
    assert decide(Seen(verdict, passed=False), 2.1, BUDGET, refusals) == "refuse"


@pytest.mark.parametrize("verdict", NAMED)
@pytest.mark.parametrize(("waited", "step"), [(2.1, "wait"), (LOOK_ON - 1, "wait"), (LOOK_ON, "refuse")])
def test_who_was_refused_often_is_looked_at_for_longer(verdict: t.Any, waited: float, step: Step) -> None:
    assert decide(Seen(verdict, passed=False), waited, BUDGET, QUICK_REFUSALS) == step


@pytest.mark.parametrize(("refusals", "seconds"), [(0, 0.0), (9, 0.0), (10, 60.0), (500, 60.0)])
def test_ten_quick_refusals_and_then_one_a_minute(refusals: int, seconds: float) -> None:
    assert looks_on(refusals, BUDGET) == seconds


def test_only_a_start_ends_well_and_every_other_end_can_be_told_from_systemd_s_status() -> None:
    """systemd goes on to the server where the guard ends with 0; docs and operators know the others by number."""
    assert EXIT_CODES == {"start": 0, "error": 1, "refused": 3, "gave_up": 4, "interrupted": 5}


def test_looking_on_never_outlasts_the_time() -> None:
    assert looks_on(QUICK_REFUSALS, 30.0) == 30.0
    assert decide(Seen("busy", passed=False), 30.0, 30.0, QUICK_REFUSALS) == "refuse"


def test_idle_gpus_that_another_server_has_locked_are_refused() -> None:
    assert decide(Seen("idle", True, locked_by="pid 7"), 0.2, BUDGET, 0) == "refuse"


def test_a_lock_says_nothing_while_the_gate_is_shut() -> None:
    assert decide(Seen("dying", False, locked_by="pid 7"), 0.2, BUDGET, 0) == "wait"


@pytest.mark.parametrize(("waited", "step"), [(0.2, "wait"), (BUDGET, "give_up")])
def test_numbers_that_cannot_be_told_start_nothing(waited: float, step: Step) -> None:
    assert decide(Seen("idle", True, unclear="one is gone"), waited, BUDGET, 0) == step


def test_cuda_numbers_are_places_on_the_bus() -> None:
    assert cuda_numbers(gpus(*[0] * 8), [UUIDS[5], UUIDS[2].upper()]) == "2,5"


def test_after_a_gpu_was_lost_without_a_word_the_rest_has_other_numbers() -> None:
    left = [gpu for gpu in gpus(*[0] * 8) if gpu.index != 1]
    renumbered = [dataclasses.replace(gpu, index=place) for place, gpu in enumerate(left)]
    assert cuda_numbers(renumbered, [UUIDS[4], UUIDS[5]]) == "3,4"


def test_a_gap_in_the_numbers_says_that_cuda_may_count_otherwise() -> None:
    left = [gpu for gpu in gpus(*[0] * 8) if gpu.index != 1]
    with pytest.raises(
        ValueError, match=r"calls the GPU at 00000000:02:00.0 number 2, and it is number 1 by its place"
    ):
        cuda_numbers(left, [UUIDS[4]])


def test_a_gpu_that_is_not_there_has_no_number() -> None:
    with pytest.raises(ValueError, match=f"does not list {UUIDS[7]}"):
        cuda_numbers(gpus(0, 0), [UUIDS[7]])
