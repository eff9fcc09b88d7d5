# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, Gpu, GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import (
    judge,
    kernel_gpu_count,
    processes_verdict,
)

UUIDS = tuple(f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0f{number}" for number in range(8))
EIGHT = Expectation(count=8)
FIRST_FOUR = Expectation(uuids=UUIDS[:4])
LOST = 'nvidia-smi printed "Unable to determine the device handle for GPU7: 0000:DF:00.0: Unknown Error"'


def gpu(index, used=0, **others):
    values = {"index": index, "uuid": UUIDS[index], "bus_id": f"00000000:0{index}:00.0", "name": "NVIDIA H200"}
    return Gpu(used_mib=used, **{**values, **others})


def seen(*gpus, **others):
    values = {"state": "ok", "exit_code": 0, "processes_verdict": "none", "gpus": gpus, "count": len(gpus)}
    return GpuLook(**{**values, **others})


def eight(**used):
    """Eight GPUs at 0 MiB, but gpu3=5 gives GPU 3 another number."""
    return tuple(gpu(index, used.get(f"gpu{index}", 0)) for index in range(8))


def process(index, pid=31871, **others):
    return GpuProcess(**{"gpu_uuid": UUIDS[index], "pid": pid, "name": "python3", "used_mib": 5, **others})


def without(*indexes):
    return tuple(one for one in eight() if one.index not in indexes)


def tainted(*indexes, problem='utilization.gpu reads "[GPU requires reset]"'):
    return tuple(dataclasses.replace(one, problems=(problem,)) if one.index in indexes else one for one in eight())


@pytest.mark.parametrize(
    ("look", "expectation", "verdict"),
    [
        pytest.param(seen(*eight()), EIGHT, "idle", id="eight zeros"),
        pytest.param(seen(*eight()), FIRST_FOUR, "idle", id="four of eight zeros"),
        pytest.param(seen(*eight(gpu1=76115)), EIGHT, "busy", id="one holds memory"),
        pytest.param(seen(*eight(gpu1=1)), EIGHT, "busy", id="one MiB is not zero"),
        pytest.param(seen(*eight(gpu1=76115)), FIRST_FOUR, "busy", id="one of the named holds memory"),
        pytest.param(seen(*eight(gpu6=76115)), FIRST_FOUR, "idle", id="another one holds memory"),
        pytest.param(seen(*eight()), Expectation(), "unknown", id="no expectation"),
        pytest.param(seen(*eight()), Expectation(count=0), "unknown", id="none expected"),
        pytest.param(seen(*eight(gpu1=5)), Expectation(), "busy", id="no expectation, but memory"),
        pytest.param(seen(*without(3)), EIGHT, "unknown", id="seven of eight"),
        pytest.param(seen(*eight()), Expectation(count=4), "unknown", id="more than expected"),
        pytest.param(seen(*without(3)), FIRST_FOUR, "unknown", id="a named one is missing"),
        pytest.param(seen(*without(6)), FIRST_FOUR, "idle", id="another one is missing"),
        pytest.param(seen(*tainted(1)), EIGHT, "unknown", id="a tainted row"),
        pytest.param(seen(*tainted(1)), FIRST_FOUR, "unknown", id="a tainted row among the named"),
        pytest.param(seen(*tainted(6)), FIRST_FOUR, "idle", id="a tainted row among the others"),
        pytest.param(seen(*eight(gpu1=None)), EIGHT, "unknown", id="a number that was not read"),
        pytest.param(seen(*eight(gpu6=None)), FIRST_FOUR, "idle", id="one that was not read among the others"),
        pytest.param(seen(*eight(gpu1=None, gpu2=5)), EIGHT, "busy", id="busy outranks unknown"),
        pytest.param(seen(*without(3), problems=(LOST,)), EIGHT, "unknown", id="a message and a missing row"),
        pytest.param(seen(*eight(), problems=("a line",)), EIGHT, "unknown", id="a line that is not understood"),
        pytest.param(seen(*eight(), problems=("a line",)), FIRST_FOUR, "unknown", id="such a line with named GPUs"),
        pytest.param(
            seen(*without(7), problems=(LOST,), elsewhere=(LOST,)), FIRST_FOUR, "idle", id="a message about another GPU"
        ),
        pytest.param(
            seen(*without(7), problems=(LOST,), elsewhere=(LOST,)),
            Expectation(count=7),
            "unknown",
            id="a message about another GPU, with a count",
        ),
        pytest.param(seen(*eight(), processes=(process(1),)), EIGHT, "unknown", id="a process on a GPU at 0"),
        pytest.param(seen(*eight(), processes=(process(6),)), FIRST_FOUR, "idle", id="a process on another GPU"),
        pytest.param(seen(), EIGHT, "unknown", id="no GPU at all"),
        pytest.param(seen(state="no_devices", exit_code=6), Expectation(count=0), "unknown", id="no GPU expected"),
        pytest.param(seen(*eight(), state="error", exit_code=14), EIGHT, "unknown", id="zeros, but not exit 0"),
        pytest.param(seen(*eight(gpu1=5), state="error", exit_code=14), EIGHT, "busy", id="memory, and not exit 0"),
        pytest.param(seen(*eight(), state="hung", exit_code=None), EIGHT, "unknown", id="zeros from a query that hung"),
        pytest.param(
            seen(*eight(gpu1=5), state="hung", exit_code=None), EIGHT, "unknown", id="memory from a query that hung"
        ),
    ],
)
def test_verdicts(look, expectation, verdict):
    judgement = judge(look, expectation)
    assert judgement.verdict == verdict
    assert judgement.reason.endswith((".", ".)"))


@pytest.mark.parametrize(
    ("used", "allowed", "verdict"), [(4, 3, "busy"), (4, 4, "idle"), (0, 4, "idle"), (None, 4, "unknown")]
)
def test_the_tolerance(used, allowed, verdict):
    assert judge(seen(*eight(gpu2=used)), EIGHT, allowed).verdict == verdict


def test_within_the_tolerance_a_process_still_speaks_against_the_gpu():
    judgement = judge(seen(*eight(gpu2=4), processes=(process(2),)), EIGHT, 5)
    assert judgement.verdict == "unknown"
    assert "GPU 2 cannot be trusted: 4 MiB, but nvidia-smi lists process 31871." in judgement.reason


def test_uuids_are_compared_whatever_their_case():
    assert judge(seen(*eight()), Expectation(uuids=(UUIDS[0].upper().replace("GPU", "gpu"),))).verdict == "idle"


@pytest.mark.parametrize(
    "state", ["no_tool", "no_driver", "no_devices", "library_mismatch", "blocked", "hung", "error"]
)
@pytest.mark.parametrize("expectation", [EIGHT, FIRST_FOUR, Expectation()])
def test_nothing_but_ok_is_ever_idle(state, expectation):
    judgement = judge(seen(state=state, exit_code=1), expectation)
    assert judgement.verdict == "unknown"
    assert "missing:" not in judgement.reason, "what nvidia-smi as a whole did is the reason, not eight missing GPUs"


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (seen(state="no_tool", exit_code=None, first_line="/x/nvidia-smi: not found"), ["/x/nvidia-smi", "nvidia_smi"]),
        (seen(state="no_driver", exit_code=9, first_line="NVIDIA-SMI has failed"), ["has failed", "modprobe nvidia"]),
        (seen(state="no_devices", exit_code=6), ["lspci", "Xid"]),
        (seen(state="library_mismatch", exit_code=18), ["Reboot", "reload"]),
        (seen(state="blocked", exit_code=4), ["become"]),
        (seen(state="blocked", exit_code=None, first_line="/x: not permitted"), ["may not start", "/x", "become"]),
        (seen(state="hung", exit_code=None, hung_pid=4711), ["4711", "state D", "left behind", "Xid"]),
        (seen(state="hung", exit_code=None, query_seconds=60.1), ["60 s", "smi_timeout", "Xid"]),
        (seen(state="error", exit_code=0), ["ended with 0 but printed no row"]),
        (seen(state="error", exit_code=-9), ["signal 9"]),
        (seen(state="error", exit_code=255, first_line="Unknown Error"), ["ended with 255", "Unknown Error", "Xid"]),
        (
            seen(state="error", exit_code=255, first_line="Unable to determine the device handle for GPU0000:61:00.0"),
            ["0000:61:00.0", "hides all the others"],
        ),
        (seen(state="error", exit_code=None, first_line="/x: Exec format error"), ["could not be started", "Exec"]),
        (seen(*eight(gpu1=76115)), ["GPU 1 holds 76115 MiB", "gpu_holders_info"]),
        (seen(*eight(gpu1=5, gpu2=5, gpu3=5, gpu5=9)), ["GPUs 1-3 hold 5 MiB each", "GPU 5 holds 9 MiB"]),
        (seen(*(gpu(index, 615) for index in range(8))), ["GPUs 0-7 hold 615 MiB each", "The same on every GPU"]),
        (seen(*(gpu(index, 44, mig=True) for index in range(8))), ["MIG is on"]),
        (
            seen(*eight(gpu1=9), processes=(process(1, name=None), process(1, pid=5))),
            ["pid 31871 (name not known) on GPU 1", "pid 5 (python3) on GPU 1"],
        ),
        (seen(*without(3), faulty=(3,)), ["7 of 8 GPUs answer", "missing: GPU 3", "Xid", "container"]),
        (seen(*without(7)), ["7 of 8 GPUs answer", "1 GPU of which nothing says which"]),
        (seen(*without(3)[:5], faulty=(3,)), ["5 of 8 GPUs answer", "GPU 3, 2 GPUs of which nothing says which"]),
        (seen(*tainted(2, 6)), ["GPUs 2, 6 cannot be trusted", "requires reset", "--gpu-reset"]),
        (seen(*tainted(0, problem='memory.used reads "[GPU is lost]"')), ["GPU 0", "fell off the bus", "reboot"]),
        (seen(*tainted(0, problem='gpu_recovery_action reads "Reset"')), ["GPU 0", "asks for this recovery"]),
        (seen(*tainted(0, problem='memory.used reads "[Timeout]"')), ["GPU 0", "[Timeout]", "Xid"]),
        (seen(*eight(gpu4=None)), ["GPU 4 cannot be trusted: memory.used was not read"]),
    ],
)
def test_the_reason_says_who_how_much_and_what_to_do(look, words):
    reason = judge(look, EIGHT).reason
    assert [word for word in words if word not in reason] == []


