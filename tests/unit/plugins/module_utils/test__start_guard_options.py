# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the guard's program makes of its options and of its surroundings. In this process; the guard is played."""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import stat
import sys
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard_program as program
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import SteppedClock


class Made:
    """A guard that only keeps what it was made with."""

    last: t.ClassVar[Made]

    def __init__(self, world: program.NodeGuardWorld, options: t.Any, clock: t.Any) -> None:
        self.world, self.options, self.clock = world, options, clock
        type(self).last = self

    @property
    def gate(self) -> GateOptions:
        gate: GateOptions = self.options.gate
        return gate


class Start:
    """One run of the program, up to where the guard begins."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.environment = {"PATH": "/planted", "INVOCATION_ID": "", "PLANTED": "yes"}
        self.most: list[float] = []
        monkeypatch.setattr(os, "environ", self.environment)
        monkeypatch.setattr(program, "Guard", Made)
        monkeypatch.setattr(program, "_run", lambda guard, most: (self.most.append(most), "start")[1])

    def run(self, *options: str, clock: t.Any = None) -> int:
        fixed = ["--unit=x.service", f"--state-dir={self.folder}/state", f"--lock-dir={self.folder}/gpus"]
        return program.main([*fixed, "--expected-count=2", *options], clock)


@pytest.fixture
def start(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    return Start(tmp_path, monkeypatch)


def test_the_unit_counts_as_the_one_that_is_started_and_is_named_once(start: Start) -> None:
    assert start.run("--units=a.service", "--units=x.service", "--units=b.service") == 0
    assert Made.last.world._gpus.request.scope.units == ("x.service", "a.service", "b.service")
    assert Made.last.options.unit == "x.service"


def test_a_look_that_does_not_come_back_ends_after_the_guards_own_time(start: Start) -> None:
    start.run("--timeout=100")
    assert Made.last.gate.timeout == 100.0
    assert start.most == [130.0], "systemd's own limit is behind this"


def test_the_gate_is_no_rehearsal(start: Start) -> None:
    """In check mode memory that targets hold would pass."""
    start.run()
    assert Made.last.gate.check_mode is False


def test_the_real_clock_unless_another_is_given(start: Start) -> None:
    clock = SteppedClock()
    start.run(clock=clock)
    assert Made.last.clock is clock
    start.run()
    assert isinstance(Made.last.clock, program.SystemClock)


def test_the_server_is_excluded_by_the_locks_of_its_gpus_or_by_none(start: Start) -> None:
    start.run()
    assert [lock.path for lock in Made.last.options.locks] == [f"{start.folder}/gpus/all.lock"]
    start.run("--lock-dir=")
    assert Made.last.options.locks == ()


@pytest.mark.parametrize(("group", "gid"), [("", None), ("0", 0), ("root", 0), ("4711", 4711)])
def test_whose_group_may_lock(start: Start, group: str, gid: int | None) -> None:
    start.run(f"--lock-group={group}")
    assert Made.last.options.lock_group == gid


def test_which_start_it_is(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_close_log", lambda: None)
    start.environment["INVOCATION_ID"] = "f" * 32
    start.run()
    options = Made.last.options
    assert (options.invocation_id, options.pid, options.refusals) == ("f" * 32, os.getpid(), 0)
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
    if boot.exists():
        assert options.boot_id == boot.read_text().strip()


def test_a_log_is_closed_only_where_systemd_made_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(program, "_close_log", lambda: closed.append(True))
    start.run()
    assert closed == []
    start.environment["INVOCATION_ID"] = "f" * 32
    start.run()
    assert closed == [True]


def test_root_keeps_nothing_of_the_units_environment_and_a_user_his_own(start: Start) -> None:
    start.run("--systemd-scope=user")
    assert (start.environment["PATH"], start.environment["PLANTED"]) == ("/planted", "yes")
    start.run()
    assert start.environment == {"PATH": program.ROOT_PATH}


def test_leftovers_are_looked_for_only_where_their_owner_is_named(start: Start) -> None:
    start.run()
    assert Made.last.world.search is None
    assert Made.last.world.sweep() is None
    start.run("--sweep-user=root")
    assert Made.last.world.search is not None
    assert Made.last.world.search.uid == 0


def test_what_is_swept_is_handed_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    class Swept:
        def as_dict(self) -> dict[str, t.Any]:
            return {"removed": ["/dev/shm/psm_1"]}

    monkeypatch.setattr(program._leftovers, "sweep", lambda search, **given: Swept())
    start.run("--sweep-user=root")
    assert Made.last.world.sweep() == {"removed": ["/dev/shm/psm_1"]}


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--sweep-user=nobody-of-that-name", "--sweep-user is 'nobody-of-that-name', and there is no such user"),
        ("--lock-group=no-such-group", "--lock-group: there is no group 'no-such-group' on this node"),
        ("--expected-uuids=../x", "expected_count (2) and expected_uuids (1 UUIDs) exclude each other"),
        ("--timeout=-1", "timeout"),
    ],
)
def test_wrong_options_start_nothing_and_are_said(
    start: Start, option: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, bool]] = []
    monkeypatch.setattr(program.Voice, "say", lambda voice, text, *, warning=False: said.append((text, warning)))
    assert start.run(option) == 2
    ((text, warning),) = said
    assert text.startswith("wrong options: ")
    assert words in text
    assert warning


def test_a_folder_that_others_can_write_starts_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, bool]] = []
    monkeypatch.setattr(program.Voice, "say", lambda voice, text, *, warning=False: said.append((text, warning)))
    (start.folder / "state").mkdir()
    (start.folder / "state").chmod(0o777)
    assert start.run() == 1
    ((text, warning),) = said
    assert text.startswith("x.service is not started: cannot use the folder")
    assert warning


@pytest.mark.parametrize("options", [[], ["--unit=x", "--expected=2"], ["--unit"]])
def test_options_that_are_not_understood_end_it(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With 2, and not by a guess at what an abbreviation meant: what stands in the unit is written by a program."""
    with pytest.raises(SystemExit) as ended:
        program.parser().parse_args(options)
    assert ended.value.code == 2


