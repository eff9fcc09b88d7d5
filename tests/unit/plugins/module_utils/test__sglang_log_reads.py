# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much of a log one reading takes, where it goes on, and what is said where it cannot."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log_source import (
    BACKLOG_BYTES,
    JOURNAL_TIMEOUT,
    UNFINISHED_BYTES,
    FileLog,
    JournalLog,
)


def test_a_first_reading_looks_back_over_a_start_and_takes_no_more() -> None:
    """A start writes some hundred kilobytes; each reading is held in memory, and redacted."""
    assert BACKLOG_BYTES == 4 * 2**20
    assert UNFINISHED_BYTES == 2**16


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("before", ["", "a line\n"])
def test_a_line_without_an_end_is_read_again_until_it_is_too_long(
    tmp_path: pathlib.Path, more: int, before: str
) -> None:
    path = tmp_path / "log"
    path.write_text(before + "x" * (UNFINISHED_BYTES + more))
    chunk = FileLog(str(path)).read(None)
    assert len(chunk.lines) == bool(before) + more
    assert len(chunk.rest) == (0 if more else UNFINISHED_BYTES)
    assert chunk.position is not None
    assert chunk.position["offset"] == len(before) + (UNFINISHED_BYTES + 1 if more else 0)


def test_finished_lines_do_not_count_as_unfinished(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    path.write_text("y" * 60_000 + "\n" + "x" * 10_000)
    chunk = FileLog(str(path)).read(None)
    assert ([len(line) for line in chunk.lines], len(chunk.rest)) == ([60_000], 10_000)


@pytest.mark.parametrize("position", [{}, {"offset": 0}, None])
def test_a_position_that_is_not_whole_starts_at_the_beginning(
    tmp_path: pathlib.Path, position: dict[str, t.Any] | None
) -> None:
    path = tmp_path / "log"
    path.write_text("a\nb\n")
    if position is not None:
        position["inode"] = path.stat().st_ino
    assert FileLog(str(path)).read(position).lines == ("a", "b")


def test_a_link_is_not_followed(tmp_path: pathlib.Path) -> None:
    """The server's user may write in the folder of its log, and root reads it."""
    (tmp_path / "secret").write_text("key\n")
    (tmp_path / "log").symlink_to(tmp_path / "secret")
    chunk = FileLog(str(tmp_path / "log")).read({"inode": 1, "offset": 2})
    assert chunk.lines == ()
    assert chunk.position == {"inode": 1, "offset": 2}
    assert chunk.error.startswith(f"{tmp_path}/log could not be read: ")


def test_no_descriptor_is_left_open(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").write_text("a\n")
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("log", "pipe"):
        FileLog(str(tmp_path / name)).read(None)
    assert len(os.listdir("/proc/self/fd")) == before


class Journal:
    def __init__(self, **fields: t.Any) -> None:
        self.fields = {"exit_code": 1, "stdout": "", "stderr": "", "seconds": 0.1, **fields}
        self.asked: list[tuple[list[str], float]] = []

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        self.asked.append((list(argv), timeout))
        return CommandResult(tuple(argv), **self.fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"error": "not_found", "exit_code": None}, "not_found"),
        ({"timed_out": True, "exit_code": None}, "no end in time"),
        ({"stderr": "no\n such   unit\n"}, "no such unit"),
        ({}, "1"),
    ],
)
def test_why_the_journal_says_nothing(fields: dict[str, t.Any], why: str) -> None:
    chunk = JournalLog(Journal(**fields), "x.service").read({"cursor": "c"})
    assert chunk.error == f"journalctl for x.service: {why}"
    assert chunk.position == {"cursor": "c"}, "the next reading goes on from there"


@pytest.mark.parametrize(("length", "kept"), [(199, 199), (200, 200), (201, 200)])
def test_a_long_complaint_is_cut(length: int, kept: int) -> None:
    error = JournalLog(Journal(stderr="e" * length), "x.service").read(None).error
    assert len(error) - len("journalctl for x.service: ") == kept


def test_how_much_of_the_journal_is_read_and_for_how_long() -> None:
    journal = Journal(exit_code=0, stdout="a\n-- cursor: c1\n")
    log = JournalLog(journal, "x.service")
    log.read(log.read(None).position)
    (first, timeout), (second, dummy) = journal.asked
    assert first[-4:] == ["--lines", "4000", "--unit", "x.service"]
    assert second[-4:] == ["--after-cursor", "c1", "--unit", "x.service"]
    assert timeout == JOURNAL_TIMEOUT == 20.0
