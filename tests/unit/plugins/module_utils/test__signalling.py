# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Signals to real processes."""

from __future__ import annotations

import errno
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import types
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _signalling
from ansible_collections.cleanslate.gpu.plugins.module_utils._signalling import (
    Aim,
    KernelSignaller,
    PidfdAim,
    StartTimeAim,
    start_time_of,
    wait_for_ends,
)

HOLD_NODE = pathlib.Path(__file__).with_name("hold_node.py")
LONG = 60


def no_pidfd(pid: int) -> int:
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.fixture
def sleeper() -> t.Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as process:
        yield process
        process.kill()


def start_of(process: subprocess.Popen[bytes]) -> int:
    found = start_time_of(process.pid)
    assert found is not None
    return found


@pytest.fixture(params=["pidfd", "start time"])
def signaller(request: pytest.FixtureRequest) -> KernelSignaller:
    if request.param == "pidfd":
        try:
            os.close(_signalling.pidfd_open(os.getpid()))
        except OSError as error:
            pytest.skip(f"this kernel or sandbox has no pidfd: {error}")
        return KernelSignaller()
    return KernelSignaller(open_pidfd=no_pidfd)


def aim_at(signaller: KernelSignaller, process: subprocess.Popen[bytes]) -> Aim:
    aim = signaller.aim(process.pid, start_of(process))
    assert aim is not None
    return aim


def test_the_right_kind_of_aim_is_made(sleeper: subprocess.Popen[bytes]) -> None:
    assert isinstance(aim_at(KernelSignaller(open_pidfd=no_pidfd), sleeper), StartTimeAim)


def test_a_signal_arrives_and_the_end_is_noticed(signaller: KernelSignaller, sleeper: subprocess.Popen[bytes]) -> None:
    aim = aim_at(signaller, sleeper)
    assert not aim.gone()
    assert not signaller.wait([aim], 0.0)
    assert aim.send(signal.SIGTERM) == "sent"
    began = time.monotonic()
    if isinstance(aim, PidfdAim):
        assert signaller.wait([aim], LONG)
        assert time.monotonic() - began < LONG / 2
    assert sleeper.wait(LONG) == -signal.SIGTERM
    deadline = time.monotonic() + LONG
    while not aim.gone():
        assert time.monotonic() < deadline
    assert aim.send(signal.SIGTERM) == "gone"
    aim.close()


def test_a_process_of_another_start_time_is_not_aimed_at(
    signaller: KernelSignaller, sleeper: subprocess.Popen[bytes]
) -> None:
    assert signaller.aim(sleeper.pid, start_of(sleeper) + 1) is None
    assert sleeper.poll() is None


def test_a_process_that_has_gone_is_not_aimed_at(signaller: KernelSignaller, sleeper: subprocess.Popen[bytes]) -> None:
    start = start_of(sleeper)
    sleeper.kill()
    sleeper.wait(LONG)
    assert signaller.aim(sleeper.pid, start) is None


@pytest.mark.parametrize("pid", [1, 0, -1])
def test_nobody_aims_at_pid_1(signaller: KernelSignaller, pid: int) -> None:
    with pytest.raises(AssertionError, match="Contract violation"):
        signaller.aim(pid, 1)


def test_every_pid_above_1_may_be_aimed_at() -> None:
    def nobody(pid: int) -> int:
        raise ProcessLookupError

    assert KernelSignaller(open_pidfd=nobody).aim(2, 1) is None


def test_without_pidfd_the_start_time_is_read_right_before_the_signal(
    sleeper: subprocess.Popen[bytes], tmp_path: pathlib.Path
) -> None:
    """The PID was taken over between the aim and the signal."""
    killed: list[tuple[int, int]] = []
    folder = tmp_path / "4711"
    folder.mkdir()
    stat = (pathlib.Path("/proc") / str(os.getpid()) / "stat").read_text()
    head, _paren, tail = stat.rpartition(")")
    fields = tail.split()

    def born_at(ticks: int) -> None:
        fields[19] = str(ticks)
        (folder / "stat").write_text(f"{head}) {' '.join(fields)}\n")

    born_at(100)
    signaller = KernelSignaller(
        proc_root=str(tmp_path), open_pidfd=no_pidfd, kill=lambda pid, signum: killed.append((pid, signum))
    )
    aim = signaller.aim(4711, 100)
    assert aim is not None
    assert aim.send(15) == "sent"
    assert killed == [(4711, 15)]
    born_at(101)
    assert aim.send(9) == "gone"
    assert aim.gone()
    assert killed == [(4711, 15)]


