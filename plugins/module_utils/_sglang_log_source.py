# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Where a server's log is read: a file that it appends to, or the journal of its unit. Each read goes on where the last
one ended; the place is plain data, so that it can travel between two executions of a module."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState, Redact, advance, split_lines
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import SystemdScope

Position = t.Mapping[str, t.Any]

BACKLOG_BYTES = 4 * 1024 * 1024  # how far back a first read looks, and the most that one read takes
UNFINISHED_BYTES = 64 * 1024  # a longer line without an end is taken as it is
JOURNAL_LINES = 4000
JOURNAL_TIMEOUT = 20.0
_CURSOR = "-- cursor: "


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What was new. position is where the next read goes on; error says why nothing could be read. this_run is True
    where the source itself vouches that no line is from an earlier run."""

    lines: tuple[str, ...] = ()
    rest: str = ""
    position: Position | None = None
    error: str = ""
    this_run: bool = False


class FileLog:
    """A file that the unit appends to. Rotation (another inode, or a file shorter than what was read) starts anew."""

    def __init__(self, path: str, backlog: int = BACKLOG_BYTES) -> None:
        self.path = path
        self._backlog = backlog

    def read(self, position: Position | None) -> Chunk:
        try:
            found, offset, data = self._read(position)
        except OSError as error:
            return Chunk(position=position, error=f"{self.path} could not be read: {error.strerror}")
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > UNFINISHED_BYTES:
            end = len(data)
        complete, _rest = split_lines(data[:end].decode("utf-8", "replace") + "\n")
        return Chunk(
            lines=tuple(complete),
            rest=data[end:].decode("utf-8", "replace"),
            position={"inode": found.st_ino, "offset": offset + end},
        )

    def _read(self, position: Position | None) -> tuple[os.stat_result, int, bytes]:
        # A named pipe must not make the wait hang before it is known to be one.
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            offset = max(0, found.st_size - self._backlog)
            if position is not None and position.get("inode") == found.st_ino:
                reached = int(position.get("offset", 0))
                offset = max(offset, reached) if reached <= found.st_size else offset
            return found, offset, os.pread(handle, self._backlog, offset)
        finally:
            os.close(handle)


class JournalLog:
    """The journal of a unit, of one invocation where systemd told which, else since a moment."""

    def __init__(
        self,
        runner: Runner,
        unit: str,
        *,
        scope: SystemdScope = "system",
        invocation: str = "",
        since: float | None = None,
    ) -> None:
        self._runner = runner
        user = scope == "user"
        self._base = ["journalctl", *(["--user"] if user else []), "-aq", "-o", "cat", "--no-pager", "--show-cursor"]
        self._name = unit
        self._one_run = bool(invocation)
        if invocation:
            # What the server printed, and what systemd itself says about this run of the unit.
            field = "USER_INVOCATION_ID" if user else "INVOCATION_ID"
            self._match = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"{field}={invocation}"]
        else:
            self._match = ["--user-unit" if user else "--unit", unit]
            if since is not None:
                self._match += ["--since", f"@{int(since)}"]

    def read(self, position: Position | None) -> Chunk:
        cursor = str((position or {}).get("cursor", ""))
        start = ["--after-cursor", cursor] if cursor else ["--lines", str(JOURNAL_LINES)]
        result = self._runner([*self._base, *start, *self._match], JOURNAL_TIMEOUT)
        if result.exit_code != 0:
            why = result.error or ("no end in time" if result.timed_out else " ".join(result.stderr.split())[:200])
            return Chunk(position=position, error=f"journalctl for {self._name}: {why or result.exit_code}")
        text, found, last = result.stdout.rpartition(_CURSOR)
        if not found:
            text, last = result.stdout, cursor
        lines, rest = split_lines(text)
        return Chunk(
            lines=tuple([*lines, rest] if rest.strip() else lines),
            position={"cursor": last.strip()} if last.strip() else position,
            this_run=self._one_run,
        )


ReadLog = t.Callable[[t.Optional[UnitState], t.Optional[float], t.Optional[Position]], Chunk]


class OneReading:
    """The end of the log, and what comes while one looks: what it says about the run that began at a given moment."""

    def __init__(self, read: ReadLog, clock: Clock, redact: Redact) -> None:
        self._read = read
        self._clock = clock
        self._redact = redact
        self.state: LogState | None = None
        self.position: Position | None = None

    def __call__(self, unit: UnitState | None, since: float | None) -> LogState | None:
        chunk = self._read(unit, since, self.position)
        now = self._clock.monotonic()
        before = self.state or LogState(since=now, accepting=chunk.this_run)
        wall = self._clock.wall()
        self.state = advance(before, chunk.lines, now, redact=self._redact, since=since, until=wall, rest=chunk.rest)
        self.position = chunk.position
        # A log that was cut since the server started says nothing about how far it came.
        return self.state if self.state.begun else None
