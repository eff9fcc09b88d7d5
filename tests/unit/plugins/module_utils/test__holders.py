# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import pathlib
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _holder_scan
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container, Holder, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import (
    age_in_words,
    describe,
    look_for_holders,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import uses_gpus
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.holders_world import (
    GPU0,
    GPU1,
    SERVICE,
    Node,
)

HOLD_NODE = pathlib.Path(__file__).with_name("hold_node.py")
OTHER = "0::/system.slice/vllm.service"


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_nobody(node: Node) -> None:
    scan = node.look()
    assert scan.complete
    assert scan.holders == ()
    assert scan.incomplete_reason == ""
    assert node.asked == []


def test_one_of_each_kind(node: Node) -> None:
    gpu = node.gpu
    node.fake.add(50, opens=[gpu], maps=[gpu], cgroup=SERVICE)
    node.fake.add(51, opens=[gpu], cgroup=SERVICE)
    node.fake.add(52, opens=[gpu], cgroup="0::/system.slice/exporter.service")
    node.fake.add(53, maps=[gpu], cgroup=OTHER)
    node.fake.add(54, maps=[gpu], cgroup="0::/lxc/102/ns/system.slice/sglang.service")
    node.fake.add(55, maps=[gpu], cgroup="0::/strange")
    node.fake.add(56, maps=[gpu], cgroup="0::/.lxc")
    node.fake.add(57, maps=[gpu], exe="/usr/bin/nvidia-persistenced")
    node.fake.add(58, maps=[gpu], ns_pids=[58, 2], namespace="pid:[2]")
    node.fake.add(59, maps=[gpu], ns_pids=[59, 1], namespace="pid:[2]")
    node.fake.add(60, opens=[gpu], ppid=50)
    node.fake.add(800_0, maps=[gpu], cgroup="0::/user.slice/user-0.slice/session-1.scope")
    node.states["vllm.service"] = True
    scan = node.look()
    (in_namespace,) = (holder for holder in scan.holders if holder.pid == 58)
    assert in_namespace.container == Container("unknown", "pid:[2]")
    node.asked.clear()
    found = node.dispositions()
    assert found == {
        50: "target", 51: "target", 52: "monitor", 53: "foreign", 54: "foreign", 55: "foreign", 56: "target",
        57: "protected", 58: "foreign", 59: "never", 60: "target", 8000: "target",
    }  # fmt: skip
    assert node.asked == [["vllm.service"]]


def test_the_shell_that_started_it_is_self(node: Node) -> None:
    node.fake.add(801, ppid=1)
    (node.fake.path / "800/fd/5").symlink_to(node.gpu)
    assert node.dispositions() == {800: "self"}


@pytest.mark.parametrize(("active", "expected"), [(True, "foreign"), (None, "foreign"), (False, "target")])
def test_the_state_of_another_unit(node: Node, active: bool | None, expected: str) -> None:
    node.states["vllm.service"] = active
    node.fake.add(50, maps=[node.gpu], cgroup=OTHER)
    assert node.dispositions() == {50: expected}


def test_systemd_is_asked_only_where_it_matters(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu], cgroup=OTHER)
    node.fake.add(51, maps=[node.gpu], cgroup=SERVICE)
    node.fake.add(52, maps=[node.gpu], cgroup="0::/user.slice/user-1.slice/user@1.service/app.slice/x.service")
    assert node.dispositions() == {50: "monitor", 51: "target", 52: "foreign"}
    node.fake.add(53, maps=[node.gpu], cgroup=OTHER)
    node.dispositions(Scope("unit", units=("sglang.service",)))
    assert node.asked == []


@pytest.mark.parametrize(
    ("opens", "listed", "computes", "gpus"),
    [
        (["nvidia0"], [(50, GPU0), (50, GPU1)], True, (GPU0, GPU1)),
        (["nvidia0"], [(51, GPU0)], False, ()),
        (["nvidiactl", "nvidia-uvm"], [(50, GPU0)], False, (GPU0,)),
        (["nvidia0"], [], False, ()),
    ],
)
def test_a_listed_process_computes_only_with_a_gpu_open(
    node: Node, opens: list[str], listed: list[tuple[int, str]], computes: bool, gpus: tuple[str, ...]
) -> None:
    node.fake.add(50, opens=[node.gpu.with_name(name) for name in opens])
    (holder,) = node.look(listed=listed).holders
    assert holder.computes is computes
    assert holder.gpus == gpus
    assert holder.disposition == ("target" if computes else "monitor")


