# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one sample means for the gate, without the time that passes between samples."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_verdicts import Sample, assess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import judge
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, PortOwner
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import (
    TWO,
    UUIDS,
    holder,
    ok,
    scan,
)

STRANGER = PortOwner("127.0.0.1:30000", 20, "nginx", "nginx -g", reason="its own")


def sample(look: GpuLook, *holders: Holder, expectation: Expectation = TWO, **fields: t.Any) -> Sample:
    found: dict[str, t.Any] = {"scan": scan(*holders), "describe": lambda one: f"pid {one.pid}", **fields}
    return Sample(look, judge(look, expectation), **found)


def test_what_a_sample_says_of_itself_where_nothing_is_said() -> None:
    plain = Sample(ok(0, 0), judge(ok(0, 0), TWO), None)
    told = (plain.by_uuid, plain.falling, plain.killed_recently, plain.still_for, plain.settle_time, plain.settled_mib)
    assert told == (False, False, False, None, 10.0, 0)
    assert (plain.dead_pids, plain.in_container) == ((), False)


@pytest.mark.parametrize(("targets", "words"), [(1, "would end it."), (2, "would end them."), (3, "would end them.")])
def test_one_holder_is_it_and_more_are_them(targets: int, words: str) -> None:
    found = assess(sample(ok(0, 900), *(holder(10 + n) for n in range(targets))))
    assert found.verdict == "busy"
    assert found.reason.endswith(words)
    assert found.pids == tuple(range(10, 10 + targets))


@pytest.mark.parametrize(("holders", "named", "more"), [(8, 8, ""), (9, 8, "; and 1 more"), (12, 8, "; and 4 more")])
def test_at_most_eight_holders_are_named(holders: int, named: int, more: str) -> None:
    found = assess(sample(ok(0, 900), *(holder(10 + n) for n in range(holders))))
    assert f"Held by {'; '.join(f'pid {10 + n}' for n in range(named))}{more}. gpu_force_release" in found.reason
    assert len(found.pids) == holders


def test_the_pids_of_strangers_on_the_port_as_far_as_they_are_known() -> None:
    owners = (STRANGER, dataclasses.replace(STRANGER, pid=None), dataclasses.replace(STRANGER, pid=7))
    found = assess(sample(ok(0, 0), scan=scan(port_owners=owners)))
    assert (found.verdict, found.pids) == ("foreign", (7, 20))


def test_an_incomplete_scan_says_nothing_about_signals() -> None:
    """No release was asked for."""
    found = assess(sample(ok(0, 0), scan=scan(complete=False, incomplete_reason="no rights")))
    assert (found.verdict, found.then) == ("unknown", "timeout")
    assert "Nothing was signalled" not in found.reason


ODD = dataclasses.replace(ok(0, 0), problems=("a line that is not understood",))


@pytest.mark.parametrize(
    ("look", "holders", "verdict", "then"),
    [
        pytest.param(ok(0, 0, 0), (), "unknown", "patience", id="too many GPUs stay too many"),
        pytest.param(ODD, (), "unknown", "timeout", id="an odd line may pass"),
        pytest.param(ok(0, None), (), "unknown", "timeout", id="a number may be read next time"),
        pytest.param(ok(0, None), (holder(),), "unknown", "timeout", id="nor with a target is it known"),
        pytest.param(ok(0, 0, 0), (holder(),), "busy", "patience", id="a release mends the target at least"),
        pytest.param(ODD, (holder(30, "monitor"),), "unknown", "timeout", id="a monitor is no target"),
        pytest.param(ODD, (holder(),), "busy", "patience", id="a target beside an odd line"),
        pytest.param(ok(900, None), (holder(),), "unknown", "timeout", id="busy, and one that is not known"),
        pytest.param(ok(900, 0), (holder(),), "busy", "patience", id="busy, and all are known"),
    ],
)
def test_what_is_not_known_is_waited_for_as_long_as_it_may_change(
    look: GpuLook, holders: tuple[Holder, ...], verdict: str, then: str
) -> None:
    found = assess(sample(look, *holders))
    assert (found.verdict, found.then) == (verdict, then)


def protected(pid: int = 31, **fields: t.Any) -> Holder:
    return holder(pid, "protected", **{"computes": True, **fields})


def rows(*held: tuple[int, int | None]) -> list[GpuProcess]:
    return [GpuProcess(UUIDS[1], pid, None, mib) for pid, mib in held]


