# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scheduled runs that meet load, or a server that somebody has just started: they leave it alone, and say why."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t
import urllib.request

import pytest
from driving import until
from simulated_nodes import Node, Run

POLICY = {"gpu_drift_mode": "remediate", "gpu_drift_confirm_after": 1, "gpu_drift_max_share": 1.0}
KEY = "demo-key-0123456789abcdef"  # of inventory/demo
OVERLOADED = 60.0  # seconds


class Look(t.NamedTuple):
    run: Run
    rows: dict[str, dict[str, t.Any]]


@pytest.fixture(scope="module")
def look(play, tmp_path_factory) -> t.Callable[..., Look]:
    """One scheduled run, with what it wrote into its result file, by the names of the nodes."""

    def looked(nodes: Node | t.Sequence[Node], *words: str, **extra: t.Any) -> Look:
        path = tmp_path_factory.mktemp("look") / "rows.json"
        run = play("drift", nodes, *words, **{**POLICY, **extra}, gpu_drift_result_file=str(path))
        return Look(run, {row["host"]: row for row in json.loads(path.read_text())})

    return looked


@pytest.fixture(scope="module")
def serving(make_shared_node, play) -> list[Node]:
    nodes = [make_shared_node(), make_shared_node()]
    run = play("relaunch", nodes, relaunch_serial="100%")
    assert run.rc == 0, str(run)
    return nodes


def hang(node: Node) -> None:
    for rank in range(8):
        for pid in node.of_role(f"scheduler_TP{rank}"):
            os.kill(pid, signal.SIGSTOP)


def tokens(node: Node) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{node.port}/v1/loads")
    request.add_header("Authorization", f"Bearer {KEY}")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(json.load(answer)["loads"][0]["num_used_tokens"])
    except (OSError, ValueError):
        return 0


def restart(node: Node) -> None:
    done = subprocess.run(
        [str(node.folder / "bin" / "systemctl"), "--user", "restart", "sglang.service"],
        env={**os.environ, "XDG_RUNTIME_DIR": str(node.folder / "run")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_minute_of_503_under_load_is_left_alone(serving, look) -> None:
    """/health says no for a minute, and the model works all the time."""
    node = serving[0]
    node.script({"overloaded_s": OVERLOADED})
    restart(node)
    assert until(lambda: tokens(node) > 0)
    began, before = time.monotonic(), node.snapshot()
    for dummy in range(3):
        seen = look(node)
        if time.monotonic() - began > OVERLOADED - 1:
            break
        row = seen.rows[node.name]
        assert (row["server"], row["action"], row["outcome"]) == ("busy", "nothing", None), f"{row}\n{seen.run}"
        assert all(call.asks for call in seen.run.of(node)), seen.run.of(node)
    assert until(lambda: tokens(node) == 0, OVERLOADED)
    row = look(node).rows[node.name]
    assert (row["server"], row["action"]) == ("ready", "nothing"), row
    assert node.snapshot() == before, "neither signalled nor suspected"


def lock(play, node: Node, place: pathlib.Path, *states: dict[str, t.Any]) -> None:
    """What another run does to the lease of this node."""
    common = {"run_id": "colleague-1", "node": "{{ inventory_hostname }}", "path": "{{ gpu_release_lease_dir }}"}
    tasks = [{"cleanslate.gpu.gpu_host_lock": {**common, "who": "ana", **state}} for state in states]
    environment = "{{ cleanslate_environment }}"
    plays = [{"hosts": "all", "gather_facts": False, "environment": environment, "tasks": tasks}]
    place.write_text(json.dumps(plays))
    run = play(place, node)
    assert run.rc == 0, str(run)


def test_a_server_that_somebody_has_just_started_is_left_to_start(serving, look, play, tmp_path) -> None:
    """It looks hung, and the marker says who started it and for how long it may take."""
    node = serving[1]
    lock(play, node, tmp_path / "mark.yml", {"state": "held"}, {"state": "released", "marker_ttl": 2700})
    hang(node)
    before = node.snapshot()
    for dummy in range(2):
        seen = look(node)
        row = seen.rows[node.name]
        assert (row["action"], row["outcome"]) == ("nothing", None), f"{row}\n{seen.run}"
        assert "starting" in " ".join(row["reasons"]), row
        assert "colleague-1" in " ".join(row["reasons"]), row
    assert node.snapshot() == before
    lock(play, node, tmp_path / "unmark.yml", {"state": "released", "withdraw_marker": True})
    assert look(node).rows[node.name]["would"] == "relaunch", "the marker alone kept it from that"
