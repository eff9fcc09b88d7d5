# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of drift's memory, step by step: an entry, a moment, and the entry after it."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import (
    KEPT,
    Backoff,
    GaveUp,
    Limits,
    Memory,
    Remediation,
    Suspicion,
    begun,
    cleared,
    ended,
    hold_back,
    is_confirmed,
    noted,
    parse_entry,
    reset,
    wait_after,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import Moment

DAY, YEAR = 86400.0, 366 * 86400.0
START = 1.8e9
LIMITS = Limits()


def at(seconds: float, boot: str = "boot-1", set_by: float = 0.0) -> Moment:
    """So long after the start; set_by: somebody has changed the date by that."""
    return Moment(wall=START + seconds + set_by, boot_id=boot, boot_s=5000.0 + seconds)


def remediation(seconds: float = 0.0, outcome: str | None = "failed", **fields: t.Any) -> Remediation:
    return Remediation(**{"run_id": "r", "action": "relaunch", "began": at(seconds), "outcome": outcome, **fields})


FULL = Memory(
    revision=7,
    suspicions=(Suspicion("hung: a", 2, at(0), at(300)),),
    remediations=(remediation(10, "ready", ended=at(20)), remediation(30, None), remediation(40, reason="no rank")),
    backoff=Backoff(at(50), 900.0),
    gave_up=GaveUp("2027-01-15T08:00:00Z", "twice"),
)


def test_what_is_written_is_read_again() -> None:
    assert parse_entry(FULL.document()) == FULL
    assert parse_entry(Memory().document()) == Memory() == parse_entry(None)


def test_what_people_see_has_the_end_of_the_back_off() -> None:
    assert FULL.view()["backoff_until"] == "2027-01-15T08:15:50Z"
    assert Memory().view()["backoff_until"] is None
    assert Memory().document()["backoff"] is None


def test_seconds_are_written_to_the_thousandth() -> None:
    memory = Memory(suspicions=(Suspicion("a", 1, at(0.12345), at(0.98765)),))
    entry = memory.document()["suspicions"][0]
    assert (entry["first_boot_s"], entry["last_boot_s"]) == (5000.123, 5000.988)


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("", {"revision": -1}),
        ("", {"revision": True}),
        ("", {"revision": "7"}),
        ("", {"suspicions": None}),
        ("", {"suspicions": [3]}),
        ("", {"gave_up": {"at": "yesterday", "reason": "x"}}),
        ("", {"gave_up": {"at": "2027-01-15T08:00:00Z", "reason": 3}}),
        ("", {"gave_up": 3}),
        ("suspicions", {"key": 3}),
        ("suspicions", {"looks": -1}),
        ("suspicions", {"first_boot_s": "x"}),
        ("remediations", {"action": "reboot"}),
        ("remediations", {"outcome": "good"}),
        ("remediations", {"run_id": 3}),
        ("remediations", {"ended": {}}),
        ("backoff", {"seconds": True}),
        ("backoff", {"seconds": "900"}),
        ("backoff", {"seconds": -1}),
        ("backoff", {"seconds": YEAR + 1}),
        ("backoff", {"seconds": float("nan")}),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused(where: str, change: dict[str, t.Any]) -> None:
    document = FULL.document()
    part = document[where] if where else document
    (part[0] if isinstance(part, list) else part).update(change)
    with pytest.raises(ValueError):
        parse_entry(document)


@pytest.mark.parametrize("missing", ["revision", "suspicions", "remediations", "backoff", "gave_up"])
def test_a_part_that_is_missing_is_told(missing: str) -> None:
    document = FULL.document()
    del document[missing]
    with pytest.raises(ValueError, match=f"KeyError: '{missing}'"):
        parse_entry(document)


@pytest.mark.parametrize("entry", ["text", 3, [], {"x" * 300: 1}])
def test_an_entry_of_another_shape_is_quoted_shortly(entry: t.Any) -> None:
    with pytest.raises(ValueError) as raised:
        parse_entry(entry)
    assert len(str(raised.value)) <= 120


