# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Times of the week at which something is allowed: Mon-Fri 22:00-06:00, Sat,Sun 00:00-24:00, 02:00-05:00 Europe/Berlin.

Days are those on which a window begins: one that ends before it begins lasts into the next day. Without days it is
every day. Without a zone it is the local time of the machine that asks.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import typing as t
import zoneinfo

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SYNTAX = "such as Mon-Fri 22:00-06:00, Sat,Sun 00:00-24:00 or 02:00-05:00 Europe/Berlin"
_WINDOW = re.compile(
    r"(?:(?P<days>[A-Za-z][A-Za-z,-]*)\s+)?"
    r"(?P<from>\d\d:\d\d)-(?P<to>\d\d:\d\d)"
    r"(?:\s+(?P<zone>[A-Za-z][A-Za-z0-9_+/-]*))?"
)
_DAY = 24 * 60


@dataclasses.dataclass(frozen=True)
class TimeWindow:
    """Minutes since midnight of the days (0: Monday) on which it begins. last is above first, also above a day."""

    text: str
    days: frozenset[int]
    first: int
    last: int
    zone: str | None = None

    def contains(self, wall: float) -> bool:
        """wall: seconds since the epoch. A minute is in if it is not yet the end."""
        zone = zoneinfo.ZoneInfo(self.zone) if self.zone else None
        local = datetime.datetime.fromtimestamp(wall, zone)
        minute = local.hour * 60 + local.minute
        today, yesterday = local.weekday(), (local.weekday() - 1) % 7
        if today in self.days and self.first <= minute < self.last:
            return True
        return yesterday in self.days and minute + _DAY < self.last


def parse(text: str) -> TimeWindow:
    """Raises ValueError with a sentence."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"the time window {text!r} is not understood; it must be written {SYNTAX}")
    first, last = _minute(found["from"], text), _minute(found["to"], text)
    if first in (last, _DAY):
        raise ValueError(f"the time window {text!r} has no length; the whole day is 00:00-24:00")
    zone = found["zone"]
    if zone is not None:
        try:
            zoneinfo.ZoneInfo(zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            raise ValueError(f"the time window {text!r} names the zone {zone!r}, which is not known here") from None
    days = _days(found["days"], text) if found["days"] else frozenset(range(7))
    return TimeWindow(text.strip(), days, first, last if last > first else last + _DAY, zone)


def _minute(text: str, window: str) -> int:
    hours, minutes = (int(part) for part in text.split(":"))
    if minutes > 59 or hours * 60 + minutes > _DAY:
        raise ValueError(f"the time window {window!r} names {text}, which no clock shows; midnight is 00:00 or 24:00")
    return hours * 60 + minutes


def _day(text: str, window: str) -> int:
    if text not in DAYS:
        raise ValueError(f"the time window {window!r} names the day {text!r}; known are {', '.join(DAYS)}")
    return DAYS.index(text)


def _days(text: str, window: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.split(","):
        begin, dummy, end = part.partition("-")
        first = _day(begin, window)
        length = (_day(end, window) - first) % 7 if "-" in part else 0
        days |= {(first + number) % 7 for number in range(length + 1)}
    return frozenset(days)


def parse_all(texts: t.Iterable[str]) -> tuple[TimeWindow, ...]:
    return tuple(parse(text) for text in texts)
