# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of the time between two moments, and dates as files have them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import (
    Moment,
    clock_changed,
    elapsed,
    iso,
    moment,
    read_iso,
    read_moment,
)

NOON = Moment(1.8e9, "boot-1", 5000.0)


@pytest.mark.parametrize(
    ("now", "seconds"),
    [
        pytest.param(Moment(1.8e9, "boot-1", 5060.0), 60.0, id="the boot's clock counts, not the date"),
        pytest.param(Moment(1.8e9 + 99, "boot-1", 5000.0), 0.0, id="no time"),
        pytest.param(Moment(1.8e9 + 99, "boot-1", 4999.0), 0.0, id="before"),
        pytest.param(Moment(1.8e9 + 99, "boot-2", 5060.0), 99.0, id="in another boot the date counts"),
        pytest.param(Moment(1.8e9, "boot-2", 5060.0), 0.0, id="the same date"),
        pytest.param(Moment(1.8e9 - 99, "boot-2", 5060.0), 0.0, id="a date before"),
    ],
)
def test_time_that_has_certainly_passed(now: Moment, seconds: float) -> None:
    assert elapsed(NOON, now) == seconds


@pytest.mark.parametrize(("set_by", "changed"), [(0, False), (60, False), (61, True), (-60, False), (-61, True)])
def test_a_date_that_somebody_set(set_by: float, changed: bool) -> None:
    assert clock_changed(NOON, Moment(1.8e9 + 300 + set_by, "boot-1", 5300.0)) is changed


@pytest.mark.parametrize(
    ("wall", "date"),
    [
        (-5.0, "1970-01-01T00:00:00Z"),
        (0.0, "1970-01-01T00:00:00Z"),
        (0.9, "1970-01-01T00:00:00Z"),
        (1.8e9, "2027-01-15T08:00:00Z"),
        (253402300799.0, "9999-12-31T23:59:59Z"),
        (1e300, "9999-12-31T23:59:59Z"),
    ],
)
def test_a_date_as_it_stands_in_files(wall: float, date: str) -> None:
    assert iso(wall) == date
    assert iso(read_iso(date)) == date


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "",
        "2027-01-15",
        "2027-01-15T08:00:00",
        "2027-01-15T08:00:00Z\n",
        " 2027-01-15T08:00:00Z",
        "2027-13-15T08:00:00Z",
    ],
)
def test_what_is_no_date_is_refused(value: t.Any) -> None:
    with pytest.raises(ValueError):
        read_iso(value)


def test_what_is_no_date_is_quoted_shortly() -> None:
    with pytest.raises(ValueError, match=f"^'{'x' * 40}' is no date such as"):
        read_iso("x" * 1000)


def test_a_moment_is_read_as_it_was_written() -> None:
    written = Moment(1.8e9, "boot-1", 5000.12345).document()
    assert written == {"at": "2027-01-15T08:00:00Z", "boot_id": "boot-1", "boot_s": 5000.123}
    assert read_moment(written) == Moment(1.8e9, "boot-1", 5000.123)
    assert read_moment({"boot_id": "b", "x": "2027-01-15T08:00:00Z", "y": 5}, "x", "y") == Moment(1.8e9, "b", 5.0)


@pytest.mark.parametrize(
    "change",
    [
        {"boot_id": 3},
        {"boot_id": ""},
        {"boot_id": "a b"},
        {"boot_id": "x" * 65},
        {"boot_s": True},
        {"boot_s": "5"},
        {"boot_s": float("inf")},
        {"boot_s": None},
        {"at": "now"},
    ],
)
def test_a_moment_that_cannot_be_meant_is_refused(change: dict[str, t.Any]) -> None:
    with pytest.raises(ValueError):
        read_moment({**NOON.document(), **change})


@pytest.mark.parametrize("missing", ["at", "boot_id", "boot_s"])
def test_a_moment_without_a_part_is_none(missing: str) -> None:
    document = NOON.document()
    del document[missing]
    with pytest.raises(KeyError):
        read_moment(document)


def test_now() -> None:
    class Clock:
        def wall(self) -> float:
            return 1.8e9

        def monotonic(self) -> float:
            return 5000.0

        def sleep(self, seconds: float) -> None:
            raise AssertionError("slept")

    assert moment(Clock(), "boot-1") == NOON