def test_the_dying_are_listed_by_what_nvidia_smi_says(node: Node) -> None:
    node.fake.add(70, state="Z", pending=0x100, tasks={70: {"state": "Z"}}, cgroup=SERVICE)
    assert node.look().holders == ()
    (holder,) = node.look(listed=[(70, GPU1)]).holders
    assert (holder.dying, holder.computes, holder.disposition, holder.devices) == (True, True, "target", ())


def test_what_the_unit_started_elsewhere(node: Node) -> None:
    node.fake.add(40, cgroup=SERVICE)
    node.fake.add(41, ppid=40)
    node.fake.add(50, ppid=41, maps=[node.gpu], cgroup="0::/user.slice/user-0.slice/session-9.scope")
    (holder,) = node.look(Scope("unit", units=("sglang.service",))).holders
    assert holder.disposition == "target"
    assert "was started from sglang.service" in holder.reason


def test_the_group_of_the_module(tmp_path: pathlib.Path) -> None:
    """SSH without sessions of its own: whatever was started by hand is in the group of the SSH service, and so is the
    module. Its unit must not be named: stopping it would end the connection."""
    node = Node(tmp_path)
    node.fake = FakeProc(tmp_path / "proc2", cgroup="0::/system.slice/ssh.service")
    node.fake.add(50, maps=[node.gpu], cgroup="0::/system.slice/ssh.service")
    (holder,) = node.look().holders
    assert (holder.disposition, holder.unit) == ("target", None)
    assert node.asked == []


def test_the_guard_of_a_unit_sees_what_the_unit_left_behind(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    node.fake = FakeProc(tmp_path / "proc2", cgroup=SERVICE)
    node.fake.add(50, opens=[node.gpu], cgroup=SERVICE)
    (holder,) = node.look(Scope("unit", units=("sglang.service",))).holders
    assert (holder.disposition, holder.unit) == ("target", "sglang.service")


def test_kin_and_subsets_of_gpus(node: Node) -> None:
    scope = Scope("lxc", lxc=("101",), gpus=(GPU0,))
    cgroup = "0::/lxc/101/ns/system.slice/x.service"
    for pid, ppid in ((50, 1), (51, 50), (52, 51), (60, 1), (61, 60), (70, 1)):
        node.fake.add(pid, ppid=ppid, opens=[node.gpu], maps=[node.gpu], cgroup=cgroup)
    listed = [(51, GPU0), (61, GPU1)]
    assert node.dispositions(scope, listed) == {
        50: "target", 51: "target", 52: "target", 60: "foreign", 61: "foreign", 70: "foreign"
    }  # fmt: skip
    assert node.dispositions(scope, [*listed, (9999, GPU0)])[70] == "target"
    assert node.dispositions(scope, [*listed, (9999, GPU1)])[70] == "foreign"


def test_unreadable_entries_that_matter_make_it_incomplete(node: Node) -> None:
    node.fake.add(50)
    node.fake.make_unreadable(50)
    node.fake.make_unreadable(1)
    scan = node.look()
    assert not scan.complete
    assert "pid 50" in scan.incomplete_reason
    assert {entry.pid: entry.matters for entry in scan.unreadable} == {1: False, 50: True}


def test_unreadable_ancestors_and_pid_1_do_not_matter(node: Node) -> None:
    node.fake.make_unreadable(1)
    node.fake.make_unreadable(800)
    scan = node.look()
    assert scan.complete
    assert [entry.matters for entry in scan.unreadable] == [False, False]


@pytest.mark.parametrize(("shut", "complete"), [(False, False), (True, True)])
def test_a_proc_that_hides_processes(node: Node, monkeypatch: pytest.MonkeyPatch, shut: bool, complete: bool) -> None:
    node.fake.write("900/mountinfo", f"2 1 0:2 / {node.fake.root} rw - proc proc rw,hidepid=2\n")
    monkeypatch.setattr(_holder_scan.NodeSet, "may_be_opened_by_others", lambda nodes, uid: not shut)
    monkeypatch.setattr(_holder_scan.os, "geteuid", lambda: 4242)
    scan = node.look()
    assert scan.complete is complete
    assert ("hidepid=2" in scan.incomplete_reason) is not complete


@pytest.mark.parametrize("glob", ["/nowhere/nvidia*", "/dev/null"])
def test_no_node_is_not_the_same_as_nobody(node: Node, glob: str) -> None:
    request = dataclasses.replace(node.request(), devices=(glob,))
    scan = look_for_holders(request, unit_states=node.unit_states, clock=SystemClock())
    assert not scan.complete
    assert glob in scan.incomplete_reason


def test_no_proc_at_all(node: Node) -> None:
    request = dataclasses.replace(node.request(), proc_root="/nonexistent")
    scan = look_for_holders(request, unit_states=node.unit_states, clock=SystemClock())
    assert not scan.complete
    assert "/nonexistent" in scan.incomplete_reason


def test_a_command_line_that_blocks_costs_a_label_only(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu], maps=[node.gpu])
    node.fake.add(51, opens=[node.gpu])
    node.fake.block(50, "cmdline")
    scan = node.look(timeout=6)
    assert scan.complete
    assert {holder.pid: holder.cmdline for holder in scan.holders} == {50: "", 51: "python3 x.py"}


