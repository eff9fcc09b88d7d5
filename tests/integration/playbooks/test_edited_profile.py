# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody has edited a profile, and its server was not relaunched yet: it is looked at, left alone and mended as what
it is."""

from __future__ import annotations

import json
import os
import signal
import typing as t

import pytest
from simulated_nodes import Node
from test_drift_remedies import free_port

POLICY = {"gpu_drift_mode": "remediate", "gpu_drift_confirm_after": 1}
KEYS = ("first-key-0123456789abcdef", "second-key-0123456789abcdef")


class Edited(t.NamedTuple):
    """A server on four GPUs; the inventory names eight, another port, another key and a longer context."""

    node: Node
    inventory: dict[str, t.Any]

    def look(self, play, place, **extra: t.Any) -> tuple[dict[str, t.Any], t.Any]:
        path = place / "rows.json"
        run = play("drift", self.node, variables=self.inventory, **{**POLICY, **extra}, gpu_drift_result_file=str(path))
        (row,) = json.loads(path.read_text())
        return row, run


def profiles(node: Node, port: int, size: int, key: str, **args: t.Any) -> dict[str, t.Any]:
    named = {"model-path": f"{node.folder}/models/demo-397b", "served-model-name": "base"}
    profile = {"name": "base", "api_key": key, "args": {**named, "tp-size": size, "port": port, **args}}
    return {"sglang_server_profiles": [profile], "sglang_server_profile": "base"}


@pytest.fixture(scope="module")
def edited(make_shared_node, play) -> Edited:
    node = make_shared_node(gpus=4)
    run = play("relaunch", node, variables=profiles(node, node.port, 4, KEYS[0]))
    assert run.rc == 0, str(run)
    edits = profiles(node, free_port(), 8, KEYS[1], **{"context-length": 4096})
    return Edited(node, edits)


def test_it_is_shown_as_what_it_is(edited, play, tmp_path) -> None:
    path = tmp_path / "status.json"
    run = play("status", edited.node, variables=edited.inventory, status_file=str(path))
    (host,) = json.loads(path.read_text())["hosts"]
    assert host["server"]["verdict"] == "ready", f"{host['problems']}\n{run}"
    assert not any("The server is" in one["what"] for one in host["problems"]), host["problems"]
    assert not any(key in run.out + path.read_text() for key in KEYS)


def test_start_leaves_it_alone(edited, play) -> None:
    before = edited.node.snapshot()
    run = play("start", edited.node, variables=edited.inventory)
    assert (run.rc, "nothing to start" in run.text) == (0, True), str(run)
    assert edited.node.snapshot() == before


def test_the_edit_is_reported_and_nothing_else(edited, play, tmp_path) -> None:
    before = edited.node.snapshot()
    for dummy in range(3):
        row, run = edited.look(play, tmp_path)
        assert (row["server"], row["action"], row["outcome"]) == ("ready", "report", None), f"{row}\n{run}"
        assert (row["would"], row["held_back"]) == ("report", None), row
    assert "tp-size is '4', wanted is '8'" in " ".join(row["reasons"]), row
    assert edited.node.snapshot()["processes"] == before["processes"]
    assert not any(key in run.out + json.dumps(row) for key in KEYS)


def test_a_hang_is_mended_with_what_is_installed(edited, play, tmp_path) -> None:
    (old,), config = edited.node.launchers(), edited.node.config.read_bytes()
    for rank in range(4):
        for pid in edited.node.of_role(f"scheduler_TP{rank}"):
            os.kill(pid, signal.SIGSTOP)
    row, run = edited.look(play, tmp_path)
    assert (row["server"], row["held_back"]) == ("hung", "confirmation"), f"{row}\n{run}"
    row, run = edited.look(play, tmp_path)
    assert (row["action"], row["outcome"]) == ("relaunch", "ready"), f"{row}\n{run}"
    (new,) = edited.node.launchers()
    assert new != old
    assert edited.node.config.read_bytes() == config
    assert not any(key in run.out for key in KEYS)


def test_nor_is_it_relaunched_where_there_are_gpus_enough_for_the_edit(make_node, play, tmp_path) -> None:
    """Half of the node's GPUs are used; the edit wants all of them, on another port."""
    node = make_node()
    counted = {"gpu_idle_expected_count": 8}
    run = play("relaunch", node, variables={**counted, **profiles(node, node.port, 4, KEYS[0])})
    assert run.rc == 0, str(run)
    before = node.snapshot()["processes"]
    half = Edited(node, {**counted, **profiles(node, free_port(), 8, KEYS[0])})
    for dummy in range(2):
        row, run = half.look(play, tmp_path)
        assert node.snapshot()["processes"] == before, f"{row}\n{run}"
    assert (row["server"], row["would"], row["outcome"]) == ("ready", "report", None), f"{row}\n{run}"
