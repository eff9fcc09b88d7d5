# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc, parse_stat, parse_status, try_read
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc


@pytest.mark.parametrize("comm", ["python3", "a) S 1 (b", "sglang::schedul", "with blank", "\udcff"])
def test_a_name_may_hold_anything(comm: str) -> None:
    data = f"42 ({comm}) Z 7 1 1 0 -1 4194308 {'0 ' * 12}777 0 0\n".encode("utf-8", "surrogateescape")
    entry = parse_stat(data)
    assert (entry.pid, entry.comm, entry.state, entry.ppid, entry.start_time) == (
        42,
        comm.replace("\udcff", " "),
        "Z",
        7,
        777,
    )
    assert entry.exiting
    assert not entry.alive
    assert not entry.kernel_thread


def test_flags() -> None:
    assert parse_stat(f"2 (kthreadd) S 0 0 0 0 -1 {0x208040} {'0 ' * 12}1 0\n".encode()).kernel_thread
    assert parse_stat(f"9 (x) R 1 0 0 0 -1 {0x400004} {'0 ' * 12}1 0\n".encode()).exiting
    assert not parse_stat(f"9 (x) R 1 0 0 0 -1 {0x400000} {'0 ' * 12}1 0\n".encode()).exiting


@pytest.mark.parametrize(
    ("private", "shared", "pending"),
    [("0", "0", False), ("100", "0", True), ("0", "0000000000000100", True), ("4000", "80", False)],
)
def test_sigkill_pending(private: str, shared: str, pending: bool) -> None:
    status = parse_status(
        f"Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nNSpid:\t77\t1\n"
        f"SigPnd:\t{private}\nShdPnd:\t{shared}\n".encode()
    )
    assert status.sigkill_pending is pending
    assert status.uids == (1, 2, 3, 4)
    assert status.gids == {5, 6, 7, 8, 9, 10}
    assert status.ns_pids == (77, 1)


def test_this_process() -> None:
    proc = Proc()
    me = os.getpid()
    assert proc.own_pid() == me
    assert proc.stat(me).ppid == os.getppid()
    assert me in proc.pids()
    assert me in proc.tids(me)
    assert proc.status(me).uids[1] == os.geteuid()
    assert proc.argv(me)
    assert "::" in proc.cgroup(me) or ":" in proc.cgroup(me)


def test_empty_command_line(tmp_path: pathlib.Path) -> None:
    fake = FakeProc(tmp_path / "proc")
    fake.add(50, argv=())
    fake.add(51, argv=("a", "", "b c"))
    proc = Proc(fake.root)
    assert proc.argv(50) == ()
    assert proc.argv(51) == ("a", "", "b c")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("22 1 0:21 / {root} rw,hidepid=2 - proc proc rw", "hidepid=2"),
        ("22 1 0:21 / {root} rw - proc proc rw,hidepid=invisible", "hidepid=invisible"),
        ("22 1 0:21 / {root} rw - proc proc rw,hidepid=0", None),
        ("22 1 0:21 / {root} rw - proc proc rw,hidepid=off", None),
        ("22 1 0:21 / {root} rw - proc proc rw", None),
        ("22 1 0:21 / /elsewhere rw - proc proc rw,hidepid=2", None),
        ("22 1 0:21 / {root} rw - proc proc rw,hidepid=2\n23 22 0:22 / {root} rw - proc proc rw", None),
        ("22 1 0:21 / {root} rw - proc proc rw\n23 22 0:22 / {root} rw - proc proc rw,hidepid=1", "hidepid=1"),
        ("garbage", None),
    ],
)
def test_hidepid(tmp_path: pathlib.Path, lines: str, expected: str | None) -> None:
    fake = FakeProc(tmp_path / "proc")
    fake.write("900/mountinfo", lines.format(root=fake.root) + "\n")
    assert Proc(fake.root).hidepid() == expected


def test_what_cannot_be_read() -> None:
    proc = Proc("/nonexistent")
    assert proc.own_pid() is None
    assert proc.hidepid() is None
    assert proc.pid_namespace_of_node() is None
    assert try_read(lambda: proc.stat(1), "nothing") == "nothing"


def test_a_wait_channel_of_0_is_none(tmp_path: pathlib.Path) -> None:
    fake = FakeProc(tmp_path / "proc")
    fake.add(50)
    assert Proc(fake.root).wchan(50) is None
    fake.write("50/wchan", "uvm_destroy")
    assert Proc(fake.root).wchan(50) == "uvm_destroy"
