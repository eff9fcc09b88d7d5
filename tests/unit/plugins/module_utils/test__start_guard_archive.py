# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard as one file: what is in it, that it is the same each time, and that it runs by itself."""

from __future__ import annotations

import ast
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import typing as t
import zipfile

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard_archive
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_archive import archive, needed_modules

SOURCES = os.path.dirname(_start_guard_archive.__file__)


def test_the_same_modules_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(SOURCES, copied, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    for path in copied.iterdir():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    made = archive(str(copied))
    assert made == archive(str(copied))
    with zipfile.ZipFile(io.BytesIO(made)) as together:
        entries = together.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    # Nothing of the machine that made it: else every run from another one would write the file anew.
    assert {(entry.date_time, entry.external_attr >> 16, entry.create_system) for entry in entries} == {
        ((1980, 1, 1, 0, 0, 0), 0o644, 3)
    }


def test_a_changed_module_gives_other_bytes(tmp_path: pathlib.Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(SOURCES, copied, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    before = archive(str(copied))
    with open(copied / "_gate.py", "a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert archive(str(copied)) != before


def test_imports_are_followed_in_both_ways_of_writing_them(tmp_path: pathlib.Path) -> None:
    package = _start_guard_archive._PACKAGE
    (tmp_path / "_a.py").write_text(f"from {package} import _b\nimport os\n")
    (tmp_path / "_b.py").write_text(f"def late():\n    from {package}._c import x\n    return x\n")
    (tmp_path / "_c.py").write_text("x = 1\n")
    (tmp_path / "_d.py").write_text("")
    assert needed_modules(str(tmp_path), "_a") == ("_a", "_b", "_c")
    (tmp_path / "_c.py").write_text(f"from {package} import (  # long\n    _d as d,  # too\n    _e,\n)\n")
    (tmp_path / "_e.py").write_text(f'"""Says from {package} import nobody."""\n')
    assert needed_modules(str(tmp_path), "_a") == ("_a", "_b", "_c", "_d", "_e")


def test_no_import_of_the_core_is_overlooked() -> None:
    """Told by the parser of Python itself, of every file that may come into the archive one day."""
    package = _start_guard_archive._PACKAGE
    for path in sorted(pathlib.Path(SOURCES).glob("_*.py")):
        text = path.read_text(encoding="utf-8")
        found = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == package:
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
                found.add(t.cast(str, node.module)[len(package) + 1 :])
        assert set(_start_guard_archive._imports(text)) == found, path.name


def test_it_imports_nothing_but_the_standard_library() -> None:
    wanted = needed_modules(SOURCES)
    assert {"_gate", "_gpu_world", "_leftovers", "_start_guard"} <= set(wanted)
    for name in wanted:
        text = pathlib.Path(SOURCES, f"{name}.py").read_text(encoding="utf-8")
        assert "import ansible\n" not in text
        assert "from ansible." not in text


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("guard") / "sglang.pyz"
    path.write_bytes(archive(SOURCES))
    return path


def run(program: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(program), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=program.parent,
    )


def test_it_runs_by_itself(program: pathlib.Path) -> None:
    done = run(program, "--help")
    assert done.returncode == 0, done.stderr
    assert "--expected-uuids" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--unit=x.service"], "Exactly one of expected_count and expected_uuids is needed"),
        (["--unit=x.service", "--expected-count=0"], "expected_count is 0"),
        (["--unit=x.service", "--expected-uuids=GPU-1"], "expected_uuids contains 'GPU-1', which is no GPU UUID"),
        (["--unit=x.service", "--expected-count=8", "--scope=lxc"], "scope is 'lxc', but lxc is empty"),
        (["--unit=x.service", "--expected-count=8", "--sweep-user=nobody-here"], "there is no such user"),
        (["--unit=x.service", "--expected-count=8", "--expected=9"], "unrecognized arguments: --expected=9"),
    ],
)
def test_wrong_options_end_with_2_and_say_which(program: pathlib.Path, words: list[str], says: str) -> None:
    done = run(program, *words, f"--state-dir={program.parent}/state")
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["TERM", "INT", "HUP"])
def test_a_signal_before_it_has_begun_is_no_good_end_either(program: pathlib.Path, number: signal.Signals) -> None:
    with zipfile.ZipFile(program) as together:
        first = together.read("__main__.py").decode()
    early = first[: first.index("from ansible_collections")] + f"os.kill(os.getpid(), {int(number)})\n"
    assert subprocess.run([sys.executable, "-I", "-c", early], check=False, timeout=60).returncode == 5


def test_a_folder_that_cannot_be_used_starts_nothing(program: pathlib.Path) -> None:
    blocked = program.parent / "blocked"
    blocked.write_text("a file")
    done = run(program, "--unit=x.service", "--expected-count=8", f"--state-dir={blocked}")
    assert done.returncode == 1
    assert f"x.service is not started: cannot use the folder {blocked}" in done.stderr
