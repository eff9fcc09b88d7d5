# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One stuck node on its way back, with one playbook at a time: each does what it says, and no more."""

from __future__ import annotations

import json

import pytest
from simulated_nodes import Node, alive

ASKED = {"state": "serving", "profile": "demo", "by": "relaunch.yml", "who": "ana", "outcome": "ready", "pause": None}
WANTED = {"version": 1, "units": {"sglang.service": {**ASKED, "at": "2026-11-29T15:02:11Z", "run_id": "r1"}}}


@pytest.fixture(scope="module")
def node(make_shared_node) -> Node:
    node = make_shared_node()
    node.story("stuck_gpu", "--mib", "70001")
    return node


@pytest.fixture(scope="module")
def left_over(node) -> int:
    (pid,) = node.of_role("left-over")
    return pid


@pytest.fixture(scope="module")
def monitor(node, left_over) -> int:
    # After the story, which wants to be alone.
    return node.hold("--gpu", "2", "--no-map", "--as", "nvtop")


def test_status_shows_the_left_over_worker_and_changes_nothing(node, left_over, monitor, play) -> None:
    before = node.snapshot()
    run = play("status", node)
    assert run.rc == 0, str(run)
    assert str(left_over) in run.text, str(run)
    assert "70001" in run.text, str(run)
    assert "GPUs busy" in run.text, str(run)
    assert node.snapshot() == before
    assert all(call.asks for call in run.of(node)), run.of(node)


def test_preflight_passes_and_changes_nothing(node, left_over, monitor, play) -> None:
    before = node.snapshot()
    run = play("preflight", node)
    assert run.rc == 0, str(run)
    assert "node1: preflight passed" in run.text, str(run)
    assert node.snapshot() == before
    assert all(call.asks for call in run.of(node)), run.of(node)


def test_start_refuses_a_stuck_gpu_and_names_it(node, left_over, monitor, play) -> None:
    wanted = node.folder / "state" / "wanted.json"
    wanted.parent.mkdir()
    wanted.write_text(json.dumps(WANTED))
    run = play("start", node, variables={"gpu_idle_timeout": 3})
    assert run.rc == 2, str(run)
    assert "start" not in run.verbs(node, "start", "stop"), run.of(node)
    assert "GPU 1" in run.text, str(run)
    assert "70001 MiB" in run.text, str(run)
    assert str(left_over) in run.text, str(run)
    assert not node.launchers()
    assert alive(left_over), "start.yml releases nothing"
    assert "This run started nothing, and the files that were live are live" in run.text, str(run)
    assert not list(node.config.parent.glob("*.staged")), "they hold keys"
    assert json.loads(wanted.read_text()) == WANTED, "nothing was started, so no start has failed"
    wanted.unlink()


def test_release_frees_the_gpus_and_starts_nothing(node, left_over, monitor, play) -> None:
    run = play("release", node)
    assert run.rc == 0, str(run)
    assert "node1: released" in run.text, str(run)
    assert not alive(left_over)
    assert alive(monitor)
    assert node.used_mib() == [0] * 8
    assert not run.verbs(node, "start"), run.of(node)
    assert not node.launchers()


def test_start_brings_a_stopped_server_up(node, left_over, monitor, play) -> None:
    # The folders of the log and of the configuration, which are a user's own here: closed to others they stay.
    closed = (node.folder, node.config.parent)
    for folder in closed:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
    run = play("start", node)
    assert run.rc == 0, str(run)
    assert "node1: ready" in run.text, str(run)
    assert len(node.launchers()) == 1
    assert all(mib > 0 for mib in node.used_mib())
    assert alive(monitor)
    assert [folder.stat().st_mode & 0o777 for folder in closed] == [0o700, 0o700]


def test_start_leaves_a_running_server_alone(node, monitor, play) -> None:
    before, old = node.snapshot(), node.launchers()
    run = play("start", node)
    assert run.rc == 0, str(run)
    assert "nothing to start" in run.text, str(run)
    assert "changed=0" in run.text, str(run)
    assert node.launchers() == old
    assert node.snapshot() == before


def test_stop_stops_the_server_and_nothing_else(node, monitor, play) -> None:
    (old,) = node.launchers()
    run = play("stop", node)
    assert run.rc == 0, str(run)
    assert "drained" in run.text, str(run)
    assert not alive(old)
    assert not node.launchers()
    assert alive(monitor)
    assert not run.verbs(node, "start"), run.of(node)
    again = play("stop", node)
    assert again.rc == 0, str(again)
    assert "already_stopped" in again.text, str(again)
    assert not again.verbs(node, "start", "stop", "kill"), again.of(node)
