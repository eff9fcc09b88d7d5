# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The copy for ansible-test is what git would commit, and stays so; the link leads to the live checkout."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
import stage

IGNORE = "# what is made\n.nox/\n__pycache__/\ntests/output/\n*.tar.gz\n"
KEPT = {".gitignore", "galaxy.yml", "plugins/modules/a.py", "new.txt"}


def checkout(root: pathlib.Path, *, git: bool) -> pathlib.Path:
    ignored = (".nox/x", "plugins/__pycache__/a.pyc", "tests/output/y", "cleanslate-gpu-0.1.0.tar.gz")
    for name in (*KEPT, *ignored):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(IGNORE if name == ".gitignore" else name, encoding="utf-8")
    if git:
        run = ("git", "-c", "init.defaultBranch=main")
        subprocess.run([*run, "init", "--quiet"], cwd=root, check=True)
        tracked = sorted(KEPT - {"new.txt"})
        subprocess.run([*run, "add", *tracked], cwd=root, check=True)
    return root


@pytest.mark.parametrize("git", [True, False])
def test_files_are_what_git_would_commit(tmp_path: pathlib.Path, git: bool) -> None:
    assert set(stage.files(checkout(tmp_path, git=git))) == KEPT


def test_a_deleted_tracked_file_is_none(tmp_path: pathlib.Path) -> None:
    checkout(tmp_path, git=True)
    (tmp_path / "galaxy.yml").unlink()
    assert set(stage.files(tmp_path)) == KEPT - {"galaxy.yml"}


def test_copy_follows_the_checkout_and_keeps_the_output_of_earlier_runs(tmp_path: pathlib.Path) -> None:
    root = checkout(tmp_path / "checkout", git=True)
    place = stage.copy(root, tmp_path / "staged")
    assert place == tmp_path / "staged" / "ansible_collections" / "cleanslate" / "gpu"
    assert set(stage.files(place)) == KEPT
    (place / "tests" / "output").mkdir(parents=True)
    (place / "tests" / "output" / "venv").write_text("kept", encoding="utf-8")
    (place / "galaxy.yml").write_text("changed in the copy", encoding="utf-8")
    (root / "new.txt").unlink()
    (root / "galaxy.yml").write_text("version: 2", encoding="utf-8")
    stage.copy(root, tmp_path / "staged")
    assert not (place / "new.txt").exists()
    assert (place / "galaxy.yml").read_text(encoding="utf-8") == "version: 2"
    assert (place / "tests" / "output" / "venv").exists()


def test_a_copy_of_nothing_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="no file to test"):
        stage.copy(tmp_path / "empty", tmp_path / "staged")


def test_link_leads_to_the_checkout_and_is_repaired(tmp_path: pathlib.Path) -> None:
    root = checkout(tmp_path / "checkout", git=False)
    collections = stage.link(root)
    place = collections / stage.INSIDE
    assert place.resolve() == root
    assert not os.path.isabs(os.readlink(place)), "a checkout that is moved keeps its link"
    place.unlink()
    place.symlink_to(tmp_path)
    stage.link(root)
    assert place.resolve() == root


def test_link_does_not_replace_a_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / ".ansible" / "collections" / stage.INSIDE).mkdir(parents=True)
    with pytest.raises(SystemExit, match="Move it away"):
        stage.link(tmp_path)
