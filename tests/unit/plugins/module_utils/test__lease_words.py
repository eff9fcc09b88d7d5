# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a lease says to whoever asked: what came of it, who was in the way, and whether it was waited for."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease, _lease_folder
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LONGEST, LeaseRequest, LeaseResult, refusal
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import LockBusy
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.lease_world import GPUS, Host, outcome


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_what_is_not_said_is_a_quarter_of_an_hour_and_no_waiting() -> None:
    request = LeaseRequest("held", "A", "n1")
    assert (request.ttl, request.wait, request.marker_ttl) == (900.0, 0.0, 0.0)
    result = LeaseResult("acquired", "")
    assert (result.failed, result.changed, result.unreadable) == (False, False, False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"run_id": ""}, "run_id is empty; "),
        ({"run_id": "a b"}, "run_id is 'a b' (3 characters); "),
        ({"node": "x" * 500}, f"node is '{'x' * 40}' (500 characters); "),
        ({"gpus": ("0", "1")}, "gpus has '0', which is no UUID of a GPU"),
        ({"gpus": ("y" * 500,)}, f"gpus has '{'y' * 80}', which"),
        ({"ttl": LONGEST}, None),
        ({"ttl": LONGEST + 1}, "ttl is 86401.0 seconds; it must be between 1 and 86400"),
        ({"ttl": 0.5}, "ttl is 0.5 seconds"),
        ({"wait": -0.5}, "wait is -0.5 seconds"),
        ({"marker_ttl": -0.5}, "marker_ttl is -0.5 seconds; it must be between 0 and 86400"),
        ({"marker_ttl": 0.0}, None),
    ],
)
def test_options_that_cannot_be_meant(fields: dict[str, t.Any], words: str | None) -> None:
    wrong = refusal(LeaseRequest("held", **{"run_id": "A", "node": "n1", **fields}))
    assert wrong is None if words is None else (wrong or "").startswith(words)


def test_taken_and_taken_anew(host: Host) -> None:
    assert "acquired by run A" in host.held().reason
    again = host.held()
    assert "renewed by run A" in again.reason
    assert "Taken over" not in again.reason


def test_a_takeover_that_names_nobody_is_told_only_where_it_was_one(host: Host) -> None:
    host.held("A", gpus=GPUS[:1])
    assert "takeover names" not in host.held("B", gpus=GPUS[:1]).reason
    host.held("C", gpus=GPUS[1:2])
    wrong = host.held("B", gpus=GPUS[:1], takeover="X")
    assert "takeover names X, which holds none of these GPUs." in wrong.reason
    half = host.held("B", gpus=GPUS[:2], takeover="C")
    assert (half.verdict, "takeover names" in half.reason) == ("busy", False), "A is in the way all the same"


def test_of_several_the_first_run_is_the_example(host: Host) -> None:
    for run, gpu in (("R2", 0), ("R1", 1)):
        host.held(run, gpus=(GPUS[gpu],))
    assert "unlock_run_id=R1 takes it over" in host.held("B").reason


@pytest.mark.parametrize("who", ["anna", ""])
def test_who_took_it_over_is_told_to_its_owner(host: Host, who: str) -> None:
    host.held("A")
    host.held("B", takeover="A", who=who)
    host.released("B")
    told = host.released("A").reason
    assert ("was taken over by run B, node n1 (anna)" in told) is bool(who)
    assert "was taken over by run B, node n1" in told
    assert "()" not in told


@pytest.mark.parametrize(("wait", "waited"), [(0.0, False), (0.5, True), (1.0, True)])
def test_others_are_waited_for_only_where_that_was_asked_for(host: Host, wait: float, waited: bool) -> None:
    host.held("A")
    result = host.held("B", wait=wait, wait_for_others=True)
    assert (result.verdict, "in vain" in result.reason) == ("busy", waited)
    assert round(host.clock.slept, 6) == wait
    told = host.held("B", wait=wait, wait_for_others=True, check=True).reason
    assert ("this would be waited for" in told) is waited
    assert round(host.clock.slept, 6) == wait, "check mode waits for nobody"


@pytest.mark.parametrize(("marker_ttl", "marked"), [(0.0, False), (0.5, True), (1.0, True), (60.0, True)])
def test_a_load_is_marked_for_as_long_as_it_may_take(host: Host, marker_ttl: float, marked: bool) -> None:
    host.held("A")
    assert ("Marked: " in host.released("A", marker_ttl=marker_ttl).reason) is marked
    assert len(host.shown().starting) == int(marked)


def test_it_is_asked_again_within_a_second(host: Host) -> None:
    """Whoever waits is down meanwhile; and a lock file is not asked for a hundred times a second."""
    moments: list[float] = []
    host.held("A")
    host.clock.while_asleep = lambda: moments.append(host.clock.now)
    host.held("B", wait=30.0, wait_for_others=True)
    steps = [later - earlier for earlier, later in zip(moments, moments[1:])]
    assert max(steps) <= 1.0001
    assert 30 <= len(moments) <= 40


@pytest.mark.parametrize(
    ("error", "verdict", "words"),
    [
        (LockBusy("the lock is busy: fuser -v"), "busy", "the lock is busy"),
        (OSError(28, "No space left on device"), "refused", "No space left on device; no lease was changed"),
        (OSError("odd"), "refused", "odd; no lease was changed"),
    ],
)
def test_a_folder_that_fails_is_a_verdict_and_is_not_waited_for(
    host: Host, monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: str, words: str
) -> None:
    def fail(*given: t.Any, **named: t.Any) -> t.NoReturn:
        raise error

    monkeypatch.setattr(_lease_folder, "opened", fail)
    result = host.held("A", wait=60.0, wait_for_others=True)
    assert outcome(result) == (verdict, True, False)
    assert words in result.reason
    assert host.clock.slept == 0.0


def test_a_folder_of_somebody_else_is_refused_and_not_waited_for(host: Host) -> None:
    os.mkdir(host.path)
    os.chmod(host.path, 0o777)
    result = host.held("A", wait=60.0, wait_for_others=True)
    assert outcome(result) == ("refused", True, False)
    assert host.clock.slept == 0.0


def test_an_unreadable_file_is_named_and_what_became_of_it_is_told(host: Host) -> None:
    host.held("A")
    host.file.write_text("{")
    shown = host.shown()
    assert str(host.file) in shown.reason
    taken = host.held("B", takeover="corrupt")
    assert f"{host.file} could not be read" in taken.reason
    assert taken.reason.endswith("was thrown away.")
    assert taken.before == [f"unreadable lease: {host.file}"]
    assert "thrown away" not in host.held("B").reason
    assert taken.unreadable is False


def test_of_a_lease_that_is_its_own_the_owner_gets_all(host: Host) -> None:
    result = host.held("A", gpus=GPUS[:1])
    assert result.lease is not None
    assert result.lease["run_id"] == "A"
    assert host.shown().lease is None


def test_nothing_is_written_unless_it_is_asked_for(host: Host) -> None:
    request = LeaseRequest("held", "A", "n1")
    assert _lease.lease(request, host.path, host.boot, host.clock).changed
    assert host.file.exists()
    host.file.unlink()
    _lease.lease(request, host.path, host.boot, host.clock, check=True)
    assert not host.file.exists()
