# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the gate opens, and what it looks at how often."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, GpuLook
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import (
    COST,
    TWO,
    UUIDS,
    Node,
    faulty,
    holder,
    ok,
    scan,
)

# -- opening ----------------------------------------------------------------------------------------------------------


def test_an_idle_node_opens_after_as_many_looks_as_samples() -> None:
    node = Node([ok(0, 0)])
    result = node.wait(samples=3)
    assert (result.verdict, result.passed, result.looks) == ("idle", True, 3)
    assert result.waited_s < 0.5
    assert len(result.history) == 1


@pytest.mark.parametrize(
    ("series", "looks"),
    [
        ([0, 0], 2),
        ([80000, 80000, 900, 4, 900, 4, 4, 0, 0], 9),
        ([80000, 0, 80000, 0, 0], 5),
        ([0, 4, 0, 4, 0, 0], 6),
        ([75322, 4, 4, 4, 4, 4, 4, 4, 4, 0, 0], 11),
    ],
)
def test_a_series_opens_it_only_at_its_end(series: list[int], looks: int) -> None:
    """Zero twice in a row; a bad look in between starts the count again, and a few MiB on the way down do not pass."""
    node = Node([ok(0, mib) for mib in series])
    result = node.wait(settled_mib=8)
    assert (result.verdict, result.passed, result.looks) == ("idle", True, looks)


def test_one_gpu_of_two_that_lies_once() -> None:
    node = Node([ok(500, 0), ok(0, 0), ok(0, 500), ok(0, 0), ok(0, 0)])
    assert node.wait().looks == 5


def test_a_gpu_that_vanishes_and_comes_back() -> None:
    node = Node([ok(0, 0), ok(0), ok(0), ok(0, 0), ok(0, 0)])
    result = node.wait()
    assert result.passed
    assert result.looks == 5


def test_the_tolerance_applies_to_each_gpu() -> None:
    assert Node([ok(5, 5)]).wait(max_used_mib=5).passed
    assert not Node([ok(0, 6)]).wait(max_used_mib=5, timeout=1).passed


def test_the_named_gpus_are_enough() -> None:
    node = Node([ok(0, 90000)], scan(holder(20, "foreign", gpus=(UUIDS[1],))))
    assert node.wait(Expectation(uuids=(UUIDS[0],))).passed
    assert not node.wait(Expectation(uuids=(UUIDS[1],)), timeout=1).passed


def test_history_has_an_entry_only_where_memory_changed() -> None:
    node = Node([ok(0, mib) for mib in (900, 900, 900, 4, 4, 0, 0)])
    result = node.wait()
    assert [entry.used_mib[UUIDS[1]] for entry in result.history] == [900, 4, 0]
    times = [entry.at_s for entry in result.history]
    assert times == sorted(times)
    assert result.history[0].as_dict() == {
        "t": times[0],
        "used_mib": {UUIDS[0]: 0, UUIDS[1]: 900},
    }


@pytest.mark.parametrize(("cost", "interval", "expected"), [(0.035, 0.1, 0.1), (2.0, 0.1, 2.0), (0.5, 1.0, 1.0)])
def test_the_interval_adapts_to_what_a_look_costs(cost: float, interval: float, expected: float) -> None:
    node = Node([ok(0, 900)] * 4 + [ok(0, 0)], cost=cost)
    node.wait(interval=interval, killed_at=5000.0)
    assert node.clock.slept == [pytest.approx(expected)] * 5


def test_what_a_scan_costs_does_not_delay_the_next_look() -> None:
    def slow_scan(since: float) -> HolderScan:
        node.clock.now += 1.5
        return scan(holder(dying=True)) if since < 0.5 else scan()

    node = Node([ok(0, 900), ok(0, 0)], slow_scan, cost=0.05)
    assert node.wait(interval=0.1, killed_at=5000.0).passed
    assert node.clock.slept == [pytest.approx(0.1)] * 2


@pytest.mark.parametrize(("samples", "asked"), [(1, [True]), (2, [True, False]), (4, [True, False, False, False])])
def test_the_first_good_look_asks_who_computes_and_the_last_one_scans(samples: int, asked: list[bool]) -> None:
    """Both would cost a moment of downtime for each sample, and tell the same."""
    node = Node([ok(0, 0)])
    assert node.wait(samples=samples).passed
    assert node.with_processes == asked
    assert len(node.scanned) == 1
    assert node.scanned[0] > node.elapsed - COST, "nobody who came before the end is missed"


def test_a_look_after_a_bad_one_asks_again_who_computes() -> None:
    node = Node([ok(0, 0), ok(0, 900), ok(0, 0), ok(0, 0)])
    assert node.wait().passed
    assert node.with_processes == [True, False, True, False]


