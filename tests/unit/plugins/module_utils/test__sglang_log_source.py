# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading a log piece by piece: files that rotate, bars that have no end yet, and the journal."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _sglang_log_source
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log_source import (
    UNFINISHED_BYTES,
    Chunk,
    FileLog,
    JournalLog,
    OneReading,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import FakeClock


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "sglang.log"
    path.write_text("one\ntwo\n")
    return path


def test_each_line_is_read_once(log: pathlib.Path) -> None:
    first = FileLog(str(log)).read(None)
    assert first.lines == ("one", "two")
    assert FileLog(str(log)).read(first.position).lines == ()
    with log.open("a") as file:
        file.write("three\n")
    second = FileLog(str(log)).read(first.position)
    assert second.lines == ("three",)
    assert second.position == {"inode": log.stat().st_ino, "offset": 14}


def test_an_unfinished_line_is_shown_and_read_again(log: pathlib.Path) -> None:
    log.write_text("one\n\rbar: 1% Completed | 1/64")
    first = FileLog(str(log)).read(None)
    assert (first.lines, first.rest) == (("one",), "bar: 1% Completed | 1/64")
    with log.open("a") as file:
        file.write(" [x]\rbar: 3% Completed | 2/64")
    second = FileLog(str(log)).read(first.position)
    assert second.lines == ("bar: 1% Completed | 1/64 [x]",)
    assert second.rest == "bar: 3% Completed | 2/64"


def test_a_line_without_end_is_taken_at_some_point(log: pathlib.Path) -> None:
    log.write_text("x" * (UNFINISHED_BYTES + 1))
    chunk = FileLog(str(log)).read(None)
    assert len(chunk.lines[0]) == UNFINISHED_BYTES + 1
    assert chunk.rest == ""


def test_a_rotated_file_starts_anew(log: pathlib.Path) -> None:
    position = FileLog(str(log)).read(None).position
    log.rename(log.with_suffix(".1"))
    log.write_text("longer than the one before\n")
    assert FileLog(str(log)).read(position).lines == ("longer than the one before",)


def test_a_truncated_file_starts_anew(log: pathlib.Path) -> None:
    position = FileLog(str(log)).read(None).position
    with log.open("r+") as file:
        file.truncate(0)
        file.write("x\n")
    assert FileLog(str(log)).read(position).lines == ("x",)


def test_only_the_end_of_a_long_file_is_read(log: pathlib.Path) -> None:
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    chunk = FileLog(str(log), backlog=100).read(None)
    assert chunk.lines[-1] == "line 999"
    assert len(chunk.lines) < 15
    assert chunk.position == {"inode": log.stat().st_ino, "offset": log.stat().st_size}


def test_a_missing_file_is_told_and_may_come_later(log: pathlib.Path) -> None:
    missing = log.with_name("none.log")
    chunk = FileLog(str(missing)).read(None)
    assert (chunk.lines, chunk.position) == ((), None)
    assert "No such file" in chunk.error


def test_a_pipe_or_folder_does_not_hang(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in FileLog(str(tmp_path / "pipe")).read(None).error
    assert FileLog(str(tmp_path)).read(None).error


def test_bytes_that_are_no_text_do_not_stop_it(log: pathlib.Path) -> None:
    log.write_bytes(b"\xff\xfe bad\n\x00zero\n")
    assert len(FileLog(str(log)).read(None).lines) == 2


class Journal:
    """A journalctl that remembers how it was called."""

    def __init__(self, stdout: str = "", exit_code: int | None = 0, stderr: str = "", error: str | None = None) -> None:
        self.calls: list[list[str]] = []
        self._result = (exit_code, stdout, stderr, error)

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        self.calls.append(list(argv))
        exit_code, stdout, stderr, error = self._result
        return CommandResult(tuple(argv), exit_code, stdout, stderr, 0.0, error=error)


def test_the_journal_goes_on_after_its_cursor() -> None:
    journal = Journal("one\nbar: 1%\rbar: 2%\n-- cursor: s=abc;i=1\n")
    first = JournalLog(journal, "x.service").read(None)
    assert first.lines == ("one", "bar: 1%", "bar: 2%")
    assert first.position == {"cursor": "s=abc;i=1"}
    JournalLog(journal, "x.service").read(first.position)
    assert "--lines" in journal.calls[0]
    assert journal.calls[1][journal.calls[1].index("--after-cursor") + 1] == "s=abc;i=1"


def test_nothing_new_keeps_the_cursor() -> None:
    chunk = JournalLog(Journal(""), "x.service").read({"cursor": "c"})
    assert (chunk.lines, chunk.position) == ((), {"cursor": "c"})


def test_one_invocation_is_this_run() -> None:
    journal = Journal("x\n")
    assert JournalLog(journal, "x.service", invocation="ab").read(None).this_run
    assert journal.calls[0][-3:] == ["_SYSTEMD_INVOCATION_ID=ab", "+", "INVOCATION_ID=ab"]
    assert not JournalLog(journal, "x.service", since=12.7).read(None).this_run
    assert journal.calls[1][-4:] == ["--unit", "x.service", "--since", "@12"]
    JournalLog(journal, "x.service", scope="user").read(None)
    assert "--user" in journal.calls[2]
    assert "--user-unit" in journal.calls[2]


def test_bars_are_asked_for_as_they_are() -> None:
    journal = Journal()
    JournalLog(journal, "x.service").read(None)
    assert "-aq" in journal.calls[0]
    assert journal.calls[0][journal.calls[0].index("-o") + 1] == "cat"


@pytest.mark.parametrize(
    ("journal", "word"),
    [
        (Journal(exit_code=None, error="not_found"), "not_found"),
        (Journal(exit_code=1, stderr="Failed to open: Permission denied"), "Permission denied"),
    ],
)
def test_a_journal_that_cannot_be_read_says_why(journal: Journal, word: str) -> None:
    assert word in JournalLog(journal, "x.service").read(None).error


def test_one_reading_goes_on_where_it_ended() -> None:
    chunks = [Chunk(("[2023-11-13 15:00:00] server_args={}",), position={"n": 1}), Chunk(("more",), position={"n": 2})]
    positions = []

    def read(unit: object, since: float | None, position: _sglang_log_source.Position | None) -> Chunk:
        positions.append(position)
        return chunks.pop(0)

    reading = OneReading(read, FakeClock(), redact)
    assert reading(None, None) is None  # it is not known when this run began
    assert reading(None, None) is None
    assert positions == [None, {"n": 1}]
    chunks += [Chunk(("[2023-11-13 15:00:00] server_args={}",))]
    state = OneReading(read, FakeClock(), redact)(None, 1.0)
    assert state is not None
    assert state.begun
