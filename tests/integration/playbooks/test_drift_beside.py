# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scheduled runs that meet load, a server that somebody has just started, or each other: they leave, and say why."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t
import urllib.request

import pytest
import simulated_nodes
from driving import until
from simulated_nodes import Node, Run

POLICY = {"gpu_drift_mode": "remediate", "gpu_drift_confirm_after": 1, "gpu_drift_max_share": 1.0}
KEY = "demo-key-0123456789abcdef"  # of inventory/demo
OVERLOADED = 60.0  # seconds
LONG = 900.0  # seconds for runs that wait for each other
HOOK = """- name: Say that this node is in our hands
  ansible.builtin.file:
    path: {here}
    state: touch
    mode: "0600"
  delegate_to: localhost
  when: inventory_hostname == '{host}'
- name: Wait for the test
  ansible.builtin.wait_for:
    path: {go}
    timeout: 900
  delegate_to: localhost
  when: inventory_hostname == '{host}'
"""


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


def test_a_container_that_proxmox_has_locked_is_left_alone(serving, look, play, tmp_path) -> None:
    """The backup is said by the GPU host; a person's run goes on, and only says so."""
    node, host = serving
    lxc = tmp_path / "pve" / "lxc"
    lxc.mkdir(parents=True)
    pair = {"gpu_release_host": host.name, "gpu_release_lxc": [101], "gpu_release_pve_dir": str(lxc.parent)}
    (lxc / "101.conf").write_text("arch: amd64\nlock: backup\n")
    before = node.snapshot()
    row = look([node, host], "-l", node.name, variables=pair).rows[node.name]
    assert (row["action"], row["reasons"][0]) == ("nothing", "container 101 is locked by Proxmox: backup"), row
    preflight = play("preflight", [node, host], "-l", node.name, variables=pair)
    assert f"{node.name}: container 101 is locked by Proxmox: backup. A relaunch may disturb" in preflight.text
    assert node.snapshot() == before
    (lxc / "101.conf").write_text("arch: amd64\n")
    row = look([node, host], "-l", node.name, variables=pair).rows[node.name]
    assert row["action"] == "report", "nothing keeps it from the rest of the table any more"
    assert "locked" not in " ".join(row["reasons"]), row
    assert "locked by" not in play("preflight", [node, host], "-l", node.name, variables=pair).text


def owners(node: Node) -> list[str]:
    """The runs that hold a lease there."""
    (path,) = (node.folder / "run" / "cleanslate").glob("leases-*.json")
    return [lease["run_id"] for lease in json.loads(path.read_text())["leases"]]


class AtWork:
    """A scheduled run that has come to the hook before the stop of one node, and waits there."""

    def __init__(self, look: t.Callable[..., Look], nodes: list[Node], at: Node, place: pathlib.Path) -> None:
        place.mkdir()
        self._here, self._go = place / "here", place / "go"
        hook = place / "hook.yml"
        hook.write_text(HOOK.format(here=self._here, go=self._go, host=at.name))
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._run = self._pool.submit(look, nodes, relaunch_hook_before_stop=str(hook))
        assert until(lambda: self._here.exists() or self._run.done(), LONG), "it never came to its hook"
        assert not self._run.done(), self._run.result()

    def goes_on(self) -> Look:
        self._go.touch()
        return self._run.result(timeout=LONG)


@pytest.fixture
def two_hung(serving, look) -> tuple[Node, Node]:
    """Both are due: a look has seen them before."""
    first, second = serving
    for node in (first, second):
        restart(node)
        assert until(lambda node=node: len(node.launchers()) == 1)
    assert until(lambda: [row["server"] for row in look([first, second]).rows.values()] == ["ready", "ready"], 60)
    for node in (first, second):
        hang(node)
    for row in look([first, second]).rows.values():
        assert row["held_back"] == "confirmation", row
    return first, second


def test_of_two_scheduled_runs_the_second_says_whose_it_is_and_leaves(two_hung, look, tmp_path, monkeypatch) -> None:
    """The second one comes when the first has the lease; and one that had decided before finds it taken."""
    monkeypatch.setattr(simulated_nodes, "PATIENCE", LONG)
    first, second = two_hung
    # It has decided about both, and works on the first.
    early = AtWork(look, [first, second], first, tmp_path / "early")
    try:
        # This one gets the other node first.
        late = AtWork(look, [second], second, tmp_path / "late")
        try:
            before = second.snapshot()["processes"]
            beside = look(second)
            (run_id,) = owners(second)
            row = beside.rows[second.name]
            assert (row["action"], row["outcome"]) == ("nothing", None), f"{row}\n{beside.run}"
            assert run_id in " ".join(row["reasons"]), row
            met = early.goes_on()
            assert second.snapshot()["processes"] == before
        finally:
            won = late.goes_on()
    finally:
        early.goes_on()
    row = met.rows[second.name]
    assert row["outcome"] == "stood_down", f"{row}\n{met.run}"
    assert run_id in row["failed"], row
    assert met.rows[first.name]["outcome"] == "ready", met.rows[first.name]
    lines = [json.loads(line) for line in (second.folder / "record" / "runs.jsonl").read_text().splitlines()]
    ended = [line["run_id"] for line in lines if line["event"] == "ended" and line["playbook"] == "drift.yml"]
    assert ended == [run_id], "one that stood down has begun nothing, and so has nothing to end"
    assert won.rows[second.name]["outcome"] == "ready", f"{won.rows[second.name]}\n{won.run}"
    memory = json.loads((second.folder / "state" / "drift.json").read_text())["units"]["sglang.service"]
    assert [one["outcome"] for one in memory["remediations"]] == ["ready"], "one remedy, by one run"


def test_a_lease_that_somebody_took_during_the_hook_keeps_it_from_the_server(two_hung, look, tmp_path) -> None:
    """A hook that drains a load balancer may outlast the lease; whoever has it by then works on the node."""
    node = two_hung[0]
    at_work = AtWork(look, [node], node, tmp_path / "early")
    try:
        (path,) = (node.folder / "run" / "cleanslate").glob("leases-*.json")
        document = json.loads(path.read_text())
        document["leases"][0]["run_id"] = "20261130T060000Z-others"
        path.write_text(json.dumps(document))
        before = node.snapshot()["processes"]
    finally:
        met = at_work.goes_on()
    assert node.snapshot()["processes"] == before, f"it went on without a lease\n{met.run}"
    row = met.rows[node.name]
    assert row["outcome"] == "failed", f"{row}\n{met.run}"
    assert "20261130T060000Z-others" in row["failed"], row
    assert owners(node) == ["20261130T060000Z-others"], "nobody else's lease is given back"
    path.unlink()
