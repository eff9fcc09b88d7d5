# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several children that each read a share of the processes: what is told is what one child would have told."""

from __future__ import annotations

import os
import pathlib
import signal
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _holders, _scan_shares
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import NodeSet
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_scan import HolderReader
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest, look_for_holders
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import ListeningOn, Port
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc, ProcStat, ProcStatus
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import (
    Item,
    RawHolder,
    RawPort,
    RawUnreadable,
    Surroundings,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Collected
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_shares import Share, as_one, read_shares, shares_of
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import KERNEL_THREAD
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import Clock
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.test__port_rulings import Node

COUNTS = (2, 3, 4)


def shares(count: int) -> tuple[Share, ...]:
    return tuple(Share(index, count) for index in range(count))


@pytest.fixture
def node(tmp_path: pathlib.Path) -> t.Iterator[Node]:
    made = Node(tmp_path)
    yield made
    for one in made.files:
        one.close()


@pytest.fixture
def in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_holders, "shares_of", lambda root: shares(2))


def look(node: Node, timeout: float = 60.0) -> HolderScan:
    request = ScanRequest(Scope("own"), (node.glob,), timeout=timeout, proc_root=node.fake.root)
    return look_for_holders(request, unit_states=dict.fromkeys, clock=SystemClock())


def read(node: Node, share: Share) -> list[Item]:
    proc = Proc(node.fake.root)
    return list(HolderReader(proc, [node.glob], None, port=ListeningOn(Port(30000), proc)).read_all({64}, 900, share))


@pytest.mark.parametrize("count", COUNTS)
def test_the_shares_together_tell_what_one_child_tells(node: Node, count: int) -> None:
    node.fake.add(2, flags=KERNEL_THREAD, ppid=0)
    for pid in range(50, 56):
        node.fake.add(pid, ppid=pid - 1, opens=[node.gpu])
        node.fake.add(pid + 20, maps=[node.gpu])
    node.fake.add(60, state="Z", tasks={60: {"state": "Z"}, 61: {"opens": [node.gpu], "maps": [node.gpu]}})
    node.fake.add(64, state="Z")
    for pid in (80, 81, 82, 83):
        node.fake.add(pid)
        node.fake.write(f"{pid}/stat" if pid % 2 else f"{pid}/maps", "")
    owned, lonely, other = node.listener(90), node.socket(), node.listener(91)
    node.listens(owned, lonely, other)
    whole = read(node, Share())
    together = as_one([read(node, share) for share in shares(count)])

    def of(kind: type) -> list[list[Item]]:
        return [[item for item in items if isinstance(item, kind)] for items in (whole, together)]

    for kind, number in ((Surroundings, 1), (RawHolder, 16), (RawUnreadable, 4), (RawPort, 1)):
        one, several = of(kind)
        assert len(one) == number, kind
        assert str(several) == str(one), "also in this order"


def stat(pid: int) -> ProcStat:
    return ProcStat(pid, "python3", "S", 1, 0, 1000)


def around(reader: int | None) -> Surroundings:
    return Surroundings(NodeSet(), frozenset(), "", "", None, 1, None, False, reader)


def test_the_children_are_no_holders_whoever_of_them_saw_which() -> None:
    """One that was just started still has open what the module has."""
    held = [RawHolder(stat(pid), ProcStatus(), (), False, None) for pid in (70, 71, 72)]
    doubt = [RawUnreadable(pid, "python3", "maps", "it is empty", True, "") for pid in (70, 71, 72)]
    one, other = [around(70), held[1], doubt[1]], [around(71), held[0], held[2], doubt[0], doubt[2]]
    assert as_one([one, other]) == [one[0], doubt[2], held[2]]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([RawPort(((5, "a"), (6, "b"))), RawPort(((6, "b"), (7, "c")))], RawPort(((6, "b"),))),
        ([RawPort(((5, "a"),)), RawPort()], RawPort()),
        ([RawPort(), RawPort(problem="no table")], RawPort(problem="no table")),
        ([RawPort(((5, "a"),))], None),
    ],
    ids=["seen by both without an owner", "owned in the other share", "not known", "the other share was cut off"],
)
def test_a_socket_has_no_owner_where_no_share_saw_one(ports: list[RawPort], expected: RawPort | None) -> None:
    parts: list[list[Item]] = [[port] for port in ports]
    assert as_one([*parts, []] if expected is None else parts) == ([] if expected is None else [expected])


