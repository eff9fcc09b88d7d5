# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import stat
import subprocess

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _left_behind
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import (
    LeftBehind,
    ProcessStat,
    boot_id,
    default_folder,
    group_survivor,
    is_there,
    read_stat,
)

TOOL = "/usr/bin/nvidia-smi"


@pytest.fixture
def process():
    """A process that is there for the whole test, in a group of its own."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        yield child
        child.kill()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "memory")


def record_of(folder):
    (name,) = os.listdir(folder)
    return os.path.join(folder, name)


def rewrite(folder, **changes):
    path = record_of(folder)
    with open(path, encoding="utf-8") as handle:
        record = json.load(handle)
    with open(path, "w", encoding="utf-8") as handle:
        json.dump({**record, **changes}, handle)


def test_what_is_remembered_is_recalled_by_another_object(folder, process):
    LeftBehind(folder).remember(TOOL, process.pid)
    assert LeftBehind(folder).recall(TOOL) == process.pid
    assert LeftBehind(folder).recall("/usr/bin/other") is None
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(record_of(folder)).st_mode) == 0o600


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"start_time": 1}, id="the pid was given to another process"),
        pytest.param({"boot_id": "another"}, id="another boot"),
        pytest.param({"pid": 2**22 + 1}, id="no such process"),
        pytest.param({"pid": "12"}, id="no number"),
        pytest.param({"pid": None, "start_time": None}, id="nothing"),
        pytest.param({"tool": "/usr/bin/other"}, id="another tool"),
    ],
)
def test_a_stale_record_is_ignored_and_removed(folder, process, changes):
    LeftBehind(folder).remember(TOOL, process.pid)
    rewrite(folder, **changes)
    assert LeftBehind(folder).recall(TOOL) is None
    assert os.listdir(folder) == []


@pytest.mark.parametrize("content", ["", "[]", "no json", '"text"', "\0"])
def test_a_damaged_record_is_ignored_and_removed(folder, process, content):
    LeftBehind(folder).remember(TOOL, process.pid)
    with open(record_of(folder), "w", encoding="utf-8") as handle:
        handle.write(content)
    assert LeftBehind(folder).recall(TOOL) is None
    assert os.listdir(folder) == []


def test_a_process_that_has_ended_is_forgotten(folder, process):
    memory = LeftBehind(folder)
    memory.remember(TOOL, process.pid)
    process.kill()
    process.wait()
    assert memory.recall(TOOL) is None
    assert os.listdir(folder) == []


def test_a_zombie_has_ended(folder, process):
    memory = LeftBehind(folder)
    memory.remember(TOOL, process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped
    assert memory.recall(TOOL) is None


def test_a_zombie_with_a_living_thread_has_not_ended(tmp_path):
    for tid in ("7", "8"):
        (tmp_path / "7" / "task" / tid).mkdir(parents=True)
    assert is_there(ProcessStat(7, "Z", 7, 1), str(tmp_path))
    (tmp_path / "7" / "task" / "8").rmdir()
    assert not is_there(ProcessStat(7, "Z", 7, 1), str(tmp_path))
    assert is_there(ProcessStat(7, "D", 7, 1), str(tmp_path))


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_not_believed(folder, process, mode):
    LeftBehind(folder).remember(TOOL, process.pid)
    os.chmod(folder, mode)
    assert LeftBehind(folder).recall(TOOL) is None


def test_a_link_instead_of_the_folder_is_not_followed(tmp_path, process):
    real = str(tmp_path / "real")
    LeftBehind(real).remember(TOOL, process.pid)
    link = tmp_path / "link"
    link.symlink_to(real)
    assert LeftBehind(str(link)).recall(TOOL) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_not_believed(folder, process):
    LeftBehind(folder).remember(TOOL, process.pid)
    os.chown(folder, 65534, 65534)
    assert LeftBehind(folder).recall(TOOL) is None


def test_without_a_folder_the_object_still_remembers(tmp_path, process):
    (tmp_path / "file").write_text("", encoding="utf-8")
    memory = LeftBehind(str(tmp_path / "file" / "memory"))
    memory.remember(TOOL, process.pid)
    assert memory.recall(TOOL) == process.pid


def test_a_record_of_another_pid_namespace_is_left_alone(folder, process, monkeypatch):
    LeftBehind(folder).remember(TOOL, process.pid)
    path = record_of(folder)
    monkeypatch.setattr(_left_behind.os, "readlink", lambda path: "pid:[1]")
    assert LeftBehind(folder).recall(TOOL) is None
    assert os.path.exists(path), "the host and its containers may share the folder"


def test_nothing_is_remembered_of_a_process_that_is_gone(folder):
    LeftBehind(folder).remember(TOOL, 2**22 + 1)
    assert not os.path.exists(folder)


@pytest.mark.parametrize("comm", ["nvidia-smi", "a b", "a) S 1 2 3", ") R (", "\xff"])
def test_stat_is_read_whatever_the_name_is(tmp_path, comm):
    fields = ["D", "1", "40", "40", *["0"] * 15, "123456", "0"]
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_bytes(f"42 ({comm}) {' '.join(fields)}\n".encode("latin-1"))
    assert read_stat(42, str(tmp_path)) == ProcessStat(pid=42, state="D", group=40, start_time=123456)


@pytest.mark.parametrize("content", [b"", b"42 (x", b"42 (x) S", b"42 (x) S a b c"])
def test_a_stat_that_cannot_be_read_is_none(tmp_path, content):
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_bytes(content)
    assert read_stat(42, str(tmp_path)) is None
    assert read_stat(43, str(tmp_path)) is None


def test_the_leader_of_a_group_is_named_first(process):
    assert group_survivor(process.pid) == process.pid
    process.kill()
    process.wait()
    assert group_survivor(process.pid) is None


def test_boot_id(tmp_path):
    assert boot_id()
    assert boot_id() == boot_id()
    assert boot_id(str(tmp_path)) is None


def test_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(_left_behind.os, "geteuid", lambda: 0)
    assert default_folder() == "/run/cleanslate"
    monkeypatch.setattr(_left_behind.os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_folder() == str(tmp_path / "cleanslate")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    monkeypatch.setattr(_left_behind.tempfile, "gettempdir", lambda: "/somewhere")
    assert default_folder() == "/somewhere/cleanslate-1000"
