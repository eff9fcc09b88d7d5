# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""status.yml of a small fleet: a node that serves, one with a stuck GPU, one that is gone."""

from __future__ import annotations

import json
import stat
import typing as t

import pytest
from simulated_nodes import Node, Run

# What a node keeps on its disk.
KEPT = {
    "gpu_drift_wanted_file": "{{ simulated_node }}/wanted.json",
    "gpu_drift_memory_file": "{{ simulated_node }}/drift.json",
    "run_record_dir": "{{ simulated_node }}/record",
}


def unreachable(gone: Node) -> dict[str, str]:
    """Variables of all nodes that send one to a port where nobody listens."""

    def only(there: t.Any, here: str) -> str:
        return f"{{{{ {there!r} if inventory_hostname == {gone.name!r} else {here} }}}}"

    # Each keeps an address of its own: servers of one node would have to share its GPUs.
    address = only("127.0.0.1", "inventory_hostname")
    return {"ansible_connection": only("ssh", "'local'"), "ansible_host": address, "ansible_port": only(1, "22")}


class Fleet(t.NamedTuple):
    run: Run
    serves: Node
    stuck: Node
    gone: Node
    before: list[dict[str, t.Any]]
    document: dict[str, t.Any]
    page: str
    modes: list[int]


@pytest.fixture(scope="module")
def fleet(make_shared_node, play, tmp_path_factory) -> Fleet:
    nodes = [make_shared_node() for dummy in range(3)]
    serves, stuck, gone = nodes
    started = play("start", serves)
    assert started.rc == 0, str(started)
    stuck.story("stuck_gpu", "--mib", "70001")
    stuck.hold("--gpu", "2", "--no-map", "--as", "<script>nvtop")
    folder = tmp_path_factory.mktemp("status")
    variables = {**KEPT, **unreachable(gone)}
    wanted = {"state": "serving", "profile": "slow", "by": "relaunch.yml", "who": "anna", "outcome": "ready"}
    wanted |= {"at": "2026-11-29T15:02:11Z", "run_id": "r1", "pause": None}
    (serves.folder / "wanted.json").write_text(json.dumps({"version": 1, "units": {"sglang.service": wanted}}))
    (stuck.folder / "drift.json").write_text("{ cut off")
    before = [node.snapshot() for node in (serves, stuck)]
    run = play(
        "status",
        nodes,
        variables=variables,
        status_file=str(folder / "status.json"),
        status_page=str(folder / "status.html"),
    )
    assert run.rc == 0, str(run)
    files = [folder / "status.json", folder / "status.html"]
    return Fleet(
        run, serves, stuck, gone, before, json.loads(files[0].read_text()), files[1].read_text(),
        [stat.S_IMODE(path.stat().st_mode) for path in files],
    )  # fmt: skip


def host(fleet: Fleet, node: Node) -> dict[str, t.Any]:
    (found,) = [entry for entry in fleet.document["hosts"] if entry["host"] == node.name]
    return found


def test_a_look_changes_nothing(fleet) -> None:
    assert [node.snapshot() for node in (fleet.serves, fleet.stuck)] == fleet.before
    for node in (fleet.serves, fleet.stuck):
        assert all(call.asks for call in fleet.run.of(node)), fleet.run.of(node)


def test_a_node_that_serves_is_well(fleet) -> None:
    serves = host(fleet, fleet.serves)
    assert (serves["level"], serves["server"]["verdict"], serves["problems"]) == ("well", "ready", []), serves
    assert len(serves["gpu"]["gpus"]) == 8
    assert all(gpu["processes"] for gpu in serves["gpu"]["gpus"]), serves["gpu"]
    assert {gpu["processes"][0]["disposition"] for gpu in serves["gpu"]["gpus"]} == {"target"}


def test_a_stuck_gpu_is_named_with_the_next_step(fleet) -> None:
    (left_over,) = fleet.stuck.of_role("left-over")
    stuck = host(fleet, fleet.stuck)
    assert stuck["level"] == "attention"
    (held,) = [problem for problem in stuck["problems"] if f"pid {left_over}" in problem["what"]]
    assert f"release.yml -l {fleet.stuck.name}" in held["next"]
    assert "70001" in fleet.run.text
    assert held["what"] in fleet.run.text, str(fleet.run)
    assert held["what"] in fleet.page


def test_what_the_nodes_keep_is_shown(fleet) -> None:
    serves, stuck = host(fleet, fleet.serves), host(fleet, fleet.stuck)
    assert (serves["profile"], serves["profile_from"]) == ("slow", "wanted")
    assert (serves["runs"]["known"], serves["runs"]["problem"]) == (True, None)
    (run,) = serves["runs"]["value"]
    assert (run["playbook"], run["verdict"], run["profile"]) == ("start.yml", "ready", "demo"), run
    assert not stuck["drift"]["known"]
    assert any("drift remembers" in problem["what"] for problem in stuck["problems"]), stuck["problems"]
    assert stuck["wanted"] == {"known": True, "value": None, "problem": None}


def test_an_unreachable_node_is_a_line(fleet) -> None:
    gone = host(fleet, fleet.gone)
    assert gone["level"] == "not_known"
    assert "could not be reached" in gone["problems"][0]["what"]
    assert gone["server"]["verdict"] == "unknown"
    line = next(line for line in fleet.run.out.splitlines() if line.split()[:1] == [fleet.gone.name])
    assert "unreachable" in line, line
    assert not fleet.run.of(fleet.gone)


def test_the_files_are_for_everybody_and_escaped(fleet) -> None:
    assert fleet.modes == [0o644, 0o644]
    assert "<script" not in fleet.page
    assert "&lt;script&gt;nvtop" in fleet.page
    assert fleet.document["summary"] == {"well": 1, "in_hand": 0, "attention": 1, "not_known": 1}
    assert fleet.document["generated_at"].endswith("Z")
    key = "demo-key-0123456789abcdef"
    assert key not in fleet.page
    assert key not in json.dumps(fleet.document)


def test_a_refused_node_is_told_beside_the_others(fleet, play) -> None:
    """The run fails then and still says how the others stand. The file lies where the run was called."""
    nodes = [fleet.serves, fleet.stuck]
    wrong = "{{ 'x' if inventory_hostname == '" + fleet.stuck.name + "' else 60 }}"
    run = play("status", nodes, variables={**KEPT, "sglang_server_restart_delay": wrong}, status_file="refused.json")
    assert run.rc == 2, str(run)
    serves, stuck = json.loads((play.folder / "refused.json").read_text())["hosts"]
    assert serves["level"] == "well"
    assert stuck["level"] == "not_known"
    assert "variables were refused" in stuck["problems"][0]["what"]


def test_a_gpu_host_that_is_gone_is_told(fleet, play, tmp_path) -> None:
    (tmp_path / "hosts").write_text("pve1 ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1\n")
    pair = {"gpu_release_host": "pve1", "gpu_release_lxc": [101]}
    run = play("status", fleet.serves, "-i", str(tmp_path / "hosts"), variables={**KEPT, **pair})
    assert run.rc == 0, str(run)
    assert "Who holds its GPUs was not seen on pve1" in run.text, str(run)
    assert "server ready" in run.text, str(run)
