# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sentences of a judgement: who is named, how many are, and what is left out because it was said already."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _gpu_verdict
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, Gpu, GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import (
    check_idle_mib,
    judge,
    processes_verdict,
)

LOST = 'nvidia-smi printed "GPU 3 is lost"'


def uuid(number: int) -> str:
    return f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0{number:02d}"


def look(*used: int | None, **others: t.Any) -> GpuLook:
    """One row for each number; None makes no row at that index."""
    rows = tuple(
        Gpu(index=index, uuid=uuid(index), bus_id=f"00000000:{index:02d}:00.0", name="NVIDIA H200", used_mib=mib)
        for index, mib in enumerate(used)
        if mib is not None
    )
    return GpuLook(**{"state": "ok", "exit_code": 0, "processes_verdict": "none", "gpus": rows, **others})


def reason(found: GpuLook, count: int | None = None, **options: t.Any) -> str:
    return judge(found, Expectation(count=len(found.gpus) if count is None else count), **options).reason


@pytest.mark.parametrize(
    ("used", "words"),
    [
        pytest.param((5,), "GPU 0 holds 5 MiB (allowed: 0 MiB).", id="one"),
        pytest.param((5, 5, 0), "GPUs 0-1 hold 5 MiB each (allowed: 0 MiB).", id="two with the same"),
        pytest.param((5, 7, 0), "GPU 0 holds 5 MiB, GPU 1 holds 7 MiB (allowed: 0 MiB).", id="two with their own"),
        pytest.param((5, 0, 5, 5), "GPUs 0, 2-3 hold 5 MiB each (allowed: 0 MiB).", id="a gap"),
        pytest.param((5, 5, 0, 5, 5), "GPUs 0-1, 3-4 hold 5 MiB each (allowed: 0 MiB).", id="two spans"),
    ],
)
def test_who_holds_how_much(used: tuple[int, ...], words: str) -> None:
    assert reason(look(*used)).startswith(words)


SAME = "The same on every GPU and no process listed"


@pytest.mark.parametrize(
    ("used", "processes", "said"),
    [
        pytest.param((615, 615), (), True, id="two GPUs, nobody"),
        pytest.param((615, 616), (), False, id="not the same"),
        pytest.param((615, 0), (), False, id="not on every one"),
        pytest.param((615, 615, 0), (), False, id="on most"),
        pytest.param((615,), (), False, id="one GPU is no pattern"),
        pytest.param((615, 615), (GpuProcess(uuid(1), 5, "x", 1),), False, id="somebody is listed"),
    ],
)
def test_what_looks_like_the_driver_itself(
    used: tuple[int, ...], processes: tuple[GpuProcess, ...], said: bool
) -> None:
    assert (SAME in reason(look(*used, processes=processes))) is said


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (7, f"not {', '.join(uuid(n) for n in range(1, 8))}. To do"),
        (8, f"not {', '.join(uuid(n) for n in range(1, 9))}. To do"),
        (9, f"not {', '.join(uuid(n) for n in range(1, 9))}, and 1 more. To do"),
        (20, f"not {', '.join(uuid(n) for n in range(1, 9))}, and 12 more. To do"),
    ],
)
def test_at_most_eight_are_named(wanted: int, words: str) -> None:
    asked = Expectation(uuids=tuple(uuid(n) for n in range(1, wanted + 1)))
    assert words in judge(look(0), asked).reason


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (4, "line 0. line 1. line 2. line 3."),
        (5, "line 0. line 1. line 2. (2 more such lines.)"),
        (9, "line 0. line 1. line 2. (6 more such lines.)"),
    ],
)
def test_a_few_odd_lines_are_told(lines: int, words: str) -> None:
    assert reason(look(0, problems=tuple(f"line {n}" for n in range(lines)))) == words