@pytest.mark.parametrize("came", [holder(), holder(20, "foreign", computes=True), holder(dying=True)])
def test_a_holder_that_the_last_sample_found_is_looked_for_in_each_from_then_on(came: Holder) -> None:
    """Two samples of zero with somebody there open nothing; once he has gone, both samples have seen that."""
    node = Node([ok(0, 0)], lambda s: scan(came) if s < 1.5 else scan())
    result = node.wait(patience=30)
    assert (result.verdict, result.passed) == ("idle", True)
    assert result.waited_s >= 1.5
    after = [moment for moment in node.scanned if moment >= 1.5]
    assert len(after) == 2
    assert len(node.scanned) == result.looks - 1, "only the first good look was without"


def test_a_scan_of_this_moment_names_the_holders_until_it_is_time_for_the_next() -> None:
    """The release has just looked; a scan of its own would delay the first look that shows zero."""
    node = Node(lambda s: ok(0, 900 if s < 1.5 else 0), scan())
    assert node.wait(seen=scan(holder(dying=True))).passed
    assert len(node.scanned) == 1
    held = Node(lambda s: ok(0, 900), scan(holder())).wait(seen=scan(holder(77)), timeout=1.0)
    assert [one.pid for one in held.holders] == [77]
    late = Node(lambda s: ok(0, 900), scan(holder(78))).wait(seen=scan(holder(77)), timeout=5.0)
    assert [one.pid for one in late.holders] == [78]


def test_an_incomplete_scan_at_the_last_sample_keeps_it_shut() -> None:
    node = Node([ok(0, 0)], lambda s: scan(complete=s >= 1.0, incomplete_reason="no rights"))
    result = node.wait()
    assert result.passed
    assert result.waited_s >= 1.0


def test_zero_seen_at_the_timeout_gets_its_second_look() -> None:
    node = Node(lambda s: ok(0, 900 if s < 4.9 else 0), lambda s: scan(holder(dying=True)) if s < 4.9 else scan())
    assert node.wait(timeout=5.0).passed


# -- rehearsal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "found", "verdict", "passes"),
    [
        (ok(0, 0), scan(), "idle", True),
        (ok(90000, 90000), scan(holder(10)), "busy", True),
        (ok(90000, 90000), scan(holder(10), holder(30, "monitor")), "busy", True),
        (ok(90000, 90000), scan(holder(10, dying=True)), "dying", True),
        (ok(90000, 90000), scan(holder(10), holder(20, "foreign")), "foreign", False),
        (ok(90000), scan(holder(10)), "missing", False),
        (faulty(90000, None), scan(holder(10)), "faulty", False),
        (ok(90000, 90000, mig=True), scan(holder(10)), "faulty", False),
        (ok(90000, 90000, fabric_state="In Progress"), scan(holder(10)), "fabric_not_ready", False),
        (ok(90000, None), scan(holder(10)), "unknown", False),
        (ok(90000, 90000), scan(holder(10), complete=False, incomplete_reason="x"), "unknown", False),
        (GpuLook("hung", None), scan(holder(10)), "unknown", False),
        (GpuLook("no_tool", None), scan(holder(10)), "unknown", False),
        (ok(90000, 90000), scan(holder(30, "monitor")), "orphaned", False),
        (ok(4, 0), scan(), "settled", False),
    ],
)
def test_the_rehearsal_takes_one_look(look: GpuLook, found: HolderScan, verdict: str, passes: bool) -> None:
    node = Node([look], found)
    result = node.wait(check_mode=True)
    assert (result.verdict, result.passed, result.would_open_after_release) == (verdict, passes, passes)
    assert node.asked == 1
    assert node.clock.slept == [] or not found.complete


def test_the_rehearsal_scans_again_where_a_process_was_unreadable_for_a_moment() -> None:
    node = Node([ok(90000, 90000)], lambda s: scan(holder(10), complete=s > 0.5))
    assert node.wait(check_mode=True).passed


def test_the_rehearsal_knows_the_accepted_floor() -> None:
    assert Node([ok(4, 0)]).wait(check_mode=True, settled_mib=4).passed


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expectation", "options", "words"),
    [
        (Expectation(), {}, "Exactly one of expected_count and expected_uuids"),
        (Expectation(2, UUIDS[:1]), {}, "Exactly one of expected_count and expected_uuids"),
        (TWO, {"samples": 0}, "samples is 0"),
        (TWO, {"settled_mib": -1}, "settled_mib is -1"),
        (TWO, {"settled_mib": 513}, "settled_mib is 513: .* between 0 and 512"),
        (TWO, {"max_used_mib": -2}, "max_used_mib is -2"),
        (TWO, {"max_used_mib": 80_000}, "max_used_mib is 80000: .* between 0 and 512"),
        (TWO, {"interval": 0.0}, "interval is 0"),
        (TWO, {"interval": float("nan")}, "interval is nan"),
        (TWO, {"timeout": -1.0}, "timeout is -1"),
        (TWO, {"timeout": float("inf")}, "timeout is inf"),
    ],
)
def test_options_that_cannot_be_meant(expectation: Expectation, options: dict[str, t.Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GateOptions(expectation, **options)
