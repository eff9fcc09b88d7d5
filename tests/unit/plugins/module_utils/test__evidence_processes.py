# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read of each process of a server, where some of it is gone, refused, too much, or does not answer."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _evidence_processes
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence_processes import ProcessReader, read_processes
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Collected, Progress
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import SteppedClock
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc


@pytest.fixture
def proc(tmp_path: pathlib.Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def sections(proc: FakeProc, *pids: int) -> dict[tuple[int, str], str]:
    return {(pid, name): text for pid, name, text in ProcessReader(Proc(proc.root)).read(pids, Progress())}


def test_what_cannot_be_read_is_said_and_hides_nothing(proc: FakeProc) -> None:
    proc.add(50)
    (proc.path / "50/wchan").unlink()
    proc.write("50/stat", "50 (python3) S x\n")
    found = sections(proc, 50, 51)
    assert found[50, "kernel stack"] == "[could not be read: No such file or directory]"
    assert found[50, "state"].startswith("[could not be read: ")
    assert "None" not in found[50, "state"]
    assert found[50, "threads"].startswith("1 threads")
    assert found[50, "command line"] == "python3 x.py"
    assert found[51, "state"] == "[could not be read: No such file or directory]", "it ended meanwhile"


def test_what_moves_first_is_read_first(proc: FakeProc) -> None:
    proc.add(50)
    assert [name for dummy, name in sections(proc, 50)][:4] == ["state", "kernel wait", "system call", "kernel stack"]


def test_a_thread_that_ended_hides_no_other(proc: FakeProc) -> None:
    proc.add(50, tasks={tid: {"state": "D"} for tid in range(50, 54)})
    (proc.path / "50/task/50/stat").unlink()
    for tid in (52, 53):
        proc.write(f"50/task/{tid}/stack", f"[<0>] of {tid}\n")
    lines = sections(proc, 50)[50, "threads"].splitlines()
    assert lines == ["4 threads", "    3 x D -", "thread 52 (-):", "[<0>] of 52", "thread 53 (-):", "[<0>] of 53"]


def test_the_stacks_are_those_that_cannot_be_interrupted_and_the_first_ones(proc: FakeProc) -> None:
    """Each costs time on a machine that is in trouble; all of a state D wait for the same thing, mostly."""
    tasks = {tid: {"state": "D" if tid % 2 else "S"} for tid in range(100, 150)}
    proc.add(100, tasks=tasks)
    for tid in tasks:
        proc.write(f"100/task/{tid}/stack", "[<0>] x\n")
    text = sections(proc, 100)[100, "threads"]
    assert text.splitlines()[:3] == ["50 threads", "   25 x S -", "   25 x D -"]
    assert [line for line in text.splitlines() if line.startswith("thread")] == [
        f"thread {tid} (-):" for tid in range(101, 133, 2)
    ]


def test_a_process_of_thousands_of_threads_is_not_looked_at_to_the_end(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_evidence_processes, "MOST_THREADS", 3)
    proc.add(50, tasks={tid: {} for tid in range(50, 60)})
    assert sections(proc, 50)[50, "threads"] == "10 threads\n    3 x S -"


@pytest.mark.parametrize(
    ("target", "counted"),
    [
        ("socket:[1]", "socket"),
        ("pipe:[2:3]", "pipe"),
        ("anon_inode:[eventpoll]", "anon_inode:[eventpoll]"),
        ("/dev/nvidia3", "/dev/nvidia3"),
        ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0"),
        ("/models/model-00001-of-00030.safetensors", "/models/*"),
        ("/models/config.json", "/models/config.json"),
        ("/opt/python3.12/site.py", "/opt/python3.12/site.py"),
    ],
)
def test_alike_files_are_counted_together_and_devices_by_name(proc: FakeProc, target: str, counted: str) -> None:
    proc.add(50, opens=[target, target])
    assert sections(proc, 50)[50, "open files"] == f"2 open files\n    2 x {counted}"


def test_a_file_that_was_closed_meanwhile_hides_no_other(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.add(50, opens=["/a", "/b"])
    monkeypatch.setattr(os, "listdir", lambda folder: ["99", "3", "4"])
    assert sections(proc, 50)[50, "open files"] == "3 open files\n    1 x /a\n    1 x /b"


def test_of_many_kinds_of_files_the_most_frequent_are_kept(proc: FakeProc) -> None:
    proc.add(50, opens=[*(f"/{chr(97 + one // 26)}{chr(97 + one % 26)}" for one in range(80)), "/often", "/often"])
    lines = sections(proc, 50)[50, "open files"].splitlines()
    assert (lines[0], lines[1], len(lines)) == ("82 open files", "    2 x /often", 61)


def test_more_processes_than_can_be_looked_at_are_counted(proc: FakeProc) -> None:
    """A tensor-parallel server of many nodes has dozens; a fork storm has thousands."""
    text, missing = read_processes(range(10_000, 10_200), 60.0, SystemClock(), proc.root)
    assert missing == "72 more processes were left out"
    assert text.count("=====\n") == 128
    text, missing = read_processes(range(10_000, 10_128), 60.0, SystemClock(), proc.root)
    assert missing == ""


class Looks:
    """What the reading child brings, look by look, and whom it was to read."""

    def __init__(self, *answers: Collected[t.Any], clock: SteppedClock, takes: float = 1.0) -> None:
        self.answers = list(answers)
        self.clock = clock
        self.takes = takes
        self.asked: list[list[int]] = []
        self.stalls: list[float] = []

    def __call__(self, produce: t.Any, *, deadline: float, stall: float, clock: t.Any) -> Collected[t.Any]:
        self.stalls.append(stall)
        asked: list[int] = []
        for pid, dummy, dummy2 in produce(Progress()):
            asked += [] if pid in asked else [pid]
        self.asked.append(asked)
        self.clock.sleep(self.takes)
        return self.answers.pop(0)


def looks(monkeypatch: pytest.MonkeyPatch, *answers: Collected[t.Any], takes: float = 1.0) -> Looks:
    made = Looks(*answers, clock=SteppedClock(), takes=takes)
    monkeypatch.setattr(_evidence_processes, "collect", made)
    return made


def test_after_a_read_that_blocks_the_next_process_is_looked_at(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = looks(
        monkeypatch,
        Collected(((50, "state", "fine"), (51, "state", "fine")), False, (51, 1)),
        Collected(((52, "state", "fine"),), True),
    )
    text, missing = read_processes((50, 51, 52), 20.0, made.clock, proc.root)
    assert made.asked == [[50, 51, 52], [52]]
    assert missing == "kernel wait of process 51 did not answer"
    assert text.splitlines() == [
        "===== process 50 =====",
        "--- state",
        "fine",
        "",
        "===== process 51 =====",
        "--- state",
        "fine",
        "--- kernel wait",
        "[did not answer: the read blocks in the kernel]",
        "",
        "===== process 52 =====",
        "--- state",
        "fine",
    ]
    assert set(made.stalls) == {3.0}, "a third of a minute is enough for several that block"


@pytest.mark.parametrize(("seconds", "count"), [(1.0, 1), (2.0, 2), (2.5, 3)])
def test_it_ends_with_its_time(proc: FakeProc, monkeypatch: pytest.MonkeyPatch, seconds: float, count: int) -> None:
    made = looks(monkeypatch, *(Collected((), False, (pid, 0)) for pid in range(50, 60)))
    missing = read_processes(range(50, 60), seconds, made.clock, proc.root)[1]
    assert len(made.asked) == count
    assert missing.endswith(f"{10 - count} processes were not looked at in {seconds:.0f} s")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Collected((), False, error="cannot fork: Resource temporarily unavailable"), "cannot fork: Resource tempo"),
        (Collected((), False), "the reading child process did not begin"),
        (Collected((), False, (0, 0)), "the reading child process did not begin"),
        (Collected((), False, (99, 0)), "the reading child process did not begin"),
    ],
)
def test_a_reading_child_that_does_not_begin_is_not_started_again(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch, answer: Collected[t.Any], why: str
) -> None:
    made = looks(monkeypatch, answer)
    missing = read_processes((50, 51), 20.0, made.clock, proc.root)[1]
    assert missing.startswith(why)
    assert missing.endswith("; 2 processes were not looked at in 20 s")
    assert len(made.asked) == 1
