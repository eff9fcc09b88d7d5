# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes of two GPUs for runs that break off between two tasks."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

from simulated_nodes import Node, simulate
from test_lost_hosts import BREAKS

CALLBACK = pathlib.Path(__file__).with_name("callback")
TP = 2
ARGS = {
    "model-path": "{{ simulated_node }}/models/demo-397b",
    "served-model-name": "demo",
    "tp-size": TP,
    "port": "{{ (lookup('ansible.builtin.file', simulated_node ~ '/node.json') | from_json).port }}",
}
VARIABLES: dict[str, t.Any] = {
    **BREAKS,
    "sglang_server_profile": "base",
    "sglang_server_profiles": [{"name": "base", "args": ARGS}],
}


class SmallNode(Node):
    """Two GPUs, which cost less than eight."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.name = folder, folder.name
        simulate("create", folder, "--gpus", str(TP))


@dataclasses.dataclass
class Plan:
    """What the callback is told: where each host is held or lost."""

    folder: pathlib.Path
    hosts: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    kill: bool = True

    def at(self, node: Node, before: str, do: str) -> None:
        self.hosts[node.name] = {"node": str(node.folder), "before": before, "do": do}

    @property
    def log(self) -> pathlib.Path:
        return self.folder / "moments.jsonl"

    def environment(self) -> dict[str, str]:
        file = self.folder / "plan.json"
        told = {"hosts": self.hosts, "play": "Relaunch", "end": "Write the result file", "kill": self.kill}
        file.write_text(json.dumps({**told, "log": str(self.log)}))
        return {
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACK),
            "ANSIBLE_CALLBACKS_ENABLED": "between_tasks",
            "CLEANSLATE_FAULT_PLAN": str(file),
        }
