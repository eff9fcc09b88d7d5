# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose a file or folder becomes, what is never open for an instant, and what is said where the system refuses."""

from __future__ import annotations

import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_files
from ansible_collections.cleanslate.gpu.plugins.module_utils._unit_files import UnitFile, UnitFileError, UnitFolder

FULL = OSError(28, "No space left on device")


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What files and folders are given to, for whom is no root."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda handle, uid, gid: given.append((uid, gid)))
    return given


OWNERS = [(None, None, []), (5, None, [(5, -1)]), (None, 7, [(-1, 7)]), (0, 0, [(0, 0)]), (5, 7, [(5, 7)])]


@pytest.mark.parametrize(("uid", "gid", "given"), OWNERS)
def test_a_file_is_given_to_whom_it_is_wanted_for_and_to_nobody_else(
    tmp_path: pathlib.Path, owners: list[tuple[int, int]], uid: int | None, gid: int | None, given: list[t.Any]
) -> None:
    _unit_files.stage([UnitFile(str(tmp_path / "x"), b"x", uid=uid, gid=gid)])
    assert owners == given


@pytest.mark.parametrize(("uid", "gid", "given"), OWNERS)
def test_a_folder_is_given_to_whom_it_is_wanted_for_and_to_nobody_else(
    tmp_path: pathlib.Path, owners: list[tuple[int, int]], uid: int | None, gid: int | None, given: list[t.Any]
) -> None:
    _unit_files.make_folders([UnitFolder(str(tmp_path / "x"), uid=uid, gid=gid)])
    assert owners == given


def test_a_log_is_given_to_the_server_and_keeps_its_group(
    tmp_path: pathlib.Path, owners: list[tuple[int, int]]
) -> None:
    folder = UnitFolder(str(tmp_path), mode=stat.S_IMODE(tmp_path.stat().st_mode), uid=os.geteuid(), log="a.log")
    _unit_files.make_folders([folder])
    assert owners == [(os.geteuid(), -1)]


def test_no_folder_is_open_before_it_has_its_owner(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def owned(handle: int, uid: int, gid: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))

    monkeypatch.setattr(os, "fchown", owned)
    before = os.umask(0)
    try:
        _unit_files.make_folders([UnitFolder(str(tmp_path / "a" / "b"), mode=0o750, uid=5)])
    finally:
        os.umask(before)
    assert seen == [0o700]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755, "parents are for everybody to go through"
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o750


@pytest.mark.parametrize("bit", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_a_log_that_anybody_else_can_use_in_any_way_is_not_closed(tmp_path: pathlib.Path, bit: int) -> None:
    folder = UnitFolder(str(tmp_path), mode=stat.S_IMODE(tmp_path.stat().st_mode), log="a.log")
    (tmp_path / "a.log").write_text("line\n")
    (tmp_path / "a.log").chmod(bit)
    assert _unit_files.folders_differing([folder]) == (folder.log_path,)
    (tmp_path / "a.log").chmod(0o600)
    assert _unit_files.folders_differing([folder]) == ()


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refused(*given: t.Any, **named: t.Any) -> t.NoReturn:
        raise FULL

    monkeypatch.setattr(_unit_files.os, name, refused)


def below_a_file(tmp_path: pathlib.Path) -> str:
    (tmp_path / "file").write_text("")
    return str(tmp_path / "file" / "x")


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (lambda path: _unit_files.differing([UnitFile(path, b"")]), "cannot look at"),
        (lambda path: _unit_files.discard([path]), "cannot remove"),
        (lambda path: _unit_files.folders_differing([UnitFolder(path)]), "cannot look at"),
        (_unit_files._read, "cannot read"),
        (lambda path: _unit_files._is_closed(UnitFolder(path, log="a.log")), "cannot look at"),
        (lambda path: _unit_files._close(UnitFolder(path, log="a.log")), "cannot close to others"),
    ],
)
def test_a_path_that_cannot_be_is_named(tmp_path: pathlib.Path, do: t.Callable[[str], t.Any], words: str) -> None:
    path = below_a_file(tmp_path)
    with pytest.raises(UnitFileError, match=words) as error:
        do(path)
    assert path in str(error.value)
    assert "Not a directory" in str(error.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [("fsync", "cannot write"), ("fchmod", "cannot write"), ("fchown", "cannot write"), ("replace", "cannot write")],
)
def test_a_file_that_could_not_be_written_leaves_nothing_behind(
    tmp_path: pathlib.Path, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, name)
    with pytest.raises(UnitFileError, match=f"{words} {tmp_path}/x.staged: No space left"):
        _unit_files.stage([UnitFile(str(tmp_path / "x"), b"secret", uid=5)])
    assert os.listdir(tmp_path) == []


def test_a_folder_that_does_not_exist_is_named_where_a_file_should_come(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnitFileError, match=f"cannot write into {tmp_path}/none"):
        _unit_files.stage([UnitFile(str(tmp_path / "none" / "x"), b"")])


def test_a_swap_that_failed_says_why_and_what_stands_there_now(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "x")
    _unit_files.stage([UnitFile(path, b"new")])
    with monkeypatch.context() as patched:
        refuse(patched, "replace")
        with pytest.raises(
            UnitFileError, match=f"cannot swap in {path}: No space left.*every file is as it was before"
        ):
            _unit_files.install([path])
    (tmp_path / "x.previous").mkdir()
    with pytest.raises(UnitFileError, match=f"cannot swap in {path}: cannot remove {path}.previous: "):
        _unit_files.install([path])


def test_a_restore_that_failed_names_the_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.previous").write_text("old")
    refuse(monkeypatch, "replace")
    with pytest.raises(UnitFileError, match=f"cannot put back {tmp_path}/x: No space left"):
        _unit_files.restore([str(tmp_path / "x")])


def test_one_that_was_never_swapped_hides_no_other_from_a_restore(tmp_path: pathlib.Path) -> None:
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    (tmp_path / "a.staged").write_text("new")
    (tmp_path / "a").write_text("live")
    (tmp_path / "b").write_text("new")
    (tmp_path / "b.previous").write_text("old")
    assert _unit_files.restore([first, second]) == (second,)
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("live", "old")


def test_a_link_that_was_live_is_kept_as_a_link(tmp_path: pathlib.Path) -> None:
    """What it leads to belongs to somebody else, and a restore must give back just what there was."""
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "x").symlink_to(tmp_path / "theirs")
    (tmp_path / "x.staged").write_text("new")
    assert _unit_files.install([str(tmp_path / "x")]) == (str(tmp_path / "x"),)
    assert os.readlink(tmp_path / "x.previous") == str(tmp_path / "theirs")
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_the_same_text_with_another_mode_or_owner_is_not_what_was_proved(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    path.write_text("same")
    path.chmod(0o600)
    _unit_files.prove([str(path)])
    assert _unit_files.unproved([str(path)]) == ()
    path.unlink()
    path.write_text("same")
    path.chmod(0o600)
    assert _unit_files.unproved([str(path)]) == (), "another file, but alike in all that matters"
    path.chmod(0o644)
    assert _unit_files.unproved([str(path)]) == (str(path),)
    path.chmod(0o600)
    path.write_text("other")
    assert _unit_files.unproved([str(path)]) == (str(path),)
