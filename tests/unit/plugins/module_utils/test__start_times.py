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

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_times
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_times import (
    KEPT,
    Estimate,
    Start,
    estimate,
    read,
    remember,
)

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


def test_of_the_profiles_the_longest_unused_go_first(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their last start, not their first; one that never started goes before them all."""
    monkeypatch.setattr(_start_times, "_PROFILES", 2)
    path = tmp_path / "starts.json"
    starts = {"often": [1.0, 50.0], "once": [2.0], "never": []}
    document = {name: [{"ended": ended, "stages": STAGES} for ended in ends] for name, ends in starts.items()}
    path.write_text(json.dumps({"version": 1, "profiles": document}))
    assert remember(str(path), "new", STAGES, 60.0) == ""
    assert sorted(read(str(path))[0]) == ["new", "often"]


def test_one_that_never_started_goes_first_whatever_the_others_moments_are(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_start_times, "_PROFILES", 2)
    path = tmp_path / "starts.json"
    document = {"a": [{"ended": 0.5, "stages": STAGES}], "never": []}
    path.write_text(json.dumps({"version": 1, "profiles": document}))
    remember(str(path), "new", STAGES, 60.0)
    assert sorted(read(str(path))[0]) == ["a", "new"]


def test_two_hundred_profiles_are_kept(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "starts.json"
    document = {f"p{number}": [{"ended": number + 1.0, "stages": STAGES}] for number in range(200)}
    path.write_text(json.dumps({"version": 1, "profiles": document}))
    remember(str(path), "new", STAGES, 900.0)
    kept = read(str(path))[0]
    assert (len(kept), "p0" in kept, "p1" in kept) == (200, False, True)


def test_a_stage_that_took_no_time_is_sensible(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "starts.json")
    remember(path, "kimi", {**STAGES, "launch": 0.0}, 1.0)
    remember(path, "kimi", {**STAGES, "launch": 0.4}, 2.0)
    history, complaint = read(path)
    assert ([start.stages["launch"] for start in history["kimi"]], complaint) == ([0.0, 0.4], "")


def test_the_same_start_again_is_told_from_the_last_one_only(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "starts.json")
    for number, stages in enumerate((STAGES, {**STAGES, "launch": 1.0}, {**STAGES, "launch": 1.0}, STAGES)):
        remember(path, "kimi", stages, float(number))
    assert [start.stages["launch"] for start in read(path)[0]["kimi"]] == [30.0, 1.0, 30.0]


def test_a_number_beyond_all_sense_is_ignored_and_said(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "starts.json"
    path.write_text('{"version": 1, "profiles": {"kimi": [{"ended": 1' + "0" * 400 + ', "stages": {"launch": 1}}]}}')
    history, complaint = read(str(path))
    assert history == {}
    assert "OverflowError" in complaint


def test_another_version_is_named(tmp_path: pathlib.Path) -> None:
    for version in (0, 2):
        (tmp_path / "starts.json").write_text(json.dumps({"version": version, "profiles": {}}))
        assert f"its version is {version}, not 1" in read(str(tmp_path / "starts.json"))[1]


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_the_folder_is_its_owners(tmp_path: pathlib.Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        remember(str(tmp_path / "new" / "starts.json"), "kimi", STAGES, 1.0)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o755


def test_a_stage_that_some_starts_did_not_have_counts_as_none_there() -> None:
    with_graphs = {**STAGES, "compile": 60.0}
    starts = [Start(1.0, STAGES), Start(2.0, STAGES), Start(3.0, with_graphs)]
    seen = estimate(starts, "launch", {})
    assert (seen and seen.left) == 200.0
    seen = estimate(starts, "warm_up", {"warm_up": 20.0})
    assert (seen and seen.left) == 0.0


def test_seconds_are_told_to_the_tenth() -> None:
    assert Estimate(1.26, 2.34).as_dict() == {"left_s": 1.3, "last_s": 2.3}
