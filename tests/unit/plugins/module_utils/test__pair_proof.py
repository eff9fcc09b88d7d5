# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is proved to be the container it is said to be by its PID namespace."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _pair_proof
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc

NODE = "pid:[4026532177]"
OTHER = "pid:[4026532999]"


@pytest.fixture
def fake(tmp_path: pathlib.Path) -> FakeProc:
    """A Proxmox host with the containers 101 and 102, a Docker container inside 102, and plain LXC called 103."""
    fake = FakeProc(tmp_path / "proc")
    fake.add(1010, comm="systemd", cgroup="0::/lxc/101/ns/init.scope", ns_pids=(1010, 1), namespace=NODE)
    fake.add(1011, cgroup="0::/lxc/101/ns/system.slice/x.service", ns_pids=(1011, 77), namespace=NODE)
    fake.add(1020, comm="systemd", cgroup="0::/lxc/102/ns/init.scope", ns_pids=(1020, 1), namespace=OTHER)
    docker = f"0::/lxc/102/ns/system.slice/docker-{'a' * 64}.scope"
    fake.add(1021, cgroup=docker, ns_pids=(1021, 50, 1), namespace="pid:[5]")
    fake.add(1030, comm="init", cgroup="0::/lxc.payload.103/init.scope", ns_pids=(1030, 1), namespace="pid:[6]")
    fake.add(1000, comm="lxc-start", cgroup="0::/lxc.monitor/101")
    return fake


@pytest.fixture
def proc(fake: FakeProc) -> Proc:
    return Proc(fake.root)


def test_the_right_container_is_proved(proc: Proc) -> None:
    assert _pair_proof.refusal(NODE, ["101"], proc) is None
    assert _pair_proof.refusal(NODE, ["102", "101"], proc) is None


def test_another_container_is_refused_with_both_namespaces(proc: Proc) -> None:
    sentence = _pair_proof.refusal(NODE, ["102"], proc)
    assert sentence is not None
    assert f"The node's PID namespace is {NODE}, but container 102 has {OTHER} (pid 1020 here)" in sentence
    assert "Nothing was touched" in sentence


@pytest.mark.parametrize("vmid", ["104", "103", "1"])
def test_a_container_that_does_not_run_here_is_refused(proc: Proc, vmid: str) -> None:
    sentence = _pair_proof.refusal(NODE, [vmid], proc)
    assert sentence is not None
    assert f"No container {vmid} runs on this GPU host" in sentence
    assert f"in cgroup /lxc/{vmid}." in sentence


def test_the_first_of_those_that_do_not_run_is_the_example(proc: Proc) -> None:
    sentence = _pair_proof.refusal(NODE, ["104", "105"], proc)
    assert sentence is not None
    assert "No container 104, 105 runs" in sentence
    assert "in cgroup /lxc/104." in sentence


def test_a_nested_container_is_never_taken_for_its_host(proc: Proc) -> None:
    assert _pair_proof.refusal("pid:[5]", ["102"], proc) is not None


def test_only_inits_count(proc: Proc) -> None:
    assert [(init.vmid, init.pid) for init in _pair_proof.container_inits({"101", "102"}, proc)] == [
        ("101", 1010),
        ("102", 1020),
    ]


@pytest.mark.parametrize(
    ("pid", "ns_pids"),
    [
        pytest.param(1012, (1012, 78, 1), id="the first of a namespace that somebody made inside of the container"),
        pytest.param(1013, (1,), id="one that has no namespace of its own"),
    ],
)
def test_no_other_first_process_is_an_init(fake: FakeProc, pid: int, ns_pids: tuple[int, ...]) -> None:
    fake.add(pid, cgroup="0::/lxc/101/ns/system.slice/x.service", ns_pids=ns_pids, namespace="pid:[7]")
    sentence = _pair_proof.refusal("pid:[7]", ["101"], Proc(fake.root))
    assert sentence is not None
    assert f"container 101 has {NODE} (pid 1010 here)" in sentence


def test_processes_that_vanish_or_cannot_be_understood_do_not_hide_the_others(fake: FakeProc) -> None:
    for pid, name, content in ((2, "2/comm", "gone\n"), (3, "3/cgroup", "0::/lxc/101/ns/a\n")):
        fake.write(name, content)
        assert pid in list(Proc(fake.root).pids())
    fake.add(4, cgroup="0::/lxc/101/ns/b")
    fake.write("4/status", "Name:\tb\nUid:\tx\tx\n")
    assert _pair_proof.refusal(NODE, ["101"], Proc(fake.root)) is None


def test_without_the_host_s_own_cgroup_nothing_is_proved(fake: FakeProc) -> None:
    (fake.path / "1" / "cgroup").unlink()
    sentence = _pair_proof.refusal(NODE, ["101"], Proc(fake.root))
    assert sentence is not None
    assert "cgroup of PID 1 cannot be read on the GPU host" in sentence
    assert "container 101 cannot be proved" in sentence


@pytest.mark.parametrize(
    ("text", "right"), [(NODE, True), ("pid:[]", False), ("pid:[1]\n", False), ("x", False), ("", False)]
)
def test_what_a_namespace_looks_like(text: str, right: bool) -> None:
    assert _pair_proof.is_namespace(text) is right
