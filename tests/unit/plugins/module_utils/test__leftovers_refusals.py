# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands against removing a leftover, told by what it is; and how far the search goes."""

from __future__ import annotations

import errno
import os
import pathlib
import socket
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _leftovers
from ansible_collections.cleanslate.gpu.plugins.module_utils._leftovers import Search, Swept, find, sweep
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils import leftovers_world

MIB = 1 << 20
ME = os.getuid()
SERVER = ("python", "-m", "sglang.launch_server")


class Node(leftovers_world.Node):
    """Its files are empty, and of this moment."""

    def file(self, path: pathlib.Path, size: int = 0, made: int | None = None) -> pathlib.Path:
        return super().file(path, size, made)

    def dead_socket(self, name: str) -> pathlib.Path:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(self.tmp / name))
        return self.tmp / name


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose kernel cannot tell who has a file open."""
    monkeypatch.setattr(_leftovers, "_lease", lambda file: errno.EINVAL)


def between(monkeypatch: pytest.MonkeyPatch, happens: t.Callable[[], object]) -> None:
    """Something happens after the look at the processes and before a file is removed."""
    look = _leftovers.who_holds

    def and_then(*given: t.Any, **named: t.Any) -> t.Any:
        found = look(*given, **named)
        happens()
        return found

    monkeypatch.setattr(_leftovers, "who_holds", and_then)


def reasons(swept: Swept) -> dict[str, str]:
    return {os.path.basename(item.path): item.reason for item in swept.items}


@pytest.mark.parametrize(("count", "end"), [(4, "mapped) (4.0 MiB)."), (5, "mapped); and 1 more (5.0 MiB).")])
def test_how_much_was_removed_is_told_and_four_are_named(node: Node, count: int, end: str) -> None:
    for number in range(count):
        node.file(node.shm / f"nccl-{number}", MIB)
    said = node.sweep_faked().message
    assert said.startswith(f"Removed {count} leftovers of an earlier server: {node.shm}/nccl-0 (no process has it")
    assert said.endswith(end)
    assert said.count("nccl-") == 4


def test_what_would_go_and_what_stays_are_told_apart(node: Node) -> None:
    free, held = node.file(node.shm / "nccl-AAA", 9), node.file(node.shm / "nccl-BBB", 9)
    node.fake.add(50, comm="server", opens=[held])
    said = find(node.search, proc_root=node.fake.root).message
    assert said == (
        f"Would remove 1 leftover of an earlier server: {free} (no process has it open or mapped)."
        f" Left alone 1 leftover of an earlier server: {held} (pid 50 (server) has it open)."
    )


@pytest.mark.parametrize(("later", "stays"), [(-30.0, True), (0.5, True), (1.5, False), (30.0, False)], ids=str)
def test_a_maker_that_is_younger_than_the_file_did_not_make_it(node: Node, later: float, stays: bool) -> None:
    """later: how long after the file the process began. Both times are rounded, so a second is forgiven."""
    made = time.time() - 100
    began = time.clock_gettime(time.CLOCK_BOOTTIME) - 100 + later
    node.fake.add(50, argv=SERVER, uid=ME, start=int(began * os.sysconf("SC_CLK_TCK")))
    lock = node.file(node.cache / "x/lock")
    os.utime(lock, (made, made))
    assert node.sweep_faked().removed == () if stays else node.sweep_faked().kept == ()
    assert lock.exists() is stays


@pytest.mark.usefixtures("no_lease")
class TestSomebodyCannotBeLookedAt:
    """Where the kernel cannot be asked, somebody whose files could not be read may have it open."""

    def unseen(self, node: Node, pid: int, uid: int | None) -> None:
        if pid != 1:
            node.fake.add(pid, comm="server", uid=uid or 0)
        node.fake.make_unreadable(pid)
        if uid is None:
            node.fake.make_unreadable(pid, "status")

    @pytest.mark.parametrize(
        ("pid", "uid", "stays"),
        [
            pytest.param(50, ME, True, id="of the same user"),
            pytest.param(2, ME, True, id="of the same user, with PID 2"),
            pytest.param(50, None, True, id="of nobody knows whom"),
            pytest.param(50, ME + 4711, False, id="of another user"),
            pytest.param(1, ME, False, id="an init, which is no server"),
        ],
    )
    def test_whose_files_count(self, node: Node, pid: int, uid: int | None, stays: bool) -> None:
        self.unseen(node, pid, uid)
        node.file(node.shm / "nccl-AAA", 9)
        swept = node.sweep_faked()
        assert [item.removed for item in swept.items] == [not stays]
        assert not stays or f"the files of pid {pid} (server) could not be read (" in swept.items[0].reason

    @pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
    def test_root_may_have_a_users_file_open_but_binds_no_socket_of_that_user(self, node: Node) -> None:
        self.unseen(node, 50, 0)
        shared, bound = node.file(node.shm / "nccl-AAA", 9), node.dead_socket("tmpdead0000")
        for path in (shared, bound):
            os.chown(path, 4711, 4711)
        swept = sweep(Search(4711, str(node.shm), str(node.tmp)), proc_root=node.fake.root)
        assert {os.path.basename(item.path): item.removed for item in swept.items} == {
            "nccl-AAA": False,
            "tmpdead0000": True,
        }

    def test_the_first_of_several_is_named(self, node: Node) -> None:
        for pid in (50, 51):
            self.unseen(node, pid, ME)
        node.file(node.shm / "nccl-AAA", 9)
        assert "the files of pid 50 " in reasons(node.sweep_faked())["nccl-AAA"]


def test_why_something_went_is_told(node: Node) -> None:
    node.file(node.shm / "nccl-AAA", 9)
    bound = node.dead_socket("tmpdead0000")
    os.utime(bound, (1e9, 1e9))
    assert reasons(node.sweep_faked()) == {
        "nccl-AAA": "no process has it open or mapped",
        "tmpdead0000": "no process listens there",
    }


def test_a_socket_that_took_the_place_of_another_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    path = node.dead_socket("tmpdead0000")
    fresh = node.dead_socket("fresh")
    between(monkeypatch, lambda: fresh.rename(path))
    swept = node.sweep_faked()
    assert [(item.stale, item.removed, item.reason) for item in swept.items] == [(False, False, _leftovers._REPLACED)]
    assert path.exists()


def test_a_file_whose_mode_was_changed_meanwhile_is_somebodys(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    path = node.file(node.shm / "nccl-AAA", 9)
    between(monkeypatch, lambda: path.chmod(0o600 if path.stat().st_mode & 0o077 else 0o644))
    assert [(item.stale, item.removed) for item in node.sweep_faked().items] == [(False, False)]
    assert path.exists()


def test_what_has_gone_by_itself_was_not_removed_here(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    path = node.file(node.shm / "nccl-AAA", 9)
    between(monkeypatch, path.unlink)
    (item,) = node.sweep_faked().items
    assert (item.stale, item.removed, item.reason) == (False, False, "it has gone by itself meanwhile")


def test_what_cannot_be_removed_is_told_with_the_kernels_words(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.file(node.shm / "nccl-AAA", 9)

    def refused(*given: t.Any, **named: t.Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(_leftovers.os, "unlink", refused)
    (item,) = node.sweep_faked().items
    assert (item.stale, item.removed, item.reason) == (False, False, "Operation not permitted")


def test_the_search_goes_eight_folders_deep(node: Node) -> None:
    eight = node.cache.joinpath(*"12345678")
    near, far = node.file(eight / "lock"), node.file(eight / "9" / "lock")
    node.sweep_faked()
    assert (near.exists(), far.exists()) == (False, True)


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (("lock", "a"), True),
        (("lock", "a", "b"), True),
        (("lock", "a", "b", "c"), False),
        (("1/", "2/", "3/", "4/"), False),
    ],
)
def test_a_search_that_would_never_end_says_how_far_it_came(
    node: Node, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], whole: bool
) -> None:
    monkeypatch.setattr(_leftovers, "_MOST_ENTRIES", 3)
    for name in names:
        (node.cache / name).mkdir() if name.endswith("/") else node.file(node.cache / name)
    problems = node.sweep_faked().problems
    assert [f"{node.cache} was not looked through to the end" in one for one in problems] == ([] if whole else [True])


def test_a_search_that_is_out_of_time_says_how_far_it_came(node: Node) -> None:
    node.file(node.cache / "lock")
    found = sweep(node.search, proc_root=node.fake.root, timeout=0.0)
    assert any("was not looked through to the end" in one for one in found.problems)


def test_a_cache_on_the_network_does_not_hide_one_that_is_here(node: Node) -> None:
    away, here = node.cache / "away", node.cache / "here"
    locks = [node.file(place / "lock") for place in (away, here)]
    node.fake.write("900/mountinfo", f"22 1 0:21 / {away} rw - nfs4 server:/cache rw\n")
    sweep(Search(ME, "", "", (str(away), str(here))), proc_root=node.fake.root)
    assert [lock.exists() for lock in locks] == [True, False]


def test_without_a_list_of_mounts_the_rest_is_still_swept(node: Node) -> None:
    (node.fake.path / "900/mountinfo").unlink()
    node.file(node.shm / "nccl-AAA", 9)
    assert [item.removed for item in node.sweep_faked().items] == [True]
