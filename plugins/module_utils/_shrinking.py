# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether the dying are still giving memory back."""

from __future__ import annotations

import typing as t

# Seconds: how often memory is asked for, and for how long a decrease (or the kill itself) counts as going on.
# Unpinning 40 GB stands still for 7 s (measured), and takes more than 30 s with TP-8 (reported).
SHRINK_INTERVAL = 10.0
SHRINK_WINDOW = 30.0

# The memory of all GPUs together; None where that cannot be told, "hangs" where the driver does not answer.
UsedMib = t.Callable[[], t.Union[int, t.Literal["hangs"], None]]


class Shrinking:
    """The driver answers nobody while it unpins host memory. So a silent one counts as memory that becomes less, as
    long as those who were killed have not ended."""

    def __init__(self, used_mib: UsedMib | None) -> None:
        self._used_mib = used_mib
        self._asked_at: float | None = None
        self._used: int | None = None
        self._shrunk_at: float | None = None
        self.silent = False  # the last question got no answer

    def look(self, began: float, now: float) -> float | None:
        """When a decrease was last seen. Asks where it is time to; began is when the waiting began."""
        if self._used_mib is None or now - (began if self._asked_at is None else self._asked_at) < SHRINK_INTERVAL:
            return self._shrunk_at
        used = self._used_mib()
        self.silent = isinstance(used, str)
        if isinstance(used, str):
            # Asked again all the same: while one is left behind that starts no second one.
            self._asked_at = self._shrunk_at = now
            return now
        if used is None:
            self._used_mib = None  # Asking a stuck driver again makes it worse.
            return self._shrunk_at
        if self._used is not None and used < self._used:
            self._shrunk_at = now
        self._asked_at, self._used = now, used
        return self._shrunk_at

    def still(self, since: float, now: float) -> bool:
        """A decrease was seen of late, or they have been dying (since then) too short a time to see one, or the driver
        does not say."""
        return self.silent or now - max(since, since if self._shrunk_at is None else self._shrunk_at) < SHRINK_WINDOW
