# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import signal
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import (
    Holder,
    HolderScan,
    PortOwner,
    Unreadable,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_arguments import (
    LADDER_ARGUMENTS,
    release_options,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import (
    DEFAULT_LADDER,
    LONGEST_RUNG,
    LOOKS_AGAIN,
    MOST_RUNGS,
    PROLONGED_TO,
    ReleaseResult,
    Rung,
    Signalled,
    look_until_complete,
    parents_first,
    port_remark,
    quiet_verdict,
    read_ladder,
    rehearsal_message,
    released_message,
    survivor_line,
    targets_of,
    topmost,
    torn_down,
    unreadable_message,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._managers import Order

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
        ([{"signal": "TERM", "wait": 15}], "ladder ends with TERM: the last rung has to be KILL"),
        ([{"signal": "TERM", "wait": 15}, {"signal": "INT"}], "ladder ends with INT: the last rung has to be KILL"),
        ([KILL, KILL], "KILL before its last rung"),
        ([{"signal": "TERM", "wait": 1}] * 5 + [KILL], "6 rungs"),
    ],
)
def test_a_ladder_that_cannot_be_meant(rungs: list[dict[str, t.Any]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_ladder(rungs)


def test_the_bounds_of_a_ladder() -> None:
    assert (LONGEST_RUNG, MOST_RUNGS, PROLONGED_TO) == (600.0, 5, 300.0)
    longest = read_ladder([{"signal": "TERM", "wait": 600}] * 4 + [{"signal": "KILL", "wait": 0}])
    assert [rung.wait for rung in longest] == [600.0] * 4 + [0.0]


@pytest.mark.parametrize("wait", [{}, {"wait": None}, {"wait": 0}, {"wait": 0.5}])
def test_a_rung_may_be_given_no_time(wait: dict[str, t.Any]) -> None:
    assert read_ladder([{"signal": "TERM", **wait}, KILL])[0].wait == (wait.get("wait") or 0.0)


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


@pytest.mark.parametrize(("stop_timeout", "respawn_watch"), [(0.5, 0.0), (3600.0, 600.0), (1.0, 0.5), (180.0, 10.0)])
def test_the_longest_and_the_shortest_times(stop_timeout: float, respawn_watch: float) -> None:
    params = {
        "ladder": [KILL],
        "stop_timeout": stop_timeout,
        "respawn_watch": respawn_watch,
        "node_pid_namespace": None,
    }
    assert release_options(params, check_mode=False).respawn_watch == respawn_watch


@pytest.mark.parametrize(("option", "value"), [("stop_timeout", 3600.5), ("stop_timeout", 0), ("respawn_watch", 600.5)])
def test_a_little_beyond_is_refused(option: str, value: float) -> None:
    params = {"ladder": [KILL], "stop_timeout": 180.0, "respawn_watch": 10.0, "node_pid_namespace": None}
    with pytest.raises(ValueError, match=f"{option} is {value:g}: it has to be"):
        release_options({**params, option: value}, check_mode=False)


def test_what_the_modules_take_of_a_ladder() -> None:
    """The default is the ladder that is documented, and each rung names its signal and its time."""
    arguments = LADDER_ARGUMENTS
    assert read_ladder(arguments["ladder"]["default"]) == DEFAULT_LADDER == (Rung("TERM", 15.0), Rung("KILL", 180.0))
    assert [one["required"] for one in arguments["ladder"]["options"].values()] == [True, True]
    assert (arguments["stop_timeout"]["default"], arguments["respawn_watch"]["default"]) == (180.0, 10.0)


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


def holder(pid: int = 10, **fields: t.Any) -> Holder:
    return Holder(**{"pid": pid, "start_time": 1, "comm": "x", "ppid": 1, "disposition": "target", **fields})


class Looks:
    """Looks that are incomplete at first, and the clock that waits between them."""

    def __init__(self, incomplete: int, seconds: float = 0.1) -> None:
        self.incomplete, self.seconds = incomplete, seconds
        self.taken = 0
        self.slept: list[float] = []

    def __call__(self) -> HolderScan:
        self.taken += 1
        return HolderScan(complete=self.taken > self.incomplete, seconds=self.seconds)

    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.mark.parametrize(
    ("incomplete", "seconds", "taken"),
    [
        pytest.param(0, 0.1, 1, id="complete at once"),
        pytest.param(2, 0.1, 3, id="somebody was just starting"),
        pytest.param(99, 0.1, 5, id="never complete"),
        pytest.param(99, 2.0, 5, id="slow, but not blocked"),
        pytest.param(99, 2.1, 1, id="blocked: that does not pass"),
    ],
)
def test_a_look_is_repeated_until_it_is_complete(incomplete: int, seconds: float, taken: int) -> None:
    looks = Looks(incomplete, seconds)
    found = look_until_complete(looks, looks)
    assert (looks.taken, found.complete) == (taken, incomplete < taken)
    assert looks.slept == [0.25] * (taken - 1)
    assert taken <= LOOKS_AGAIN + 1


def test_targets_are_neither_pid_1_nor_ours() -> None:
    scan = HolderScan(holders=tuple(holder(pid) for pid in (1, 2, 3, 4)))
    assert [one.pid for one in targets_of(scan, {3})] == [2, 4]


@pytest.mark.parametrize(
    ("fields", "verdict", "words"),
    [
        pytest.param({"disposition": "foreign", "computes": True}, "foreign", "others compute", id="a stranger"),
        pytest.param({"disposition": "foreign", "computes": None}, "foreign", "others compute", id="not known"),
        pytest.param({"disposition": "foreign", "computes": False}, "free", "device", id="a stranger that watches"),
        pytest.param({"disposition": "never", "computes": True}, "foreign", "others compute", id="a container's init"),
        pytest.param({"disposition": "protected", "computes": True}, "free", "protected processes", id="protected"),
        pytest.param({"disposition": "protected", "computes": False}, "free", "device", id="protected, watches"),
        pytest.param({"disposition": "dying", "computes": True}, "free", "device", id="neither"),
    ],
)
def test_what_is_said_where_nothing_was_done(fields: dict[str, t.Any], verdict: str, words: str) -> None:
    found, text = quiet_verdict(HolderScan(holders=(holder(**fields),)))
    assert (found, text.startswith("No target holds a GPU device")) == (verdict, True)
    assert text.endswith(words) or f", but {words}" in text


def test_nothing_is_remarked_about_a_node_without_holders() -> None:
    assert quiet_verdict(HolderScan()) == ("free", "No target holds a GPU device")
    assert ReleaseResult(verdict="free", message="").elapsed_s == 0.0


def test_whoever_keeps_the_port_is_remarked() -> None:
    stranger = PortOwner("127.0.0.1:30000", 20, "nginx", "nginx -g", reason="its own")
    assert port_remark(HolderScan()) == ""
    remark = port_remark(HolderScan(port_owners=(stranger,)))
    assert remark.startswith(" The server's port is taken by others, who were left alone: ")
    assert "nginx -g" in remark


def unreadable(count: int, **fields: t.Any) -> HolderScan:
    entries = tuple(
        Unreadable(pid=100 + n, comm="python3", what="maps", error="EACCES", matters=True, reason="hidden")
        for n in range(count)
    )
    return HolderScan(complete=False, unreadable=entries, **fields)


@pytest.mark.parametrize(
    ("count", "named", "more"), [(1, 1, ""), (5, 5, ""), (6, 5, "; and 1 more"), (9, 5, "; and 4 more")]
)
def test_at_most_five_that_could_not_be_read_are_named(count: int, named: int, more: str) -> None:
    text = unreadable_message(unreadable(count), nothing_done=False)
    last = f"PID {99 + named} (python3): maps: EACCES (hidden){more}. Run this as root"
    assert f"not complete: {count} processes could not be looked at: PID 100 (python3): " in text
    assert (text.count("PID 1"), last in text) == (named, True)


def test_why_a_look_was_not_complete() -> None:
    assert "not complete: it took too long. Nothing was signalled. Run" in unreadable_message(
        unreadable(0, incomplete_reason="it took too long."), nothing_done=True
    )
    assert "not complete: no reason. Run this" in unreadable_message(unreadable(0), nothing_done=False)
    both = unreadable_message(unreadable(1, incomplete_reason="it took too long."), nothing_done=False)
    assert "not complete: it took too long: PID 100 (python3)" in both


@pytest.mark.parametrize(
    ("fields", "refusal", "dying_for", "line"),
    [
        ({"dying": True}, "may not be signalled", 3.0, "may not be signalled"),
        (
            {"dying": True, "wchan": "nv_wait"},
            None,
            12.4,
            "was killed 12 s ago and does not end (in nv_wait): rebooting",
        ),
        ({"dying": True}, None, None, "was killed and does not end: rebooting"),
        ({"ns_pid": 1, "state": "D"}, None, None, "is PID 1 of its PID namespace"),
        ({"state": "D", "wchan": "nv_wait"}, None, None, "sleeps uninterruptibly (in nv_wait): rebooting"),
        ({"state": "S"}, None, None, "outlived KILL in state S: rebooting"),
    ],
)
def test_why_a_process_is_still_there(
    fields: dict[str, t.Any], refusal: str | None, dying_for: float | None, line: str
) -> None:
    assert survivor_line(holder(**fields), refusal, dying_for).startswith(line)


UNIT = Order("unit", "a.service", ("systemctl", "stop", "a.service"), (10, 11))
CONTAINER = Order("container", "x", ("docker", "stop", "x"), (12,))


@pytest.mark.parametrize(
    ("orders", "signals", "words"),
    [
        ((), (), "Would only wait for the dying, and signal nobody"),
        ((), ((10, "TERM"), (11, "KILL")), "Would signal PID 10 with TERM, PID 11 with KILL"),
        ((UNIT,), (), "Would stop systemctl stop a.service (for PID 10, 11)"),
        (
            (UNIT, CONTAINER),
            ((13, "TERM"),),
            "Would stop systemctl stop a.service (for PID 10, 11); docker stop x (for PID 12),"
            " then signal PID 13 with TERM",
        ),
    ],
)
def test_what_a_rehearsal_says_it_would_do(
    orders: tuple[Order, ...], signals: tuple[tuple[int, str], ...], words: str
) -> None:
    """All that check mode tells a person before it is done."""
    assert rehearsal_message(signals, [order.describe() for order in orders]) == words


@pytest.mark.parametrize(
    ("stopped", "pids", "words"),
    [
        ((), (10,), "Released: 1 process signalled; "),
        ((), (10, 10), "Released: 1 process signalled; "),
        ((), (10, 11), "Released: 2 processes signalled; "),
        (("a",), (), "Released: 1 stopped through a manager; "),
        (("a", "b"), (10, 11, 12), "Released: 2 stopped through a manager, 3 processes signalled; "),
    ],
)
def test_what_was_done_is_counted_by_process(stopped: tuple[str, ...], pids: tuple[int, ...], words: str) -> None:
    sent = [Signalled(pid, "TERM", 0.1) for pid in pids]
    assert released_message(stopped, sent) == f"{words}a complete second look found no target left"


def test_one_that_no_scan_shows_any_more_is_told_without_what_it_no_longer_shows() -> None:
    before = holder(state="D", wchan="uvm", devices=("/dev/nvidia0",), via=("fd", "map"), unit="sglang.service")
    found = torn_down(before)
    assert (found.pid, found.start_time, found.unit, found.disposition) == (
        10,
        before.start_time,
        before.unit,
        "target",
    )
    assert (found.dying, found.state, found.wchan, found.devices, found.via) == (True, "?", None, (), ())
