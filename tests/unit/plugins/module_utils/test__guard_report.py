# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose start a guard's report is about."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._guard_report import (
    of_this_start,
    of_this_start_at,
    read,
    refusal,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import FakeClock

NOW, UPTIME = 1_700_000_000.0, 5000.0
REPORT = {
    "boot_id": "b",
    "invocation_id": "i",
    "started_at": NOW - 30.0,
    "verdict": "refused",
    "reason": "GPU 3 is held",
}


def fresh(report: dict[str, t.Any] | None, entered: float | None = UPTIME - 31.0, *invocations: str) -> bool:
    unit = UnitState("sglang.service", "failed", entered_monotonic=entered)
    return of_this_start(report, unit, boot_id="b", invocations=invocations, now=NOW, uptime=UPTIME)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"boot_id": "other"}, False),
        ({"boot_id": None}, False),
        ({"started_at": NOW - 40.0}, False),
        ({"started_at": "soon"}, False),
        ({"started_at": True}, False),
    ],
)
def test_without_an_invocation_the_time_decides(changes: dict[str, t.Any], expected: bool) -> None:
    assert fresh({**REPORT, **changes}) is expected


def test_an_invocation_decides_over_the_time() -> None:
    assert fresh({**REPORT, "started_at": 0.0}, None, "", "i")
    assert not fresh(REPORT, UPTIME - 31.0, "j")
    assert fresh({**REPORT, "invocation_id": ""}, UPTIME - 31.0, "j")


def test_where_systemd_tells_no_moment_only_a_recent_report_counts() -> None:
    assert fresh(REPORT, None)
    assert not fresh({**REPORT, "started_at": NOW - 3600.0}, None)
    assert not fresh(None)


def test_files(tmp_path: pathlib.Path) -> None:
    path, clock = tmp_path / "unit.json", FakeClock()
    unit = UnitState("sglang.service", "failed")
    assert read(str(path)) is None
    for text in ("", "[]", "{", "\xff", "[" * 90000):
        path.write_text(text, encoding="latin-1")
        assert read(str(path)) is None
    path.write_text(json.dumps({**REPORT, "started_at": clock.wall()}))
    assert of_this_start_at(str(path), unit, (), clock, "b") is not None
    assert of_this_start_at(str(path), unit, (), clock, "c") is None
    os.mkfifo(tmp_path / "pipe")
    assert read(str(tmp_path / "pipe")) is None


def test_refusals() -> None:
    assert refusal(REPORT) == "GPU 3 is held"
    assert refusal({"verdict": "refused"}) == "it gave no reason"
    assert refusal({"verdict": "start", "reason": "idle"}) == refusal(None) == ""
    assert refusal({"verdict": "waiting", "reason": "GPU 3 drains"}) == ""
    assert refusal({"verdict": "gave_up", "reason": "GPU 3\nis held"}) == "GPU 3 is held"
