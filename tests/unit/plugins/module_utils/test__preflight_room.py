# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import errno
import pathlib
import time
import typing as t

import pytest

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