@pytest.mark.parametrize(
    ("found", "asked", "left_out"),
    [
        pytest.param(
            look(0, problems=(LOST, "an odd line"), elsewhere=(LOST,)),
            Expectation(uuids=(uuid(0),)),
            LOST,
            id="it is about another GPU than the named",
        ),
        pytest.param(
            look(0, None, 0, problems=("GPU 1 has no row", "an odd line"), faulty=(1,)),
            Expectation(count=3),
            "has no row",
            id="the missing one was named",
        ),
        pytest.param(
            look(state="error", exit_code=9, first_line="failed", problems=("it says: failed", "an odd line")),
            Expectation(count=1),
            "it says",
            id="the first line was quoted",
        ),
    ],
)
def test_what_was_said_is_not_said_again_and_the_rest_is(found: GpuLook, asked: Expectation, left_out: str) -> None:
    judgement = judge(found, asked)
    assert judgement.verdict == "unknown" or asked.uuids
    assert (left_out in judgement.reason, "an odd line." in judgement.reason) == (False, True)


@pytest.mark.parametrize(
    ("faulty", "missing"),
    [
        pytest.param((), ("1 GPU of which nothing says which",), id="nothing says which"),
        pytest.param((1,), ("GPU 1",), id="the gap has a number"),
        pytest.param((0,), ("1 GPU of which nothing says which",), id="that one has a row"),
        pytest.param(("00000000:0F:00.0",), ("1 GPU of which nothing says which",), id="a bus id has no number"),
        pytest.param((1, 4), ("GPU 1",), id="no more names than are missing"),
    ],
)
def test_which_gpu_is_missing_as_far_as_it_is_told(faulty: tuple[int | str, ...], missing: tuple[str, ...]) -> None:
    judgement = judge(look(0, None, 0, faulty=faulty), Expectation(count=3))
    assert judgement.missing == missing
    assert f"2 of 3 GPUs answer, missing: {', '.join(missing)}. To do" in judgement.reason


@pytest.mark.parametrize(("rows", "verdict"), [(2, "unknown"), (1, "unknown"), (3, "idle"), (4, "unknown")])
def test_one_too_many_is_not_idle_either(rows: int, verdict: str) -> None:
    assert judge(look(*([0] * rows)), Expectation(count=3)).verdict == verdict


@pytest.mark.parametrize(
    ("code", "words"), [(-1, "ended by signal 1."), (-9, "ended by signal 9."), (1, "ended with 1.")]
)
def test_how_nvidia_smi_ended(code: int, words: str) -> None:
    assert words in reason(look(state="error", exit_code=code), 1)


def test_without_a_tolerance_one_mib_may_be_somebody() -> None:
    assert processes_verdict(look(0, 0)) == "none"
    assert processes_verdict(look(0, 1)) == "unknown"


@pytest.mark.parametrize(
    ("forgotten", "found", "asked"),
    [
        pytest.param(
            "_state_doubts", look(0, state="error", exit_code=9), Expectation(count=1), id="nvidia-smi failed"
        ),
        pytest.param(
            "_gpu_doubts",
            dataclasses.replace(look(0), gpus=(dataclasses.replace(look(0).gpus[0], problems=("x",)),)),
            Expectation(count=1),
            id="a GPU cannot be trusted",
        ),
    ],
)
def test_a_rule_that_forgets_to_object_makes_nothing_idle(
    monkeypatch: pytest.MonkeyPatch, forgotten: str, found: GpuLook, asked: Expectation
) -> None:
    assert judge(found, asked).verdict == "unknown"
    monkeypatch.setattr(_gpu_verdict, forgotten, lambda *given: [])
    with pytest.raises(AssertionError, match="Contract violation: no word against idle"):
        judge(found, asked)


@pytest.mark.parametrize("value", [0, 1, 287, 512])
def test_what_an_idle_gpu_may_hold(value: int) -> None:
    assert check_idle_mib("max_used_mib", value) == value


@pytest.mark.parametrize("value", [-1, 513, 621, 100_000])
def test_what_may_be_somebodys_work_is_no_tolerance(value: int) -> None:
    with pytest.raises(ValueError, match=rf"max_used_mib is {value}: .* between 0 and 512,"):
        check_idle_mib("max_used_mib", value)
