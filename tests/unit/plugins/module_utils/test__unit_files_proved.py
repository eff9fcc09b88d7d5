# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Going back to the files with which a server was last proved to serve."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_files
from ansible_collections.cleanslate.gpu.plugins.module_utils._unit_files import UnitFile, UnitFileError


class Files:
    """Unit, configuration, and a program that the first profile does not have."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.paths = [str(folder / name) for name in ("sglang.service", "sglang.yaml", "sglang.pyz")]

    def launch(self, profile: str, *, program: bool = True) -> None:
        """As a relaunch does: stage and swap in."""
        there = self.paths if program else self.paths[:2]
        _unit_files.stage([UnitFile(path, f"{profile}\n".encode(), 0o600) for path in there])
        _unit_files.install(self.paths)

    @property
    def live(self) -> list[str]:
        return [pathlib.Path(path).read_text().strip() if os.path.exists(path) else "-" for path in self.paths]


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    return Files(tmp_path)


def test_two_launches_that_failed_do_not_hide_what_served(files: Files) -> None:
    files.launch("base")
    assert list(_unit_files.prove(files.paths)) == files.paths
    files.launch("broken")
    files.launch("worse")
    assert list(_unit_files.reinstate(files.paths)) == files.paths
    assert files.live == ["base"] * 3
    assert oct(os.stat(files.paths[1]).st_mode)[-3:] == "600"
    _unit_files.restore(files.paths)
    assert files.live == ["worse"] * 3, "even going back can be undone"


def test_a_file_that_was_not_there_goes_away_again(files: Files) -> None:
    files.launch("base", program=False)
    _unit_files.prove(files.paths)
    files.launch("guarded")
    _unit_files.reinstate(files.paths)
    assert files.live == ["base", "base", "-"]


def test_proving_twice_changes_nothing_and_the_last_proof_counts(files: Files) -> None:
    files.launch("base")
    _unit_files.prove(files.paths)
    assert _unit_files.prove(files.paths) == ()
    assert _unit_files.reinstate(files.paths) == (), "just that is live"
    files.launch("nextn")
    _unit_files.prove(files.paths)
    files.launch("broken")
    _unit_files.reinstate(files.paths)
    assert files.live == ["nextn"] * 3


def test_a_later_swap_does_not_write_into_what_was_proved(files: Files) -> None:
    files.launch("base")
    _unit_files.prove(files.paths)
    files.launch("nextn")
    assert [pathlib.Path(path + ".proved").read_text() for path in files.paths] == ["base\n"] * 3


def test_without_a_proof_nothing_is_touched(files: Files) -> None:
    files.launch("base")
    for act in (_unit_files.reinstate, _unit_files.reinstatable):
        with pytest.raises(UnitFileError, match="no server was ever proved to serve"):
            act(files.paths)
    assert files.live == ["base"] * 3


def test_where_one_file_cannot_go_back_none_does(files: Files) -> None:
    files.launch("base")
    _unit_files.prove(files.paths)
    files.launch("nextn")
    os.mkdir(files.paths[2] + ".previous.new")
    with pytest.raises(UnitFileError, match="every file is as it was before"):
        _unit_files.reinstate(files.paths)
    assert files.live == ["nextn"] * 3


def test_no_half_made_names_are_left(files: Files, tmp_path: pathlib.Path) -> None:
    files.launch("base")
    _unit_files.prove(files.paths)
    files.launch("nextn")
    _unit_files.reinstate(files.paths)
    _unit_files.prove(files.paths)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix not in (".previous", ".proved")) == sorted(
        map(os.path.basename, files.paths)
    )


def test_what_was_proved_stays_so_where_the_live_file_is_written_into(files: Files) -> None:
    files.launch("base")
    _unit_files.prove(files.paths)
    for served in ("base", "nextn"):
        for path in files.paths:
            with open(path, "a", encoding="utf-8") as edited:  # as `tee -a` does, or the service's user
                edited.write("mem-fraction-static: 0.99\n")
        assert list(_unit_files.unproved(files.paths)) == files.paths
        assert list(_unit_files.reinstate(files.paths)) == files.paths
        assert files.live == [served] * 3
        # What was gone back to is no second name of the proved file either.
        files.launch("nextn")
        _unit_files.prove(files.paths)
        assert not any(os.path.samefile(path, path + ".proved") for path in files.paths)


def test_two_names_of_one_file_prove_nothing(files: Files) -> None:
    files.launch("base")
    for path in files.paths:
        os.link(path, path + ".proved")
    assert list(_unit_files.prove(files.paths)) == files.paths
    assert _unit_files.prove(files.paths) == ()
    assert not any(os.path.samefile(path, path + ".proved") for path in files.paths)


def test_owner_and_mode_go_there_and_back(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda dummy_handle, uid, gid: owners.append((uid, gid)))
    files.launch("base")
    os.chmod(files.paths[1], 0o640)
    _unit_files.prove(files.paths)
    files.launch("nextn")
    _unit_files.reinstate(files.paths)
    for suffix in ("", ".proved"):
        assert [oct(os.stat(path + suffix).st_mode)[-3:] for path in files.paths] == ["600", "640", "600"]
    assert owners == [(os.geteuid(), os.stat(files.paths[0]).st_gid)] * 6


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_services_user_has_its_file_again(files: Files) -> None:
    files.launch("base")
    os.chown(files.paths[1], 65534, 65534)
    _unit_files.prove(files.paths)
    files.launch("nextn")
    _unit_files.reinstate(files.paths)
    assert [(os.stat(path).st_uid, os.stat(path).st_gid) for path in files.paths] == [(0, 0), (65534, 65534), (0, 0)]


@pytest.mark.parametrize("suffix", ["", ".proved"])
def test_a_file_that_was_made_as_long_as_the_disk_is_refused_before_anything_is_touched(
    suffix: str, files: Files
) -> None:
    files.launch("base")
    _unit_files.prove(files.paths)
    os.truncate(files.paths[1] + suffix, 1 << 40)
    for act in (_unit_files.reinstatable, _unit_files.reinstate, _unit_files.prove):
        with pytest.raises(UnitFileError, match=r"cannot read \S*sglang\.yaml.*longer than 1048576 bytes"):
            act(files.paths)
    assert [os.path.exists(path + ".previous") for path in files.paths] == [False] * 3


def test_a_proved_file_with_another_mode_is_read_too(files: Files) -> None:
    files.launch("base")
    _unit_files.prove(files.paths)
    os.truncate(files.paths[1] + ".proved", 1 << 40)
    os.chmod(files.paths[1] + ".proved", 0o644)
    with pytest.raises(UnitFileError, match="longer than"):
        _unit_files.reinstatable(files.paths)


def test_a_link_in_the_place_of_the_live_file_is_not_followed(files: Files, tmp_path: pathlib.Path) -> None:
    files.launch("base")
    _unit_files.prove(files.paths)
    (tmp_path / "secret").write_text("key\n")
    os.unlink(files.paths[1])
    os.symlink(tmp_path / "secret", files.paths[1])
    with pytest.raises(UnitFileError, match=r"cannot read .*sglang\.yaml: .*symbolic link"):
        _unit_files.prove(files.paths)
    assert pathlib.Path(files.paths[1] + ".proved").read_text() == "base\n"
