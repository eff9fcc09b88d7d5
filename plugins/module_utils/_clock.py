# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Time as an argument, so that every wait can be tested without waiting."""

from __future__ import annotations

import time
import typing as t


class Clock(t.Protocol):
    """What the core asks of time. All durations are seconds."""

    def monotonic(self) -> float:
        """Seconds that never jump; only differences mean something."""

    def wall(self) -> float:
        """Seconds since the epoch, for people and records only."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The real one."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)
