# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two servers on one node, four GPUs each: whatever is done to one, the other does not notice.

The simulated systemd makes no control groups, by which one server's processes are told from another's, so each server
enters one that is made here. That needs root.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pathlib
import typing as t

import pytest
from simulated_nodes import Node, started

HIERARCHIES = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup")
NAMES = ("left", "right")


def unit(name: str) -> str:
    return f"sglang@{name}-{os.getpid()}.service"


@pytest.fixture(scope="module")
def groups() -> t.Iterator[dict[str, pathlib.Path]]:
    """A control group for each unit, where systemd would make it."""
    place = next((pathlib.Path(path) for path in HIERARCHIES if os.access(f"{path}/cgroup.procs", os.W_OK)), None)
    if place is None:
        pytest.skip(f"no control group can be made in {' or '.join(HIERARCHIES)}; run this as root")
    made = {name: place / "system.slice" / unit(name) for name in NAMES}
    try:
        for group in made.values():
            group.mkdir(parents=True)
        yield made
    finally:
        for group in made.values():
            with contextlib.suppress(OSError):
                group.rmdir()


@pytest.fixture(scope="module")
def node(groups: dict[str, pathlib.Path], make_shared_node) -> Node:
    node = make_shared_node()
    for name, group in groups.items():
        python = node.folder / "bin" / f"python-{name}"
        python.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs\nexec {node.folder}/bin/python "$@"\n')
        python.chmod(0o755)
    return node


@pytest.fixture(scope="module")
def uuids(node: Node) -> list[str]:
    return [gpu["uuid"] for gpu in json.loads((node.folder / "node.json").read_text())["gpus"]]


@pytest.fixture(scope="module")
def both(node: Node) -> list[Node]:
    """The node as the inventory has it: two hosts with one address."""
    views = [copy.copy(node) for _name in NAMES]
    for view, name in zip(views, NAMES):
        view.name = name
    return views


@pytest.fixture(scope="module")
def variables(node: Node, uuids: list[str]) -> dict[str, t.Any]:
    profile = {
        "name": "half",
        "args": {"model-path": "{{ simulated_node }}/models/demo-397b", "served-model-name": "m", "tp-size": 4},
    }
    profile["args"]["port"] = f"{{{{ {node.port} + (inventory_hostname == 'right') | int }}}}"  # type: ignore[index]
    return {
        "ansible_host": "192.0.2.1",
        "sglang_server_unit": f"sglang@{{{{ inventory_hostname }}}}-{os.getpid()}.service",
        "sglang_server_log_file": "{{ simulated_node }}/{{ inventory_hostname }}.log",
        "sglang_server_python": "{{ simulated_node }}/bin/python-{{ inventory_hostname }}",
        "sglang_server_profile": "half",
        "sglang_server_profiles": [profile],
        "gpu_idle_expected_uuids": f"{{{{ {uuids[:4]} if inventory_hostname == 'left' else {uuids[4:]} }}}}",
    }


def of(group: pathlib.Path) -> set[tuple[int, int | None]]:
    """The processes of one server; the simulated driver, which whoever came first has started, is the node's."""
    pids = {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
    return {(pid, started(pid)) for pid in pids if b"driver" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()}


def gpus_of(group: pathlib.Path) -> set[str]:
    """The GPUs that the processes of a server have mapped."""
    found = set()
    for pid, _start in of(group):
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
        found |= {line.rpartition("/")[2] for line in maps.splitlines() if "/dev/nvidia" in line}
    return {name for name in found if name[6:].isdigit()}


@pytest.fixture(scope="module")
def launched(both, variables, groups, play):
    run = play("relaunch", both, variables=variables)
    assert run.rc == 0, str(run)
    return run


def test_each_gets_its_own_gpus_unit_port_and_log(launched, node: Node, groups) -> None:
    assert gpus_of(groups["left"]) == {"nvidia0", "nvidia1", "nvidia2", "nvidia3"}
    assert gpus_of(groups["right"]) == {"nvidia4", "nvidia5", "nvidia6", "nvidia7"}
    for name in NAMES:
        text = (node.folder / f"{name}.log").read_text()
        assert "ready to roll" in text
        assert f"port={node.port + (name == 'right')}" in text
        assert (node.folder / "etc" / f"{unit(name).removesuffix('.service')}.yaml").exists()


def test_a_relaunch_of_one_leaves_the_other_alone(launched, both, variables, groups, play) -> None:
    left, right = of(groups["left"]), of(groups["right"])
    assert len(right) >= 6
    run = play("relaunch", both, "-l", "left", variables=variables)
    assert run.rc == 0, str(run)
    assert of(groups["right"]) == right, "the same processes"
    assert not of(groups["left"]) & left, "all of them new"
    assert gpus_of(groups["left"]) == {"nvidia0", "nvidia1", "nvidia2", "nvidia3"}


def test_a_gpu_of_the_other_is_refused_before_anything_is_stopped(
    launched, node, both, variables, groups, uuids, play
) -> None:
    """Twice: by the inventory, and where only one of the two takes part, by who is seen on the GPU."""
    before = {name: of(groups[name]) for name in NAMES}
    wrong = {
        **variables,
        "gpu_idle_expected_uuids": f"{{{{ {uuids[:4]} if inventory_hostname == 'x' else {uuids[1:5]} }}}}",
    }
    told = play("relaunch", both, variables=wrong)
    assert told.rc == 2, str(told)
    assert "left and right are servers of one node (192.0.2.1) and share" in told.text, str(told)
    seen = play("relaunch", both, "-l", "left", variables=wrong)
    assert seen.rc == 2, str(seen)
    assert unit("right") in seen.text, str(seen)
    assert "Nothing was stopped" in seen.text or not seen.verbs(both[0], "stop"), str(seen)
    assert {name: of(groups[name]) for name in NAMES} == before


def test_a_stop_of_one_leaves_the_other_serving(launched, both, variables, groups, play) -> None:
    right = of(groups["right"])
    run = play("stop", both, "-l", "left", variables=variables)
    assert run.rc == 0, str(run)
    assert not of(groups["left"])
    assert of(groups["right"]) == right
