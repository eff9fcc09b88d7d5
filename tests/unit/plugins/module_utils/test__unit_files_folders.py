# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders of a unit's files, made in the execution that stages them."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_files
from ansible_collections.cleanslate.gpu.plugins.module_utils._unit_files import UnitFileError, UnitFolder


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def narrow_umask() -> object:
    former = os.umask(0o077)
    yield
    os.umask(former)


def test_missing_folders_are_made_with_their_mode_whatever_the_umask(tmp_path: pathlib.Path) -> None:
    wanted = [UnitFolder(str(tmp_path / "a" / "etc")), UnitFolder(str(tmp_path / "log"), 0o750)]
    assert _unit_files.folders_differing(wanted) == tuple(folder.path for folder in wanted)
    assert not list(tmp_path.iterdir())
    assert _unit_files.make_folders(wanted) == tuple(folder.path for folder in wanted)
    assert (mode(tmp_path / "a" / "etc"), mode(tmp_path / "log")) == (0o755, 0o750)


def test_what_is_as_wanted_is_left_alone(tmp_path: pathlib.Path) -> None:
    wanted = [UnitFolder(str(tmp_path / "etc"), 0o755, os.getuid(), os.getgid())]
    _unit_files.make_folders(wanted)
    (tmp_path / "etc" / "live").write_text("x")
    assert _unit_files.folders_differing(wanted) == ()
    assert _unit_files.make_folders(wanted) == ()
    assert (tmp_path / "etc" / "live").read_text() == "x"


def test_a_wrong_mode_is_corrected(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").mkdir(0o700)
    wanted = [UnitFolder(str(tmp_path / "log"), 0o750)]
    assert _unit_files.make_folders(wanted) == (str(tmp_path / "log"),)
    assert mode(tmp_path / "log") == 0o750


def test_a_folder_of_a_user_is_not_opened_to_others_for_a_log_in_it(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir(0o700)
    wanted = [UnitFolder(str(home), log="sglang.log", keep=True), UnitFolder(str(home / "new"), keep=True)]
    assert _unit_files.make_folders(wanted) == (str(home / "new"), str(home / "sglang.log"))
    assert (mode(home), mode(home / "new")) == (0o700, 0o755)
    assert _unit_files.folders_differing(wanted) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_a_wrong_owner_is_corrected(tmp_path: pathlib.Path) -> None:
    _unit_files.make_folders([UnitFolder(str(tmp_path / "log"), 0o750, 0, 65534)])
    assert ((tmp_path / "log").stat().st_uid, (tmp_path / "log").stat().st_gid) == (0, 65534)


def test_what_is_no_folder_is_not_replaced(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc").write_text("somebody's")
    for act in (_unit_files.folders_differing, _unit_files.make_folders):
        with pytest.raises(UnitFileError, match="must be a folder and is none"):
            act([UnitFolder(str(tmp_path / "etc"))])
    assert (tmp_path / "etc").read_text() == "somebody's"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnitFileError, match=f"cannot (look at|make the folder) {tmp_path}/file/etc"):
        _unit_files.make_folders([UnitFolder(str(tmp_path / "file" / "etc"))])


# -- the log, into which a server prints its keys ---------------------------------------------------------------------


@pytest.fixture(params=[0o000, 0o022, 0o077])
def any_umask(request: pytest.FixtureRequest) -> object:
    os.umask(request.param)  # narrow_umask puts back what was
    return request.param


def test_a_missing_log_is_made_for_its_owner_only_whatever_the_umask(tmp_path: pathlib.Path, any_umask: int) -> None:
    wanted = [UnitFolder(str(tmp_path / "log"), 0o755, log="sglang.log")]
    path = tmp_path / "log" / "sglang.log"
    assert _unit_files.folders_differing(wanted) == (str(path.parent), str(path))
    assert not path.parent.exists()
    assert _unit_files.make_folders(wanted) == (str(path.parent), str(path))
    assert (mode(path), path.read_bytes()) == (0o600, b"")
    assert _unit_files.folders_differing(wanted) == ()
    assert _unit_files.make_folders(wanted) == ()


@pytest.mark.parametrize("former", [0o644, 0o640, 0o604, 0o666])
def test_a_log_that_others_can_read_is_closed_and_keeps_what_stands_in_it(tmp_path: pathlib.Path, former: int) -> None:
    path = tmp_path / "sglang.log"
    path.write_text("api_key='planted'\n")
    path.chmod(former)
    wanted = [UnitFolder(str(tmp_path), stat.S_IMODE(tmp_path.stat().st_mode), log=path.name)]
    assert _unit_files.folders_differing(wanted) == (str(path),)
    assert mode(path) == former, "a look changes nothing"
    inode = path.stat().st_ino
    assert _unit_files.make_folders(wanted) == (str(path),)
    assert (mode(path), path.read_text(), path.stat().st_ino) == (0o600, "api_key='planted'\n", inode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_a_log_of_somebody_else_is_taken_from_him(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sglang.log"
    path.touch(0o600)
    os.chown(path, 65534, 65534)
    _unit_files.make_folders([UnitFolder(str(tmp_path), 0o750, 0, 65534, log=path.name)])
    assert path.stat().st_uid == 0


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_a_log_that_is_no_file_is_refused_and_left_alone(tmp_path: pathlib.Path, kind: str) -> None:
    path, other = tmp_path / "sglang.log", tmp_path / "others"
    if kind == "link":
        other.write_text("x")
        other.chmod(0o644)
    {
        "link": lambda: path.symlink_to(other),
        "dangling": lambda: path.symlink_to(other),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[kind]()
    for act in (_unit_files.folders_differing, _unit_files.make_folders):
        with pytest.raises(UnitFileError, match=f"{path} is no regular file"):
            act([UnitFolder(str(tmp_path), log=path.name)])
    assert other.exists() == (kind == "link")
    assert kind != "link" or mode(other) == 0o644


def test_a_link_that_came_since_the_look_is_not_followed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "sglang.log", tmp_path / "others"
    other.touch()
    other.chmod(0o640)
    path.symlink_to(other)
    monkeypatch.setattr(_unit_files, "_is_closed", lambda folder: False)
    with pytest.raises(UnitFileError, match=f"cannot close to others {path}"):
        _unit_files.make_folders([UnitFolder(str(tmp_path), log=path.name)])
    assert mode(other) == 0o640