def test_without_an_expectation_the_reason_says_what_to_pass():
    assert "cannot be read. Pass expected_count" in judge(seen(*eight()), Expectation()).reason
    assert "is empty. Pass expected_count" in judge(seen(*eight()), Expectation(count=0)).reason


def test_a_missing_uuid_is_named():
    judgement = judge(seen(*without(3)), FIRST_FOUR)
    assert judgement.missing == (UUIDS[3],)
    assert UUIDS[3] in judgement.reason


def test_more_gpus_than_expected_leads_to_the_uuids():
    reason = judge(seen(*eight()), Expectation(count=4)).reason
    assert "nvidia-smi lists 8 GPUs, but 4 are expected" in reason
    assert "expected_uuids" in reason


def test_idle_says_how_many_and_of_what():
    assert judge(seen(*eight()), EIGHT).reason == "All 8 expected GPUs report 0 MiB."
    assert judge(seen(*eight()), FIRST_FOUR).reason == "All 4 named GPUs report 0 MiB."
    assert judge(seen(gpu(0)), Expectation(count=1)).reason == "The expected GPU reports 0 MiB."
    assert judge(seen(*eight(gpu2=4)), EIGHT, 5).reason == "All 8 expected GPUs report at most 4 MiB (allowed: 5 MiB)."


