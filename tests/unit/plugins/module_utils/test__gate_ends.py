# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate's ends to the second, its windows, and what it says at each of them."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions, inside_container, wait_idle
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import (
    COST,
    TWO,
    UUIDS,
    Node,
    holder,
    ok,
    scan,
)


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        ("interval", (0.01, 60.0), (0.009, 60.1)),
        ("timeout", (0.0, 0.5, 86400.0), (-0.1, 86400.1)),
        ("samples", (1, 1000), (0, 1001)),
    ],
)
def test_the_bounds_of_the_options(option: str, good: tuple[float, ...], bad: tuple[float, ...]) -> None:
    fields: dict[str, t.Any]
    for value in good:
        fields = {option: value}
        assert GateOptions(TWO, **fields)
    for value in bad:
        fields = {option: value}
        with pytest.raises(ValueError, match=option):
            GateOptions(TWO, **fields)


def test_what_is_not_asked_for_is_not_given() -> None:
    """Zero means zero, for five minutes at most; what stands still has stood for ten seconds."""
    made = GateOptions(TWO)
    assert (made.max_used_mib, made.settled_mib, made.timeout, made.patience, made.settle_time) == (0, 0, 300, 10, 10)


def test_it_ends_with_its_time_and_says_how_long_that_was() -> None:
    node = Node([ok(0, 500)], scan(holder(dying=True)), cost=0.0)
    result = node.wait(timeout=20.0, interval=1.0)
    assert (result.verdict, result.passed, result.waited_s) == ("dying", False, 20.0)
    assert result.message.startswith("The GPUs are not idle after 20.0 s (dying): ")
    assert result.message.endswith(result.reason)


def test_a_gate_that_opens_says_no_more_than_that() -> None:
    result = Node([ok(0, 0)]).wait()
    assert result.message == result.reason


def test_whoever_stays_is_waited_for_as_long_as_patience_and_no_longer() -> None:
    node = Node([ok(0, 500)], scan(holder()), cost=0.0)
    result = node.wait(interval=1.0, patience=7.0)
    assert (result.verdict, result.passed, result.waited_s) == ("busy", False, 7.0)


def test_patience_begins_anew_when_somebody_else_or_something_else_stands_there() -> None:
    for looks, holders in (
        (lambda at: ok(0, 500), lambda at: scan(holder(10 if at < 5 else 11))),
        (lambda at: ok(0, 500 if at < 5 else 600), lambda at: scan(holder())),
    ):
        result = Node(looks, holders, cost=0.0).wait(interval=1.0, patience=7.0)
        assert 12.0 <= result.waited_s <= 14.0


def test_a_settled_floor_that_was_accepted_opens_it_at_once_and_another_does_not() -> None:
    for floor, passed in ((4, True), (3, False)):
        result = Node([ok(0, 4)], cost=0.0).wait(interval=1.0, settled_mib=floor, timeout=60.0)
        assert (result.verdict, result.passed) == ("settled", passed)
        assert result.waited_s < 25


def test_memory_that_falls_is_not_called_an_orphans() -> None:
    """For ten seconds after each step down; the last step here is at second 9."""
    steps = [(0, 90_000), (1, 60_000), (9, 500)]
    node = Node(lambda at: ok(0, [mib for since, mib in steps if since <= at][-1]), cost=0.0)
    result = node.wait(interval=1.0, settle_time=0.0, patience=2.0)
    assert (result.verdict, result.waited_s) == ("orphaned", 21.0)
    rising = Node(lambda at: ok(0, 500 + int(at)), cost=0.0).wait(interval=1.0, settle_time=0.0, patience=0.0)
    assert rising.waited_s < 5, "what only rises is nobody's way down"


def test_what_was_killed_may_give_memory_back_for_three_minutes() -> None:
    node = Node([ok(0, 500)], cost=0.0)
    result = node.wait(interval=1.0, timeout=600.0, killed_at=node.clock.now - 10.0, patience=0.0)
    assert (result.verdict, result.waited_s) == ("orphaned", 170.0)


def test_scans_name_who_holds_it_every_two_seconds() -> None:
    node = Node([ok(0, 500)], scan(holder(dying=True)), cost=0.0)
    node.wait(interval=0.5, timeout=10.0)
    assert node.scanned == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_nobody_is_scanned_for_while_nvidia_smi_says_nothing() -> None:
    node = Node([GpuLook(state="hung", exit_code=None)], cost=0.0)
    node.wait(interval=1.0, timeout=5.0)
    assert node.scanned == []


def test_the_history_tells_when_it_changed() -> None:
    node = Node(lambda at: ok(0, 500 if at < 5 else 0), scan(holder(dying=True)))
    result = node.wait(interval=1.0)
    assert [dict(entry.used_mib)[UUIDS[1]] for entry in result.history] == [500, 0]
    assert result.history[0].at_s == COST
    assert 5.0 <= result.history[1].at_s < 6.2
    assert all(entry.at_s == round(entry.at_s, 3) for entry in result.history)
    assert result.waited_s == round(result.waited_s, 3)


def test_who_is_listed_and_dead_is_told_from_who_lives(tmp_path: pathlib.Path) -> None:
    (tmp_path / "11").mkdir()
    listed = [
        GpuProcess(UUIDS[1], 11, None, 400),
        GpuProcess(UUIDS[1], 12, None, 100),
        GpuProcess(UUIDS[0], 13, None, 0),
    ]
    node = Node([ok(0, 500, processes=listed)], cost=0.0)
    options = GateOptions(TWO, timeout=60.0, patience=0.0, interval=1.0)
    result = wait_idle(node.look, node.scan, options, node.clock, proc_root=str(tmp_path))
    assert "12" in result.reason
    assert "13" not in result.reason, "of the GPUs that hold memory only"
    assert "11" not in result.reason


@pytest.mark.parametrize(
    ("look", "found", "opens", "words"),
    [
        (ok(0, 0), scan(), True, "The gate would open."),
        (ok(0, 500), scan(holder()), True, "The gate would wait for that to be released, and nothing else stands"),
        (ok(0, 500), scan(holder(disposition="foreign", gpus=(UUIDS[1],))), False, None),
    ],
)
def test_what_a_rehearsal_says(look: GpuLook, found: t.Any, opens: bool, words: str | None) -> None:
    result = Node([look], found).wait(check_mode=True)
    assert (result.passed, result.would_open_after_release) == (opens, opens)
    assert "The GPUs are not idle after" not in result.message
    assert ("The gate would" in result.message) is opens
    assert words is None or words in result.message


def test_a_machine_whose_own_namespace_cannot_be_told_is_no_container(tmp_path: pathlib.Path) -> None:
    assert inside_container(str(tmp_path)) is False
    (tmp_path / "self/ns").mkdir(parents=True)
    os.symlink("pid:[4026531836]", tmp_path / "self/ns/pid")
    assert inside_container(str(tmp_path)) is False
    (tmp_path / "self/ns/pid").unlink()
    os.symlink("pid:[4026532177]", tmp_path / "self/ns/pid")
    assert inside_container(str(tmp_path)) is True
