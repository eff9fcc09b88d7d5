# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import (
    Access,
    NodeSet,
    find_nodes,
    kind_by_name,
    kind_by_number,
    registered_majors,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import DeviceNode
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc, make_nodes

H200 = """Character devices:
  1 mem
195 nvidia
195 nvidiactl
238 nvidia-uvm
239 nvidia-nvswitch
241 nvidia-caps

Block devices:
 99 nvidia-block
"""


@pytest.fixture
def fake(tmp_path: pathlib.Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def test_majors_of_the_driver(fake: FakeProc) -> None:
    assert registered_majors(Proc(fake.root)) == {}
    fake.write("devices", H200)
    assert registered_majors(Proc(fake.root)) == {
        195: "nvidia",
        238: "nvidia-uvm",
        239: "nvidia-nvswitch",
        241: "nvidia-caps",
    }
    assert registered_majors(Proc("/nonexistent")) == {}


@pytest.mark.parametrize(
    ("major", "minor", "expected"),
    [
        (195, 0, ("gpu", 0)),
        (195, 247, ("gpu", 247)),
        (195, 248, ("other", None)),
        (195, 254, ("modeset", None)),
        (195, 255, ("control", None)),
        (238, 0, ("uvm", None)),
        (238, 1, ("uvm", None)),
        (239, 0, ("nvswitch", None)),
        (241, 1, ("caps", None)),
        (250, 0, ("other", None)),
    ],
)
def test_kind_by_number(major: int, minor: int, expected: tuple[str, int | None]) -> None:
    majors = {
        195: "nvidia-frontend",
        238: "nvidia-uvm",
        239: "nvidia-nvswitch",
        241: "nvidia-caps",
        250: "nvidia-nvlink",
    }
    assert kind_by_number(major, minor, majors) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/x/nvidia0", ("gpu", 0)),
        ("/x/nvidia12", ("gpu", 12)),
        ("/x/nvidiactl", ("control", None)),
        ("/x/nvidia-uvm", ("uvm", None)),
        ("/x/nvidia-uvm-tools", ("uvm", None)),
        ("/x/nvidia-caps/nvidia-cap1", ("caps", None)),
        ("/x/nvidia-caps-imex-channels/channel0", ("caps", None)),
        ("/x/nvidia-modeset", ("modeset", None)),
        ("/x/nvidia-nvswitchctl", ("nvswitch", None)),
        ("/x/nvidia0.bak", ("other", None)),
        ("/x/else", ("other", None)),
    ],
)
def test_kind_by_name(path: str, expected: tuple[str, int | None]) -> None:
    assert kind_by_name(path) == expected


def test_plain_files_outside_dev_are_nodes(fake: FakeProc, tmp_path: pathlib.Path) -> None:
    glob = make_nodes(tmp_path / "dev", ["nvidia0", "nvidiactl", "nvidia-caps/nvidia-cap1"])
    found = find_nodes([glob], None, Proc(fake.root))
    assert [(os.path.basename(node.path), node.kind, node.minor) for node in found.nodes] == [
        ("nvidia-cap1", "caps", None),
        ("nvidia0", "gpu", 0),
        ("nvidiactl", "control", None),
    ]
    assert found.only_files
    assert not found.stale
    assert not found.by_number


def test_a_plain_file_is_stale_where_any_glob_lies_in_dev(fake: FakeProc, tmp_path: pathlib.Path) -> None:
    glob = make_nodes(tmp_path / "dev", ["nvidia0"])
    for other in ("/dev/nvidia*", "/dev/../dev/nvidia9", "//dev/nvidia*"):
        found = find_nodes([glob, other], None, Proc(fake.root))
        assert not found.nodes
        assert [node.path for node in found.stale] == [str(tmp_path / "dev/nvidia0")]
        assert "plain file" in found.stale[0].reason


def test_other_majors_are_stale(fake: FakeProc) -> None:
    found = find_nodes(["/dev/null"], None, Proc(fake.root))
    assert not found.nodes
    assert "1:3" in found.stale[0].reason
    assert "no major" in found.stale[0].reason
    fake.write("devices", H200)
    assert "195, 238" in find_nodes(["/dev/null"], None, Proc(fake.root)).stale[0].reason
    assert "majors lists 4" in find_nodes(["/dev/null"], [4], Proc(fake.root)).stale[0].reason


def test_named_majors_take_their_kind_from_the_name(fake: FakeProc) -> None:
    (node,) = find_nodes(["/dev/null"], [1], Proc(fake.root)).nodes
    assert node.key == ("chr", 1, 3)
    assert node.kind == "other"