def test_what_stands_beside_a_busy_gpu_is_said_too():
    reason = judge(seen(*tainted(6), *(), problems=("an odd line",)), EIGHT).reason
    assert "an odd line." in reason
    busy = judge(seen(*eight(gpu1=5), problems=("an odd line",)), EIGHT)
    assert busy.reason.startswith("GPU 1 holds 5 MiB")
    assert "Besides: an odd line." in busy.reason


def test_that_a_gpu_is_missing_comes_before_who_holds_the_others():
    """Before a relaunch the old server holds them all, and only the missing one stands against it."""
    judgement = judge(seen(*(gpu(index, 76115) for index in range(7))), EIGHT)
    assert judgement.verdict == "busy"
    assert judgement.reason.startswith("7 of 8 GPUs answer, missing: ")
    assert " Besides: GPUs 0-6 hold 76115 MiB each" in judgement.reason


def test_the_parts_of_a_judgement():
    gpus = tuple(dataclasses.replace(one, problems=("x",)) if one.index == 5 else one for one in eight(gpu1=5))
    judgement = judge(seen(*gpus), EIGHT)
    assert judgement.expected == gpus
    assert [one.index for one in judgement.busy] == [1]
    assert [one.index for one in judgement.unreadable] == [5]
    assert judgement.missing == ()


def test_many_odd_lines_do_not_drown_the_reason():
    reason = judge(seen(*eight(), problems=tuple(f"line {number}" for number in range(50))), EIGHT).reason
    assert "(47 more such lines.)" in reason


@pytest.mark.parametrize(("entries", "count"), [([], 0), (["0000:1b:00.0"], 1), (["0000:1b:00.0", "0000:43:00.0"], 2)])
def test_the_kernel_counts_too(tmp_path, entries, count):
    assert kernel_gpu_count(str(tmp_path)) is None
    gpus = tmp_path / "driver" / "nvidia" / "gpus"
    gpus.mkdir(parents=True)
    for entry in entries:
        (gpus / entry).mkdir()
    assert kernel_gpu_count(str(tmp_path)) == count


@pytest.mark.parametrize(
    ("used", "listed", "allowed", "verdict"),
    [
        pytest.param({}, "none", 0, "none", id="no memory, nobody"),
        pytest.param({"gpu1": 3599}, "none", 0, "unknown", id="memory of somebody in another PID namespace"),
        pytest.param({"gpu1": None}, "none", 0, "unknown", id="memory that is not known"),
        pytest.param({"gpu1": 5}, "none", 4, "unknown", id="more than is allowed"),
        pytest.param({"gpu1": 4}, "none", 4, "none", id="what an idle GPU may hold"),
        pytest.param({"gpu1": 3599}, "some", 0, "some", id="listed"),
        pytest.param({}, "unknown", 0, "unknown", id="not asked"),
    ],
)
def test_an_empty_list_of_processes_proves_nothing_while_memory_is_held(used, listed, allowed, verdict):
    assert processes_verdict(seen(*eight(**used), processes_verdict=listed), allowed) == verdict
