# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose word the name of a program is: root's, or that of anybody who can copy a file."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._trusted_program import program_path, trusted_program
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc

PID = 50
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


class Node:
    """One process that runs a program in a folder of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.fake = FakeProc(folder / "proc")
        self.bin = folder / "bin"
        self.bin.mkdir(mode=0o755)
        self.program = self.bin / "nv-hostengine"
        self.program.touch(0o755)
        self.fake.add(PID, exe=str(self.program))

    def trusted(self, exe: str | None = "", tid: int | None = None) -> str | None:
        return trusted_program(Proc(self.fake.root), PID, tid, str(self.program) if exe == "" else exe)

    def in_user_namespace(self, name: str, place: str = str(PID)) -> None:
        link = self.fake.path / place / "ns/user"
        link.unlink()
        link.symlink_to(name)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_a_program_that_only_we_can_write_has_its_name(node: Node) -> None:
    assert node.trusted() == "nv-hostengine"
    assert node.trusted(tid=PID) == "nv-hostengine"


def test_one_that_was_replaced_by_an_upgrade_keeps_its_name(node: Node) -> None:
    assert program_path("/usr/bin/x (deleted)") == "/usr/bin/x"
    assert program_path("/usr/bin/x") == "/usr/bin/x"
    assert node.trusted(f"{node.program} (deleted)") == "nv-hostengine"


def test_one_that_cannot_be_seen_has_none(node: Node) -> None:
    assert node.trusted(None) is None


@pytest.mark.parametrize("what", ["program", "bin"])
@pytest.mark.parametrize(("mode", "name"), [(0o757, None), (0o755, "nv-hostengine")])
def test_neither_the_file_nor_its_folder_may_be_writable_by_everybody(
    node: Node, what: str, mode: int, name: str | None
) -> None:
    getattr(node, what).chmod(mode)
    assert node.trusted() == name


@root_only
@pytest.mark.parametrize("what", ["program", "bin"])
@pytest.mark.parametrize(("group", "name"), [(0, "nv-hostengine"), (1, None), (4711, None)])
def test_a_group_that_may_write_must_be_roots(node: Node, what: str, group: int, name: str | None) -> None:
    path = getattr(node, what)
    os.chown(path, 0, group)
    path.chmod(0o775)
    assert node.trusted() == name


@root_only
@pytest.mark.parametrize("what", ["program", "bin"])
@pytest.mark.parametrize("owner", [1, 4711])
def test_an_owner_who_is_not_root_can_exchange_it_at_any_time(node: Node, what: str, owner: int) -> None:
    os.chown(getattr(node, what), owner, 0)
    assert node.trusted() is None


@root_only
@pytest.mark.parametrize(("owner", "name"), [(0, "nv-hostengine"), (4711, "nv-hostengine"), (4712, None)])
def test_whoever_is_not_root_trusts_root_and_himself(
    node: Node, monkeypatch: pytest.MonkeyPatch, owner: int, name: str | None
) -> None:
    for path in (node.program, node.bin):
        os.chown(path, owner, 0)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert node.trusted() == name


def test_in_a_user_namespace_of_his_own_anybody_can_mount_a_file_over_another(node: Node) -> None:
    node.in_user_namespace("user:[2]")
    assert node.trusted() is None
    node.in_user_namespace("user:[2]", "900")
    assert node.trusted() == "nv-hostengine", "this module lives there too"


@pytest.mark.parametrize("part", ["exe", "ns/user", "root"])
def test_what_cannot_be_looked_at_is_not_trusted(node: Node, part: str) -> None:
    (node.fake.path / str(PID) / part).unlink()
    assert node.trusted() is None


def test_the_folder_is_that_of_the_processs_own_root(node: Node, tmp_path: pathlib.Path) -> None:
    """A container's /usr/bin is not this machine's."""
    inside = tmp_path / "inside"
    (inside / str(node.bin).lstrip("/")).mkdir(parents=True)
    (inside / str(node.bin).lstrip("/")).chmod(0o777)
    link = node.fake.path / str(PID) / "root"
    link.unlink()
    link.symlink_to(inside)
    assert node.trusted() is None


def test_names_are_told_by_the_path_and_not_by_what_the_process_calls_itself(tmp_path: pathlib.Path) -> None:
    fake = FakeProc(tmp_path / "proc")
    fake.add(PID, comm="nv-hostengine", exe="/usr/bin/python3")
    found: t.Any = trusted_program(Proc(fake.root), PID, None, "/usr/bin/python3")
    assert found in ("python3", None)