@pytest.mark.parametrize(("error", "outcome"), [(ProcessLookupError, "gone"), (PermissionError, "refused")])
def test_what_the_kernel_answers(error: type[OSError], outcome: str, sleeper: subprocess.Popen[bytes]) -> None:
    def kill(pid: int, signum: int) -> None:
        raise error

    aim = KernelSignaller(open_pidfd=no_pidfd, kill=kill).aim(sleeper.pid, start_of(sleeper))
    assert aim is not None
    assert aim.send(15) == outcome


def test_the_system_calls_by_number(sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Python that was built without them."""
    if not isinstance(aim_at(KernelSignaller(), sleeper), PidfdAim):
        pytest.skip("this kernel or sandbox has no pidfd")
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)
    aim = aim_at(KernelSignaller(), sleeper)
    assert isinstance(aim, PidfdAim)
    assert aim.send(signal.SIGTERM) == "sent"
    assert sleeper.wait(LONG) == -signal.SIGTERM
    assert aim.send(signal.SIGTERM) == "gone"
    with pytest.raises(ProcessLookupError):
        _signalling.pidfd_open(2**22 - 1)


def test_a_zombie_leader_with_a_living_thread_has_not_gone(signaller: KernelSignaller, tmp_path: pathlib.Path) -> None:
    node = tmp_path / "nvidia0"
    node.touch()
    argv = [sys.executable, str(HOLD_NODE), "zombie-leader", str(node)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        aim = aim_at(signaller, process)
        assert not signaller.wait([aim], 0.1)
        assert aim.send(signal.SIGKILL) == "sent"
        process.wait(LONG)


def test_a_zombie_that_nobody_reaps_has_gone(signaller: KernelSignaller, sleeper: subprocess.Popen[bytes]) -> None:
    """PID 1 of many containers reaps nobody, and a release waits for whom it has killed."""
    aim = aim_at(signaller, sleeper)
    assert aim.send(signal.SIGKILL) == "sent"
    deadline = time.monotonic() + LONG
    while not aim.gone():
        assert time.monotonic() < deadline
    assert start_time_of(sleeper.pid) is not None, "still to be reaped"


def test_waiting_for_nobody_is_waiting() -> None:
    slept: list[float] = []

    class Clock:
        def monotonic(self) -> float:
            return 0.0

        def wall(self) -> float:
            return 0.0

        def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    assert not KernelSignaller(Clock()).wait([], 0.5)
    assert slept == [0.5]


def test_the_system_calls_are_made_as_the_kernel_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With flags 0: the whole process is meant, and no information goes with the signal."""
    made: list[tuple[int | None, ...]] = []

    def syscall(*arguments: int | None) -> int:
        made.append(arguments)
        return 7

    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)
    monkeypatch.setattr(_signalling, "_syscall", syscall)
    assert _signalling.pidfd_open(4711) == 7
    _signalling.pidfd_send_signal(7, 15)
    assert made == [(434, 4711, 0), (424, 7, 15, None, 0)]


class Instant:
    """A clock, and a poll that lets it pass instead of waiting."""

    def __init__(self) -> None:
        self.now = 100.0
        self.polls: list[float] = []
        self.registered: list[int] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("slept")

    def register(self, fd: int, events: int) -> None:
        self.registered.append(fd)

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        self.polls.append(round(milliseconds, 6))
        self.now += milliseconds / 1000
        return []


