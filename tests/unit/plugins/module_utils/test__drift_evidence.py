# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the modules' results to the words of the table."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._container_locks import ContainerLock
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_evidence import Evidence, gather
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import (
    GPUS,
    RUNNING,
    START,
    UNIT,
    Node,
    holder,
)

HELD = {"verdict": "busy", "msg": "8 GPUs are held"}
LEASE = {"run_id": "r7", "gpus": [], "text": "all GPUs of the host: held by run r7, node gpu1 (ana, relaunch.yml)"}
MARKER = {"run_id": "r7", "gpus": [], "text": "all GPUs of the host: a server of run r7 is starting, for 900 s at most"}


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def seen(
    looked_at: Node, /, gpus: tuple[str, ...] = (), run_id: str = "", budget: float = 2700.0, **parts: t.Any
) -> Evidence:
    look = {**looked_at.look(), **parts}
    return gather(look, unit=UNIT, config="report", gpus=gpus, load_budget=budget, run_id=run_id)


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        ("idle", "idle"),
        ("settled", "idle"),
        ("busy", "own"),
        ("dying", "own"),
        ("foreign", "others"),
        ("draining", "unknown"),
        ("orphaned", "orphaned"),
        ("missing", "missing"),
        ("faulty", "faulty"),
        ("fabric_not_ready", "faulty"),
        ("unknown", "unknown"),
        ("something new", "unknown"),
        (None, "unknown"),
    ],
)
def test_gpus_by_the_verdict_of_the_gate(node: Node, verdict: str | None, word: str) -> None:
    node.gate = {"verdict": verdict, "msg": "as it is", "holders": []}
    found = seen(node)
    assert (found.situation.gpus, found.said["gpus"]) == (word, "as it is")


def test_a_gate_that_was_not_asked(node: Node) -> None:
    assert seen(node, gate={"failed": True, "msg": "no python"}).situation.gpus == "unknown"
    assert seen(node, gate=None).said["gpus"] == "the GPUs were not looked at"


class TestWhoseGpus:
    """Where the GPU host looks, everything in the container is its target; drift's are the unit's alone."""

    HOST: t.ClassVar[dict[str, t.Any]] = {
        "leases": [],
        "starting": [],
        "verdict": "not_held",
        "container_locks": [ContainerLock("101").as_dict()],
    }

    def test_the_units(self, node: Node) -> None:
        found = seen(node, host_gate={**HELD, "holders": [holder(91)]}, host_lock=self.HOST)
        assert (found.situation.gpus, found.situation.lease) == ("own", "no")

    def test_a_job_in_the_same_container_is_somebody_elses(self, node: Node) -> None:
        job = holder(92, unit="session-3.scope", cmdline="python train.py")
        found = seen(node, host_gate={**HELD, "holders": [holder(91), job]}, host_lock=self.HOST)
        assert found.situation.gpus == "others"
        assert "do not belong to sglang.service compute on these GPUs: 92 (python train.py)" in found.said["gpus"]

    def test_one_that_has_no_unit_is_somebody_elses_too(self, node: Node) -> None:
        found = seen(node, host_gate={**HELD, "holders": [holder(91, unit=None)]}, host_lock=self.HOST)
        assert found.situation.gpus == "others"
        node.gate = {**HELD, "holders": [holder(unit=None)]}
        assert seen(node).situation.gpus == "own", "on the node only the unit is in scope"

    def test_who_only_watches_does_not_matter(self, node: Node) -> None:
        watching = [holder(5, "x.service", "monitor"), holder(6, "y.service", computes=False)]
        found = seen(node, host_gate={**HELD, "holders": [holder(91), *watching]}, host_lock=self.HOST)
        assert found.situation.gpus == "own"

    def test_a_job_on_other_gpus_does_not_matter(self, node: Node) -> None:
        gate = {**HELD, "holders": [holder(), holder(92, unit="job.service", gpus=[GPUS[7]])]}
        assert seen(node, gpus=GPUS[:4], host_gate=gate, host_lock=self.HOST).situation.gpus == "own"
        assert seen(node, gpus=GPUS[4:], host_gate=gate, host_lock=self.HOST).situation.gpus == "others"

    def test_left_overs_are_the_units_alone(self, node: Node) -> None:
        node.die()
        gate = {**HELD, "holders": [holder(92), holder(91), holder(93, unit="job.service", computes=False)]}
        found = seen(node, host_gate=gate, host_lock=self.HOST)
        assert found.subject == "left over 91@991, 92@992"

    @pytest.mark.parametrize(
        ("on_node", "on_host", "word"),
        [
            ("orphaned", "busy", "own"),  # the node cannot see who holds what outside it
            ("busy", "orphaned", "orphaned"),
            ("unknown", "idle", "unknown"),
            ("idle", "unknown", "unknown"),
            ("idle", "missing", "missing"),
            ("faulty", "foreign", "faulty"),
            ("foreign", "busy", "others"),
        ],
    )
    def test_two_views(self, node: Node, on_node: str, on_host: str, word: str) -> None:
        node.gate = {"verdict": on_node, "msg": "node", "holders": []}
        host = {"verdict": on_host, "msg": "host", "holders": []}
        assert seen(node, host_gate=host, host_lock=self.HOST).situation.gpus == word

    def test_a_node_without_one_as_older_ansible_says_it(self, node: Node) -> None:
        """There a template's none inside a mapping is an empty text."""
        found = seen(node, host_gate="", host_lock="").situation
        assert (found.gpus, found.lease) == (seen(node).situation.gpus, "no")

    def test_a_host_that_did_not_answer(self, node: Node) -> None:
        found = seen(node, host_gate={"unreachable": True, "msg": "ssh"}, host_lock={"unreachable": True, "msg": "ssh"})
        assert (found.situation.gpus, found.situation.lease) == ("unknown", "unknown")
        assert seen(node, host_lock=self.HOST).situation.gpus == "unknown", "its gate was not asked"


