# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""One look at /proc by several children at once, each at a share of the processes, and what they saw as one."""

from __future__ import annotations

import dataclasses
import functools
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import (
    Item,
    RawHolder,
    RawPort,
    RawUnreadable,
    Surroundings,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Collected, Progress, collect_all

_STALL = 5.0  # s without any progress; then what blocked is left out
_STALL_AGAIN = 1.0
_MOST_RETRIES = 16
_MOST_SHARES = 4
_SMALLEST_SHARE = 50  # entries of /proc: fewer take less time than to start a child for them


@dataclasses.dataclass(frozen=True)
class Share:
    """A part of all processes. By the number alone, so that each belongs to one share, whenever who looks at it."""

    index: int = 0
    count: int = 1

    def has(self, pid: int) -> bool:
        return pid % self.count == self.index


WHOLE = Share()


def shares_of(proc_root: str) -> tuple[Share, ...]:
    """As many as there are processors for this process and work for them."""
    try:
        worth = len(os.listdir(proc_root)) // _SMALLEST_SHARE
    except OSError:
        worth = 1
    count = max(1, min(worth, len(os.sched_getaffinity(0)), _MOST_SHARES))
    return tuple(Share(index, count) for index in range(count))


def read_shares(
    read: t.Callable[[Share, t.Collection[tuple[int, int]], Progress], t.Iterator[Item]],
    shares: t.Sequence[Share],
    *,
    timeout: float,
    deadline: float,
    clock: Clock,
) -> tuple[list[Item], list[str], list[tuple[int, int]]]:
    """What was seen, what failed, and the (pid, step) at which reading came to a halt. A read that blocks is left out
    the next time, so that one stuck process hides no other. Then every share is read again: what a child saw seconds
    ago says nothing of whom its processes have started since. Not where a reading that blocks once more would be cut
    off by the deadline: it would show less than the one before."""
    skip: set[tuple[int, int]] = set()
    stall_again = min(_STALL_AGAIN, timeout / 3)
    while True:
        results: tuple[Collected[Item], ...] = collect_all(
            [functools.partial(read, share, skip) for share in shares],
            deadline=deadline,
            stall=stall_again if skip else min(_STALL, timeout / 3),
            clock=clock,
        )
        items = as_one([result.items for result in results])
        errors = list(dict.fromkeys(result.error for result in results if result.error))
        blocked = list(dict.fromkeys(result.blocked_at for result in results if result.blocked_at is not None))
        if not blocked:
            return items, errors, []
        if skip.intersection(blocked) or len(skip) >= _MOST_RETRIES or clock.monotonic() + stall_again > deadline:
            return items, errors, blocked
        skip.update(blocked)


def as_one(seen: t.Sequence[t.Sequence[Item]]) -> list[Item]:
    """What one child would have brought home. A child that reads is no holder, whichever of them saw it."""
    items = [item for part in seen for item in part]
    surroundings = [item for item in items if isinstance(item, Surroundings)]
    readers = {item.reader for item in surroundings}
    holders = [item for item in items if isinstance(item, RawHolder) and item.stat.pid not in readers]
    unreadable = [item for item in items if isinstance(item, RawUnreadable) and item.pid not in readers]
    ports = [item for item in items if isinstance(item, RawPort)]
    return [
        *surroundings[:1],
        *sorted(unreadable, key=lambda item: (item.what != "stat", item.pid)),
        *sorted(holders, key=lambda item: item.stat.pid),
        *([_port(ports)] if len(ports) == len(seen) else []),
    ]


def _port(ports: t.Sequence[RawPort]) -> RawPort:
    """A socket has no owner where no child saw one, and where all still saw the socket."""
    inodes = set.intersection(*({inode for inode, _address in port.unowned} for port in ports))
    return RawPort(
        tuple(pair for pair in ports[0].unowned if pair[0] in inodes),
        next((port.problem for port in ports if port.problem), ""),
    )