def test_mappings_that_block_hide_nobody_else(node: Node) -> None:
    node.fake.add(50)
    node.fake.block(50, "maps")
    node.fake.add(51, maps=[node.gpu])
    scan = node.look(timeout=6)
    assert [holder.pid for holder in scan.holders] == [51]
    assert not scan.complete
    assert "maps of pid 50" in scan.incomplete_reason


def test_a_stuck_holder_in_the_unit_is_still_a_target(node: Node) -> None:
    """It is found by its open files; that its memory cannot be looked at hides nothing."""
    node.fake.add(50, opens=[node.gpu], cgroup=SERVICE)
    node.fake.add(51, opens=[node.gpu])
    for pid in (50, 51):
        node.fake.block(pid, "maps")
    scan = node.look(timeout=6)
    assert scan.complete
    assert {holder.pid: holder.disposition for holder in scan.holders} == {50: "target", 51: "foreign"}
    assert {holder.computes for holder in scan.holders} == {None}
    assert [holder.pid for holder in scan.holders if uses_gpus(holder)] == [51], "it may compute: shut"


def test_the_deadline_of_the_whole(node: Node) -> None:
    for pid in range(50, 80):
        node.fake.add(pid)
        node.fake.block(pid, "maps")
    began = time.monotonic()
    scan = node.look(timeout=1.5)
    assert time.monotonic() - began < 30
    assert not scan.complete
    assert "did not come back" in scan.incomplete_reason


def test_secrets_are_masked(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu], argv=["python3", "--api-key", "Q7vv", "HF_TOKEN=Q7vv"])
    assert "Q7vv" not in str(node.look().holders)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (7980, "2 h 13 min"),
        (90000, "1 d 1 h"),
        (172800, "2 d"),
    ],
)
def test_age(seconds: float, words: str) -> None:
    assert age_in_words(seconds) == words


SCHEDULER = Holder(
    pid=4711,
    start_time=1,
    comm="sglang::schedul",
    ppid=1,
    ns_pid=4711,
    cmdline="sglang::scheduler_TP1",
    uid=990,
    user="sglang",
    state="S",
    unit="sglang.service",
    devices=("/dev/nvidia1", "/dev/nvidia-uvm"),
    via=("fd", "map"),
    computes=True,
    gpus=(GPU1,),
    age_s=7980,
    disposition="target",
    reason="belongs to sglang.service",
)


@pytest.mark.parametrize(
    ("changes", "index_of", "line"),
    [
        (
            {},
            {GPU1: 1},
            "pid 4711 (sglang::scheduler_TP1), user sglang, unit sglang.service, GPU 1 nvidia1 nvidia-uvm,"
            " 2 h 13 min old, state S: target (belongs to sglang.service)",
        ),
        (
            {
                "cmdline": "/srv/venv/bin/python3 -m x",
                "ns_pid": 12,
                "user": None,
                "container": Container("lxc", "101"),
                "devices": (*(f"/dev/nvidia{number}" for number in (0, 1, 2, 5, 7, 6)), "/dev/nvidiactl"),
                "state": "D",
                "wchan": "uvm_wait",
                "disposition": "foreign",
                "reason": "because",
            },
            {},
            "pid 4711 (sglang::schedul), pid 12 inside, uid 990, container lxc 101, unit sglang.service,"
            f" {GPU1} nvidia0-2 nvidia5-7 nvidiactl, 2 h 13 min old, state D in uvm_wait: foreign (because)",
        ),
        (
            {
                "devices": (),
                "gpus": (),
                "uid": None,
                "user": None,
                "dying": True,
                "age_s": None,
                "unit": None,
                "state": "Z",
            },
            None,
            "pid 4711 (sglang::scheduler_TP1), uid unknown, no node left, state Z, dying: target"
            " (belongs to sglang.service)",
        ),
    ],
)
def test_one_line_for_people(changes: dict[str, t.Any], index_of: dict[str, int] | None, line: str) -> None:
    assert describe(dataclasses.replace(SCHEDULER, **changes), index_of) == line
