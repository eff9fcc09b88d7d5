# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One execution tells what three modules would: files and wanted state, the server, and its GPUs."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process
from ansible_collections.cleanslate.gpu.tests.unit.plugins.modules.test_gpu_wait_idle import Node as GpuNode
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import (
    KEY,
    ServerProcess,
    UnitStandIn,
    free_port,
    installed_files,
)

UNIT = "sglang.service"
OF_THE_CALL = {"changed", "failed", "invocation", "msg"}


class Node(GpuNode):
    """GPUs, a unit, and the files that a look reads."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.unit = UnitStandIn(folder)
        self.log = folder / "sglang.log"
        self.log.touch()
        (folder / "series").write_text("0")

    def wants(self, profile: str) -> None:
        self.run("sglang_wanted", unit=UNIT, state="serving", profile=profile, path=f"{self.folder}/wanted.json")

    @property
    def gate(self) -> dict[str, t.Any]:
        return {"expected_count": 2, "devices": [f"{self.folder}/dev/nvidia*"], "nvidia_smi": str(self.smi)}

    def health(self, port: int) -> dict[str, t.Any]:
        return {"port": port, "log_file": str(self.log), "served_model_name": "kimi", "expected_workers": 2}

    def run(self, module: str, **arguments: t.Any) -> dict[str, t.Any]:
        given = {"_ansible_remote_tmp": str(self.folder), **arguments}
        return module_process.run(module, self.folder, given, PATH=f"{self.folder}:{os.environ['PATH']}")

    def look(self, **arguments: t.Any) -> dict[str, t.Any]:
        common = {
            "unit": UNIT,
            "unit_path": f"{self.folder}/{UNIT}",
            "config_path": f"{self.folder}/sglang.yaml",
            "wanted_file": f"{self.folder}/wanted.json",
            "memory_file": f"{self.folder}/drift.json",
            "profiles": {"kimi": {}},
            "profile": "kimi",
        }
        return self.run("sglang_drift_look", **{**common, **arguments})


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_the_server_and_the_gpus_are_told_as_their_own_modules_tell_them(node: Node) -> None:
    with ServerProcess(node.log, key=KEY) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        health = node.health(server.port)
        keys = {"kimi": {"api_key": KEY}, "trial": {"api_key": "sk-another"}}
        seen = node.look(health=health, gate=node.gate, secrets=keys)
        alone = node.run("sglang_health_info", unit=UNIT, api_key=KEY, **health)
    gate = node.run("gpu_wait_idle", scope="unit", units=[UNIT], _ansible_check_mode=True, **node.gate)
    assert (seen["profile"], seen["health"]["verdict"]) == ("kimi", "ready"), seen["health"]
    assert seen["health"]["witnesses"]["generation"]["ok"], "asked with the profile's own key"
    assert set(seen["health"]) == set(alone) - OF_THE_CALL
    assert (seen["gate"]["verdict"], seen["gate"]["looks"]) == ("idle", 1), seen["gate"]
    assert set(seen["gate"]) == set(gate) - OF_THE_CALL | {"msg"}
    assert seen["gate"]["msg"] == gate["msg"]
    assert KEY not in json.dumps(seen)


def test_an_edited_profile_makes_no_sick_server(node: Node) -> None:
    """The inventory has come to name another port, another key and more workers, and so another number of GPUs."""
    with ServerProcess(node.log, key=KEY) as server:
        installed_files(node.folder, server.port, KEY, node.log)
        node.unit.runs(server.pid)
        server.wait_for_port()
        edited: dict[str, t.Any] = {"health": {**node.health(free_port()), "expected_workers": 8}}
        edited |= {"secrets": {"kimi": {"api_key": "x"}}, "gate": {**node.gate, "expected_count": 8}}
        seen = node.look(**edited, count_installed=True)
        by_hand = node.look(**edited)
    assert (seen["health"]["verdict"], seen["gate"]["verdict"]) == ("ready", "idle"), seen["health"]["reason"]
    assert by_hand["gate"]["verdict"] == "missing", "a person has counted"
    assert KEY not in json.dumps(seen)


def test_what_is_wrong_with_the_gpus_fails_nothing(node: Node) -> None:
    seen = node.look(gate={**node.gate, "expected_count": 3})
    assert not seen.get("failed")
    assert seen["gate"]["verdict"] == "missing"
    assert seen["health"] is None, "nobody asked"


def test_another_profile_is_not_asked_for_with_this_ones_port_and_key(node: Node) -> None:
    node.wants("trial")
    with ServerProcess(node.log) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        seen = node.look(health=node.health(server.port), gate=node.gate)
    assert (seen["wanted"]["profile"], seen["profile"]) == ("trial", "")
    assert (seen["health"], seen["gate"]) == (None, None)
    assert node.asked() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"health": {"port": 0}}, "health: port is 0"),
        ({"gate": {}}, "gate: "),
        ({"health": {}, "secrets": {"kimi": {"api_key": "a\nb"}}}, "health: api_key"),
    ],
)
def test_a_part_that_cannot_be_meant_ends_the_look_before_it_begins(
    node: Node, options: dict[str, t.Any], said: str
) -> None:
    refused, looked = node.look(**options), node.look()
    assert refused["failed"]
    assert refused["msg"].startswith(said), refused["msg"]
    assert refused["msg"].endswith("Nothing was looked at.")
    assert set(looked) - OF_THE_CALL == set(refused) - OF_THE_CALL
    assert (refused["service"], refused["health"], refused["gate"]) == (None, None, None)
