# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real failure lines and what they are taken for."""

from __future__ import annotations

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_guess import from_exit, from_lines, from_stall


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has ...", "ran out of memory"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "for the KV cache"),
        (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.001. Raise",
            "for the KV cache",
        ),
        ("ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other", "another process"),
        ("Rank 3 scheduler died during initialization (exit code: -9).", "SIGKILL"),
        ("RuntimeError: Cannot find any model weights with `/models/kimi`", "missing or damaged"),
        ("model.safetensors.index.json references 3 shard file(s) missing from", "missing or damaged"),
        ("[Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use", "port"),
        ("launch_server.py: error: unrecognized arguments: --tp_size 8", "arguments"),
        ("ValueError: Unsupported config option 'disable_cuda_graph' with action", "arguments"),
        (
            "ValueError: Target model's context_length (65536) is greater than the derived context_length (2048)",
            "context",
        ),
        ("OSError: [Errno 28] No space left on device", "file system is full"),
        ("torch.distributed.DistBackendError: NCCL error in: ... ncclSystemError", "NCCL"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "CUDA call"),
        ("CUDA error: CUDA driver version is insufficient for CUDA runtime version", "does not see the GPUs"),
        ("ModuleNotFoundError: No module named 'flashinfer'", "Python environment"),
        ("PermissionError: [Errno 13] Permission denied: '/models'", "may not read"),
        ("Initialization failed. warmup error: Traceback", "first request"),
        ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "watchdog"),
    ],
)
def test_causes(line: str, word: str) -> None:
    guess = from_lines(["[2026-11-29 15:00:00 TP3] something", line, "Received sigquit from a child process."])
    assert guess is not None
    assert word in guess.cause
    assert guess.cure.endswith(".")


def test_the_specific_cause_wins_over_its_consequence() -> None:
    lines = ["The memory capacity is unbalanced.", "CUDA out of memory", "exit code: -9"]
    guess = from_lines(lines)
    assert guess is not None
    assert "another process" in guess.cause


def test_ordinary_lines_give_no_guess() -> None:
    assert from_lines(["The server is fired up and ready to roll!", "Load weight end."]) is None


@pytest.mark.parametrize(
    ("status", "signal", "word"),
    [(2, False, "arguments"), (3, False, "port"), (75, False, "lock"), (203, False, "execute"), (9, True, "SIGKILL")],
)
def test_exit_statuses(status: int, signal: bool, word: str) -> None:
    guess = from_exit(status, signal)
    assert guess is not None
    assert word in guess.cause + guess.cure


def test_an_unknown_or_clean_exit_gives_no_guess() -> None:
    assert from_exit(None, False) is None
    assert from_exit(0, False) is None
    assert from_exit(1, False) is None


@pytest.mark.parametrize("stage", ["guard", "launch", "init_distributed", "load_weights", "capture_graphs", "warm_up"])
def test_stalls(stage: str) -> None:
    guess = from_stall(stage)
    assert guess is not None
    assert guess.cure


def test_a_stall_of_no_known_kind() -> None:
    assert from_stall("ready") is None


@pytest.mark.parametrize(
    ("status", "word"),
    [(200, "working directory"), (203, "program"), (217, "user does not exist"), (199, None), (201, None), (218, None)],
)
def test_what_systemd_says_by_an_exit_status(status: int, word: str | None) -> None:
    found = from_exit(status, signal=False)
    assert (found is None) == (word is None)
    assert found is None or (word or "") in found.cause


def test_a_stall_behind_the_last_shard_is_another_one_than_before_it() -> None:
    for stage in ("load_weights", "load_draft_weights"):
        assert from_stall(stage) != from_stall(stage, all_shards=True)
    assert from_stall("load_weights") == from_stall("load_weights", all_shards=False)
    assert from_stall("launch", all_shards=True) == from_stall("launch")