class TestFrozen:
    """By the kernel on the node, or by Proxmox's lock of its container on the GPU host."""

    def told(self, node: Node, *locks: t.Any) -> tuple[str, str]:
        host = {**TestWhoseGpus.HOST, "container_locks": list(locks)}
        found = seen(node, host_gate={**HELD, "holders": [holder(91)]}, host_lock=host)
        return found.situation.frozen, found.said["frozen"]

    def test_nothing_is(self, node: Node) -> None:
        assert self.told(node, ContainerLock("101").as_dict()) == ("no", "")

    def test_a_locked_container(self, node: Node) -> None:
        locks = [ContainerLock("102").as_dict(), ContainerLock("101", "backup").as_dict()]
        assert self.told(node, *locks) == ("yes", "container 101 is locked by Proxmox: backup")

    def test_what_the_kernel_has_frozen_needs_no_lock(self, node: Node) -> None:
        node.service = {**RUNNING, "frozen": True}
        assert self.told(node, ContainerLock("101").as_dict())[0] == "yes"
        assert seen(node).situation.frozen == "yes"

    def test_a_lock_that_cannot_be_told_is_no_reason_to_act(self, node: Node) -> None:
        assert self.told(node, ContainerLock("101", problem="no such file").as_dict())[0] == "unknown"
        for locks in ([], ["101"], [None]):
            assert self.told(node, *locks)[0] == "unknown"
        node.service = {**RUNNING, "frozen": None}
        assert self.told(node, ContainerLock("101").as_dict())[0] == "unknown"

    def test_a_host_that_was_not_asked(self, node: Node) -> None:
        found = seen(node, host_gate={**HELD, "holders": [holder(91)]}, host_lock={"leases": [], "starting": []})
        assert found.situation.frozen == "unknown"