@pytest.mark.parametrize(("code", "told"), [(0, False), (1, True), (-1, True), (None, True)])
def test_a_start_limit_that_could_not_be_reset_is_told(start: Start, code: int | None, told: bool) -> None:
    start.run()
    asked: list[tuple[tuple[str, ...], float]] = []

    def runner(argv: t.Sequence[str], timeout: float) -> CommandResult:
        asked.append((tuple(argv), timeout))
        return CommandResult(tuple(argv), code, "", "refused", 0.1)

    world = Made.last.world
    world._gpus.systemd = program.GpuWorld(world._gpus.request, SteppedClock(), runner=runner).systemd
    assert bool(world.forget_starts()) is told
    ((argv, timeout),) = asked
    assert argv[-3:] == ("reset-failed", "--", "x.service")
    assert timeout == 10.0, "the guard's own time goes on meanwhile"


@pytest.mark.parametrize(
    ("kind", "uid", "mode", "closes"),
    [
        (stat.S_IFREG, 0, 0o644, True),
        (stat.S_IFREG, 0, 0o601, True),
        (stat.S_IFREG, 0, 0o640, True),
        (stat.S_IFREG, 0, 0o700, False),
        (stat.S_IFREG, 1, 0o644, False),
        (stat.S_IFIFO, 0, 0o644, False),
        (stat.S_IFCHR, 0, 0o622, False),
    ],
)
def test_which_log_is_closed_to_others(
    kind: int, uid: int, mode: int, closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both descriptors: they may be two files. A terminal, a pipe, or a file of somebody else is left alone."""
    own = os.geteuid()
    changed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fstat", lambda number: os.stat_result((kind | mode, 0, 0, 1, own + uid, 0, 0, 0, 0, 0)))
    monkeypatch.setattr(os, "fchmod", lambda number, mode: changed.append((number, mode)))
    program._close_log()
    monkeypatch.undo()
    assert changed == ([(1, 0o600), (2, 0o600)] if closes else [])


@pytest.fixture
def handlers() -> t.Iterator[None]:
    numbers = (*program.ENDING, signal.SIGALRM)
    before = [(number, signal.getsignal(number)) for number in numbers]
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before:
        signal.signal(number, handler)


class Ending:
    """A guard that is ended from outside, and once more while it writes down that it was."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.timers: list[tuple[float, float]] = []

    def run(self) -> str:
        os.kill(os.getpid(), self.number)
        raise AssertionError("the signal was not heard")

    def _again(self) -> None:
        self.timers.append(signal.getitimer(signal.ITIMER_REAL))
        for number in program.ENDING:
            os.kill(os.getpid(), number)

    def interrupted(self) -> str:
        self._again()
        return "interrupted"

    def give_up(self) -> str:
        self._again()
        return "gave_up"

    def failed(self, what: str) -> str:
        return what


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [*program.ENDING, signal.SIGALRM])
def test_a_second_signal_does_not_cut_the_record_short(number: signal.Signals) -> None:
    guard = Ending(number)
    assert program._run(t.cast(t.Any, guard), 60.0) == ("gave_up" if number == signal.SIGALRM else "interrupted")
    assert guard.timers == [(0.0, 0.0)], "nor does the alarm"


class Broken:
    """A guard that fails somewhere deep, and cannot even write that."""

    def __init__(self, disk_full: bool = False) -> None:
        self.disk_full = disk_full
        self.line = 0

    def run(self) -> str:
        return self._deeper()

    def _deeper(self) -> str:
        self.line = sys._getframe().f_lineno + 1
        raise RuntimeError("surprise")

    def failed(self, what: str) -> str:
        if self.disk_full:
            raise OSError(28, "No space left on device")
        return what


@pytest.mark.usefixtures("handlers")
def test_a_fault_of_its_own_is_told_with_its_place() -> None:
    guard = Broken()
    found = program._run(t.cast(t.Any, guard), 60.0)
    assert found == f"RuntimeError: surprise ({os.path.basename(__file__)}:{guard.line})"
    assert program._run(t.cast(t.Any, Broken(disk_full=True)), 60.0) == "error", "the server does not start either way"


def test_a_default_is_not_mixed_with_what_is_given() -> None:
    assert isinstance(program.parser(), argparse.ArgumentParser)
    assert program._value([], {"default": ["x"]}) == []
    assert program._value(None, {"default": ["x"]}) == ["x"]
