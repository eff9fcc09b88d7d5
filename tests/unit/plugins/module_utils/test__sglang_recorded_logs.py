# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole logs of a real SGLang, and what is read from them."""

from __future__ import annotations

import pathlib

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_guess import from_lines
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState, advance, split_lines

RECORDINGS = pathlib.Path(__file__).resolve().parents[3] / "recordings" / "sglang-logs"


def read(name: str) -> LogState:
    lines, _rest = split_lines((RECORDINGS / f"{name}.log").read_text(encoding="utf-8"))
    return advance(LogState(), lines, 100.0, redact=redact)


def test_a_start_of_one_rank_is_followed_although_its_lines_name_no_rank() -> None:
    state = read("0.5.15-tp1-first-start")
    assert state.stage == "warm_up"
    assert [name for name, _seconds in state.stages] == [
        "launch", "init_distributed", "load_weights", "allocate_memory", "open_port",
    ]  # fmt: skip
    assert dict(state.stages)["init_distributed"] == 1.0
    assert not state.ready


def test_errors_that_a_start_survives_do_not_end_it() -> None:
    state = read("0.5.15-tp1-first-start")
    assert any("ModuleNotFoundError" in line for line in state.failures), "else this recording proves nothing"
    assert state.fatal == ""


def test_the_cause_of_a_crash_stands_behind_its_fatal_line() -> None:
    state = read("0.5.15-tp1-no-room-for-kv-cache")
    assert state.stage == "allocate_memory"
    assert "Scheduler hit an exception" in state.fatal
    guess = from_lines(state.failures[state.failures.index(state.fatal) :])
    assert guess is not None
    assert "KV cache" in guess.cause
