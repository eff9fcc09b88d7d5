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
    return collect_all([produce], deadline=deadline, stall=stall, clock=clock)[0]


def collect_all(
    produces: t.Sequence[t.Callable[[Progress], t.Iterable[T]]],
    *,
    deadline: float,
    stall: float,
    clock: Clock,
) -> tuple[Collected[T], ...]:
    """Each of them in a child of its own, side by side; one that stalls, dies or cannot be started stops no other."""
    children = [_Child(clock.monotonic()) for _produce in produces]
    try:
        for child, produce in zip(children, produces):
            child.start(produce)
        _gather(children, deadline, stall, clock)
    finally:
        for child in children:
            child.close()
    for child in children:
        child.reap()
    return tuple(child.collected() for child in children)


class _Child:
    """What the caller knows of one child."""

    def __init__(self, now: float) -> None:
        self.reader = -1
        self.ended = False  # by itself; else it was cut off
        self._pid: int | None = None
        self._parts: list[bytes] = []
        self._no_start = ""
        self._seen, self._since = (0, 0, 0), now

    def start(self, produce: t.Callable[[Progress], t.Iterable[t.Any]]) -> None:
        """Where memory, descriptors or processes have run out there is no child, and why is told by collected()."""
        writer = -1
        try:
            self.progress = Progress()
            self.reader, writer = os.pipe()
            pid = os.fork()
        except OSError as error:
            self._no_start = f"a child process could not be started: {error.strerror}"
            self.close()
        else:
            if pid == 0:
                _read_as_child(produce, self.progress, writer)  # does not return
            self._pid = pid
        if writer >= 0:
            os.close(writer)

    def close(self) -> None:
        if self.reader >= 0:
            os.close(self.reader)
        self.reader = -1

    def is_late(self, now: float, stall: float) -> bool:
        """Whether it did nothing for so long."""
        seen = self.progress.now()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= stall

    def take(self, now: float) -> None:
        part = os.read(self.reader, 65536)
        self._parts.append(part)
        self.ended = not part
        self._since = now

    def kill(self) -> None:
        if not self._pid:
            return  # kill(0) would reach everybody in the caller's process group
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def reap(self) -> None:
        if self._pid:
            _reap(self._pid, 0.5 if self.ended else 0.1)

    def collected(self) -> Collected[t.Any]:
        if self._no_start:
            return Collected((), False, error=self._no_start)
        frames, tail = _frames(b"".join(self._parts))
        items = tuple(pickle.loads(frame) for frame in frames)
        if not self.ended:
            _count, pid, step = self.progress.now()
            return Collected(items, False, (pid, step))
        if tail == _END:
            return Collected(items, True)
        said = tail.decode("utf-8", "replace") or "the reading child process ended before it was done"
        return Collected(items, False, error=said)


def _gather(children: t.Iterable[_Child], deadline: float, stall: float, clock: Clock) -> None:
    """Take in what they send, until each has ended or was cut off."""
    running = {child.reader: child for child in children if child.reader >= 0}
    poll = select.poll()  # select() refuses descriptors above 1023
    for reader in running:
        poll.register(reader, select.POLLIN)
    while True:
        now = clock.monotonic()
        for reader, child in list(running.items()):
            late = child.is_late(now, stall)
            if child.ended or late or now >= deadline:
                if not child.ended:
                    child.kill()
                poll.unregister(reader)
                del running[reader]
        if not running:
            return
        for reader, _event in poll.poll(min(_POLL, max(deadline - now, 0.001)) * 1000):
            running[reader].take(clock.monotonic())


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


def _read_as_child(produce: t.Callable[[Progress], t.Iterable[T]], progress: Progress, writer: int) -> t.NoReturn:
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
