# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_driver import driver_match
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.preflight_node import PreflightNode

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (root@host)\nGCC version:  gcc 13\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Sat Feb 17 22:55:48 UTC 2024\nGCC version:  gcc 12\n"


@pytest.fixture
def node(tmp_path: pathlib.Path) -> PreflightNode:
    return PreflightNode(tmp_path)


def library(folder: pathlib.Path, name: str, version: str) -> str:
    """A library as its package leaves it: the file with its version, and the loader's link to it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.so.{version}").write_text("")
    (folder / f"{name}.so.1").symlink_to(f"{name}.so.{version}")
    return str(folder / f"{name}.so.1")


@pytest.mark.parametrize("text", [OPEN, CLOSED])
@pytest.mark.parametrize(("version", "ok"), [("595.71.05", True), ("595.71", False), ("580.159.04", False)])
def test_both_sides(node: PreflightNode, tmp_path: pathlib.Path, text: str, version: str, ok: bool) -> None:
    node.write("driver/nvidia/version", text.format("595.71.05"))
    path = library(tmp_path / "lib64", "libnvidia-ml", version)
    node.loader = f"2 libs found in cache\n\tlibnvidia-ml.so.1 (libc6,x86-64) => {path}\n"
    check = driver_match(node.context(), folders=())
    assert check.ok is ok
    if ok:
        assert check.detail == "kernel module and libnvidia-ml.so.595.71.05 are both 595.71.05"
    else:
        real = str(tmp_path / f"lib64/libnvidia-ml.so.{version}")
        assert check.detail == f"the kernel module is 595.71.05, but the library {real} is {version}"
        assert "in a container the driver's libraries of the version that its host runs" in check.cure
        assert "reboot" in check.cure


def test_the_loader_takes_what_is_wide_enough(node: PreflightNode, tmp_path: pathlib.Path) -> None:
    node.write("driver/nvidia/version", OPEN.format("595.71.05"))
    old = library(tmp_path / "lib32", "libnvidia-ml", "470.1.2")
    new = library(tmp_path / "lib64", "libnvidia-ml", "595.71.05")
    node.loader = f"\tlibnvidia-ml.so.1 (libc6) => {old}\n\tlibnvidia-ml.so.1 (libc6,x86-64) => {new}\n"
    assert driver_match(node.context(), folders=()).ok is True


def test_without_the_loader_the_usual_folders(node: PreflightNode, tmp_path: pathlib.Path) -> None:
    node.write("driver/nvidia/version", OPEN.format("595.71.05"))
    library(tmp_path / "b", "libnvidia-ml", "580.1.2")
    folders = (str(tmp_path / "a"), str(tmp_path / "b"))
    assert driver_match(node.context(), folders=folders).ok is False


def test_a_newer_libcuda_for_compatibility_is_no_mismatch(node: PreflightNode, tmp_path: pathlib.Path) -> None:
    node.write("driver/nvidia/version", OPEN.format("580.159.04"))
    compat = library(tmp_path / "compat", "libcuda", "595.71.05")
    right = library(tmp_path / "lib64", "libcuda", "580.159.04")
    node.loader = f"\tlibcuda.so.1 (libc6,x86-64) => {compat}\n\tlibcuda.so.1 (libc6,x86-64) => {right}\n"
    assert driver_match(node.context(), folders=()).ok is True


def test_a_file_of_the_loaders_name_goes_by_the_version_beside_it(node: PreflightNode, tmp_path: pathlib.Path) -> None:
    node.write("driver/nvidia/version", OPEN.format("595.71.05"))
    (tmp_path / "libnvidia-ml.so.1").write_text("")
    assert driver_match(node.context(), folders=(str(tmp_path),)).ok is None
    (tmp_path / "libnvidia-ml.so.580.1.2").write_text("")
    assert driver_match(node.context(), folders=(str(tmp_path),)).ok is False
    (tmp_path / "libnvidia-ml.so.595.71.05").write_text("")  # which of the two is loaded cannot be told
    assert driver_match(node.context(), folders=(str(tmp_path),)).ok is None


def test_what_cannot_be_read_is_no_pass(node: PreflightNode, tmp_path: pathlib.Path) -> None:
    library(tmp_path, "libnvidia-ml", "595.71.05")
    check = driver_match(node.context(), folders=(str(tmp_path),))
    assert check.ok is None
    assert check.detail == f"the version of the kernel module cannot be read from {node.proc}/driver/nvidia/version"
    node.write("driver/nvidia/version", "something else\n")
    assert driver_match(node.context(), folders=(str(tmp_path),)).ok is None
    node.write("driver/nvidia/version", OPEN.format("595.71.05"))
    check = driver_match(node.context(), folders=())
    assert (check.ok, check.detail) == (
        None,
        "the kernel module is 595.71.05, but no libnvidia-ml.so.VERSION was found here",
    )


@pytest.mark.parametrize("changes", [{"devices": ("/srv/node/dev/nvidia*",)}, {"majors": (4,)}])
def test_stand_ins_have_no_driver(node: PreflightNode, tmp_path: pathlib.Path, changes: dict[str, object]) -> None:
    node.write("driver/nvidia/version", OPEN.format("595.71.05"))
    library(tmp_path, "libnvidia-ml", "580.1.2")
    assert driver_match(node.context(**changes), folders=(str(tmp_path),)).ok is None
    assert driver_match(node.context(majors=(195, 509)), folders=(str(tmp_path),)).ok is False
