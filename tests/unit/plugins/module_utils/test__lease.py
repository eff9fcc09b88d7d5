# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who gets a lease, who loses it, and when."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.lease_world import GPUS, Host, outcome


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_take_renew_and_give_back(host: Host) -> None:
    first = host.held(ttl=900)
    assert outcome(first) == ("acquired", False, True)
    assert first.lease is not None
    assert first.lease["expires_in_s"] == 900
    host.clock.now += 600
    second = host.held(ttl=900)
    assert outcome(second) == ("renewed", False, False)
    assert second.lease is not None
    assert (second.lease["age_s"], second.lease["expires_in_s"]) == (600, 900)
    host.clock.now += 600
    assert host.runs() == ["A"], "renewed, it stands beyond the end of the first time"
    assert outcome(host.released()) == ("released", False, True)
    assert outcome(host.released()) == ("not_held", False, False)
    assert host.runs() == []
    assert oct(host.file.stat().st_mode & 0o777) == "0o600"
    assert oct(os.stat(host.path).st_mode & 0o777) == "0o700"


def test_renewing_with_other_gpus_replaces_the_set(host: Host) -> None:
    host.held(gpus=GPUS[:4])
    assert outcome(host.held(gpus=GPUS[4:])) == ("renewed", False, True)
    assert host.held("B", gpus=GPUS[:4]).verdict == "acquired"
    assert host.held(gpus=GPUS[3:]).verdict == "busy"


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        pytest.param(GPUS[:4], GPUS[4:], "acquired", id="disjoint"),
        pytest.param(GPUS[:5], GPUS[4:], "busy", id="one in common"),
        pytest.param((), GPUS[4:], "busy", id="all, then some"),
        pytest.param(GPUS[:1], (), "busy", id="some, then all"),
        pytest.param((), (), "busy", id="all, then all"),
        pytest.param(GPUS[:1], (GPUS[0].upper().replace("GPU-", "GPU-"),), "busy", id="the same in capitals"),
    ],
)
def test_sets(host: Host, one: tuple[str, ...], other: tuple[str, ...], verdict: str) -> None:
    assert host.held("A", gpus=one).verdict == "acquired"
    second = host.held("B", gpus=other)
    assert second.verdict == verdict
    assert second.failed == (verdict == "busy")
    assert len(second.leases) == (1 if verdict == "busy" else 2)


def test_the_refused_one_is_told_whose_it_is(host: Host) -> None:
    host.held("run-1", "gpu1", ttl=900, who="anna", purpose="relaunch.yml", gpus=GPUS[:1])
    host.clock.now += 200
    refused = host.held("run-2", "gpu2")
    assert outcome(refused) == ("busy", True, False)
    for part in ("run run-1", "node gpu1", "anna", "relaunch.yml", "for 3 minutes", "700 s", GPUS[0]):
        assert part in refused.reason
    assert "unlock.yml -e unlock_run_id=run-1" in refused.reason
    assert [lease["run_id"] for lease in refused.leases] == ["run-1"]
    assert refused.lease is None


def test_another_run_or_node_cannot_give_it_back(host: Host) -> None:
    host.held("A", "n1")
    assert outcome(host.released("B", "n1")) == ("not_held", False, False)
    assert outcome(host.released("A", "n2")) == ("not_held", False, False)
    assert host.runs() == ["A"]


def test_it_runs_out(host: Host) -> None:
    host.held("A", ttl=60)
    host.clock.now += 59.9
    assert host.held("B").verdict == "busy"
    host.clock.now += 0.1
    assert host.held("B").verdict == "acquired"
    assert host.runs() == ["B"]


@pytest.mark.parametrize("jump", [-3.0e8, 3.0e8])
def test_a_changed_date_neither_ends_nor_keeps_it(host: Host, jump: float) -> None:
    host.held("A", ttl=60)
    host.clock.date += jump
    assert host.held("B").verdict == "busy"
    host.clock.now += 60
    assert host.held("B").verdict == "acquired"