@pytest.mark.parametrize("seconds", [0, 0.5, YEAR])
def test_a_back_off_that_can_be_meant(seconds: float) -> None:
    document = {**FULL.document(), "backoff": {**FULL.document()["backoff"], "seconds": seconds}}
    assert parse_entry(document).backoff == Backoff(at(50), float(seconds))


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        ({}, None),
        ({"confirm_after": 0, "confirm_within": 0, "max_remediations": 0, "window": 0, "backoff": 0}, None),
        ({"max_remediations": 25}, None),
        ({"max_remediations": 26}, "max_remediations is 26: it must be a whole number from 0 to 25"),
        ({"max_remediations": 1.5}, "max_remediations is 1.5: it must be a whole number"),
        ({"max_remediations": True}, "max_remediations is True: it must be a number from 0 to 31622400"),
        ({"window": YEAR}, None),
        ({"window": 31622401}, "window is 31622401: it must be a number from 0 to 31622400"),
        ({"window": -1}, "window is -1: it must be a number"),
        ({"window": float("nan")}, "window is nan: it must be a number"),
        ({"window": None}, "window is None: it must be a number"),
        ({"confirm_after": 180, "confirm_within": 360}, None),
        ({"confirm_after": 180, "confirm_within": 359}, "confirm_within is 359 s and confirm_after 180 s: two looks"),
        ({"backoff": 14400}, None),
        ({"backoff": 14401}, "backoff is 14401 s, above backoff_most, 14400 s"),
    ],
)
def test_limits(limits: dict[str, t.Any], fault: str | None) -> None:
    found = Limits(**limits).fault()
    assert found is None if fault is None else (found or "").startswith(fault)


def test_what_the_limits_are_where_nothing_is_said() -> None:
    assert dataclasses.astuple(LIMITS) == (180.0, 3600.0, 2, DAY, 900.0, 14400.0)


SUSPECTED = Suspicion("hung: a", 1, at(0), at(0))


@pytest.mark.parametrize(
    ("now", "confirmed"),
    [
        (at(179.9), False),
        (at(180), True),
        (at(3600), True),
        (at(3600.1), False),
        (at(300, "boot-2"), False),
        (at(-1), False),
        (at(300, set_by=3600), False),
    ],
)
def test_a_second_look_confirms_the_first(now: Moment, confirmed: bool) -> None:
    assert is_confirmed(SUSPECTED, LIMITS, now) is confirmed
    assert not is_confirmed(None, LIMITS, now)


def test_looks_are_counted_as_long_as_they_see_the_same() -> None:
    memory = noted(Memory(3), "hung: a", LIMITS, at(0))
    assert memory == Memory(3, (SUSPECTED,))
    memory = noted(memory, "hung: a", LIMITS, at(300))
    assert memory.suspicions == (Suspicion("hung: a", 2, at(0), at(300)),)
    assert noted(memory, "hung: a", LIMITS, at(300)).suspicions[0].looks == 3, "two looks at one moment"
    assert noted(memory, "hung: a", LIMITS, at(4000)).suspicions == (Suspicion("hung: a", 1, at(4000), at(4000)),)
    assert noted(memory, "hung: b", LIMITS, at(400)).suspicions == (Suspicion("hung: b", 1, at(400), at(400)),)
    assert cleared(memory) == Memory(3)


@pytest.mark.parametrize(
    ("outcomes", "failures"),
    [
        ((), 0),
        (("ready",), 0),
        (("failed",), 1),
        ((None,), 1),
        (("failed", "ready"), 0),
        (("ready", None, "failed"), 2),
    ],
)
def test_failures_in_a_row_up_to_now(outcomes: tuple[str | None, ...], failures: int) -> None:
    memory = Memory(remediations=tuple(remediation(n, one) for n, one in enumerate(outcomes)))
    assert memory.failures() == failures


@pytest.mark.parametrize(("now", "spent"), [(at(0), 1), (at(DAY - 1), 1), (at(DAY), 0), (at(DAY + 1), 0)])
def test_what_counts_against_the_budget(now: Moment, spent: int) -> None:
    assert Memory(remediations=(remediation(0, "ready"),)).spent(LIMITS, now) == spent


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 900.0), (1, 900.0), (2, 1800.0), (3, 3600.0), (4, 7200.0), (5, 14400.0), (6, 14400.0), (10**9, 14400.0)],
)
def test_the_back_off_doubles_up_to_its_most(failures: int, seconds: float) -> None:
    assert wait_after(failures, LIMITS) == seconds


def test_a_tiny_back_off_grows_as_long_as_numbers_last() -> None:
    assert wait_after(62, Limits(backoff=2.0**-60, backoff_most=YEAR)) == 1.0


def test_beginning_spends_the_budget_and_starts_the_back_off() -> None:
    first = begun(Memory(3), "r1", "relaunch", LIMITS, at(0))
    assert first.remediations == (Remediation("r1", "relaunch", at(0)),)
    assert first.backoff == Backoff(at(0), 900.0)
    second = begun(first, "r2", "release", LIMITS, at(100))
    assert [one.run_id for one in second.remediations] == ["r1", "r2"]
    assert second.backoff == Backoff(at(100), 1800.0)
    many = Memory(remediations=tuple(remediation(n, run_id=f"r{n}") for n in range(KEPT)))
    kept = begun(many, "last", "relaunch", LIMITS, at(99)).remediations
    assert (len(kept), kept[0].run_id, kept[-1].run_id) == (50, "r1", "last")


