# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import errno
import os
import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _preflight_room
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_room import (
    SHARED,
    Room,
    disk_space,
    room_of,
    shared_memory,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.launch_world import LaunchWorld

GOOD = Room("/var/log/sglang", 5000, 100_000, False)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> LaunchWorld:
    return LaunchWorld(tmp_path)


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (GOOD, ""),
        (Room("/var/log/sglang", 5000, None, False), ""),
        (Room("/var/log/sglang", 1024, 1000, False), ""),
        (Room("/var/log/sglang", 1023, 100_000, False), "/var/log/sglang has 1023 MiB left, at least 1024 are wanted"),
        (Room("/var/log", 10, 100_000, False), "/var/log/sglang (on /var/log) has 10 MiB left"),
        (Room("/var/log/sglang", 5000, 999, False), "/var/log/sglang has 999 inodes left, at least 1000"),
        (Room("/var/log/sglang", 5000, 5000, True), "/var/log/sglang is on a read-only file system"),
    ],
)
def test_disk_space(room: Room, words: str, world: LaunchWorld) -> None:
    context = world.context(folders=("/var/log/sglang",), min_free_mib=1024)
    found = disk_space(context, look=lambda folder: room)
    assert found.ok is not bool(words), found
    assert words in found.detail
    assert bool(found.cure) is bool(words)


def test_every_folder_is_looked_at(world: LaunchWorld) -> None:
    def look(folder: str) -> Room:
        if folder == "/c":
            raise OSError(errno.EIO, "Input/output error")
        return Room(folder, 5 if folder == "/b" else 5000, None, False)

    found = disk_space(world.context(folders=("/a", "/b", "/c", "/b"), min_free_mib=10), look=look)
    assert found.ok is False
    assert found.detail == "/c cannot be looked at (Input/output error); /b has 5 MiB left, at least 10 are wanted"


@pytest.mark.parametrize(
    ("files", "inodes", "flags", "room"),
    [
        (1000, 500, 0, Room("FOLDER", 3, 500, False)),
        (0, 0, 0, Room("FOLDER", 3, None, False)),
        (1000, 500, os.ST_RDONLY | os.ST_NOSUID, Room("FOLDER", 3, 500, True)),
        (1000, 500, os.ST_NOSUID, Room("FOLDER", 3, 500, False)),
    ],
)
def test_room_as_the_file_system_tells_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, files: int, inodes: int, flags: int, room: Room
) -> None:
    """For who is not root; in MiB, the piece that is not whole left out."""
    blocks = (4 * 2**20 - 1) // 512
    found = os.statvfs_result((4096, 512, 10**9, 10**9, blocks, files, 10**6, inodes, flags, 255))
    monkeypatch.setattr(os, "statvfs", lambda folder: found)
    assert room_of(str(tmp_path / "not" / "yet")) == dataclasses.replace(room, folder=str(tmp_path))


@pytest.mark.parametrize(
    ("answered", "error", "words"),
    [
        (0, "", "/a did not answer within 2 s"),
        (1, "", "/b did not answer within 2 s"),
        (2, "", "/c did not answer within 2 s"),
        (3, "", "/c did not answer within 2 s"),
        (1, "no more processes", "/b no more processes"),
    ],
)
def test_which_mount_does_not_answer(
    world: LaunchWorld, monkeypatch: pytest.MonkeyPatch, answered: int, error: str, words: str
) -> None:
    asked: list[tuple[float, float]] = []

    def collect(produce: t.Any, *, deadline: float, stall: float, clock: Clock) -> t.Any:
        asked.append((deadline - clock.monotonic(), stall))
        items = tuple((folder, GOOD, "") for folder in ("/a", "/b", "/c")[:answered])
        return types.SimpleNamespace(items=items, finished=False, error=error)

    monkeypatch.setattr(_preflight_room, "collect", collect)
    context = dataclasses.replace(world.context(folders=("/a", "/b", "/c")), timeout=2.0)
    found = disk_space(context)
    assert (found.ok, found.detail) == (False, words)
    assert asked == [(pytest.approx(6.0, abs=1.0), 2.0)]


def test_an_error_without_words_of_the_system_is_told_too(world: LaunchWorld) -> None:
    def look(folder: str) -> Room:
        raise OSError("odd")

    found = disk_space(world.context(folders=("/a",)), look=look)
    assert found.detail == "/a cannot be looked at (odd)"


@pytest.mark.parametrize(("free", "ok"), [(1023, False), (1024, True)])
def test_as_much_shared_memory_as_is_wanted_is_enough(world: LaunchWorld, free: int, ok: bool) -> None:
    room = Room(SHARED, free, None, False)
    assert shared_memory(world.context(min_shm_mib=1024), look=lambda folder: room).ok is ok


def test_a_mount_that_does_not_answer(world: LaunchWorld) -> None:
    def look(folder: str) -> Room:
        if folder == "/b":
            time.sleep(60)
        return GOOD

    context = dataclasses.replace(world.context(folders=("/a", "/b")), timeout=0.5)
    found = disk_space(context, look=look)
    assert found.ok is False
    assert found.detail == "/b did not answer within 0.5 s"


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (Room(SHARED, 2048, None, False), ""),
        (Room(SHARED, 64, None, False), "/dev/shm has 64 MiB left, at least 1024 MiB are wanted"),
        (Room(SHARED, 2048, None, True), "/dev/shm is read-only"),
        (Room("/dev", 2048, None, False), "/dev/shm is not there"),
    ],
)
def test_shared_memory(room: Room, words: str, world: LaunchWorld) -> None:
    found = shared_memory(world.context(min_shm_mib=1024), look=lambda folder: room)
    assert found.ok is not bool(words), found
    assert words in found.detail


@pytest.mark.parametrize("check", [disk_space, shared_memory])
def test_without_a_profile(check: t.Callable[..., t.Any], world: LaunchWorld) -> None:
    assert check(world.node.context()).ok is None


def test_no_folder(world: LaunchWorld) -> None:
    assert disk_space(world.context()).ok is None


def test_the_nearest_folder_that_is_there(tmp_path: pathlib.Path) -> None:
    found = room_of(str(tmp_path / "not" / "yet"))
    assert found.folder == str(tmp_path)
    assert found.free_mib > 0
    assert not found.read_only
