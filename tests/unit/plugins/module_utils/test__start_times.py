# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of good starts, and the estimate from it."""

from __future__ import annotations

import json
import os
import pathlib
import stat

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._start_times import KEPT, Start, estimate, read, remember

STAGES = {"launch": 30.0, "load_weights": 100.0, "capture_graphs": 50.0, "warm_up": 20.0}


def test_what_is_remembered_is_read_back_by_everybody(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new" / "starts.json"
    assert remember(str(path), "kimi", STAGES, 1000.0) == ""
    history, complaint = read(str(path))
    assert (history, complaint) == ({"kimi": (Start(1000.0, STAGES),)}, "")
    assert list(history["kimi"][0].stages) == list(STAGES)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == ["starts.json"]


def test_the_last_ones_are_kept_for_each_profile(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "starts.json")
    for number in range(KEPT + 3):
        remember(path, "kimi", {**STAGES, "launch": float(number)}, float(number))
    remember(path, "nextn", STAGES, 99.0)
    history, dummy = read(path)
    assert [start.stages["launch"] for start in history["kimi"]] == [3.0, 4.0, 5.0, 6.0, 7.0]
    assert len(history["nextn"]) == 1


def test_a_start_that_was_not_seen_teaches_nothing(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "starts.json")
    for stages in ({}, {"launch": 3.0}):
        assert remember(path, "kimi", stages, 1.0) == ""
    assert read(path) == ({}, "")
    for dummy in range(2):  # a second wait for a server that is up already reads the same lines
        remember(path, "kimi", STAGES, 1.0)
    assert len(read(path)[0]["kimi"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"version": 9, "profiles": {}}', '{"version": 1}', '{"version": 1, "profiles": []}',
        '{"version": 1, "profiles": {"kimi": [{"ended": 1}]}}',
        '{"version": 1, "profiles": {"kimi": [{"ended": 1, "stages": {}}]}}',
        '{"version": 1, "profiles": {"kimi": [{"ended": 1, "stages": {"launch": -1}}]}}',
        '{"version": 1, "profiles": {"kimi": [{"ended": 1, "stages": {"launch": NaN}}]}}',
        "[" * 100000,
        "x" * 2_000_000,
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_spoilt_file_is_ignored_said_and_replaced(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "starts.json"
    path.write_text(text)
    history, complaint = read(str(path))
    assert history == {}
    assert str(path) in complaint
    assert remember(str(path), "kimi", STAGES, 1.0) == ""
    assert json.loads(path.read_text())["profiles"]["kimi"]


def test_what_cannot_be_read_or_written_is_said_not_raised(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read(str(tmp_path / "pipe"))[0] == {}
    assert "could not be kept" in remember(str(tmp_path / "pipe" / "starts.json"), "kimi", STAGES, 1.0)
    folder = tmp_path / "starts.json"
    folder.mkdir()
    assert "could not be kept" in remember(str(folder), "kimi", STAGES, 1.0)
    assert sorted(os.listdir(tmp_path)) == ["pipe", "starts.json"]


@pytest.mark.parametrize(
    ("stage", "stages", "left"),
    [
        ("launch", {"launch": 10.0}, 190.0),
        ("load_weights", {"launch": 30.0, "load_weights": 60.0}, 110.0),
        ("load_weights", {"launch": 30.0, "load_weights": 600.0}, 70.0),
        ("warm_up", {"warm_up": 50.0}, 0.0),
        ("guard", {"guard": 5.0}, 195.0),
        ("allocate_memory", {"launch": 500.0}, 0.0),
        (None, {}, 200.0),
    ],
)
def test_the_estimate_goes_stage_by_stage(stage: str | None, stages: dict[str, float], left: float) -> None:
    seen = estimate([Start(1.0, STAGES)], stage, stages)
    assert seen is not None
    assert (seen.left, seen.last) == (left, 200.0)


def test_one_slow_start_does_not_speak_for_all() -> None:
    slow = {**STAGES, "load_weights": 1000.0}
    seen = estimate([Start(1.0, slow), Start(2.0, STAGES), Start(3.0, STAGES)], "launch", {"launch": 0.0})
    assert seen is not None
    assert seen.left == 200.0
    assert seen.as_dict() == {"left_s": 200.0, "last_s": 200.0}


def test_without_a_start_there_is_no_estimate() -> None:
    assert estimate([], "launch", {}) is None