class EndsAfter:
    """An aim without a pidfd whose process is seen to have ended at the n-th look."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def send(self, signum: int) -> t.Any:
        raise AssertionError("signalled")

    def gone(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def close(self) -> None: ...


class HeldByPidfd(PidfdAim):
    def gone(self) -> bool:
        return False


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> Instant:
    found = Instant()
    monkeypatch.setattr(_signalling.select, "poll", lambda: found)
    return found


def test_with_a_pidfd_the_kernel_is_waited_for_once_until_the_deadline(instant: Instant) -> None:
    assert not KernelSignaller(instant).wait([HeldByPidfd(7)], 0.5)
    assert (instant.registered, instant.polls, instant.now) == ([7], [500.0, 0.0], 100.5)


def test_without_a_pidfd_it_looks_every_hundredth_of_a_second(instant: Instant) -> None:
    assert KernelSignaller(instant).wait([EndsAfter(3), HeldByPidfd(7)], 60.0)
    assert (instant.registered, instant.polls) == ([7], [10.0, 10.0, 10.0])
    assert not KernelSignaller(instant).wait([EndsAfter(99)], 0.025)
    assert instant.polls[3:] == [10.0, 10.0, 5.0, 0.0]


def test_one_that_has_gone_already_is_not_waited_for(instant: Instant) -> None:
    assert KernelSignaller(instant).wait([HeldByPidfd(7), EndsAfter(0)], 60.0)
    assert instant.polls == []


class Ending:
    """Processes that end at their times, and who waits for them: the clock moves to the next end."""

    def __init__(self, *ends: float | None) -> None:
        self.ends = dict(enumerate(ends))
        self.now = 100.0
        self.waits: list[tuple[int, float]] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("slept")

    def aim(self, pid: int, start_time: int) -> Aim | None:
        raise AssertionError("aimed")

    def aims(self) -> list[t.Any]:
        return [types.SimpleNamespace(number=number, gone=lambda n=number: self._over(n)) for number in self.ends]

    def _over(self, number: int) -> bool:
        end = self.ends[number]
        return end is not None and self.now >= 100.0 + end

    def wait(self, aims: t.Sequence[t.Any], seconds: float) -> bool:
        self.waits.append((len(aims), seconds))
        ends = [100.0 + end for end in (self.ends[aim.number] for aim in aims) if end is not None]
        ends = [end for end in ends if end <= self.now + seconds]
        self.now = min(ends) if ends else self.now + seconds
        return bool(ends)


@pytest.mark.parametrize(
    ("ends", "seconds", "together", "ended", "after", "waits"),
    [
        pytest.param((1.0, 3.0), 10.0, False, True, 1.0, [(2, 10.0)], id="the first is enough"),
        pytest.param((1.0, 3.0), 10.0, True, True, 3.0, [(2, 10.0), (1, 9.0)], id="all of them"),
        pytest.param((4.5, 4.75), 5.0, True, True, 4.75, [(2, 5.0), (1, 0.5)], id="in the last half second"),
        pytest.param((1.0, None), 5.0, True, True, 5.0, [(2, 5.0), (1, 4.0)], id="one does not end"),
        pytest.param((5.0, None), 5.0, True, True, 5.0, [(2, 5.0)], id="the time is over with the first end"),
        pytest.param((None, None), 5.0, True, False, 5.0, [(2, 5.0)], id="nobody ends"),
        pytest.param((None, None), 5.0, False, False, 5.0, [(2, 5.0)], id="nobody ends, the first would do"),
        pytest.param((0.0, None), 5.0, False, False, 5.0, [(1, 5.0)], id="who had gone before wakes nobody"),
        pytest.param((0.0, 0.0), 5.0, True, True, 0.0, [], id="all had gone before: nothing is left to wait for"),
        pytest.param((None,), 0.0, True, False, 0.0, [(1, 0.0)], id="no time at all"),
    ],
)
def test_whose_ends_are_waited_for(
    ends: tuple[float | None, ...],
    seconds: float,
    together: bool,
    ended: bool,
    after: float,
    waits: list[tuple[int, float]],
) -> None:
    world = Ending(*ends)
    assert wait_for_ends(world, world.aims(), seconds, world, together=together) is ended
    assert (world.now - 100.0, world.waits) == (after, waits)


@pytest.mark.parametrize("stat", ["", "12 (x", "12 (x) S 1", "nonsense", f"12 (x) S 1 {'0 ' * 17}x"])
def test_a_start_time_that_cannot_be_read_is_none(stat: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12/stat").write_text(stat)
    assert start_time_of(12, str(tmp_path)) is None
    assert start_time_of(13, str(tmp_path)) is None


def test_pidfds_leave_descriptors_to_the_looks_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gets none is held by his start time: no reason to end a release halfway."""
    opened, closed = iter(range(60, 70)), []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (112, 4096))
    monkeypatch.setattr(os, "close", closed.append)
    signaller = KernelSignaller(open_pidfd=lambda pid: next(opened))
    start = start_time_of(os.getpid()) or 0
    aims = [signaller.aim(os.getpid(), start) for dummy in range(6)]
    assert [type(aim) for aim in aims] == [PidfdAim] * 4 + [StartTimeAim] * 2
    assert closed == [64, 65]
    assert signaller.aim(os.getpid(), start + 1) is None
