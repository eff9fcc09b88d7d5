# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locks that exclude a second server, with real processes and the real flock."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _gpu_locks
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_locks import LockRefused, gpu_locks, locking_command
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import UUIDS

FLOCK = shutil.which("flock") or ""
LEFT, RIGHT = UUIDS[:4], UUIDS[4:]
SERVER = [sys.executable, "-c", "print('serves', flush=True); import sys; sys.stdin.read()"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> str:
    path = str(tmp_path / "gpus")
    for uuids in ((), LEFT, RIGHT):
        _gpu_locks.prepare(gpu_locks(path, uuids))
    return path


class Servers:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []

    def start(self, uuids: t.Sequence[str] = ()) -> subprocess.Popen[str] | int:
        """The running server, or the exit status of one that did not come up."""
        command = locking_command(FLOCK, gpu_locks(self.folder, uuids)) + SERVER
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.running.append(process)
        assert process.stdout is not None
        return process if process.stdout.readline() else process.wait(timeout=30)


@pytest.fixture
def servers(folder: str) -> t.Iterator[Servers]:
    if not FLOCK:
        pytest.skip("flock of util-linux is not installed")
    made = Servers(folder)
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


def held(folder: str, uuids: t.Sequence[str] = ()) -> str | None:
    return _gpu_locks.held_by(gpu_locks(folder, uuids), lambda seconds: None)


def test_the_second_server_ends_with_75_and_the_first_keeps_its_pid(servers: Servers) -> None:
    first = servers.start()
    assert isinstance(first, subprocess.Popen)
    assert pathlib.Path(f"/proc/{first.pid}/cmdline").read_text().startswith(sys.executable), "flock became the server"
    assert servers.start() == 75


def test_kill_9_frees_the_lock(servers: Servers, folder: str) -> None:
    first = servers.start()
    assert isinstance(first, subprocess.Popen)
    assert held(folder) is not None
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=30)
    assert held(folder) is None
    assert isinstance(servers.start(), subprocess.Popen)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (LEFT, RIGHT, True),
        (LEFT, LEFT, False),
        (LEFT, (RIGHT[0], LEFT[0]), False),
        (LEFT, (), False),
        ((), RIGHT, False),
    ],
)
def test_who_can_serve_beside_whom(
    servers: Servers, folder: str, first: t.Sequence[str], second: t.Sequence[str], together: bool
) -> None:
    assert isinstance(servers.start(first), subprocess.Popen)
    assert (held(folder, second) is None) == together, "the guard sees it coming"
    assert isinstance(servers.start(second), subprocess.Popen) == together


def test_every_server_takes_its_locks_in_one_order(folder: str) -> None:
    assert gpu_locks(folder, (UUIDS[3], UUIDS[1].upper())) == gpu_locks(folder, (UUIDS[1], UUIDS[3]))


def test_the_owner_of_a_lock_is_named(servers: Servers, folder: str) -> None:
    first = servers.start(LEFT)
    assert isinstance(first, subprocess.Popen)
    said = held(folder)
    assert said is not None
    assert said.startswith(f"{folder}/all.lock is locked by pid {first.pid} (")


def test_a_lock_for_an_instant_is_not_taken_for_a_server(folder: str) -> None:
    locks = gpu_locks(folder, ())
    with open(locks[0].path, encoding="ascii") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        released = []

        def sleep(seconds: float) -> None:
            released.append(seconds)
            fcntl.flock(other, fcntl.LOCK_UN)

        assert _gpu_locks.held_by(locks, sleep) is None
        assert released


def test_the_files_can_be_read_by_the_server_and_changed_by_nobody(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o077)
    try:
        _gpu_locks.prepare(gpu_locks(str(tmp_path / "gpus"), LEFT))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "gpus").stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "gpus").iterdir()} == {0o644}
    assert len(list((tmp_path / "gpus").iterdir())) == 5


def test_a_folder_in_which_others_may_write_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus").chmod(0o777)
    with pytest.raises(LockRefused, match=r"others may write in it \(mode 0777\)"):
        _gpu_locks.prepare(gpu_locks(str(tmp_path / "gpus"), ()))


@pytest.mark.parametrize("what", ["link", "fifo"])
def test_what_is_no_plain_file_is_refused(folder: str, tmp_path: pathlib.Path, what: str) -> None:
    path = gpu_locks(folder, ())[0].path
    os.unlink(path)
    if what == "link":
        os.symlink(tmp_path / "elsewhere", path)
    else:
        os.mkfifo(path)
    began = time.monotonic()
    with pytest.raises(LockRefused, match=r"cannot use the lock file .*all.lock: it is (a symbolic link|no regular)"):
        _gpu_locks.prepare(gpu_locks(folder, ()))
    assert time.monotonic() - began < 5