class TestLease:
    def told(self, node: Node, /, gpus: tuple[str, ...] = (), run_id: str = "", **found: t.Any) -> tuple[str, str]:
        look = node.look()
        evidence = seen(node, gpus, run_id, node={**look["node"], **found})
        return evidence.situation.lease, evidence.said["lease"]

    def test_who_holds_it_is_named(self, node: Node) -> None:
        assert self.told(node, leases=[LEASE]) == ("yes", LEASE["text"])
        assert self.told(node, starting=[MARKER]) == ("yes", MARKER["text"])

    def test_the_own_one_is_not_in_the_way(self, node: Node) -> None:
        assert self.told(node, run_id="r7", leases=[LEASE]) == ("no", "")
        assert self.told(node, run_id="r8", leases=[LEASE])[0] == "yes"

    def test_one_on_other_gpus_is_not_in_the_way(self, node: Node) -> None:
        assert self.told(node, gpus=GPUS[:4], leases=[{**LEASE, "gpus": [GPUS[5]]}])[0] == "no"
        assert self.told(node, gpus=GPUS[:4], leases=[{**LEASE, "gpus": [GPUS[3]]}])[0] == "yes"

    @pytest.mark.parametrize(
        "found", [{"leases": None}, {"starting": None}, {"leases_problem": "unreadable lease"}, {"leases": [3]}]
    )
    def test_what_cannot_be_read_is_unknown(self, node: Node, found: dict[str, t.Any]) -> None:
        assert self.told(node, **found)[0] == "unknown"

    def test_an_unreadable_one_on_the_host_is_unknown(self, node: Node) -> None:
        lock = {"leases": [], "starting": [], "unreadable": True, "reason": "unreadable lease: x"}
        found = seen(node, host_gate={**HELD, "holders": []}, host_lock=lock)
        assert (found.situation.lease, found.said["lease"]) == ("unknown", "unreadable lease: x")


class TestEnd:
    def ended(self, node: Node, **service: t.Any) -> str:
        node.die(**service)
        return seen(node).situation.ended

    def test_by_what_came_first(self, node: Node) -> None:
        """systemctl stop: out of active, then the process ends. A crash: the process ends, then out of active."""
        for restart in ("always", "on-failure"):
            times = {"restart": restart, "left_active_us": 100, "main_ended_us": 900}
            assert self.ended(node, state="failed", **times) == "on_request"
            assert self.ended(node, state="inactive", **times) == "on_request"
        for left in (100, 900):
            assert self.ended(node, state="failed", left_active_us=left, main_ended_us=100) == "alone"

    @pytest.mark.parametrize("times", [{"left_active_us": 900, "main_ended_us": 100}, {"left_active_us": None}])
    @pytest.mark.parametrize(
        ("state", "restart", "exit_status", "word"),
        [
            # A stop between two starts of a unit that keeps dying: the times are those of its last crash.
            ("inactive", "always", 1, "on_request"),
            ("inactive", "always", 0, "on_request"),
            ("inactive", None, 0, "on_request"),
            ("inactive", "on-failure", 1, "on_request"),
            ("inactive", "on-failure", 0, "alone"),
            ("inactive", "no", 0, "alone"),
            ("failed", "always", 1, "alone"),
            ("failed", None, None, "alone"),
        ],
    )
    def test_by_what_systemd_would_have_done(
        self, node: Node, state: str, restart: str | None, exit_status: int | None, word: str, times: dict[str, t.Any]
    ) -> None:
        assert self.ended(node, state=state, restart=restart, exit_status=exit_status, **times) == word

    @pytest.mark.parametrize(
        ("end", "word"),
        [
            ("code=exited ; status=5 }", "on_request"),
            ("code=killed ; status=15/TERM }", "on_request"),
            ("code=exited ; status=3 }", "alone"),
            ("code=exited ; status=4 }", "alone"),
            ("code=exited ; status=50 }", "alone"),
            ("code=killed ; status=9/KILL }", "alone"),
            ("code=(null) ; status=0/0 }", "alone"),
        ],
    )
    def test_a_stop_while_the_guard_waits(self, node: Node, end: str, word: str) -> None:
        """It ends as failed, like a crash loop; the guard's status tells."""
        before = "{ path=/usr/bin/python3 ; argv[]=/usr/bin/python3 -I /x ; ignore_errors=no ; pid=9 ; "
        found = self.ended(node, state="failed", start_pre=before + end, left_active_us=900, main_ended_us=100)
        assert found == word

    def test_one_that_has_not_run_since_the_boot(self, node: Node) -> None:
        assert self.ended(node, state="inactive", left_active_us=0, main_ended_us=0) == "unknown"

    def test_one_that_runs(self, node: Node) -> None:
        assert seen(node).situation.ended == "unknown"

    def test_between_two_starts(self, node: Node) -> None:
        node.die(state="activating", sub_state="auto-restart")
        found = seen(node).situation
        assert (found.alive, found.comes_back) == ("no", "yes")

    def test_in_its_guard(self, node: Node) -> None:
        node.die(state="activating", sub_state="start-pre")
        found = seen(node).situation
        assert (found.alive, found.comes_back) == ("unknown", "yes")

    def test_systemd_could_not_be_asked(self, node: Node) -> None:
        node.die()
        node.service = None
        found = seen(node).situation
        assert (found.alive, found.comes_back, found.ended, found.frozen) == ("unknown",) * 4


