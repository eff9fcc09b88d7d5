# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Telling a target that was started again from one that was merely late."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder
from ansible_collections.cleanslate.gpu.plugins.module_utils._kinship import Kinship, Process
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Identity, identity, topmost

# How many come back before it is called a restart, as long as others are still there. A server that is being ended
# may fork a late worker or two; something that restarts does not stop.
TOLERATED = 2


class Respawning:
    """What is known of the targets' parents and ends. Made right before the first signal."""

    def __init__(self, kinship: Kinship, targets: t.Iterable[Holder]) -> None:
        self._kinship = kinship
        self._pids: set[int] = set()  # of everyone who ever was a target
        self._targets: dict[Identity, Holder] = {}
        self._parents: dict[Identity, Process] = {}
        self._gone: dict[Identity, float] = {}
        self._empty_since: float | None = None
        self._count = 0
        known = list(targets)
        self._pids.update(holder.pid for holder in known)
        for holder in known:
            self._remember(holder)

    def _remember(self, holder: Holder) -> None:
        self._pids.add(holder.pid)
        self._targets[identity(holder)] = holder
        parent = self._starter(holder)
        if parent is not None:
            self._parents[identity(holder)] = parent

    def _starter(self, holder: Holder) -> Process | None:
        """The living parent that may start it again: no target itself, and not one that merely adopted it. In a
        container that was not stopped as a whole the init counts for services: it cannot be asked from here."""
        parent = self._kinship.process(holder.ppid)
        if parent is None or parent.pid <= 1 or parent.pid in self._pids:
            return None
        serves = holder.container is not None and (holder.unit or "").endswith(".service")
        return parent if serves or not parent.adopts else None

    def note_gone(self, keys: t.AbstractSet[Identity], now: float) -> bool:
        """These are no longer there. True where that is news."""
        news = [key for key in keys if key not in self._gone]
        self._gone.update((key, now) for key in news)
        return bool(news)

    @property
    def last_end(self) -> float:
        """When the last of those that are no longer there was missed."""
        return max(self._gone.values(), default=0.0)

    def note_empty(self, began: float) -> None:
        """A complete scan that began at this moment found no target."""
        if self._empty_since is None:
            self._empty_since = began

    def meet(
        self,
        holder: Holder,
        targets: t.Sequence[Holder],
        above: t.Callable[[int], t.Sequence[int]],
        now: float,
    ) -> str | None:
        """A target that was not there before. Who starts it again, in words, where that is what happens."""
        born = now - holder.age_s if holder.age_s is not None else now
        starter = self._starter(holder)
        alone = identity(holder) in {identity(top) for top in topmost([*targets, holder], above)}
        again = alone and any(
            holder.cmdline and self._targets[key].cmdline == holder.cmdline and gone_at <= born
            for key, gone_at in self._gone.items()
        )
        self._remember(holder)
        if starter is None and not again:
            return None
        self._count += 1
        after_empty = self._empty_since is not None and born >= self._empty_since
        if self._count <= TOLERATED and not after_empty:
            return None
        if starter is not None:
            return self._kinship.describe(starter)
        parent = self._kinship.process(holder.ppid)
        init = self._kinship.describe(parent) if parent is not None else f"PID {holder.ppid}"
        return f"{init}, on behalf of something that is not among its ancestors any more"

    def parents_to_watch(self) -> tuple[Process, ...]:
        """Living parents of ended targets, which were no targets themselves and did not merely adopt them."""
        found: dict[int, Process] = {}
        for key, parent in self._parents.items():
            if key not in self._gone or parent.pid in self._pids:
                continue
            now = self._kinship.process(parent.pid)
            if now is not None and now.start_time == parent.start_time:
                found[parent.pid] = parent
        return tuple(found.values())
