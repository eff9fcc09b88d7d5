# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Proxmox's own lock of a container, from the files that Proxmox keeps."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._container_locks import ContainerLock, container_locks

CONF = """#the model server
arch: amd64
cores: 64
{lock}hostname: sglang-a
memory: 524288
rootfs: local-zfs:subvol-101-disk-0,size=64G
unprivileged: 1

[before-upgrade]
lock: snapshot
arch: amd64
snaptime: 1796241600
"""


@pytest.fixture
def pve(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "pve" / "lxc").mkdir(parents=True)
    return tmp_path / "pve"


def look(pve: pathlib.Path, lock: str, container: str = "101") -> ContainerLock:
    (pve / "lxc" / "101.conf").write_text(CONF.format(lock=lock))
    (found,) = container_locks([container], str(pve))
    return found


@pytest.mark.parametrize("lock", ["backup", "migrate", "snapshot-delete"])
def test_a_lock_is_told_with_proxmoxs_word(pve: pathlib.Path, lock: str) -> None:
    found = look(pve, f"lock: {lock}\n")
    assert found == ContainerLock("101", lock)
    assert found.words() == f"container 101 is locked by Proxmox: {lock}"


@pytest.mark.parametrize("line", ["", "#lock: backup\n", "unlock: backup\n", "description: lock: backup\n"])
def test_what_is_no_lock(pve: pathlib.Path, line: str) -> None:
    """That of an earlier state, below, is none either."""
    assert look(pve, line) == ContainerLock("101")


def test_a_lock_is_told_with_forty_characters_at_most(pve: pathlib.Path) -> None:
    assert look(pve, f"lock: {'a' * 50}\n").lock == "a" * 40


def test_each_container_has_its_own(pve: pathlib.Path) -> None:
    look(pve, "lock: backup\n")
    (pve / "lxc" / "102.conf").write_text(CONF.format(lock=""))
    assert [one.lock for one in container_locks(["102", "101"], str(pve))] == [None, "backup"]


@pytest.mark.parametrize("container", ["102", "../101", "101/", "", "web"])
def test_what_proxmox_does_not_know_cannot_be_told(pve: pathlib.Path, container: str) -> None:
    found = look(pve, "lock: backup\n", container)
    assert found.lock is None
    assert found.problem


def test_an_empty_folder_is_that_of_a_stopped_cluster_service(tmp_path: pathlib.Path) -> None:
    (found,) = container_locks(["101"], str(tmp_path))
    assert "101.conf: No such file or directory" in found.words()


def test_a_host_that_is_none_of_proxmoxs_has_no_locks(tmp_path: pathlib.Path) -> None:
    assert container_locks(["101"], str(tmp_path / "pve")) == (ContainerLock("101"),)


def test_a_link_that_leads_nowhere_is_no_sign_of_another_host(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pve").symlink_to(tmp_path / "gone")
    assert container_locks(["101"], str(tmp_path / "pve"))[0].problem
