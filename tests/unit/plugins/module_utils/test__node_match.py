# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import mmap
import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _node_match
from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import NodeSet, find_nodes
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import DeviceNode
from ansible_collections.cleanslate.gpu.plugins.module_utils._node_match import (
    NodeMatcher,
    memory_number,
    network_mounts,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import Hold
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc, make_nodes


class Case:
    def __init__(self, folder: pathlib.Path) -> None:
        self.fake = FakeProc(folder / "proc")
        self.fake.add(50)
        self.dev = folder / "dev"
        self.proc = Proc(self.fake.root)
        self.matcher = NodeMatcher(find_nodes([make_nodes(self.dev)], None, self.proc), self.proc)

    def open_files(
        self, names: t.Iterable[str], avoid: t.Sequence[str] = (), matcher: NodeMatcher | None = None
    ) -> list[t.Any]:
        folder = os.open(self.proc.path(60, "fd"), os.O_RDONLY)
        try:
            return list((matcher or self.matcher).open_files(folder, names, "fd", avoid))
        finally:
            os.close(folder)

    def maps(self, *lines: str) -> list[t.Any]:
        return list(self.matcher.mappings(("\n".join(lines) + "\n").encode(), 50, None, ()))

    def line(self, name: str, inode: int | None = None, number: int = 1) -> str:
        path = self.dev / name
        inode = os.stat(path).st_ino if inode is None else inode
        return f"7f{number}000000000-7f{number}000001000 rw-s 00000000 00:05 {inode}                     {path}"


@pytest.fixture
def case(tmp_path: pathlib.Path) -> Case:
    return Case(tmp_path)


def test_a_mapping_is_told_by_the_path_as_the_process_sees_it(case: Case) -> None:
    assert case.maps(case.line("nvidia0")) == [Hold(str(case.dev / "nvidia0"), "gpu", 0, "map")]


def test_map_files_come_first(case: Case) -> None:
    """The path may name another file by now, or lie in another mount namespace."""
    folder = case.fake.path / "50/map_files"
    folder.mkdir()
    (folder / "7f1000000000-7f1000001000").symlink_to(case.dev / "nvidia1")
    lines = "7f1000000000-7f1000001000 rw-s 00000000 00:05 77                     /somewhere/else"
    assert case.maps(lines) == [Hold(str(case.dev / "nvidia1"), "gpu", 1, "map")]


def test_an_overlay_shows_the_file_below_in_map_files(case: Case) -> None:
    folder = case.fake.path / "50/map_files"
    folder.mkdir()
    (case.dev / "lower").write_bytes(b"")
    (folder / "7f1000000000-7f1000001000").symlink_to(case.dev / "lower")
    assert case.maps(case.line("nvidia0")) == [Hold(str(case.dev / "nvidia0"), "gpu", 0, "map")]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/gone/nvidia0", True),
        ("/gone/nvidia0 (deleted)", True),
        ("/dev/nvidia77", True),
        ("/dev/shm/x (deleted)", False),
        ("/dev/zero (deleted)", False),
        ("/usr/lib/libcuda.so.1 (deleted)", False),
        ("/memfd:x (deleted)", False),
    ],
)
def test_what_cannot_be_looked_up(case: Case, path: str, told: bool) -> None:
    found = case.maps(f"7f1000000000-7f1000001000 rw-s 00000000 00:05 77                     {path}")
    assert found == ([path] if told else [])


def test_another_file_under_the_same_path_is_not_what_is_mapped(case: Case) -> None:
    assert case.maps(case.line("nvidia0", inode=77)) == [str(case.dev / "nvidia0")]


def test_anonymous_memory_and_odd_lines(case: Case) -> None:
    assert (
        case.maps(
            "7f1000000000-7f1000001000 rw-p 00000000 00:00 0 ",
            "7f1000000000-7f1000001000 rw-p 00000000 00:00 0                          [heap]",
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
            "7f1000000000-7f1000001000 rw-s 00000000 00:0e 12                         anon_inode:[perf_event]",
            "garbage",
        )
        == []
    )


def test_a_file_is_looked_up_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    real = os.stat

    def counting(path: t.Any, **more: t.Any) -> os.stat_result:
        looked.append(path)
        return real(path, **more)

    lines = [case.line("nvidia0", number=number) for number in range(1, 9)]
    monkeypatch.setattr(os, "stat", counting)
    assert len(case.maps(*lines)) == 8
    assert len([path for path in looked if str(path).endswith("nvidia0")]) == 1