@pytest.mark.parametrize(
    ("look", "holders", "fields", "verdict"),
    [
        pytest.param(
            ok(0, 900, processes=rows((31, 900))),
            (protected(), holder(dying=True)),
            {},
            "dying",
            id="a target ends yet",
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 900))),
            (protected(), holder(20, "foreign", dying=True)),
            {},
            "dying",
            id="a foreign one ends yet",
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 900))),
            (protected(), holder(32, "monitor", computes=False)),
            {},
            "foreign",
            id="a monitor ends nothing",
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 900))),
            (protected(), holder(32, "protected", dying=True)),
            {},
            "foreign",
            id="another protected one that dies",
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 900))),
            (protected(), holder(), holder(11, dying=True)),
            {},
            "foreign",
            id="a target lives beside one that ends",
        ),
        pytest.param(
            ok(0, 0, processes=rows((31, None))), (protected(), holder()), {}, "busy", id="no memory is held at all"
        ),
        pytest.param(ok(0, 64), (protected(),), {"still_for": 20.0}, "settled", id="64 MiB and no target: a floor"),
        pytest.param(ok(0, 65), (protected(),), {"still_for": 20.0}, "foreign", id="65 MiB is no floor"),
        pytest.param(
            ok(0, 64, processes=rows((31, 60))), (protected(), holder()), {}, "foreign", id="with a target it counts"
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 3))), (protected(), holder()), {"settled_mib": 3}, "busy", id="as accepted"
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 4))),
            (protected(), holder()),
            {"settled_mib": 3},
            "foreign",
            id="1 more",
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 2), (31, 2))),
            (protected(), holder()),
            {"settled_mib": 3},
            "foreign",
            id="two rows add up",
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 4), (31, None))),
            (protected(), holder()),
            {"settled_mib": 3},
            "foreign",
            id="what is not told takes nothing away",
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, 0))), (protected(), holder()), {}, "busy", id="it is told to hold nothing"
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, None))), (protected(), holder()), {}, "foreign", id="an amount nobody tells"
        ),
        pytest.param(
            ok(0, 900, processes=rows((31, None))), (protected(), holder()), {"settled_mib": 1}, "busy", id="1 accepted"
        ),
        pytest.param(
            ok(0, 900, processes=rows((32, 0))), (protected(), holder()), {}, "foreign", id="another one's row"
        ),
    ],
)
def test_what_a_protected_process_keeps(
    look: GpuLook, holders: tuple[Holder, ...], fields: dict[str, t.Any], verdict: str
) -> None:
    found = assess(sample(look, *holders, **fields))
    assert found.verdict == verdict, found.reason


@pytest.mark.parametrize(
    ("mib", "words"), [(700, "and hold 700 MiB on a GPU, which"), (None, "and hold an amount that nvidia-smi does not")]
)
def test_how_much_a_protected_process_keeps_as_far_as_it_is_told(mib: int | None, words: str) -> None:
    found = assess(sample(ok(0, 900, processes=rows((31, mib))), protected()))
    assert (found.verdict, found.pids) == ("foreign", (31,))
    assert words in found.reason


@pytest.mark.parametrize(
    ("mib", "disposition", "verdict"),
    [
        (0, "target", "dying"),
        (0, "foreign", "dying"),
        (0, "monitor", "idle"),
        (0, "protected", "idle"),
        (900, "target", "dying"),
        (900, "monitor", "dying"),
        (900, "protected", "orphaned"),
    ],
)
def test_who_dies_matters_as_long_as_memory_is_held(mib: int, disposition: str, verdict: str) -> None:
    found = assess(sample(ok(0, mib), holder(20, disposition, dying=True, computes=False)))
    assert found.verdict == verdict


WHICH = {"expectation": Expectation(uuids=(UUIDS[0],)), "by_uuid": True}


@pytest.mark.parametrize(
    ("fields", "holders", "verdict"),
    [
        pytest.param({}, (holder(20, "foreign"),), "foreign", id="it may be theirs"),
        pytest.param({}, (holder(20, "foreign", gpus=(UUIDS[1],)),), "orphaned", id="they are elsewhere"),
        pytest.param({}, (holder(20, "monitor"),), "orphaned", id="a monitor holds nothing"),
        pytest.param({"killed_recently": True}, (holder(20, "foreign"),), "draining", id="one was killed"),
        pytest.param({"falling": True}, (holder(20, "foreign"),), "draining", id="it falls"),
        pytest.param({}, (), "orphaned", id="nobody"),
    ],
)
def test_who_may_hold_what_nothing_assigns(fields: dict[str, t.Any], holders: tuple[Holder, ...], verdict: str) -> None:
    found = assess(sample(ok(800, 0), *holders, **WHICH, **fields))
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("mib", "fields", "verdict"),
    [
        (64, {"still_for": 10.0}, "settled"),
        (65, {"still_for": 10.0}, "orphaned"),
        (64, {"still_for": 9.9}, "draining"),
        (64, {"still_for": 3.0, "settle_time": 3.0}, "settled"),
        (64, {"still_for": None}, "settled"),
        (64, {"still_for": None, "killed_recently": True}, "settled"),
    ],
)
def test_what_stands_still_is_a_floor(mib: int, fields: dict[str, t.Any], verdict: str) -> None:
    assert assess(sample(ok(0, mib), **fields)).verdict == verdict


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"killed_recently": True, "still_for": 7.0},
            "a process was killed of late: the driver is still",
        ),
        ({"falling": True, "still_for": 7.0}, "and it changed of late"),
        ({"falling": True, "still_for": 7.0}, "giving it back (unchanged for 7 s)."),
        ({"falling": True, "still_for": None}, "giving it back (a moment ago)."),
    ],
)
def test_why_memory_is_still_held(fields: dict[str, t.Any], words: str) -> None:
    found = assess(sample(ok(0, 900), **fields))
    assert found.verdict == "draining"
    assert words in found.reason
