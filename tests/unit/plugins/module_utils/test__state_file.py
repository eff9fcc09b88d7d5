# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The small files that last: whole or not at all, one writer at a time, in a folder that nobody else can write."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _state_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import LockBusy
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import MOST_BYTES, FolderRefused, Unreadable
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import SteppedClock


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "state" / "x.json"


def write(path: pathlib.Path, document: object) -> None:
    with _state_file.locked(str(path), SteppedClock()) as file:
        file.replace(document)


def test_there_and_back(path: pathlib.Path) -> None:
    assert _state_file.read(str(path)) is None
    write(path, {"b": 1, "a": [None]})
    assert _state_file.read(str(path)) == {"a": [None], "b": 1}


def test_what_a_killed_writer_left_does_not_matter(path: pathlib.Path) -> None:
    write(path, 1)
    path.with_name(".x.json.new").write_text("half")
    write(path, 2)
    assert _state_file.read(str(path)) == 2
    assert sorted(entry.name for entry in path.parent.iterdir()) == [".x.json.lock", "x.json"]


def test_a_writer_that_fails_leaves_the_old_one(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, 1)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError):
        write(path, 2)
    assert _state_file.read(str(path)) == 1


def test_everything_reaches_the_disk_before_the_name_changes(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_fsync, real_rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("fsync"), real_fsync(handle))[1])
    monkeypatch.setattr(os, "rename", lambda *a, **k: (steps.append("rename"), real_rename(*a, **k))[1])
    write(path, 1)
    assert steps == ["fsync", "rename", "fsync"]


def test_a_symbolic_link_is_not_followed(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "other"
    other.write_text("1")
    path.parent.mkdir()
    path.symlink_to(other)
    with pytest.raises(Unreadable, match="symbolic link"):
        _state_file.read(str(path))
    write(path, 2)
    assert (other.read_text(), path.is_symlink()) == ("1", False), "replaced, not written through"


def test_a_folder_that_others_can_write_is_refused(path: pathlib.Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(FolderRefused, match=r"mode 0777.*chmod 0755"):
        write(path, 1)


def test_a_folder_that_is_a_link_is_refused(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FolderRefused, match="symbolic link"):
        write(path, 1)


def test_a_folder_that_cannot_be_made(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FolderRefused, match="cannot make the folder"):
        write(tmp_path / "a" / "b" / "x.json", 1)


def test_the_second_waits_and_then_says_how_to_see_the_first(path: pathlib.Path) -> None:
    clock = SteppedClock()
    started = clock.monotonic()
    first, second = _state_file.locked(str(path), clock), _state_file.locked(str(path), clock)
    with first, pytest.raises(LockBusy, match="fuser -v"), second:
        pass
    assert 5 <= clock.monotonic() - started < 6


@pytest.mark.parametrize("size", [MOST_BYTES - 1, MOST_BYTES])
def test_one_that_is_too_long_is_not_read(path: pathlib.Path, size: int) -> None:
    path.parent.mkdir()
    path.write_text('"' + "x" * size)
    with pytest.raises(Unreadable, match="longer than" if size == MOST_BYTES else "not the JSON"):
        _state_file.read(str(path))


def test_a_pipe_does_not_block(path: pathlib.Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(Unreadable):
        _state_file.read(str(path))