def test_it_ends_with_the_boot(host: Host) -> None:
    host.held("A", ttl=86400)
    old = host.file
    host.boot = "7d1f6c1e-0000-4000-8000-000000000002"
    host.clock.now = 5.0
    assert host.shown().verdict == "not_held"
    assert host.held("B").verdict == "acquired"
    assert not old.exists()


def test_an_own_lease_that_ran_out(host: Host) -> None:
    host.held("A", ttl=60)
    host.clock.now += 100
    again = host.held("A", ttl=60)
    assert outcome(again) == ("acquired", False, True)
    assert "had run out 40 seconds ago" in again.reason

    host.clock.now += 100
    back = host.released("A")
    assert outcome(back) == ("expired", False, False)
    assert host.released("A").verdict == "not_held"

    host.held("A", ttl=60)
    host.clock.now += 100
    host.held("B", ttl=60)
    lost = host.held("A", wait=30, wait_for_others=True)
    assert outcome(lost) == ("expired", True, False), "what was done under the lease may have been undone: no waiting"
    assert host.clock.slept == 0
    assert "had run out 40 seconds ago" in lost.reason
    assert "run B" in lost.reason
    back = host.released("A")
    assert outcome(back) == ("expired", False, False)
    assert "Meanwhile" in back.reason
    assert host.runs() == ["B"]


def test_an_ended_lease_is_forgotten_after_a_day(host: Host) -> None:
    host.held("A", ttl=60)
    host.clock.now += 60 + 86400
    host.held("B")
    assert "A" not in host.file.read_text()
    assert host.released("A").verdict == "not_held"


def test_takeover(host: Host) -> None:
    host.held("dead", "n1", gpus=GPUS[:4], who="anna")
    host.held("alive", "n2", gpus=GPUS[4:])
    wrong = host.held("B", gpus=GPUS[:4], takeover="deaf")
    assert outcome(wrong) == ("busy", True, False)
    assert "takeover names deaf, which holds none" in wrong.reason
    part = host.held("B", gpus=(), takeover="dead")
    assert outcome(part) == ("busy", True, False), "not the other one's as well"
    assert host.runs() == ["dead", "alive"]
    right = host.held("B", gpus=GPUS[:4], takeover="dead")
    assert outcome(right) == ("acquired", False, True)
    assert [lease["who"] for lease in right.displaced] == ["anna"]
    assert sorted(host.runs()) == ["B", "alive"]
    late = host.held("dead", gpus=GPUS[:4])
    assert outcome(late) == ("expired", True, False)
    assert "was taken over by run B" in late.reason


def test_takeover_and_give_back_in_one_step(host: Host) -> None:
    host.held("dead", "n1", gpus=GPUS[:2])
    host.held("dead", "n2", gpus=GPUS[2:4])
    host.held("alive", "n3", gpus=GPUS[4:])
    wrong = host.released("me", takeover="deaf")
    assert outcome(wrong) == ("not_held", False, False)
    assert "run deaf holds no lease" in wrong.reason
    assert "run alive" in wrong.reason
    right = host.released("me", takeover="dead")
    assert outcome(right) == ("released", False, True)
    assert [lease["node"] for lease in right.displaced] == ["n1", "n2"]
    assert host.runs() == ["alive"]
    late = host.released("dead", "n1")
    assert outcome(late) == ("expired", False, False)
    assert "was taken over by run me" in late.reason


def test_marker(host: Host) -> None:
    host.held("A", "n1", gpus=GPUS[:4], who="anna")
    back = host.released("A", "n1", marker_ttl=2700)
    assert outcome(back) == ("released", False, True)
    host.clock.now += 700
    shown = host.shown()
    assert (shown.verdict, shown.leases) == ("not_held", [])
    assert [(one["run_id"], one["node"], one["gpus"], one["until_s"]) for one in shown.starting] == [
        ("A", "n1", list(GPUS[:4]), 2000)
    ]
    assert "is starting, for 2000 s at most" in shown.reason
    for run in ("A", "B"):
        taken = host.held(run, gpus=GPUS[3:])
        assert taken.verdict == "acquired", "a marker is no lock"
        assert [one["who"] for one in taken.starting] == ["anna"]
        host.released(run, gpus=GPUS[3:])
    assert host.held("B", gpus=GPUS[4:]).starting == [], "other GPUs"
    host.clock.now += 2000
    assert host.shown().starting == []


