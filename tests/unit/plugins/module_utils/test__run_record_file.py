# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A line is there as a whole and on disk, or not at all; on real files and with real processes."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import pathlib
import stat

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _run_record_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_record_file import Appended, RecordError, opened
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import Clock

LARGE = 1 << 20


def append(path: pathlib.Path, line: bytes, max_bytes: int = LARGE, keep: int = 3) -> Appended:
    with opened(str(path), create=True) as folder:
        assert folder is not None
        with folder.locked(SystemClock()):
            return folder.append(line, max_bytes, keep)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "cleanslate"


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_file_have_their_modes_whatever_the_umask_is(folder: pathlib.Path) -> None:
    before = os.umask(0o077)
    try:
        append(folder, b"1\n")
    finally:
        os.umask(before)
    assert (mode(folder), mode(folder / "runs.jsonl"), mode(folder / "runs.lock")) == (0o755, 0o640, 0o600)
    assert append(folder, b"2\n") == Appended(str(folder / "runs.jsonl"), healed=False, rotated=False)
    assert (folder / "runs.jsonl").read_bytes() == b"1\n2\n"


def test_a_torn_last_line_is_closed_and_told(folder: pathlib.Path) -> None:
    append(folder, b"1\n")
    with (folder / "runs.jsonl").open("ab") as file:
        file.write(b'{"ver')
    assert append(folder, b"2\n").healed
    assert (folder / "runs.jsonl").read_bytes() == b'1\n{"ver\n2\n'
    assert not append(folder, b"3\n").healed


def test_rotation_keeps_so_many_files_and_loses_no_line_of_them(folder: pathlib.Path) -> None:
    rotations = [append(folder, b"%03d\n" % number, max_bytes=12, keep=2).rotated for number in range(11)]
    assert rotations == [number in (3, 6, 9) for number in range(11)]
    files = {path.name: path.read_text().split() for path in folder.glob("runs.jsonl*")}
    assert files == {
        "runs.jsonl": ["009", "010"],
        "runs.jsonl.1": ["006", "007", "008"],
        "runs.jsonl.2": ["003", "004", "005"],
    }
    assert mode(folder / "runs.jsonl") == 0o640


def test_fewer_files_are_kept_when_asked_for_and_a_stranger_stays(folder: pathlib.Path) -> None:
    for number in range(5):
        append(folder, b"%d\n" % number, max_bytes=2, keep=4)
    (folder / "runs.jsonl.gz").write_text("somebody's")
    append(folder, b"5\n", max_bytes=2, keep=1)
    assert sorted(path.name for path in folder.glob("runs.jsonl*")) == ["runs.jsonl", "runs.jsonl.1", "runs.jsonl.gz"]


def test_a_line_larger_than_the_limit_gets_a_file_and_does_not_rotate_an_empty_one(folder: pathlib.Path) -> None:
    assert not append(folder, b"x" * 100 + b"\n", max_bytes=10).rotated
    assert append(folder, b"y\n", max_bytes=10).rotated


def test_a_full_disk_leaves_no_half_line(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(folder, b"1\n")
    write = os.write
    monkeypatch.setattr(_run_record_file.os, "write", lambda handle, data: write(handle, data[:3]))
    with pytest.raises(RecordError, match=r"cannot append to .*runs\.jsonl: only 3 of 6 bytes.*df -h"):
        append(folder, b"12345\n")
    monkeypatch.undo()
    assert (folder / "runs.jsonl").read_bytes() == b"1\n"


def test_a_line_that_did_not_reach_the_disk_is_no_line(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(folder, b"1\n")

    def broken(dummy_handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(_run_record_file.os, "fsync", broken)
    with pytest.raises(RecordError, match="Input/output error"):
        append(folder, b"2\n")
    assert (folder / "runs.jsonl").read_bytes() == b"1\n"


def test_what_is_no_regular_file_is_refused(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o755)
    os.mkfifo(folder / "runs.jsonl")
    with pytest.raises(RecordError, match="no regular file"):
        append(folder, b"1\n")
    os.unlink(folder / "runs.jsonl")
    (folder / "runs.jsonl").symlink_to("/dev/full")
    with pytest.raises(RecordError, match="it is a symbolic link"):
        append(folder, b"1\n")


def test_a_folder_that_others_may_change_is_refused(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(RecordError, match=r"others may write in it \(mode 0777\).*chmod 0755"):
        append(folder, b"1\n")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(RecordError, match="it is a symbolic link"):
        append(link, b"1\n")
    with pytest.raises(RecordError, match=r"cannot make the folder .* does not exist"):
        append(tmp_path / "no" / "where", b"1\n")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="no folder"):
        append(tmp_path / "file", b"1\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(folder: pathlib.Path) -> None:
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(RecordError, match="belongs to user id 12345"):
        append(folder, b"1\n")


def test_a_lock_that_does_not_come_free_has_a_deadline(folder: pathlib.Path) -> None:
    append(folder, b"1\n")
    clock = Clock()
    with (folder / "runs.lock").open() as held, opened(str(folder), create=True) as again:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert again is not None
        with pytest.raises(RecordError, match=r"locked for 5 s.*fuser -v"), again.locked(clock):
            raise AssertionError("somebody else has it")
    assert 4.9 < sum(clock.slept) < 5.1


def _many(path: pathlib.Path, name: str) -> None:
    for number in range(40):
        append(path, f"{name}{number:02d}\n".encode(), max_bytes=100, keep=1000)


def test_two_processes_that_append_and_rotate_lose_no_line(folder: pathlib.Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_many, args=(folder, name)) for name in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    with opened(str(folder), create=False) as read:
        assert read is not None
        names: list[str] = list(read.newest_first())
    lines = [line for name in reversed(names) for line in (folder / name).read_text().split()]
    assert sorted(lines) == sorted(f"{name}{number:02d}" for name in "ab" for number in range(40))
    for name in "ab":
        assert [line for line in lines if line[0] == name] == [f"{name}{number:02d}" for number in range(40)]


def test_a_file_is_replaced_as_a_whole(folder: pathlib.Path) -> None:
    append(folder, b"1\n")
    with opened(str(folder), create=True) as again:
        assert again is not None
        (folder / ".x.json.new").write_text("left by a process that was killed")
        again.replace("x.json", b"{}")
        assert again.read("x.json", 100) == b"{}"
        assert again.read("runs.jsonl", 1) == b"\n"
        assert again.read("nothing", 100) is None
    assert sorted(path.name for path in folder.iterdir()) == ["runs.jsonl", "runs.lock", "x.json"]
    assert mode(folder / "x.json") == 0o640


def test_no_folder_is_no_failure_for_a_reader(folder: pathlib.Path) -> None:
    with opened(str(folder), create=False) as nothing:
        assert nothing is None
    assert not folder.exists()
