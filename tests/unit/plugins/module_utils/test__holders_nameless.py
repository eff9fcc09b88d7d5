# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows of compute-apps without a name: the number is a dead process's, or counts in another PID namespace."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import look_for_holders
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import parse_processes
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.holders_world import (
    GPU0,
    GPU1,
    OWN,
    SERVICE,
    Node,
)

RECORDING = pathlib.Path(__file__).parents[3] / "recordings/nvidia-smi/apps-other-namespace.csv"


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(("name", "computes"), [("python3", True), (None, False)])
def test_a_bystander_that_has_the_number_by_chance_is_no_target(node: Node, name: str | None, computes: bool) -> None:
    """nvtop in a login session: a GPU open, nothing mapped."""
    node.fake.add(50, opens=[node.gpu])
    (holder,) = node.look(listed=[(50, GPU1)], name=name).holders
    assert (holder.computes, holder.gpus) == (computes, (GPU1,) if computes else ())
    assert holder.disposition == ("target" if computes else "monitor")


def test_who_maps_a_gpu_computes_whatever_is_listed(node: Node) -> None:
    node.fake.add(50, maps=[node.gpu])
    (holder,) = node.look(listed=[(50, GPU1)], name=None).holders
    assert (holder.computes, holder.disposition, holder.gpus) == (True, "target", ())


def test_who_is_dying_is_found_by_such_a_row(node: Node) -> None:
    """nvidia-smi cannot read the name of the dead, and nobody is signalled for it."""
    node.fake.add(70, state="Z", pending=0x100, tasks={70: {"state": "Z"}}, cgroup=SERVICE)
    (holder,) = node.look(listed=[(70, GPU1)], name=None).holders
    assert (holder.dying, holder.computes, holder.gpus) == (True, True, (GPU1,))


@pytest.mark.parametrize(("name", "disposition"), [("python3", "target"), (None, "foreign")])
def test_on_which_gpu_one_computes_is_not_told_by_it_either(node: Node, name: str | None, disposition: str) -> None:
    """One server of two that share a container, and only the GPUs of the other one are asked for."""
    node.fake.add(51, maps=[node.gpu], cgroup="0::/lxc/101/ns/init.scope")
    (holder,) = node.look(Scope("lxc", lxc=("101",), gpus=(GPU0,)), [(51, GPU0)], name=name).holders
    assert holder.disposition == disposition


def test_the_recorded_rows_of_another_namespace_make_nobody_a_target(node: Node) -> None:
    listed = tuple(
        row.process
        for row in parse_processes(RECORDING.read_text(encoding="utf-8"), "").rows
        if row.process is not None
    )
    assert len(listed) == 3
    for process in listed:
        node.fake.add(process.pid, opens=[node.gpu])
    found: HolderScan = look_for_holders(node.request(OWN), listed, unit_states=node.unit_states, clock=SystemClock())
    assert {holder.disposition for holder in found.holders} == {"monitor"}
    assert len(found.holders) == 3
