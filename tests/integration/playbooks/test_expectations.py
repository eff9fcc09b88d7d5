# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a profile expects of its running server is looked at on the real way: after ready, before the end."""

from __future__ import annotations

import json
import typing as t

from simulated_nodes import Node, alive

KEY = "PLANTED-expectation-key"


def profiles(node: Node, *expect: dict[str, t.Any]) -> dict[str, t.Any]:
    args = {"model-path": f"{node.folder}/models/demo-397b", "served-model-name": "kimi", "tp-size": 8}
    profile = {"name": "kimi", "api_key": KEY, "args": {**args, "port": node.port}, "expect": list(expect)}
    return {"sglang_server_profiles": [profile], "sglang_server_profile": "kimi"}


def test_met_then_unmet(make_node, play) -> None:
    node = make_node()
    size = {"query": "server_info.tp_size", "equals": 8}
    name = {"query": "models.data[].id", "contains": "kimi"}
    run = play("start", node, "-vv", variables=profiles(node, size, name))
    assert run.rc == 0, str(run)
    assert KEY not in run.out
    (first,) = node.launchers()
    kept = json.loads((node.folder / "run" / "starts.json").read_text())["profiles"]["kimi"]
    assert len(kept) == 1
    assert "load_weights" in kept[0]["stages"]

    gpus = {"query": "length(nvidia_gpu.gpus)", "equals": 8}
    wrong = {"query": "server_info.api_key", "equals": "x", "says": "The key was changed."}
    run = play("relaunch", node, "-vv", variables=profiles(node, size, gpus, wrong))
    assert run.rc == 2, str(run)
    assert "is not what profile kimi expects" in run.text, str(run)
    assert "The key was changed. Expectation 3: server_info.api_key must be" in run.text, str(run)
    assert "Expectation 1" not in run.text
    assert "Expectation 2" not in run.text
    assert KEY not in run.out
    # It serves, and is left to people.
    (second,) = node.launchers()
    assert second != first
    assert alive(second)
