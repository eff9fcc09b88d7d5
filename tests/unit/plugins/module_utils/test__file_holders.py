# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has a file open or mapped: what cannot be seen is told, and never taken for nobody."""

from __future__ import annotations

import os
import pathlib
import re
import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._file_holders import FileHolders, FileKey, who_holds
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import (
    EXITING,
    KERNEL_THREAD,
    FakeProc,
)

# As no file system of this machine: what is compared are numbers of several hexadecimal digits.
ELSEWHERE = (os.makedev(0x1F, 0x2E), 4242424)
LOOP = os.strerror(40)


@pytest.fixture
def fake(tmp_path: pathlib.Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@pytest.fixture
def wanted(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "nccl-AAA"
    path.write_bytes(b"x")
    return path


def key_of(path: pathlib.Path) -> FileKey:
    found = path.stat()
    return found.st_dev, found.st_ino


def look(fake: FakeProc, files: dict[FileKey, str], timeout: float = 20.0) -> FileHolders:
    found = who_holds(
        files, Proc(fake.root), makers=re.compile("sglang"), deadline=time.monotonic() + timeout, clock=SystemClock()
    )
    assert found.problem == ""
    return found


def mapping(fake: FakeProc, pid: int, device: str, inode: int, path: str) -> None:
    fake.write(f"{pid}/maps", f"7f0000000000-7f0000001000 rw-s 00000000 {device} {inode}    {path}\n")


def test_a_process_that_ends_meanwhile_does_not_end_the_look(fake: FakeProc, wanted: pathlib.Path) -> None:
    for pid, stat in ((20, "20 (cut"), (21, None), (90, "90 (cut"), (91, None)):
        fake.add(pid)
        (fake.path / str(pid) / "stat").unlink()
        if stat is not None:
            fake.write(f"{pid}/stat", stat)
    fake.add(50, opens=[wanted])
    found = look(fake, {key_of(wanted): str(wanted)})
    assert {holding.pid for holding in found.held.values()} == {50}
    assert found.unseen == ()


def test_a_kernel_thread_is_not_asked_for_files(fake: FakeProc, wanted: pathlib.Path) -> None:
    fake.add(50, comm="kworker/0:1", flags=KERNEL_THREAD)
    fake.make_unreadable(50)
    assert look(fake, {key_of(wanted): str(wanted)}).unseen == ()


def test_files_that_cannot_be_read_are_told_once_with_whose_they_are(fake: FakeProc, wanted: pathlib.Path) -> None:
    fake.add(50, comm="server", uid=4711)
    fake.make_unreadable(50)
    fake.make_unreadable(50, "maps")
    (unseen,) = look(fake, {key_of(wanted): str(wanted)}).unseen
    assert (unseen.pid, unseen.comm, unseen.error, set(unseen.uids)) == (50, "server", LOOP, {4711})


def test_one_open_file_that_is_gone_does_not_hide_the_others(fake: FakeProc, wanted: pathlib.Path) -> None:
    missing = [wanted.parent / f"gone-{number}" for number in range(4)]
    fake.add(50, opens=[*missing[:2], wanted, *missing[2:]])
    found = look(fake, {key_of(wanted): str(wanted)})
    assert found.held[key_of(wanted)].how == "open"
    assert found.unseen == ()


def test_one_open_file_that_cannot_be_looked_at_is_told(fake: FakeProc, wanted: pathlib.Path) -> None:
    fake.add(50, opens=["loop"])
    (fake.path / "50/fd/loop").symlink_to("loop")
    assert [unseen.error for unseen in look(fake, {key_of(wanted): str(wanted)}).unseen] == [LOOP]


@pytest.mark.parametrize(
    ("device", "inode", "path", "holds"),
    [
        pytest.param("1f:2e", 4242424, "/shm/nccl-AAA", True, id="device, inode and name"),
        pytest.param("1f:2e", 4242424, "/shm/another-name", True, id="another name of the same file"),
        pytest.param("00:05", 4242424, "/shm/nccl-AAA", True, id="a file system that gives maps another number"),
        pytest.param("00:05", 4242424, "/shm/nccl-AAA (deleted)", True, id="and the name was removed"),
        pytest.param("00:05", 4242424, "/shm/nccl-BBB", False, id="the same number on another file system"),
        pytest.param("1f:2e", 4242425, "/shm/nccl-AAA", False, id="a new file under the same name"),
    ],
)
def test_which_mapping_is_one_of_the_file(fake: FakeProc, device: str, inode: int, path: str, holds: bool) -> None:
    fake.add(50)
    mapping(fake, 50, device, inode, path)
    found = look(fake, {ELSEWHERE: "/dev/shm/nccl-AAA"})
    assert [(one.pid, one.how) for one in found.held.values()] == ([(50, "mapped")] if holds else [])


def test_the_threads_of_a_dead_leader_tell_what_it_holds(fake: FakeProc, wanted: pathlib.Path) -> None:
    fake.add(50, state="Z", flags=EXITING, tasks={50: {"state": "Z"}, 51: {"opens": [wanted]}})
    assert look(fake, {key_of(wanted): str(wanted)}).held[key_of(wanted)].pid == 50


def test_where_sockets_are_bound_is_read_without_the_heading(fake: FakeProc, wanted: pathlib.Path) -> None:
    heading = "Num       RefCount Protocol Flags    Type St Inode Path\n"
    entry = "0000000000000000: 00000002 00000000 00010000 0001 01 {} {}\n"
    for pid, namespace in ((50, "net:[1]"), (51, "net:[1]"), (52, "net:[2]")):
        fake.add(pid)
        (fake.path / f"{pid}/ns/net").symlink_to(namespace)
        rows = entry.format(7, f"/run/{pid} a  b.sock") + entry.format(8, "")
        fake.write(f"{pid}/net/unix", heading + rows)
    found = look(fake, {key_of(wanted): str(wanted)})
    assert found.bound == {"/run/50 a  b.sock", "/run/52 a  b.sock"}, "each network namespace once"


def test_who_may_have_made_such_files_is_told_by_command_line_or_name(fake: FakeProc, wanted: pathlib.Path) -> None:
    fake.add(50, argv=["python", "-m", "sglang.launch_server"], uid=7, start=99)
    fake.add(51, argv=["python", "x.py"], comm="sglang::router")
    fake.add(52, argv=["python", "x.py"])
    found = look(fake, {key_of(wanted): str(wanted)})
    assert [(maker.pid, set(maker.uids), maker.start_time) for maker in found.makers] == [
        (50, {7}, 99),
        (51, {0}, 1000),
    ]


def test_a_look_that_does_not_come_back_names_the_process_it_hung_at(fake: FakeProc, wanted: pathlib.Path) -> None:
    fake.add(50)
    fake.block(50, "maps")
    found = who_holds(
        {key_of(wanted): str(wanted)},
        Proc(fake.root),
        makers=re.compile("sglang"),
        deadline=time.monotonic() + 0.3,
        clock=SystemClock(),
    )
    assert found.problem == f"reading {fake.root}/50 did not come back in time"


def test_without_files_nobody_is_looked_at(tmp_path: pathlib.Path) -> None:
    assert look(FakeProc(tmp_path / "empty"), {}) == FileHolders()
