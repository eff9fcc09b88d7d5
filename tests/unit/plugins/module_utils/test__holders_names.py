# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names that anybody could give himself: a unit's, a daemon's."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.holders_world import OWN, SERVICE, Node


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_servers_of_two_users_and_of_root_under_one_name(node: Node) -> None:
    """Each is ended by whoever asks the systemd that has it, with its left-overs, and by nobody else."""
    me, other = os.geteuid(), os.geteuid() + 1
    mine, theirs = (
        f"0::/user.slice/user-{uid}.slice/user@{uid}.service/app.slice/sglang.service" for uid in (me, other)
    )
    for pid, group in ((50, SERVICE), (60, mine), (70, theirs)):
        node.fake.add(pid, maps=[node.gpu], cgroup=group)
        node.fake.add(pid + 1, ppid=pid, maps=[node.gpu], cgroup=group)
    for scope in (OWN, Scope("unit", units=("sglang.service",))):
        for node.systemd_scope, ours in (("system", 50), ("user", 60)):
            node.states["sglang.service"] = True
            targets = {pid for pid, disposition in node.dispositions(scope).items() if disposition == "target"}
            assert targets == {ours, ours + 1}, (scope.name, node.systemd_scope)


def test_a_copy_of_an_interpreter_under_a_daemons_name(node: Node, tmp_path: pathlib.Path) -> None:
    """In a folder in which others may write, as a home of bob's is to root."""
    place = tmp_path / "home"
    place.mkdir()
    shutil.copy(sys.executable, place / "nvidia-persistenced")
    node.fake.add(50, maps=[node.gpu], exe=str(place / "nvidia-persistenced"))
    place.chmod(0o755)
    assert node.dispositions() == {50: "protected"}
    place.chmod(0o777)
    assert node.dispositions() == {50: "target"}
    place.chmod(0o755)
    (place / "nvidia-persistenced").chmod(0o757)
    assert node.dispositions() == {50: "target"}
    (place / "nvidia-persistenced").chmod(0o755)
    (node.fake.path / "50/ns/user").unlink()
    (node.fake.path / "50/ns/user").symlink_to("user:[2]")
    assert node.dispositions() == {50: "target"}, "in a user namespace of its own anything can be mounted anywhere"


def test_a_glob_that_leads_to_no_gpu_shows_nobody_and_is_no_complete_look(node: Node) -> None:
    node.fake.add(50, maps=[node.gpu], cgroup=SERVICE)
    assert node.look().complete
    node.glob = str(node.control)
    scan = node.look()
    assert not scan.complete
    assert "no node of a GPU" in scan.incomplete_reason