def test_reads_that_block_in_both_shares_hide_nobody(node: Node, in_two: None) -> None:
    for pid in (50, 51, 53):
        node.fake.add(pid, opens=[node.gpu])
        node.fake.block(pid, "maps")
    for pid in (60, 61):
        node.fake.add(pid, maps=[node.gpu])
    scan = look(node, timeout=6)
    assert scan.complete, scan.incomplete_reason
    assert [holder.pid for holder in scan.holders] == [50, 51, 53, 60, 61]


def test_a_share_that_does_not_end_in_time_leaves_the_others_and_says_so(node: Node, in_two: None) -> None:
    node.fake.add(50, maps=[node.gpu])
    for pid in range(51, 91, 2):
        node.fake.add(pid)
        node.fake.block(pid, "maps")
    began = time.monotonic()
    scan = look(node, timeout=1.5)
    assert time.monotonic() - began < 30
    assert not scan.complete
    assert "did not come back within the scan's 1.5 s" in scan.incomplete_reason
    assert [holder.pid for holder in scan.holders] == [50]


@pytest.mark.parametrize(("left", "rounds"), [(0.3, 1), (1.5, 2)])
def test_what_was_seen_is_not_given_up_for_a_reading_that_the_deadline_would_cut_off(
    left: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a moment left the next reading would bring nothing home, and whom this one named would be forgotten."""
    clock = Clock()
    held = RawHolder(stat(70), ProcStatus(), (), False, None)
    seen: list[Collected[Item]] = [Collected((around(None), held), False, (51, 3)), Collected((), False, (51, 3))]

    def collect(produce: t.Sequence[t.Any], **dummy: t.Any) -> tuple[Collected[Item], ...]:
        clock.now += 10.0 - left if len(seen) == 2 else left
        return (seen.pop(0),)

    monkeypatch.setattr(_scan_shares, "collect_all", collect)
    items, _errors, blocked = read_shares(
        lambda *dummy: iter(()), [Share()], timeout=10.0, deadline=clock.now + 10.0, clock=clock
    )
    assert (2 - len(seen), blocked) == (rounds, [(51, 3)])
    assert (held in items) is (rounds == 1)


def test_a_child_that_dies_makes_the_look_incomplete_and_hides_nothing_of_the_other(
    node: Node, in_two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = HolderReader._maps

    def dying(self: HolderReader, entry: ProcStat, *more: t.Any) -> None:
        if entry.pid == 51:
            os.kill(os.getpid(), signal.SIGKILL)
        maps(self, entry, *more)

    monkeypatch.setattr(HolderReader, "_maps", dying)
    for pid in (50, 51, 52, 53):
        node.fake.add(pid, maps=[node.gpu])
    scan = look(node)
    assert not scan.complete
    assert scan.incomplete_reason == "the reading child process ended before it was done"
    assert [holder.pid for holder in scan.holders] == [50, 52]


def test_a_second_child_that_is_not_to_be_had(node: Node, in_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fork, asked = os.fork, []

    def one_only() -> int:
        asked.append(1)
        if len(asked) > 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", one_only)
    for pid in (50, 51):
        node.fake.add(pid, maps=[node.gpu])
    scan = look(node)
    assert not scan.complete
    assert scan.incomplete_reason == "a child process could not be started: Resource temporarily unavailable"
    assert [holder.pid for holder in scan.holders] == [50]


@pytest.mark.parametrize(
    ("processes", "processors", "count"),
    [(300, 1, 1), (300, 2, 2), (300, 64, 4), (120, 64, 2), (99, 64, 1), (None, 64, 1)],
)
def test_how_many_shares(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, processes: int | None, processors: int, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    root = tmp_path / "proc"
    for pid in range(processes or 0):
        (root / str(pid)).mkdir(parents=True)
    found = shares_of(str(root))
    assert len(found) == count
    for pid in range(100):
        assert [share.has(pid) for share in found].count(True) == 1
