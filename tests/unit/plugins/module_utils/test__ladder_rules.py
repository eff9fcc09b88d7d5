# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import signal
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_arguments import release_options
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import (
    DEFAULT_LADDER,
    Rung,
    parents_first,
    read_ladder,
    topmost,
)

KILL = {"signal": "KILL", "wait": 180}


@pytest.mark.parametrize("name", ["TERM", "term", "SIGTERM", "sigterm"])
def test_a_signal_by_any_of_its_names(name: str) -> None:
    assert read_ladder([{"signal": name, "wait": 15}, KILL]) == DEFAULT_LADDER


@pytest.mark.parametrize(
    ("rungs", "words"),
    [
        ([], "ladder is empty"),
        ([{"signal": "STOP", "wait": 1}, KILL], "rung 1: signal 'STOP' is none of TERM"),
        ([{"signal": "15", "wait": 1}, KILL], "by name"),
        ([{"signal": None, "wait": 1}, KILL], "signal None"),
        ([{"signal": "TERM", "wait": -1}, KILL], "rung 1: wait -1 s"),
        ([{"signal": "TERM", "wait": 601}, KILL], "wait 601 s"),
        ([{"signal": "TERM", "wait": float("nan")}, KILL], "wait nan s"),
        ([{"signal": "TERM", "wait": 15}], "the last rung has to be KILL"),
        ([KILL, KILL], "KILL before its last rung"),
        ([{"signal": "TERM", "wait": 1}] * 5 + [KILL], "6 rungs"),
    ],
)
def test_a_ladder_that_cannot_be_meant(rungs: list[dict[str, t.Any]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_ladder(rungs)


def test_numbers_of_signals() -> None:
    assert (Rung("TERM", 1).number, Rung("KILL", 1).number) == (signal.SIGTERM, signal.SIGKILL)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"stop_timeout": 0.0}, "stop_timeout is 0"),
        ({"stop_timeout": float("nan")}, "stop_timeout is nan"),
        ({"respawn_watch": -1.0}, "respawn_watch is -1"),
        ({"respawn_watch": 601.0}, "respawn_watch is 601"),
        ({"node_pid_namespace": "101"}, "node_pid_namespace is '101'"),
    ],
)
def test_options_that_cannot_be_meant(changed: dict[str, float], words: str) -> None:
    params = {"ladder": [KILL], "stop_timeout": 180.0, "respawn_watch": 10.0, "node_pid_namespace": None}
    assert release_options(params, check_mode=True).check_mode
    with pytest.raises(ValueError, match=words):
        release_options({**params, **changed}, check_mode=False)


def tree(dying: t.Collection[int] = ()) -> tuple[list[Holder], t.Callable[[int], tuple[int, ...]]]:
    """10 above 11 above 12, and 20 beside them."""
    above = {10: (1,), 11: (10, 1), 12: (11, 10, 1), 20: (1,)}
    holders = [Holder(pid=pid, start_time=1, comm="x", ppid=above[pid][0], dying=pid in dying) for pid in above]
    return holders, lambda pid: above[pid]


@pytest.mark.parametrize(
    ("dying", "top"),
    [((), [10, 20]), ((10,), [11, 20]), ((10, 11), [12, 20]), ((11,), [10, 20]), ((10, 11, 12, 20), [])],
)
def test_topmost(dying: tuple[int, ...], top: list[int]) -> None:
    assert [holder.pid for holder in topmost(*tree(dying))] == top


def test_parents_first() -> None:
    holders, above = tree()
    assert [holder.pid for holder in parents_first(holders[::-1], above)] == [10, 20, 11, 12]
