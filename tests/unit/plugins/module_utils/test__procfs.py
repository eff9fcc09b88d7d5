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
        ("22 1 0:21 / {root} rw", None),
        ("22 1 0:21 / {root} rw - ", None),
        ("22 1 0:21 / {root} - proc proc rw,hidepid=2", None),
        ("22 1 0:21 / {root} rw - tmpfs proc rw,hidepid=2", None),
        ("garbage\n22 1 0:21 / {root} rw,hidepid=2 - proc proc rw", "hidepid=2"),
        ("21 1 0:20 / /sys rw - sysfs sysfs rw\n22 1 0:21 / {root} rw,hidepid=2 - proc proc rw", "hidepid=2"),
        ("21 1 0:20 / /elsewhere rw - proc proc rw\n22 1 0:21 / {root} rw,hidepid=2 - proc proc rw", "hidepid=2"),
        ("22 1 0:21 / {root} rw,hidepid=2 - proc proc rw\ngarbage", "hidepid=2"),
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


@pytest.mark.parametrize(
    ("root", "own", "other"),
    [
        ("/proc", 0, False),  # as os.getpid() says
        ("/proc", 1, True),
        ("/proc", None, False),
        ("/host/proc", 1, False),
        ("/host/proc", 0, False),
    ],
)
def test_whether_a_pid_that_is_read_here_is_another_process_for_a_signal(
    root: str, own: int | None, other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = Proc(root)
    monkeypatch.setattr(proc, "own_pid", lambda: None if own is None else os.getpid() + own)
    assert proc.is_of_another_namespace() is other


def test_a_proc_whose_self_is_no_number_says_nothing_of_us(tmp_path: pathlib.Path) -> None:
    """As in a /proc of another PID namespace, where this process has none."""
    (tmp_path / "self").symlink_to("nobody")
    assert Proc(str(tmp_path)).own_pid() is None


def test_a_node_is_named_by_the_namespace_of_its_first_process(tmp_path: pathlib.Path) -> None:
    fake = FakeProc(tmp_path / "proc")
    fake.add(2, namespace="pid:[22]")
    fake.add(5, namespace="pid:[55]")
    (fake.path / "1/ns/pid").unlink()
    (fake.path / "1/ns/pid").symlink_to("pid:[11]")
    assert Proc(fake.root).pid_namespace_of_node() == "pid:[11]"


@pytest.mark.parametrize(("more", "fits"), [(11, False), (12, True), (40, True)])
def test_a_line_that_ends_before_the_start_time_is_none(more: int, fits: bool) -> None:
    """Without it nobody can be told from whoever gets the number next."""
    data = f"42 (x) S 7 1 1 0 -1 0 {'0 ' * more}777".encode()
    if fits:
        assert parse_stat(data).start_time == (777 if more == 12 else 0)
    else:
        with pytest.raises(ValueError, match="has 19 fields after the name, not 20 or more"):
            parse_stat(data)


@pytest.mark.parametrize("pending", ["1", "ff", "fffffffffffffeff", "0000000000000000"])
def test_other_signals_that_are_pending_kill_nobody(pending: str) -> None:
    assert not parse_status(f"SigPnd:\t{pending} 100\nShdPnd:\t0\n".encode()).sigkill_pending


def test_a_status_without_signals_says_that_none_is_pending() -> None:
    assert not parse_status(b"Uid:\t1\n").sigkill_pending


@pytest.mark.parametrize("flags", [0x1, 0x400001, 0x200000 - 1, 0x8])
def test_flags_of_other_meaning(flags: int) -> None:
    entry = parse_stat(f"9 (x) R 1 0 0 0 -1 {flags & ~0x4} {'0 ' * 12}1 0\n".encode())
    assert (entry.exiting, entry.kernel_thread, entry.alive) == (False, False, True)


def test_a_long_file_is_read_to_its_end(tmp_path: pathlib.Path) -> None:
    """The mappings of a server are megabytes."""
    path = tmp_path / "maps"
    path.write_bytes(b"x" * 200_000 + b"y")
    assert Proc().read(str(path)) == path.read_bytes()


@pytest.mark.parametrize("error", [OSError(), ValueError(), IndexError(), KeyError()])
def test_a_label_that_cannot_be_had_is_left_out(error: Exception) -> None:
    def read() -> str:
        raise error

    assert try_read(read, "none") == "none"