def test_a_good_end() -> None:
    memory = dataclasses.replace(begun(Memory(3), "r1", "relaunch", LIMITS, at(0)), suspicions=(SUSPECTED,))
    after = ended(memory, "r1", "ready", "", LIMITS, at(60))
    assert after == Memory(3, (), (Remediation("r1", "relaunch", at(0), at(60), "ready", ""),))


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("no rank", "the last 2 remediations brought no serving server, the last one: no rank"),
        ("", "the last 2 remediations brought no serving server"),
    ],
)
def test_bad_ends_lead_to_the_latch(reason: str, told: str) -> None:
    memory = ended(begun(Memory(), "r1", "relaunch", LIMITS, at(0)), "r1", "failed", "x", LIMITS, at(60))
    assert (memory.backoff, memory.gave_up) == (Backoff(at(60), 900.0), None)
    memory = ended(begun(memory, "r2", "relaunch", LIMITS, at(2000)), "r2", "failed", reason, LIMITS, at(2060))
    assert memory.backoff == Backoff(at(2060), 1800.0)
    assert memory.gave_up == GaveUp("2027-01-15T08:34:20Z", told)
    assert [(one.outcome, one.reason, one.ended) for one in memory.remediations] == [
        ("failed", "x", at(60)),
        ("failed", reason, at(2060)),
    ]


def test_who_ends_ends_its_own_alone() -> None:
    memory = begun(begun(Memory(), "lost", "relaunch", LIMITS, at(0)), "r2", "relaunch", LIMITS, at(2000))
    after = ended(memory, "r2", "ready", "", LIMITS, at(2060))
    assert [(one.run_id, one.outcome) for one in after.remediations] == [("lost", None), ("r2", "ready")]


def test_only_who_began_can_end() -> None:
    memory = begun(Memory(), "r1", "relaunch", LIMITS, at(0))
    with pytest.raises(ValueError, match="run r2 has begun no remediation"):
        ended(memory, "r2", "ready", "", LIMITS, at(60))
    over = ended(memory, "r1", "failed", "", LIMITS, at(60))
    with pytest.raises(ValueError, match="run r1 has begun no remediation of this unit that is still open"):
        ended(over, "r1", "ready", "", LIMITS, at(70))


@pytest.mark.parametrize(
    ("memory", "now", "held", "words"),
    [
        pytest.param(Memory(), at(0), None, "", id="nothing"),
        pytest.param(FULL, at(0), "gave_up", "gave up at 2027-01-15T08:00:00Z: twice. Only a person", id="the latch"),
        pytest.param(
            Memory(remediations=(remediation(0, None), remediation(1, None))),
            at(2 * DAY),
            "gave_up",
            "the last 2 remediations brought no serving server. Only a person",
            id="two that nobody ended",
        ),
        pytest.param(
            Memory(remediations=(remediation(),), backoff=Backoff(at(0), 900.0)),
            at(780),
            "backoff",
            "the last remediation failed; the next one may begin in 2 minutes",
            id="the back-off",
        ),
        pytest.param(
            Memory(remediations=(remediation(),), backoff=Backoff(at(0), 900.0)),
            at(899.5),
            "backoff",
            "the last remediation failed; the next one may begin in 0 seconds",
            id="its last half second",
        ),
        pytest.param(
            Memory(remediations=(remediation(),), backoff=Backoff(at(0), 900.0)), at(900), None, "", id="at its end"
        ),
        pytest.param(
            Memory(remediations=(remediation(0, "ready"), remediation(1, "ready"))),
            at(10),
            "budget",
            "2 remediations began in the last 24 hours, and 2 in 24 hours are allowed",
            id="the budget",
        ),
        pytest.param(
            Memory(remediations=(remediation(0, "ready"), remediation(1, "ready"))),
            at(DAY),
            None,
            "",
            id="it came back",
        ),
    ],
)
def test_what_holds_back(memory: Memory, now: Moment, held: str | None, words: str) -> None:
    found = hold_back(memory, LIMITS, now)
    assert (found[0] if found else None) == held
    assert found is None or found[1].startswith(words)


def test_one_failure_is_the_remediation() -> None:
    found = hold_back(Memory(remediations=(remediation(),)), Limits(max_remediations=1), at(DAY))
    assert found == ("gave_up", f"the remediation failed. {_drift_memory.RESET}")
    assert hold_back(Memory(), Limits(max_remediations=0), at(0)) == (
        "budget",
        "0 remediations began in the last 24 hours, and 0 in 24 hours are allowed",
    )


def test_after_a_reset_nothing_that_was_counts() -> None:
    assert reset(FULL) == Memory(7)
