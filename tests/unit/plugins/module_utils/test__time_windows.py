# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Times of the week."""

from __future__ import annotations

import datetime
import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._time_windows import parse, parse_all

UTC = datetime.timezone.utc
# Monday, 30 November 2026
MONDAY = datetime.datetime(2026, 11, 30, tzinfo=UTC)


def at(day: int, hour: int, minute: int = 0, second: int = 0) -> float:
    return (MONDAY + datetime.timedelta(days=day, hours=hour, minutes=minute, seconds=second)).timestamp()


@pytest.mark.parametrize(
    ("window", "moment", "inside"),
    [
        ("Mon-Fri 22:00-06:00", at(0, 21, 59, 59), False),
        ("Mon-Fri 22:00-06:00", at(0, 22), True),
        ("Mon-Fri 22:00-06:00", at(1, 5, 59, 59), True),
        ("Mon-Fri 22:00-06:00", at(1, 6), False),
        ("Mon-Fri 22:00-06:00", at(0, 3), False),  # that of Sunday
        ("Mon-Fri 22:00-06:00", at(5, 3), True),  # that of Friday
        ("Mon-Fri 22:00-06:00", at(5, 22), False),
        ("Sat,Sun 00:00-24:00", at(5, 0), True),
        ("Sat,Sun 00:00-24:00", at(6, 23, 59, 59), True),
        ("Sat,Sun 00:00-24:00", at(7, 0), False),
        ("Sun 22:00-24:00", at(7, 0), False),
        ("Sun 22:00-00:00", at(6, 23, 59), True),
        ("Sun 22:00-02:00", at(7, 1, 59), True),
        ("Fri-Mon 12:00-13:00", at(0, 12), True),
        ("Fri-Mon 12:00-13:00", at(4, 12), True),
        ("Fri-Mon 12:00-13:00", at(3, 12), False),
        ("Mon-Wed,Sat 12:00-13:00", at(5, 12), True),
        ("Mon-Wed,Sat 12:00-13:00", at(4, 12), False),
        ("02:00-05:00", at(6, 2), True),
        ("22:59-23:58", at(6, 22, 58), False),
        ("22:59-23:58", at(6, 22, 59), True),
        ("22:59-23:58", at(6, 23, 57), True),
        ("22:59-23:58", at(6, 23, 58), False),
        ("Wed-Tue 12:00-13:00", at(1, 12), True),
        ("Sun-Mon 12:00-13:00", at(2, 12), False),
        ("Tue-Wed 12:00-13:00", at(3, 12), False),
        ("02:00-05:00", at(3, 2), True),
        ("02:00-05:00", at(3, 5), False),
    ],
)
def test_borders(window: str, moment: float, inside: bool) -> None:
    assert parse(f"{window} UTC").contains(moment) is inside


def test_a_zone_with_its_summer_time() -> None:
    berlin = parse("02:00-05:00 Europe/Berlin")
    assert [berlin.contains(at(0, hour)) for hour in (0, 1, 3, 4)] == [False, True, True, False]
    summer = datetime.datetime(2026, 7, 1, tzinfo=UTC).timestamp()
    assert [berlin.contains(summer + hour * 3600) for hour in (0, 2, 3)] == [True, True, False]


def test_without_a_zone_it_is_the_time_of_the_machine_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    window = parse("22:00-23:00")
    for zone, inside in (("UTC", True), ("Etc/GMT+5", False)):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert window.contains(at(0, 22, 30)) is inside
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not understood"),
        ("at night", "is not understood"),
        ("22-6", "is not understood"),
        ("Mon 22:00", "is not understood"),
        ("Monday 22:00-23:00", "names the day 'Monday'; known are Mon, Tue"),
        ("mon 22:00-23:00", "names the day 'mon'"),
        ("Mon- 22:00-23:00", "names the day ''"),
        ("25:00-26:00", "names 25:00, which no clock shows"),
        ("22:60-23:00", "names 22:60"),
        ("22:00-24:01", "names 24:01"),
        ("22:00-22:00", "has no length; the whole day is 00:00-24:00"),
        ("24:00-02:00", "has no length"),
        ("22:00-23:00 Europe/Nowhere", "names the zone 'Europe/Nowhere', which is not known"),
        ("22:00-23:00 ../../etc/passwd", "is not understood"),
        ("22:00-23:00 a/../../etc/passwd", "is not understood"),
        ("22:00-23:00 Europe", "names the zone 'Europe', which is not known"),
        ("22:00-23:00 Europe//Berlin", "names the zone 'Europe//Berlin', which is not known"),
    ],
)
def test_what_is_no_window(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_all(["02:00-03:00", text])
    assert sentence in str(raised.value)


def test_without_days_it_is_every_day() -> None:
    assert parse("02:00-05:00").days == frozenset(range(7))
    assert (parse(" Mon 22:00-06:00 ").text, parse("Mon 22:00-06:00").last) == ("Mon 22:00-06:00", 30 * 60)