@pytest.mark.parametrize(
    ("change", "word", "said"),
    [
        ({}, "serving", "serving profile kimi was asked for by ana with relaunch.yml at 2026-11-29T15:02:11Z"),
        ({"state": "stopped", "outcome": "done"}, "stopped", "stopped profile kimi was asked for by ana"),
        ({"outcome": "rolled_back"}, "serving", "serving profile kimi"),
        ({"outcome": "failed"}, "failed", "which failed"),
        ({"state": None, "outcome": None}, "none", ""),
        ({"state": "dancing"}, "unreadable", "unknown shape"),
        (
            {"pause": {"until": "2027-01-15T08:00:01Z", "reason": "rewiring", "who": "bo"}},
            "paused",
            "paused until 2027-01-15T08:00:01Z by bo: rewiring",
        ),
        ({"pause": {"until": "2027-01-15T08:00:00Z", "reason": "rewiring", "who": "bo"}}, "serving", "ana"),
    ],
)
def test_wanted(node: Node, change: dict[str, t.Any], word: str, said: str) -> None:
    assert START == 1800000000.0, "15 January 2027, 08:00:00"
    node.wanted = {**(node.wanted or {}), **change}
    found = seen(node)
    assert found.situation.wanted == word
    assert said in found.said["wanted"]


def test_wanted_by_nobody_and_unreadable(node: Node) -> None:
    node.wanted = None
    assert seen(node).situation.wanted == "none"
    look = node.look()
    found = seen(node, node={**look["node"], "wanted_problem": "cannot be told: x"})
    assert (found.situation.wanted, found.said["wanted"]) == ("unreadable", "cannot be told: x")


@pytest.mark.parametrize(
    ("age", "word"), [(0, "within"), (2700, "within"), (2701, "overdue"), (-30, "within"), (-3600, "unknown")]
)
def test_load(node: Node, age: float, word: str) -> None:
    node.load()
    node.started = START - age
    assert seen(node).situation.load == word
    assert seen(node, health={**node.health, "main_pid": 3}).situation.load == "unknown", "since when is not known"


def test_drifted(node: Node) -> None:
    assert seen(node).situation.drifted == "no"
    node.differences = [
        {"where": "sglang.yaml", "item": "tp-size", "wanted": "8", "found": str(one)} for one in range(9)
    ]
    found = seen(node)
    assert found.situation.drifted == "yes"
    assert found.said["drifted"].startswith("sglang.yaml: tp-size is '0', wanted is '8'; ")
    assert found.said["drifted"].endswith("; and 4 more")
    node.differences = []
    assert seen(node, unmet=["context_length is 1"]).said["drifted"] == "context_length is 1"
    assert seen(node, node={**node.look()["node"], "config": None}).situation.drifted == "unknown"


@pytest.mark.parametrize(
    ("running", "queued", "word"),
    [(0, 0, "none"), (1, 0, "some"), (0, 2, "some"), (0, None, "unknown"), (None, None, "unknown")],
)
def test_requests(node: Node, running: int | None, queued: int | None, word: str) -> None:
    node.requests = {"running": running, "queued": queued, "progress": None}
    assert seen(node).situation.requests == word
