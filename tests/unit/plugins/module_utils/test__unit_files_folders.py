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