def test_only_a_uuid_becomes_a_file(folder: str) -> None:
    with pytest.raises(ValueError, match="is no GPU UUID"):
        gpu_locks(folder, ["../../etc/passwd"])


def test_a_lock_that_stays_taken_is_tried_three_times_a_fifth_of_a_second_apart(folder: str) -> None:
    locks = gpu_locks(folder, ())
    slept: list[float] = []
    with open(locks[0].path, encoding="ascii") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert _gpu_locks.held_by(locks, slept.append) is not None
    assert slept == [0.2, 0.2]


def test_the_owner_comes_from_the_kernels_list_of_locks(folder: str, tmp_path: pathlib.Path) -> None:
    locks = gpu_locks(folder, ())
    inode, proc = os.stat(locks[0].path).st_ino, tmp_path / "proc"
    for pid, comm in ((4711, "sglang"), (4713, "other"), (4714, "posix"), (4715, "waits")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / f"{pid}/comm").write_text(f"{comm}\n")
    (proc / "locks").write_text(
        "1: FLOCK\n"
        f"2: FLOCK ADVISORY WRITE 4713 00:1a:{inode + 1} 0 EOF\n"
        f"3: POSIX ADVISORY WRITE 4714 00:1a:{inode} 0 EOF\n"
        f"4: FLOCK ADVISORY WRITE 4711 00:1a:{inode} 0 EOF\n"
        f"4: -> FLOCK ADVISORY WRITE 4715 00:1a:{inode} 0 EOF\n"
        f"5: FLOCK ADVISORY READ 4712 00:1a:{inode}\n"
    )
    with open(locks[0].path, encoding="ascii") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        said = _gpu_locks.held_by(locks, lambda seconds: None, str(proc))
        unseen = _gpu_locks.held_by(locks, lambda seconds: None, str(tmp_path / "none"))
    assert said == f"{locks[0].path} is locked by pid 4711 (sglang), pid 4712"
    assert unseen is not None
    assert unseen.endswith("a process that cannot be seen from here (another container that shares these GPUs?)")


def test_preparing_again_leaves_no_file_open(folder: str) -> None:
    locks = gpu_locks(folder, LEFT)
    before = len(os.listdir("/proc/self/fd"))
    _gpu_locks.prepare(locks)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        LockRefused, match=r"cannot make the folder .*/file/gpus for the locks of GPUs: Not a directory"
    ):
        _gpu_locks.prepare(gpu_locks(str(tmp_path / "file/gpus"), ()))


def test_a_file_that_cannot_be_made_is_told_with_what_to_do(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*given: t.Any, **named: t.Any) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(LockRefused, match=r"Read-only file system.*touch all\.lock in that folder"):
        _gpu_locks.prepare(gpu_locks(folder, ()))


def rights(path: str) -> list[tuple[int, int]]:
    return [
        (found.st_gid, stat.S_IMODE(found.st_mode))
        for found in (os.stat(os.path.join(path, name)) for name in sorted(os.listdir(path)))
    ]


def test_nobody_but_the_service_users_group_can_lock(tmp_path: pathlib.Path) -> None:
    """Whoever may read a lock file may hold the lock, and would get it in the instant in which a server stops."""
    path, mine = str(tmp_path / "gpus"), os.getgid()
    for dummy in range(2):
        _gpu_locks.prepare(gpu_locks(path, LEFT), mine)
        assert set(rights(path)) == {(mine, 0o640)}
    os.chmod(gpu_locks(path, LEFT)[0].path, 0o600)
    _gpu_locks.prepare(gpu_locks(path, LEFT), mine)
    assert set(rights(path)) == {(mine, 0o640)}, "closed to the server itself"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_a_lock_of_another_user_stays_that_users(tmp_path: pathlib.Path) -> None:
    path = gpu_locks(str(tmp_path / "gpus"), ())[0].path
    _gpu_locks.prepare(gpu_locks(str(tmp_path / "gpus"), ()))
    os.chown(path, 4710, 0)
    _gpu_locks.prepare(gpu_locks(str(tmp_path / "gpus"), ()), 4711)
    assert (os.stat(path).st_uid, os.stat(path).st_gid) == (4710, 4711)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other groups")
def test_servers_of_two_groups_on_shared_gpus_can_both_lock(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "gpus")
    _gpu_locks.prepare(gpu_locks(path, ()))
    assert rights(path) == [(0, 0o644)], "as earlier versions left them"
    _gpu_locks.prepare(gpu_locks(path, ()), 4711)
    assert rights(path) == [(4711, 0o640)]
    _gpu_locks.prepare(gpu_locks(path, ()), 0)
    assert rights(path) == [(4711, 0o640)], "root can read it anyway"
    for group in (4712, 4711, 4712):
        _gpu_locks.prepare(gpu_locks(path, ()), group)
        assert rights(path) == [(4711, 0o644)]