def test_libraries_are_looked_up_once_and_hide_no_node_after_them(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process maps each of its libraries in several pieces, and its GPU after them."""
    looked: list[str] = []
    real = os.stat
    library = case.dev / "libc.so"
    library.write_bytes(b"")
    memory = "7f0000000000-7f0000001000 rw-p 00000000 00:0e 12                         anon_inode:[perf_event]"
    lines = [memory, *(case.line("libc.so", number=number) for number in range(1, 9)), case.line("nvidia1", number=9)]
    monkeypatch.setattr(os, "stat", lambda path, **more: looked.append(os.fspath(path)) or real(path, **more))
    for dummy in range(2):
        assert case.maps(*lines) == [Hold(str(case.dev / "nvidia1"), "gpu", 1, "map")]
    assert [os.path.basename(path) for path in looked if "map_files" not in path] == ["libc.so", "nvidia1"]
    assert not [path for path in looked if "7f0000000000-" in path], "what has no path is no node"


def test_the_number_of_memory_is_asked_for_once_and_only_where_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs a look at the own mappings, which for each of a thousand processes would be half of a scan."""
    asked: list[int] = []
    monkeypatch.setattr(_node_match, "memory_number", lambda: asked.append(1) or b"00:01 ")
    matcher = NodeMatcher(NodeSet(), Proc())
    area = "7f0000000000-7f0000001000 rw-s 00000000 00:01 77                    "
    for path, expected in (("/a", 0), ("/dev/zero (deleted)", 1), ("/b", 1), ("/dev/zero (deleted)", 1)):
        list(matcher.mappings(f"{area} {path}\n".encode(), os.getpid(), None, ()))
        assert len(asked) == expected


def test_another_kind_of_file_that_got_the_inode_of_a_node_is_none(case: Case) -> None:
    found = os.stat(case.dev / "nvidia0")
    assert case.matcher.node_of(found)
    for kind in (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFDIR, stat.S_IFBLK):
        assert case.matcher.node_of(os.stat_result((kind | 0o600, *found[1:]))) is None


def test_devices_of_the_driver_without_a_node_here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = {1: "nvidia", 195: "nvidia"}  # the null device plays one of the driver's
    proc = Proc(FakeProc(tmp_path / "proc").root)
    null = os.stat("/dev/null")
    assert NodeMatcher(NodeSet(real_majors=real), proc).node_of(null) is None
    node = NodeMatcher(NodeSet(real_majors=real, by_number=True), proc).node_of(null)
    assert node == DeviceNode("/dev/char/1:3", "other", ("chr", 1, 3))
    assert NodeMatcher(NodeSet(real_majors={195: "nvidia"}, by_number=True), proc).node_of(null) is None


def test_open_files_of_servers_that_may_be_gone_are_left_alone(case: Case) -> None:
    case.fake.add(60, opens=[case.dev / "nvidia0", "/mnt/nfs/model"])
    names = os.listdir(case.proc.path(60, "fd"))
    assert len(case.open_files(names)) == 1
    assert len(case.open_files(names, ("/mnt/nfs",))) == 1
    assert case.open_files(names, (str(case.dev),)) == []


def test_what_was_closed_meanwhile_hides_nothing_after_it(case: Case) -> None:
    case.fake.add(60, opens=[case.dev / "nvidia0", "/mnt/nfs/model"])
    expected = [Hold(str(case.dev / "nvidia0"), "gpu", 0, "fd")]
    assert case.open_files(["99", "3"]) == expected
    assert case.open_files(["4", "3"], ("/mnt/nfs",)) == expected


def test_of_the_sockets_only_those_looked_for_are_told(case: Case) -> None:
    wanted, other, node = case.dev / "wanted", case.dev / "other", case.dev / "nvidia0"
    for path in (wanted, other):
        os.mknod(path, stat.S_IFSOCK | 0o600)
    case.fake.add(60, opens=[wanted, other, node])
    sockets = {wanted.stat().st_ino, node.stat().st_ino}  # a number of an inode says nothing of another kind of file
    matcher = NodeMatcher(find_nodes([f"{case.dev}/nvidia*"], None, case.proc), case.proc, sockets)
    found = case.open_files(["3", "4", "5"], matcher=matcher)
    assert found == [wanted.stat().st_ino, Hold(str(node), "gpu", 0, "fd")]


def test_mappings_of_servers_that_may_be_gone_are_left_alone_and_hide_nothing(case: Case) -> None:
    other = "7f2000000000-7f2000001000 rw-s 00000000 00:05 77                     /mnt/nfs/nvidia0"
    maps = "\n".join([other, case.line("nvidia1")]).encode() + b"\n"
    expected = [Hold(str(case.dev / "nvidia1"), "gpu", 1, "map")]
    assert list(case.matcher.mappings(maps, 50, None, ("/mnt/nfs",))) == expected
    assert list(case.matcher.mappings(maps, 50, None, ())) == ["/mnt/nfs/nvidia0", *expected]


@pytest.mark.parametrize(
    ("mapped", "path", "minor"),
    [
        pytest.param("nvidia1", "/somewhere/nvidia1", 1, id="a node, whatever the path has become"),
        pytest.param("lower", "/gone/nvidia0", None, id="another file, whose path is gone"),
        pytest.param("/dev/null", "nvidia0", None, id="another device, over whose path a node lies by now"),
    ],
)
def test_what_map_files_says_decides(case: Case, mapped: str, path: str, minor: int | None) -> None:
    folder = case.fake.path / "50/map_files"
    folder.mkdir()
    (case.dev / "lower").write_bytes(b"")
    (folder / "7f1000000000-7f1000001000").symlink_to(case.dev / mapped)
    line = case.line(path) if path == "nvidia0" else f"7f1000000000-7f1000001000 rw-s 0 00:05 77      {path}"
    found = case.maps(line)
    assert found == ([] if minor is None else [Hold(str(case.dev / mapped), "gpu", minor, "map")])


@pytest.mark.parametrize(
    ("line", "places"),
    [("1 0 0:9 / /mnt/a - nfs4 h:/x rw", ("/mnt/a",)), ("1 0 0:9 / - nfs4 h:/x rw", ("/\0",))],
    ids=["the shortest line that names a place", "a line that names none"],
)
def test_network_mounts_of_odd_lines(case: Case, line: str, places: tuple[str, ...]) -> None:
    case.fake.write("50/mountinfo", f"{line}\n")
    assert network_mounts(case.proc, 50) == places


def test_network_mounts(case: Case) -> None:
    case.fake.write(
        "50/mountinfo",
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / /mnt/a\\040b rw - nfs4 h:/x rw\n"
        "3 1 0:8 / /f rw - fuse.sshfs h: rw\n",
    )
    assert network_mounts(case.proc, 50) == ("/mnt/a b", "/f")


def test_memory_that_is_shared_without_a_file_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only by the number of the kernel's own file system: a node can be made, mapped and deleted as /dev/zero too."""
    number = memory_number()
    assert number
    matcher = NodeMatcher(NodeSet(), Proc())
    asked: list[str] = []
    monkeypatch.setattr(os, "stat", lambda path, **dummy: asked.append(os.fspath(path)) or os.lstat("/dev/null"))
    area = "7f0000000000-7f0000001000"
    for where, expected in ((number.decode(), 0), ("00:99 ", 1)):
        line = f"{area} rw-s 00000000 {where}77                     /dev/zero (deleted)\n"
        assert list(matcher.mappings(line.encode(), os.getpid(), None, ())) == []
        assert len(asked) == expected


def test_memory_that_is_shared_hides_no_node_after_it(case: Case) -> None:
    number = memory_number()
    assert number
    matcher = NodeMatcher(find_nodes([str(case.dev / "nvidia*")], None, case.proc), Proc())
    memory = f"7f0000000000-7f0000001000 rw-s 00000000 {number.decode()}77                     /dev/zero (deleted)"
    maps = "\n".join([memory, case.line("nvidia1")]).encode() + b"\n"
    found = list(matcher.mappings(maps, os.getpid(), None, ()))
    assert found == [Hold(str(case.dev / "nvidia1"), "gpu", 1, "map")]


def test_without_a_process_table_the_number_of_memory_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_table(self: Proc, path: str) -> bytes:
        raise OSError("no /proc here")

    monkeypatch.setattr(Proc, "read", no_table)
    assert memory_number() is None


def test_the_number_of_memory_is_that_of_this_kernel() -> None:
    with mmap.mmap(-1, mmap.PAGESIZE):
        lines = pathlib.Path("/proc/self/maps").read_bytes().splitlines()
    numbers = {line.split()[3] for line in lines if line.endswith(b" /dev/zero (deleted)")}
    assert numbers == {(memory_number() or b"").rstrip()}
