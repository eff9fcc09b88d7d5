# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_files
from ansible_collections.cleanslate.gpu.plugins.module_utils._unit_files import UnitFile, UnitFileError


@pytest.fixture
def pair(tmp_path: pathlib.Path) -> list[UnitFile]:
    """A unit that is live in an older form, and a secret configuration that is not there yet."""
    unit = tmp_path / "sglang.service"
    unit.write_text("old unit\n")
    unit.chmod(0o644)
    return [UnitFile(str(unit), b"new unit\n"), UnitFile(str(tmp_path / "sglang.yaml"), b"api-key: x\n", 0o600)]


def paths(files: list[UnitFile]) -> list[str]:
    return [file.path for file in files]


def text(path: str) -> str:
    return pathlib.Path(path).read_text()


def test_staging_leaves_the_live_files_alone(pair: list[UnitFile]) -> None:
    changes = _unit_files.stage(pair)
    assert [(change.before, change.after) for change in changes] == [
        (b"old unit\n", b"new unit\n"),
        (None, b"api-key: x\n"),
    ]
    assert text(pair[0].path) == "old unit\n"
    assert not os.path.exists(pair[1].path)
    assert stat.S_IMODE(os.stat(pair[1].path + ".staged").st_mode) == 0o600


def test_a_swap_keeps_the_former_file_and_can_be_undone(pair: list[UnitFile]) -> None:
    _unit_files.stage(pair)
    assert list(_unit_files.install(paths(pair))) == paths(pair)
    assert (text(pair[0].path), text(pair[0].path + ".previous")) == ("new unit\n", "old unit\n")
    assert list(_unit_files.restore(paths(pair))) == paths(pair)
    assert text(pair[0].path) == "old unit\n"
    assert not os.path.exists(pair[1].path), "a file that had no predecessor is gone again"


def test_the_second_time_nothing_changes(pair: list[UnitFile]) -> None:
    _unit_files.stage(pair)
    _unit_files.install(paths(pair))
    assert _unit_files.stage(pair) == ()
    assert _unit_files.install(paths(pair)) == ()


def test_a_mode_alone_is_a_difference(pair: list[UnitFile]) -> None:
    _unit_files.stage(pair)
    _unit_files.install(paths(pair))
    os.chmod(pair[1].path, 0o644)
    assert [change.path for change in _unit_files.differing(pair)] == [pair[1].path]


def test_what_is_staged_and_no_longer_wanted_is_not_swapped_in(pair: list[UnitFile]) -> None:
    _unit_files.stage(pair)
    pathlib.Path(pair[0].path).write_text("new unit\n")
    _unit_files.stage(pair)
    assert _unit_files.install(paths(pair)) == (pair[1].path,)


def test_a_stale_previous_is_never_put_back_for_a_new_file(pair: list[UnitFile]) -> None:
    pathlib.Path(pair[1].path + ".previous").write_text("from long ago\n")
    _unit_files.stage(pair)
    _unit_files.install(paths(pair))
    _unit_files.restore([pair[1].path])
    assert not os.path.exists(pair[1].path)


def test_when_one_file_cannot_be_staged_none_is(pair: list[UnitFile]) -> None:
    bad = UnitFile(str(pathlib.Path(pair[0].path).parent / "no folder" / "x"), b"x")
    with pytest.raises(UnitFileError, match=r"cannot write into .*no folder: No such file"):
        _unit_files.stage([*pair, bad])
    assert _unit_files.staged(paths(pair)) == ()


def test_when_one_file_cannot_be_swapped_in_all_are_as_before(pair: list[UnitFile]) -> None:
    _unit_files.stage(pair)
    os.mkdir(pair[1].path)
    pathlib.Path(pair[1].path, "keeps it from being replaced").touch()
    with pytest.raises(UnitFileError, match="every file is as it was before"):
        _unit_files.install(paths(pair))
    assert text(pair[0].path) == "old unit\n"


def test_a_symbolic_link_is_not_followed(pair: list[UnitFile], tmp_path: pathlib.Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("precious\n")
    os.unlink(pair[0].path)
    os.symlink(target, pair[0].path)
    with pytest.raises(UnitFileError, match="no regular file"):
        _unit_files.stage(pair)
    assert target.read_text() == "precious\n"


def test_discarding_removes_only_what_was_staged(pair: list[UnitFile]) -> None:
    _unit_files.stage(pair)
    assert list(_unit_files.discard(paths(pair))) == paths(pair)
    assert text(pair[0].path) == "old unit\n"
    assert _unit_files.discard(paths(pair)) == ()


def test_restoring_all_that_was_staged_puts_back_only_what_was_swapped(pair: list[UnitFile], tmp_path) -> None:
    """As a caller must who did not hear how far the swap got."""
    other = tmp_path / "other"
    other.write_text("live\n")
    (tmp_path / "other.previous").write_text("of an earlier swap\n")
    _unit_files.stage([*pair, UnitFile(str(other), b"never live\n")])
    _unit_files.install(paths(pair))
    assert _unit_files.restore([*paths(pair), str(other)]) == tuple(paths(pair))
    assert text(pair[0].path) == "old unit\n"
    assert not os.path.exists(pair[1].path)
    assert other.read_text() == "live\n"
    assert not (tmp_path / "other.staged").exists()