def test_links_folders_and_dead_links(fake: FakeProc, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "dev"
    make_nodes(folder, ["nvidia0"])
    (folder / "nvidia9").symlink_to("nvidia0")
    (folder / "nvidia-dead").symlink_to("nowhere")
    os.mkfifo(folder / "nvidia-pipe")
    (folder / "nvidia-caps").mkdir()
    found = find_nodes([str(folder / "nvidia*")], None, Proc(fake.root))
    assert [os.path.basename(node.path) for node in found.nodes] == ["nvidia0"]
    assert {os.path.basename(node.path) for node in found.stale} == {"nvidia9", "nvidia-dead", "nvidia-pipe"}


def test_the_way_to_a_node_is_the_one_behind_every_link(fake: FakeProc, tmp_path: pathlib.Path) -> None:
    """A link is open to all; who may pass is said by the folders behind it."""
    closed = tmp_path / "deep" / "closed"
    make_nodes(closed, ["nvidia0", "nvidia1"])
    (closed / "nvidia1").chmod(0o640)
    closed.chmod(0o700)
    (tmp_path / "dev").symlink_to(closed)
    (closed / "null").symlink_to("/dev/null")
    found = find_nodes([f"{tmp_path}/dev/nvidia*", f"{tmp_path}/dev/null"], [1], Proc(fake.root))
    first, second, device = found.ways
    assert first[:-1] == second[:-1]
    assert len(first) == len(closed.parts) + 1
    assert [step.mode for step in (*first[-2:], second[-1])] == [0o700, 0o644, 0o640]
    assert len(device) == 3
    assert device[-1].mode == stat.S_IMODE(os.stat("/dev/null").st_mode)


def test_every_device_of_the_driver_counts_with_the_default_only(fake: FakeProc) -> None:
    fake.write("devices", H200)
    proc = Proc(fake.root)
    assert find_nodes(["/dev/nvidia*"], None, proc).by_number
    assert not find_nodes(["/dev/nvidia0"], None, proc).by_number
    assert not find_nodes(["/dev/nvidia*"], [4], proc).by_number


@pytest.mark.parametrize(
    ("access", "uids", "gids", "expected"),
    [
        (Access(0o666, 0, 0), {1000}, {1000}, True),
        (Access(0o660, 0, 44), {1000}, {44}, True),
        (Access(0o660, 0, 44), {1000}, {1000}, False),
        (Access(0o600, 1000, 0), {1000}, set(), True),
        (Access(0o600, 0, 0), {1000}, set(), False),
        (Access(0o200, 1000, 0), {1000}, set(), True),
        (Access(0o660, 0, 44, open_to_all=True), {1000}, {1000}, True),
    ],
)
def test_access(access: Access, uids: set[int], gids: set[int], expected: bool) -> None:
    assert access.allows(uids, gids, 6) is expected


def nodes(kind: str, *way: Access) -> NodeSet:
    node = DeviceNode("/x/nvidia0", "gpu", ("chr", 4, 20) if kind == "chr" else ("file", 1, 2), 0)
    return NodeSet((node,), ways=(way,))


OPEN_FOLDER, SHUT_FOLDER = Access(0o755, 0, 0), Access(0o700, 1000, 1000)


@pytest.mark.parametrize(
    ("found", "uid", "expected"),
    [
        (nodes("chr", OPEN_FOLDER, Access(0o666, 0, 0)), 1000, True),
        (nodes("chr", OPEN_FOLDER, Access(0o600, 0, 0)), 1000, False),
        (nodes("chr", SHUT_FOLDER, Access(0o600, 1000, 0)), 0, True),  # root opens every real node
        (nodes("file", OPEN_FOLDER, SHUT_FOLDER, Access(0o644, 1000, 1000)), 0, False),
        (nodes("file", OPEN_FOLDER, SHUT_FOLDER, Access(0o644, 1000, 1000)), 1000, True),
        (nodes("file", OPEN_FOLDER, SHUT_FOLDER, Access(0o644, 1000, 1000)), 2000, False),
        (nodes("file", OPEN_FOLDER, Access(0o644, 1000, 1000)), 2000, True),
        (NodeSet(by_number=True), 1000, True),
    ],
)
def test_who_could_have_opened_a_node(found: NodeSet, uid: int, expected: bool) -> None:
    assert found.may_open({uid}, {uid}) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (nodes("chr", SHUT_FOLDER, Access(0o600, 1000, 0)), True),
        (nodes("file", OPEN_FOLDER, SHUT_FOLDER, Access(0o644, 1000, 1000)), False),
        (nodes("file", OPEN_FOLDER, Access(0o600, 1000, 1000)), False),
        (nodes("file", OPEN_FOLDER, Access(0o640, 1000, 1000)), True),
        (nodes("file", OPEN_FOLDER, Access(0o600, 2000, 2000)), True),
        (NodeSet(by_number=True), True),
    ],
)
def test_whether_anybody_else_could(found: NodeSet, expected: bool) -> None:
    assert found.may_be_opened_by_others(1000) is expected


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [(b"\0" * 4097, 0o755, "something in it"), (b"", 0o757, "others than root")],
)
def test_a_plain_file_that_could_be_of_use_stands_for_nothing(
    fake: FakeProc, tmp_path: pathlib.Path, content: bytes, mode: int, says: str
) -> None:
    """It may be a library that every process has mapped."""
    folder = tmp_path / "dev"
    make_nodes(folder, ["nvidia0"])
    (folder / "nvidia1").write_bytes(content)
    folder.chmod(mode)
    found = find_nodes([str(folder / "nvidia1")], None, Proc(fake.root))
    assert found.nodes == ()
    (stale,) = found.stale
    assert says in stale.reason
