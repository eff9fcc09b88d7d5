# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import mmap
import os
import signal
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import (
    Collected,
    Progress,
    collect,
    collect_all,
)

CLOCK = SystemClock()


def run(produce: t.Callable[[Progress], t.Iterable[t.Any]], seconds: float = 60, stall: float = 60) -> Collected[t.Any]:
    return collect(produce, deadline=CLOCK.monotonic() + seconds, stall=stall, clock=CLOCK)


def test_everything_comes_back_in_order() -> None:
    result = run(lambda progress: iter([{"n": number, "text": "x" * 5000} for number in range(100)]))
    assert result.finished
    assert [item["n"] for item in result.items] == list(range(100))
    assert result.error == ""


def test_nothing_to_say() -> None:
    assert run(lambda progress: ()) == Collected((), True)


def test_a_read_that_blocks_is_left_at_the_deadline() -> None:
    def produce(progress: Progress) -> t.Iterator[str]:
        yield "first"
        progress.at(4711, 3)
        reader, _writer = os.pipe()
        os.read(reader, 1)

    began = time.monotonic()
    result = run(produce, seconds=0.5)
    assert time.monotonic() - began < 20
    assert result == Collected(("first",), False, blocked_at=(4711, 3))


def test_a_stall_ends_it_before_the_deadline() -> None:
    def produce(progress: Progress) -> t.Iterator[str]:
        progress.at(12, 1)
        time.sleep(300)
        yield "never"

    began = time.monotonic()
    assert run(produce, seconds=200, stall=0.3).blocked_at == (12, 1)
    assert time.monotonic() - began < 100


def test_progress_without_a_word_is_no_stall() -> None:
    def produce(progress: Progress) -> t.Iterator[str]:
        for number in range(20):
            progress.at(number, 0)
            time.sleep(0.05)
        yield "done"

    assert run(produce, stall=30).items == ("done",)


def test_an_exception_is_told() -> None:
    def produce(progress: Progress) -> t.Iterator[str]:
        yield "first"
        raise RuntimeError("broken")

    result = run(produce)
    assert not result.finished
    assert result.items == ("first",)
    assert "RuntimeError: broken" in result.error


def test_a_child_that_is_killed_is_told() -> None:
    def produce(progress: Progress) -> t.Iterator[str]:
        yield "first"
        os.kill(os.getpid(), signal.SIGKILL)
        yield "second"

    result = run(produce)
    assert not result.finished
    assert result.items == ("first",)
    assert "ended before" in result.error


def test_the_child_keeps_nothing_of_ours_open() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        streams = run(lambda progress: [[os.readlink(f"/proc/self/fd/{number}") for number in range(3)]]).items[0]
        assert streams == ["/dev/null"] * 3
        inode = f"pipe:[{os.fstat(writer).st_ino}]"
        names = run(lambda progress: [_links()]).items[0]
        assert inode not in names
    finally:
        os.close(reader)
        os.close(writer)


def _links() -> list[str]:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return links


def test_no_child_and_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _number in range(5):
        run(lambda progress: ["x"])
        run(lambda progress: (time.sleep(300) or "x" for _i in range(1)), seconds=0.05)
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def stuck(progress: Progress) -> t.Iterator[str]:
    yield "first"
    progress.at(4711, 3)
    time.sleep(300)


def busy(progress: Progress) -> t.Iterator[str]:
    for number in range(20):
        progress.at(number, 0)
        time.sleep(0.05)
    yield "done"


def test_one_that_stalls_stops_no_other() -> None:
    before = len(os.listdir("/proc/self/fd"))
    until = CLOCK.monotonic() + 60
    done, cut = Collected(("done",), True), Collected(("first",), False, blocked_at=(4711, 3))
    assert collect_all([stuck, busy, stuck], deadline=until, stall=0.4, clock=CLOCK) == (cut, done, cut)
    assert CLOCK.monotonic() < until - 30
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_children_keep_nothing_of_each_other_open() -> None:
    def pipes(progress: Progress) -> t.Iterator[list[str]]:
        yield [link for link in _links() if link.startswith("pipe:")]

    results = collect_all([pipes] * 3, deadline=CLOCK.monotonic() + 60, stall=60, clock=CLOCK)
    own = [link for result in results for link in result.items[0]]
    assert len(own) == len(set(own)) == 3


@pytest.mark.parametrize(
    ("module", "call", "error"),
    [
        (os, "fork", BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")),
        (os, "pipe", OSError(errno.EMFILE, "Too many open files")),
        (mmap, "mmap", OSError(errno.ENOMEM, "Cannot allocate memory")),
    ],
)
def test_no_child_to_be_had(module: t.Any, call: str, error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it took to be refused: nobody is killed for it. PID 0 would be this process's own group."""
    killed: list[int] = []

    def refuse(*arguments: t.Any) -> t.NoReturn:
        time.sleep(0.15)
        raise error

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(module, call, refuse)
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    result = collect(lambda progress: ["x"], deadline=CLOCK.monotonic() + 60, stall=0.1, clock=CLOCK)
    assert not result.finished
    assert result.error == f"a child process could not be started: {error.strerror}"
    assert killed == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_that_cannot_be_started_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, answers = os.fork, [True, False, True]

    def sometimes() -> int:
        if answers.pop(0):
            return fork()
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os, "fork", sometimes)
    results = collect_all([lambda progress: ["x"]] * 3, deadline=CLOCK.monotonic() + 60, stall=60, clock=CLOCK)
    assert [result.items for result in results] == [("x",), (), ("x",)]
    assert [result.finished for result in results] == [True, False, True]
