# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Model folders are read once, under a deadline and as the service user: root may read what the server may not, and
on a network mount even less."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._model_files import Flaw, ModelReading, inspect
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Progress, collect
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account


class ModelReader:
    """timeout is for a whole folder, stall for one file."""

    def __init__(
        self,
        clock: Clock,
        *,
        timeout: float,
        stall: float,
        account: Account | None = None,
        inspector: t.Callable[[str, str], t.Generator[str, None, ModelReading]] = inspect,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._stall = stall
        self._account = account
        self._inspector = inspector
        self._read: dict[tuple[str, str], ModelReading] = {}

    def __call__(self, path: str, load_format: str) -> ModelReading:
        asked = (path, load_format)
        if asked not in self._read:
            self._read[asked] = self._of(path, load_format)
        return self._read[asked]

    def _of(self, path: str, load_format: str) -> ModelReading:
        def produce(progress: Progress) -> t.Iterator[str | ModelReading]:
            become(self._account)
            steps = self._inspector(path, load_format)
            count = 0
            while True:
                try:
                    yield next(steps)
                except StopIteration as end:
                    yield end.value
                    return
                count += 1
                progress.at(os.getpid(), count)

        until = self._clock.monotonic() + self._timeout
        got = collect(produce, deadline=until, stall=self._stall, clock=self._clock)
        at = path
        for item in got.items:
            if isinstance(item, ModelReading):
                return item
            at = item
        if got.blocked_at is None:
            return ModelReading(path, flaws=(Flaw("broken", f"{path} could not be read: {got.error}"),))
        late = self._clock.monotonic() >= until
        limit = f"{self._timeout:g} s for the whole folder" if late else f"{self._stall:g} s"
        return ModelReading(path, blocked=f"{at} did not answer within {limit}")


def become(account: Account | None) -> None:
    """In a child only: there is no way back."""
    if account is None or os.geteuid() != 0 or account.uid == 0:
        return
    os.setgroups(sorted(account.gids))
    os.setgid(account.gid)
    os.setuid(account.uid)
