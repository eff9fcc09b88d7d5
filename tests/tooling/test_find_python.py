# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The search runs what it finds: shims, broken interpreters and virtual environments are told from real ones."""

from __future__ import annotations

import os
import pathlib
import sys

import find_python
import pytest

HERE = (sys.version_info[0], sys.version_info[1])


def program(folder: pathlib.Path, name: str, script: str) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def answer(minor: int, path: pathlib.Path, *, base: bool = True, free: bool = False, kind: str = "cpython") -> str:
    said = f'[[3, {minor}], "{path}", {str(base).lower()}, {str(free).lower()}, "{kind}"]'
    return f"echo '{said}'"


def real(folder: pathlib.Path, minor: int) -> pathlib.Path:
    path = folder / f"python3.{minor}"
    return program(folder, path.name, answer(minor, path))


def searched(tmp_path: pathlib.Path, *folders: pathlib.Path) -> find_python.Search:
    return find_python.search(os.pathsep.join(map(str, folders)), str(tmp_path / "home"))


@pytest.fixture(autouse=True)
def only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    usual = tuple(pattern for pattern in find_python.USUAL_FOLDERS if pattern.startswith("~"))
    monkeypatch.setattr(find_python, "USUAL_FOLDERS", usual)


def test_this_interpreter_can_be_probed() -> None:
    answered = find_python.probe(sys.executable)
    assert not isinstance(answered, str)
    assert answered[0] == HERE


def test_a_shim_that_exits_127_is_not_an_interpreter(tmp_path: pathlib.Path) -> None:
    program(tmp_path / "shims", "python3.12", "echo 'version 3.12 is not chosen' >&2; exit 127")
    found = searched(tmp_path, tmp_path / "shims")
    assert found.found == {}
    assert found.refused == {str(tmp_path / "shims" / "python3.12"): "exit 127: version 3.12 is not chosen"}


def test_the_real_one_behind_a_shim_is_found_in_a_usual_folder(tmp_path: pathlib.Path) -> None:
    program(tmp_path / "shims", "python3.12", "exit 127")
    kept = real(tmp_path / "home" / ".pyenv" / "versions" / "3.12.1" / "bin", 12)
    assert searched(tmp_path, tmp_path / "shims").found == {(3, 12): str(kept)}


def test_the_newest_patch_release_of_a_version_wins(tmp_path: pathlib.Path) -> None:
    versions = tmp_path / "home" / ".pyenv" / "versions"
    real(versions / "3.12.9" / "bin", 12)
    newest = real(versions / "3.12.10" / "bin", 12)
    assert searched(tmp_path).found == {(3, 12): str(newest)}


def test_the_first_on_path_wins(tmp_path: pathlib.Path) -> None:
    first, second = real(tmp_path / "a", 11), real(tmp_path / "b", 11)
    assert searched(tmp_path, tmp_path / "b", tmp_path / "a").found == {(3, 11): str(second)}
    assert searched(tmp_path, tmp_path / "a", tmp_path / "b").found == {(3, 11): str(first)}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'No module named ensurepip' >&2; exit 1", "exit 1: No module named ensurepip"),
        ("echo hello", "printed something else"),
        ("""echo '[[3, 13], "/x", true, true, "cpython"]'""", "not a regular CPython build"),
        ("""echo '[[3, 13], "/x", true, false, "pypy"]'""", "not a regular CPython build"),
    ],
)
def test_refused_with_a_reason(tmp_path: pathlib.Path, script: str, reason: str) -> None:
    program(tmp_path / "bin", "python3.13", script)
    found = searched(tmp_path, tmp_path / "bin")
    assert found.found == {}
    assert [told for told in found.refused.values() if reason in told]


def test_virtual_environments_are_passed_over(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "venv" / "python3.13"
    program(path.parent, path.name, answer(13, path, base=False))
    assert searched(tmp_path, path.parent) == find_python.Search({}, {})


def test_the_path_for_other_tools_has_no_shims(tmp_path: pathlib.Path) -> None:
    shims, system = tmp_path / "shims", tmp_path / "system"
    program(shims, "python3.12", "exit 127")
    program(shims, "git", "exit 0")
    program(system, "git", "exit 0")
    real(tmp_path / "home" / ".pyenv" / "versions" / "3.9.18" / "bin", 9)
    newer = real(tmp_path / "home" / ".pyenv" / "versions" / "3.12.1" / "bin", 12)
    found = searched(tmp_path, shims, system)
    path = find_python.path_with(found, f"{shims}{os.pathsep}{system}").split(os.pathsep)
    assert str(shims) not in path
    assert path[0] == str(newer.parent)
    assert path[-1] == str(system)
    assert len(path) == 3


def test_nothing_found_says_what_was_seen(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real(tmp_path / "bin", 10)
    program(tmp_path / "bin", "python3.13", "exit 127")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert find_python.main(["--oldest", "3.12"]) == 1
    told = capsys.readouterr().err
    assert "3.10 (" in told
    assert "python3.13: exit 127" in told
    assert find_python.main(["--oldest", "3.10", "--newest", "3.11"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'bin' / 'python3.10'}\n"
