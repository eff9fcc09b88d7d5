# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A scheduled run over nodes in different states: what it decides, what it mends, and what it must leave alone."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import typing as t

import pytest
from simulated_nodes import Node, Run, alive

POLICY = {"gpu_drift_mode": "remediate", "gpu_drift_confirm_after": 1, "gpu_drift_max_share": 0.9}


class Fleet(t.NamedTuple):
    nodes: dict[str, Node]
    before: dict[str, dict[str, t.Any]]
    first: Run
    first_rows: dict[str, dict[str, t.Any]]
    between: dict[str, dict[str, t.Any]]
    second: Run
    second_rows: dict[str, dict[str, t.Any]]


def freeze_workers(node: Node) -> None:
    """As a hung server: every rank stopped, memory held, health answers 503."""
    workers = [pid for pid, process in node.processes().items() if process["role"].startswith("scheduler_TP")]
    assert len(workers) == 8
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)


def rows(path: pathlib.Path, names: dict[str, str]) -> dict[str, dict[str, t.Any]]:
    return {names[row["host"]]: row for row in json.loads(path.read_text())}


@pytest.fixture(scope="module")
def fleet(make_shared_node, play, tmp_path_factory) -> Fleet:
    states = ("healthy", "hung", "stopped", "paused", "stranger", "corrupt")
    nodes = {state: make_shared_node() for state in states}
    names = {node.name: state for state, node in nodes.items()}
    everybody = list(nodes.values())
    started = play("relaunch", everybody, relaunch_serial="100%")
    assert started.rc == 0, str(started)
    assert play("stop", nodes["stopped"]).rc == 0
    assert play("pause", nodes["paused"], pause_minutes=60, pause_reason="the rack is rewired").rc == 0
    nodes["stranger"].hold("--gpu", "2", "--mib", "500")
    (nodes["corrupt"].folder / "state" / "drift.json").write_text('{"version": 1, "units": {"sglang.serv')
    for state in ("hung", "paused", "corrupt"):
        freeze_workers(nodes[state])
    place = tmp_path_factory.mktemp("drift")

    def look(number: int) -> tuple[Run, dict[str, dict[str, t.Any]]]:
        path = place / f"{number}.json"
        run = play("drift", everybody, **POLICY, gpu_drift_result_file=str(path))
        return run, rows(path, names)

    before = {state: node.snapshot() for state, node in nodes.items()}
    first, first_rows = look(1)
    between = {state: node.snapshot() for state, node in nodes.items()}
    second, second_rows = look(2)
    return Fleet(nodes, before, first, first_rows, between, second, second_rows)


def test_a_healthy_node_is_not_changed_at_all(fleet) -> None:
    assert fleet.first_rows["healthy"]["action"] == "nothing", fleet.first_rows["healthy"]
    assert fleet.between["healthy"] == fleet.before["healthy"]
    assert fleet.nodes["healthy"].snapshot() == fleet.before["healthy"]


def test_one_look_is_not_enough_to_kill(fleet) -> None:
    row = fleet.first_rows["hung"]
    assert (row["would"], row["held_back"], row["outcome"]) == ("relaunch", "confirmation", None), row
    assert fleet.between["hung"]["processes"] == fleet.before["hung"]["processes"]


def test_a_second_look_that_agrees_mends_it(fleet) -> None:
    row = fleet.second_rows["hung"]
    assert (row["action"], row["outcome"]) == ("relaunch", "ready"), f"{row}\n{fleet.second}"
    old = {pid for pid, _started in fleet.before["hung"]["processes"]}
    (launcher,) = fleet.nodes["hung"].launchers()
    assert launcher not in old
    assert not any(alive(pid) for pid in old)


def test_stacks_and_logs_were_kept_before_the_first_signal(fleet) -> None:
    place = fleet.second_rows["hung"]["evidence_path"]
    assert place, fleet.second_rows["hung"]
    index = json.loads((pathlib.Path(place) / "index.json").read_text())
    assert {part["part"] for part in index["parts"]} >= {"processes", "log", "holders"}
    assert not (pathlib.Path(place).stat().st_mode & 0o077)


@pytest.mark.parametrize("state", ["stopped", "paused", "stranger", "corrupt"])
def test_what_must_be_left_alone_is_left_alone(fleet, state) -> None:
    for row in (fleet.first_rows[state], fleet.second_rows[state]):
        assert row["outcome"] is None, row
        assert row["action"] in ("nothing", "report"), row
    assert fleet.nodes[state].snapshot()["processes"] == fleet.before[state]["processes"]


def test_why_is_said(fleet) -> None:
    words = {
        "paused": "the rack is rewired",
        "corrupt": "drift.json",
        "hung": "no sign of life",
    }
    for state, word in words.items():
        assert word in " ".join(fleet.first_rows[state]["reasons"]), fleet.first_rows[state]
    assert (fleet.first.rc, fleet.second.rc) == (0, 0), str(fleet.second)


def test_the_corrupt_memory_is_kept_as_it_is(fleet) -> None:
    assert (fleet.nodes["corrupt"].folder / "state" / "drift.json").read_text().endswith('"sglang.serv')


def test_a_node_in_somebodys_hands_is_left_and_he_is_named(fleet, play, tmp_path) -> None:
    """A lease of another run stands: the hung node of the others is not touched."""
    node = fleet.nodes["paused"]
    assert play("pause", node, pause_minutes=0).rc == 0
    place = tmp_path / "take.yml"
    place.write_text(
        json.dumps(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "environment": "{{ cleanslate_environment }}",
                    "tasks": [
                        {
                            "cleanslate.gpu.gpu_host_lock": {
                                "state": "held",
                                "run_id": "colleague-1",
                                "node": "{{ inventory_hostname }}",
                                "path": "{{ gpu_release_lease_dir }}",
                                "ttl": 600,
                            }
                        }
                    ],
                }
            ]
        )
    )
    assert play(place, node).rc == 0
    before = node.snapshot()["processes"]
    path = tmp_path / "rows.json"
    for _look in range(2):
        run = play("drift", node, **POLICY, gpu_drift_result_file=str(path))
        assert run.rc == 0, str(run)
    (row,) = json.loads(path.read_text())
    assert row["outcome"] is None, row
    assert "colleague-1" in " ".join(row["reasons"]), row
    assert node.snapshot()["processes"] == before
