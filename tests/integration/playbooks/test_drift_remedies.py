# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a remedy goes by (the profile that a person asked for), whom it never touches, and what it checks first."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import typing as t

import pytest
from simulated_nodes import Node, alive
from test_port import stranger_on

POLICY = {"gpu_drift_mode": "remediate", "gpu_drift_confirm_after": 1, "gpu_drift_max_remediations": 9}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def profiles(node: Node, trial_port: int, **trial: t.Any) -> list[dict[str, t.Any]]:
    """base is the inventory's; a person has asked for trial, on another port."""
    common = {"model-path": f"{node.folder}/models/demo-397b", "tp-size": 8}
    return [
        {"name": "base", "args": {**common, "served-model-name": "base", "port": node.port}},
        {"name": "trial", "args": {**common, "served-model-name": "trial", "port": trial_port, **trial}},
    ]


class Trial(t.NamedTuple):
    node: Node
    port: int
    asked: pathlib.Path  # every call of docker and podman on the node

    def look(self, play, place: pathlib.Path, **extra: t.Any) -> tuple[dict[str, t.Any], t.Any]:
        path = place / "rows.json"
        given = {"sglang_server_profiles": profiles(self.node, self.port), "sglang_server_profile": "base"}
        given["gpu_release_containers"] = ["colleagues-notebook"]
        run = play("drift", self.node, variables={**given, **extra}, **POLICY, gpu_drift_result_file=str(path))
        (row,) = json.loads(path.read_text())
        return row, run


@pytest.fixture(scope="module")
def trial(make_shared_node, play) -> Trial:
    node, port = make_shared_node(), free_port()
    run = play(
        "relaunch", node, variables={"sglang_server_profiles": profiles(node, port)}, sglang_server_profile="trial"
    )
    assert run.rc == 0, str(run)
    asked = node.folder / "asked"
    for tool in ("docker", "podman"):
        path = node.folder / "bin" / tool
        path.write_text(f'#!/bin/sh\necho {tool} "$@" >>{asked}\nexit 1\n')
        path.chmod(0o755)
    return Trial(node, port, asked)


def test_a_trial_is_mended_as_what_it_is_and_nobody_else_is_touched(trial, play, tmp_path) -> None:
    """Somebody has the port of the inventory's own profile, and a container that people's runs may stop is listed."""
    with stranger_on(trial.node.port) as stranger:
        row, run = trial.look(play, tmp_path)
        assert (row["server"], row["action"]) == ("ready", "nothing"), f"{row}\n{run}"
        old = trial.node.launchers()
        for rank in range(8):
            for pid in trial.node.of_role(f"scheduler_TP{rank}"):
                os.kill(pid, signal.SIGSTOP)
        row, run = trial.look(play, tmp_path)
        assert row["held_back"] == "confirmation", f"{row}\n{run}"
        row, run = trial.look(play, tmp_path)
        assert (row["action"], row["outcome"], row["profile"]) == ("relaunch", "ready", "trial"), f"{row}\n{run}"
        assert alive(stranger)
    (new,) = trial.node.launchers()
    assert [new] != old
    assert 'served-model-name: "trial"' in trial.node.config.read_text()
    asked = trial.asked.read_text() if trial.asked.exists() else ""
    assert "colleagues-notebook" not in asked, "a person listed it for his own runs"


def test_what_is_applied_is_checked_while_the_old_server_still_serves(trial, play, tmp_path) -> None:
    """The wanted profile has come to name a model that is not there."""
    gone = profiles(trial.node, trial.port, **{"model-path": f"{trial.node.folder}/models/gone"})
    policy = {"sglang_server_profiles": gone, "gpu_drift_config": "apply"}
    old, files = trial.node.launchers(), (trial.node.unit.read_bytes(), trial.node.config.read_bytes())
    row, run = trial.look(play, tmp_path, **policy)
    assert (row["would"], row["held_back"]) == ("relaunch", "confirmation"), f"{row}\n{run}"
    row, run = trial.look(play, tmp_path, **policy)
    assert row["outcome"] == "failed", f"{row}\n{run}"
    assert "models/gone" in row["failed"], row
    assert trial.node.launchers() == old
    assert not run.verbs(trial.node, "stop", "start", "kill"), run.of(trial.node)
    assert (trial.node.unit.read_bytes(), trial.node.config.read_bytes()) == files
