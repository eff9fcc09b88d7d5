# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Those whom a release signals, held on to from the first signal on: who of them has ended, whatever a scan shows."""

from __future__ import annotations

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Identity, Rung, identity
from ansible_collections.cleanslate.gpu.plugins.module_utils._signalling import (
    Aim,
    SendOutcome,
    Signaller,
    wait_for_ends,
)


class Aims:
    """One for each process, kept until the release is over."""

    def __init__(self, signaller: Signaller, clock: Clock) -> None:
        self._signaller, self._clock = signaller, clock
        self._aims: dict[Identity, Aim] = {}
        self._killed: dict[Identity, None] = {}  # in this order
        self._noted: set[Identity] = set()

    def take(self, holder: Holder) -> bool:
        """Hold on to it; False where it is not there any more."""
        key = identity(holder)
        aim = self._aims.get(key) or self._signaller.aim(holder.pid, holder.start_time)
        if aim is not None:
            self._aims[key] = aim
        return aim is not None

    def send(self, holder: Holder, rung: Rung) -> SendOutcome:
        key = identity(holder)
        outcome = self._aims[key].send(rung.number)
        if outcome == "sent" and rung.kills:
            self._killed[key] = None
        return outcome

    def ended(self, holder: Holder) -> bool:
        """Whether all its threads are dead, so that at most it waits to be reaped. False of whom none was taken."""
        aim = self._aims.get(identity(holder))
        return aim is not None and aim.gone()

    def unended(self) -> tuple[Identity, ...]:
        """Who got KILL and has not ended. TERM may be answered by letting go of the GPUs alone, KILL cannot."""
        return tuple(key for key in self._killed if not self._aims[key].gone())

    def note_ended(self) -> None:
        """The look that follows sees who has ended by now."""
        self._noted = {key for key, aim in self._aims.items() if aim.gone()}

    def news(self) -> bool:
        """Whether anybody has ended since that was noted."""
        return any(aim.gone() for key, aim in self._aims.items() if key not in self._noted)

    def wait(self, seconds: float, *, together: bool) -> bool:
        """Until one of them has ended (together: until all have), or the time is over. Whether one has."""
        return wait_for_ends(self._signaller, self._aims.values(), seconds, self._clock, together=together)

    def close(self) -> None:
        for aim in self._aims.values():
            aim.close()
