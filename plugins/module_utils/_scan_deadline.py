# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Reading that may block runs in a forked child under a deadline. The caller never blocks: a child that does not
answer is killed, and where it cannot be killed (a read in state D) it is left behind with nothing of ours open."""

from __future__ import annotations

import dataclasses
import mmap
import os
import pickle
import select
import signal
import struct
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock

T = t.TypeVar("T")
_FRAME = struct.Struct("!I")
_CELLS = struct.Struct("qqq")
_END = b"end"
_POLL = 0.2


class Progress:
    """Where the child is, in memory shared with its parent: cheap enough to be told before every read."""

    def __init__(self) -> None:
        self._cells = mmap.mmap(-1, _CELLS.size)
        self._count = 0

    def at(self, pid: int, step: int) -> None:
        self._count += 1
        _CELLS.pack_into(self._cells, 0, self._count, pid, step)

    def now(self) -> tuple[int, int, int]:
        count, pid, step = _CELLS.unpack_from(self._cells, 0)
        return int(count), int(pid), int(step)


@dataclasses.dataclass(frozen=True)
class Collected(t.Generic[T]):
    """What the child sent. finished is False where it was cut off: blocked_at then says at which (pid, step), and
    error what a child that died said."""

    items: tuple[T, ...]
    finished: bool
    blocked_at: tuple[int, int] | None = None
    error: str = ""


def collect(
    produce: t.Callable[[Progress], t.Iterable[T]],
    *,
    deadline: float,
    stall: float,
    clock: Clock,
) -> Collected[T]:
    """Run produce in a forked child and gather what it yields, until clock.monotonic() reaches the deadline or the
    child made no progress for `stall` seconds."""
    progress = Progress()
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        return Collected((), False, error=f"a child process could not be started: {error.strerror}")
    if child == 0:
        _child(produce, progress, writer)  # does not return
    os.close(writer)
    try:
        data, ended = _gather(reader, progress, deadline, stall, clock)
    finally:
        os.close(reader)
    blocked_at = None
    if not ended:
        _count, pid, step = progress.now()
        blocked_at = (pid, step)
        _kill(child)
    _reap(child, 0.5 if ended else 0.1)
    frames, tail = _frames(data)
    if ended and tail == _END:
        return Collected(tuple(pickle.loads(frame) for frame in frames), True)
    said = tail.decode("utf-8", "replace") if ended and tail else ""
    if ended and not said:
        said = "the reading child process ended before it was done"
    return Collected(tuple(pickle.loads(frame) for frame in frames), False, blocked_at, said)


def _gather(reader: int, progress: Progress, deadline: float, stall: float, clock: Clock) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    last, since = progress.now(), clock.monotonic()
    poll = select.poll()  # select() refuses descriptors above 1023
    poll.register(reader, select.POLLIN)
    while True:
        now = clock.monotonic()
        if now >= deadline or now - since >= stall:
            return b"".join(parts), False
        ready = poll.poll(min(_POLL, max(deadline - now, 0.001)) * 1000)
        if ready:
            part = os.read(reader, 65536)
            if not part:
                return b"".join(parts), True
            parts.append(part)
        if progress.now() != last or ready:
            last, since = progress.now(), clock.monotonic()


def _frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames, and the text of the closing frame (marked by a length of 0) if it came."""
    frames: list[bytes] = []
    at = 0
    while at + _FRAME.size <= len(data):
        (length,) = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        if length == 0:
            return frames, data[at:]
        if at + length > len(data):
            break
        frames.append(data[at : at + length])
        at += length
    return frames, b""


def _child(produce: t.Callable[[Progress], t.Iterable[T]], progress: Progress, writer: int) -> t.NoReturn:
    """Nothing of the caller stays open here: left behind, the child must not keep a pipe, a lock or a node alive."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != writer:
                try:
                    os.close(int(name))
                except OSError:
                    pass
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            for item in produce(progress):
                frame = pickle.dumps(item)
                _write(writer, _FRAME.pack(len(frame)) + frame)
            closing = _END
        except Exception as error:  # noqa: BLE001 the parent reports it: an exception has no other way out of a child
            closing = f"the reading child process failed: {type(error).__name__}: {error}".encode("utf-8", "replace")
        _write(writer, _FRAME.pack(0) + closing)
    finally:
        os._exit(0)


def _write(writer: int, data: bytes) -> None:
    while data:
        data = data[os.write(writer, data) :]


def _kill(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _reap(child: int, patience: float) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            done, _status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:
            return
        if done or time.monotonic() >= until:
            return
        time.sleep(0.001)
