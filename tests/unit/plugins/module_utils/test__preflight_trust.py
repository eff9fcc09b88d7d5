# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whoever can change what root starts with is root."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Check
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_trust import root_paths
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.launch_world import LaunchWorld

BOB = 4711
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


def look(world: LaunchWorld, **about: t.Any) -> Check:
    return root_paths(dataclasses.replace(world.context(**about), own_uid=0))


@pytest.fixture
def world(tmp_path: pathlib.Path) -> LaunchWorld:
    return LaunchWorld(tmp_path)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "etc" / "sglang"
    folder.mkdir(parents=True)
    (folder / "secret.env").write_text("HF_TOKEN=x\n")
    return folder


def test_what_is_not_asked_is_no_pass(world: LaunchWorld) -> None:
    assert look(world).ok is None
    assert root_paths(world.node.context()).ok is None
    asked = world.context(root_files=("/etc/passwd",))
    assert root_paths(dataclasses.replace(asked, own_uid=1000)).ok is None


@AS_ROOT
def test_files_of_root_in_folders_of_root_pass(world: LaunchWorld, place: pathlib.Path) -> None:
    found = look(world, root_files=(str(place / "secret.env"), "/bin/sh"), root_folders=(str(place / "not" / "yet"),))
    assert found.ok is True, found.detail


@AS_ROOT
@pytest.mark.parametrize("way", ["file", "folder", "above", "mode", "group", "target", "link"])
def test_a_part_that_somebody_else_can_change_is_named(world: LaunchWorld, place: pathlib.Path, way: str) -> None:
    path = place / "secret.env"
    weak = {"file": path, "folder": place, "above": place.parent, "mode": place, "group": path}.get(way)
    if way in ("target", "link"):
        other = place.parent / "bob"
        other.mkdir()
        (other / "real.env").write_text("")
        weak = other
        if way == "target":  # a link of root's into a folder of bob's
            path.unlink()
            path.symlink_to(other / "real.env")
        else:  # a link of bob's to a file of root's
            path = other / "link.env"
            path.symlink_to(place / "secret.env")
    assert weak is not None
    if way in ("mode", "group"):
        weak.chmod(0o757 if way == "mode" else 0o620)
    else:
        os.chown(weak, BOB, BOB)
    found = look(world, root_files=(str(path),))
    assert found.ok is False
    assert str(weak) in found.detail
    assert "chown root" in found.cure


@AS_ROOT
def test_a_missing_file_would_keep_the_unit_down(world: LaunchWorld, place: pathlib.Path) -> None:
    found = look(world, root_files=(str(place / "none.env"),))
    assert found.ok is False
    assert "none.env does not exist" in found.detail


@AS_ROOT
def test_a_place_below_a_folder_of_the_service_user_is_refused_before_it_is_made(
    world: LaunchWorld, place: pathlib.Path
) -> None:
    os.chown(place, BOB, BOB)
    found = look(world, root_folders=(str(place / "log" / "deep"),))
    assert found.ok is False
    assert f"{place} belongs to uid {BOB}" in found.detail
