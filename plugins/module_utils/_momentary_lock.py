# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""A lock that is held for milliseconds, while a small file beside it is changed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock

LOCK_WAIT = 5.0  # seconds; who has it needs milliseconds
LOCK_POLL = 0.02
FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # never through a link; a FIFO reads as empty instead of blocking


class LockBusy(Exception):
    """Another process had the momentary lock during the whole of LOCK_WAIT."""


@contextlib.contextmanager
def locked(handle: int, path: str, clock: Clock) -> t.Iterator[None]:
    """The lock on an open file, which is closed at the end; the kernel frees it when the process ends, however it ends.

    Raises LockBusy, OSError.
    """
    try:
        _wait(handle, path, clock)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, path: str, clock: Clock) -> None:
    deadline = clock.monotonic() + LOCK_WAIT
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if clock.monotonic() >= deadline:
                raise LockBusy(
                    f"another process has had {path} locked for {LOCK_WAIT:.0f} s, which should take milliseconds:"
                    f" see who with 'fuser -v {path}'"
                ) from None
            clock.sleep(LOCK_POLL)
