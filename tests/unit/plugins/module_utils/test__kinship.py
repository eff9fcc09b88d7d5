# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._kinship import Process, ProcKinship, ancestors


def entry(root: pathlib.Path, pid: int, ppid: int, comm: str = "python3", state: str = "S", ns: str = "") -> None:
    folder = root / str(pid)
    folder.mkdir()
    fields = " ".join(["0"] * 17)
    (folder / "stat").write_text(f"{pid} ({comm}) {state} {ppid} {fields} {1000 + pid} 0\n")
    (folder / "status").write_text(f"Name:\t{comm}\nNSpid:\t{ns or pid}\n")
    (folder / "cmdline").write_bytes(b"python3\0serve.py\0--api-key\0s3cret\0")


def test_own_holds_this_process_and_all_above_it() -> None:
    own = ProcKinship().own()
    assert os.getpid() in own
    assert os.getppid() in own
    assert 1 in own
    assert min(own) > 0


def test_own_ends_where_a_parent_cannot_be_read(tmp_path: pathlib.Path) -> None:
    assert ProcKinship(str(tmp_path)).own() == {os.getpid(), os.getppid()}


def test_a_process(tmp_path: pathlib.Path) -> None:
    entry(tmp_path, 12, 7, comm="a) S (b")
    assert ProcKinship(str(tmp_path)).process(12) == Process(12, 1012, 7, "a) S (b", adopts=False)


@pytest.mark.parametrize("pid", [0, -3, 99])
def test_nobody(pid: int, tmp_path: pathlib.Path) -> None:
    if pid <= 0:
        entry(tmp_path, pid, 1)
    assert ProcKinship(str(tmp_path)).process(pid) is None


@pytest.mark.parametrize("stat", ["", "12 (python3) S 1", f"12 (python3) S x {'0 ' * 17}9", f"12 (x) S 1 {'0 ' * 17}x"])
def test_a_process_whose_stat_is_odd_is_nobody(stat: str, tmp_path: pathlib.Path) -> None:
    entry(tmp_path, 12, 1)
    (tmp_path / "12" / "stat").write_text(stat)
    assert ProcKinship(str(tmp_path)).process(12) is None


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_starts_nothing(state: str, tmp_path: pathlib.Path) -> None:
    entry(tmp_path, 12, 1, state=state)
    assert ProcKinship(str(tmp_path)).process(12) is None


@pytest.mark.parametrize(
    ("pid", "comm", "ns", "adopts"),
    [
        (12, "systemd", "", True),
        (12, "containerd-shim", "", True),
        (12, "tini", "", True),
        (12, "conmon", "", True),
        (12, "anything", "12\t1", True),
        (1, "anything", "1", True),
        (12, "anything", "12\t7", False),
        (12, "bash", "", False),
        (12, "supervisord", "", False),
        (12, "runsv", "", False),
        (12, "s6-supervise", "", False),
    ],
)
def test_who_merely_adopts(pid: int, comm: str, ns: str, adopts: bool, tmp_path: pathlib.Path) -> None:
    entry(tmp_path, pid, 1, comm=comm, ns=ns)
    found = ProcKinship(str(tmp_path)).process(pid)
    assert found is not None
    assert found.adopts is adopts


@pytest.mark.parametrize(("pid", "adopts"), [(1, True), (2, False), (12, False)])
def test_without_a_line_about_namespaces_only_the_first_process_adopts(
    pid: int, adopts: bool, tmp_path: pathlib.Path
) -> None:
    entry(tmp_path, pid, 0)
    (tmp_path / str(pid) / "status").write_text("Name:\tx\n")
    found = ProcKinship(str(tmp_path)).process(pid)
    assert found is not None
    assert found.adopts is adopts


def test_a_long_command_line_is_cut(tmp_path: pathlib.Path) -> None:
    entry(tmp_path, 12, 1)
    (tmp_path / "12/cmdline").write_bytes(b"x" * 300)
    kinship = ProcKinship(str(tmp_path))
    found = kinship.process(12)
    assert found is not None
    assert kinship.describe(found) == f"PID 12 ({'x' * 200})"


def test_it_is_described_without_its_secrets(tmp_path: pathlib.Path) -> None:
    entry(tmp_path, 12, 1)
    kinship = ProcKinship(str(tmp_path))
    found = kinship.process(12)
    assert found is not None
    assert "PID 12 (python3 serve.py" in kinship.describe(found)
    assert "s3cret" not in kinship.describe(found)
    (tmp_path / "12/cmdline").unlink()
    assert kinship.describe(found) == "PID 12 (python3)"


def test_ancestors_go_through_those_that_hold_nothing_and_end(tmp_path: pathlib.Path) -> None:
    entry(tmp_path, 10, 1)
    entry(tmp_path, 11, 10)
    kinship = ProcKinship(str(tmp_path))
    assert ancestors(kinship, 12, {12: 11}) == (11, 10, 1)
    assert ancestors(kinship, 12, {12: 11, 11: 12}) == (11, 12), "a loop ends"
    assert ancestors(kinship, 99, {}) == ()


def test_a_real_child() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = ProcKinship().process(child.pid)
        assert found is not None
        assert found.ppid == os.getpid()
        assert not found.adopts
        child.kill()