def test_a_marker_is_withdrawn_by_its_node_alone(host: Host) -> None:
    one, two = (f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in (1, 2))
    for node, gpu in (("n1", one), ("n2", two)):
        host.held("A", node, gpus=(gpu,))
        host.released("A", node, marker_ttl=2700)
    back = host.released("B", "n1", withdraw_marker=True)
    assert (back.verdict, back.changed) == ("not_held", True)
    assert "n1 is no longer marked" in back.reason
    assert [marker["node"] for marker in host.shown().starting] == ["n2"]
    again = host.released("B", "n1", withdraw_marker=True)
    assert (again.verdict, again.changed) == ("not_held", False)


def test_a_marker_replaces_that_of_the_same_gpus(host: Host) -> None:
    for run in ("A", "B"):
        host.held(run)
        host.released(run, marker_ttl=100)
    assert [one["run_id"] for one in host.shown().starting] == ["B"]


def test_nodes_of_one_run_take_turns(host: Host) -> None:
    host.held("A", "n1")

    def give_back() -> None:
        if host.clock.now > 1020:
            host.released("A", "n1")

    host.clock.while_asleep = give_back
    second = host.held("A", "n2", wait=60)
    assert second.verdict == "acquired"
    assert 20 < host.clock.slept < 23


def test_waiting_ends(host: Host) -> None:
    host.held("A", "n1", ttl=900)
    refused = host.held("A", "n2", wait=60)
    assert outcome(refused) == ("busy", True, False)
    assert host.clock.slept == pytest.approx(60)
    assert refused.reason.startswith("Waited 60 s in vain.")


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        pytest.param({}, False, id="of another run"),
        pytest.param({"wait_for_others": True}, True, id="of another run, asked for"),
        pytest.param({"wait_for_others": True, "wait": 0}, False, id="no wait"),
    ],
)
def test_whether_another_run_is_waited_for(host: Host, options: dict[str, t.Any], waits: bool) -> None:
    host.held("B", ttl=20)
    result = host.held("A", **{"wait": 60, **options})
    assert result.verdict == ("acquired" if waits else "busy")
    assert (host.clock.slept > 0) == waits


def test_a_run_that_comes_in_while_waiting_ends_the_wait(host: Host) -> None:
    host.held("A", "n1", ttl=10, gpus=GPUS[:1])
    host.clock.while_asleep = lambda: host.held("B", gpus=GPUS[1:2]) and None
    result = host.held("A", "n2", wait=60)
    assert outcome(result) == ("busy", True, False)
    assert host.clock.slept < 1


def test_check_mode_tells_and_writes_nothing(host: Host) -> None:
    taken = host.held("A", check=True)
    assert outcome(taken) == ("acquired", False, True)
    assert taken.reason.startswith("Check mode, nothing was written.")
    assert taken.after == ["held by run A, node n1: all GPUs of the host"]
    assert not os.path.exists(host.path)
    assert outcome(host.released("A", check=True)) == ("not_held", False, False)
    host.held("A")
    before = host.file.read_bytes()
    assert outcome(host.held("B", check=True)) == ("busy", True, False)
    assert outcome(host.held("B", check=True, takeover="A")) == ("acquired", False, True)
    assert outcome(host.released("A", check=True, marker_ttl=9)) == ("released", False, True)
    would_wait = host.held("A", "n2", check=True, wait=60)
    assert outcome(would_wait) == ("busy", False, False)
    assert "would be waited for, up to 60 s" in would_wait.reason
    assert host.clock.slept == 0
    assert host.file.read_bytes() == before
