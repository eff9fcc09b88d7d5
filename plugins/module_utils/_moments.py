# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""A moment that outlives its process: the date for people, and the seconds since a boot for arithmetic.

A date can jump (a wrong clock, NTP after a boot), CLOCK_BOOTTIME cannot, but it means nothing in another boot. So time
between two moments of one boot is told by CLOCK_BOOTTIME alone, and between boots by the date as far as it makes sense.
"""

from __future__ import annotations

import calendar
import dataclasses
import math
import re
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock

_DATE = "%Y-%m-%dT%H:%M:%SZ"
_SHAPE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_LATEST = 253402300799.0  # the last second of the year 9999
_BOOT = re.compile(r"[0-9A-Za-z-]{1,64}")
SAME_CLOCK = 60.0  # seconds by which date and CLOCK_BOOTTIME may have moved apart before the date counts as changed


@dataclasses.dataclass(frozen=True)
class Moment:
    """wall: seconds since the epoch. boot_s: CLOCK_BOOTTIME, in the boot that boot_id names."""

    wall: float
    boot_id: str
    boot_s: float

    @property
    def date(self) -> str:
        return iso(self.wall)

    def document(self) -> dict[str, t.Any]:
        return {"at": self.date, "boot_id": self.boot_id, "boot_s": round(self.boot_s, 3)}


def moment(clock: Clock, boot_id: str) -> Moment:
    """Now. clock.monotonic must count from the boot (BootClock)."""
    return Moment(clock.wall(), boot_id, clock.monotonic())


def elapsed(then: Moment, now: Moment) -> float:
    """Seconds that have certainly passed. 0 where the date says that then is yet to come."""
    if then.boot_id == now.boot_id:
        return max(0.0, now.boot_s - then.boot_s)
    return max(0.0, now.wall - then.wall)


def clock_changed(then: Moment, now: Moment) -> bool:
    """Whether somebody or something set the date between two moments of one boot."""
    return abs((now.wall - then.wall) - (now.boot_s - then.boot_s)) > SAME_CLOCK


def iso(wall: float) -> str:
    """A date in UTC, as it stands in files."""
    return time.strftime(_DATE, time.gmtime(min(max(wall, 0.0), _LATEST)))


def read_iso(value: t.Any) -> float:
    """Raises ValueError for everything that iso does not write."""
    if not isinstance(value, str) or not _SHAPE.fullmatch(value):
        raise ValueError(f"{str(value)[:40]!r} is no date such as 2026-11-29T16:09:02Z")
    return float(calendar.timegm(time.strptime(value, _DATE)))


def read_moment(item: t.Mapping[str, t.Any], at: str = "at", boot_s: str = "boot_s") -> Moment:
    """What document() wrote. Raises KeyError or ValueError."""
    boot, seconds = item["boot_id"], item[boot_s]
    if not isinstance(boot, str) or not _BOOT.fullmatch(boot):
        raise ValueError(f"boot_id is {boot!r}")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise ValueError(f"{boot_s} is {seconds!r}")
    return Moment(read_iso(item[at]), boot, float(seconds))
