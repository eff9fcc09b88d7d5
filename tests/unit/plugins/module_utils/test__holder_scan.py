# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _holder_scan
from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import NodeSet
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_scan import (
    FD,
    FD_LINKS,
    LABEL,
    MAPS,
    STAT,
    USER,
    HolderReader,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc, ProcStat
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import RawHolder, RawUnreadable, Surroundings
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import (
    EXITING,
    KERNEL_THREAD,
    ORDINARY,
    FakeProc,
    make_nodes,
)


class Node:
    def __init__(self, folder: pathlib.Path) -> None:
        self.fake = FakeProc(folder / "proc")
        self.glob = make_nodes(folder / "dev")
        self.gpu = folder / "dev/nvidia0"
        self.control = folder / "dev/nvidiactl"

    def items(self, compute: t.Collection[int] = (), **more: t.Any) -> list[t.Any]:
        return list(HolderReader(Proc(self.fake.root), [self.glob], None, **more).read_all(compute, 900))

    def holders(self, compute: t.Collection[int] = (), **more: t.Any) -> dict[int, RawHolder]:
        return {item.stat.pid: item for item in self.items(compute, **more) if isinstance(item, RawHolder)}

    def unreadable(self, **more: t.Any) -> list[RawUnreadable]:
        return [item for item in self.items(**more) if isinstance(item, RawUnreadable)]


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def vias(holder: RawHolder) -> set[tuple[str, str]]:
    return {(os.path.basename(hold.path), hold.via) for hold in holder.holds}


def test_open_and_mapped(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu, node.control, "/dev/null", "/gone", "pipe:[7]"])
    node.fake.add(51, maps=[node.gpu])
    node.fake.add(52, opens=["/dev/null"])
    found = node.holders()
    assert set(found) == {50, 51}
    assert vias(found[50]) == {("nvidia0", "fd"), ("nvidiactl", "fd")}
    assert vias(found[51]) == {("nvidia0", "map")}
    assert found[51].maps_gpu
    assert not found[50].maps_gpu
    assert found[50].gpu_open


def test_a_dead_leader_with_a_living_thread(node: Node) -> None:
    node.fake.add(60, state="Z", exe=None, tasks={60: {"state": "Z"}, 61: {"opens": [node.gpu], "maps": [node.gpu]}})
    (holder,) = node.holders().values()
    assert vias(holder) == {("nvidia0", "thread_fd"), ("nvidia0", "map")}
    assert not holder.dying


def test_a_dead_leader_whose_first_thread_has_lost_its_memory(node: Node) -> None:
    node.fake.add(60, state="Z", tasks={60: {"state": "Z"}, 61: {}, 62: {"maps": [node.gpu]}})
    node.fake.write("60/task/61/maps", "")
    (holder,) = node.holders().values()
    assert vias(holder) == {("nvidia0", "map")}


def test_dead_threads_are_not_asked(node: Node) -> None:
    node.fake.add(60, state="Z", tasks={60: {"state": "Z"}, 61: {"state": "Z", "opens": [node.gpu]}})
    assert node.holders() == {}


def test_a_living_leader_with_an_empty_table(node: Node) -> None:
    node.fake.add(60, tasks={60: {}, 61: {"opens": [node.gpu]}})
    (holder,) = node.holders().values()
    assert vias(holder) == {("nvidia0", "thread_fd")}


def test_an_ordinary_zombie_is_nobody_unless_it_is_listed_as_computing(node: Node) -> None:
    node.fake.add(70, state="Z", tasks={70: {"state": "Z"}})
    assert node.holders() == {}
    (holder,) = node.holders({70}).values()
    assert holder.dying
    assert holder.holds == ()


@pytest.mark.parametrize("late", [False, True])
def test_a_listed_process_that_is_ending_is_dying_though_its_tables_are_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """late: it began to end after its state was read, and before its tables were."""
    node.fake.add(70, flags=ORDINARY | EXITING, tasks={70: {"flags": ORDINARY | EXITING}})
    node.fake.write("70/maps", "")
    real = Proc.stat
    seen: list[int] = []

    def stat(self: Proc, pid: int, tid: int | None = None) -> ProcStat:
        entry = real(self, pid, tid)
        seen.append(pid)
        return dataclasses.replace(entry, flags=ORDINARY) if late and seen.count(70) == 1 and pid == 70 else entry

    monkeypatch.setattr(Proc, "stat", stat)
    (holder,) = node.holders({70}).values()
    assert (holder.dying, holder.holds, holder.maps_read) == (True, (), False)
    seen.clear()
    assert node.items()[1:] == [], "nor does it matter where nobody lists it"


@pytest.mark.parametrize("pending", [0, 0x100])
def test_a_listed_process_that_has_not_begun_to_end_and_cannot_be_read_is_not_known(node: Node, pending: int) -> None:
    """Nor is it asked for more, when a table of it may have blocked."""
    node.fake.add(71, pending=pending)
    node.fake.make_unreadable(71, "maps")
    assert node.holders({71}) == {}
    assert [entry.pid for entry in node.unreadable()] == [71]


def test_a_listed_process_that_lives_and_holds_nothing_is_not_believed(node: Node) -> None:
    node.fake.add(71, opens=["/dev/null"])
    assert node.holders({71, 99999}) == {}


@pytest.mark.parametrize(
    ("entry", "dying"),
    [
        ({}, False),
        ({"pending": 0x100}, True),
        ({"pending": 0x4000}, False),
        ({"flags": ORDINARY | EXITING}, True),
        ({"flags": ORDINARY | EXITING, "threads": {61: {}}}, False),
        ({"flags": ORDINARY | EXITING, "threads": {61: {"flags": ORDINARY | EXITING}}}, True),
        ({"flags": ORDINARY | EXITING, "threads": {61: {"pending": 0x100}}}, True),
        ({"state": "X"}, True),
        ({"state": "Z"}, True),
        ({"state": "Z", "threads": {61: {}}}, False),
        ({"state": "Z", "threads": {61: {"flags": ORDINARY | EXITING}}}, True),
        ({"state": "Z", "threads": {61: {"state": "Z"}}}, True),
        ({"state": "Z", "threads": {61: {"pending": 0x100}}}, True),
        ({"state": "Z", "pending": 0x100, "threads": {61: {}}}, True),
        ({"state": "D"}, False),
        ({"state": "T"}, False),
    ],
)
def test_dying(node: Node, entry: dict[str, t.Any], dying: bool) -> None:
    threads = entry.pop("threads", {})
    leader = {name: entry[name] for name in ("state", "flags") if name in entry}
    if entry.get("state") not in ("Z", "X"):
        leader["opens"] = entry["opens"] = [node.gpu]
    threads = {tid: {"opens": [node.gpu], **other} for tid, other in threads.items()}
    node.fake.add(60, tasks={60: leader, **threads}, **entry)
    (holder,) = node.holders({60}).values()
    assert holder.dying is dying


def test_kernel_threads_and_the_reading_child_are_passed_over(node: Node) -> None:
    node.fake.add(2, comm="kthreadd", ppid=0, flags=KERNEL_THREAD, opens=[node.gpu])
    node.fake.add(3, ppid=2, opens=[node.gpu])  # PID 2 of a container is an ordinary process
    node.fake.add(901, ppid=900, opens=[node.gpu])
    (node.fake.path / "self").unlink()
    (node.fake.path / "self").symlink_to("901")
    assert set(node.holders()) == {3}


def test_surroundings(node: Node) -> None:
    first = node.items()[0]
    assert isinstance(first, Surroundings)
    assert first.own_pids == {900, 800}
    assert first.init_cgroup.strip() == "0::/init.scope"
    assert first.own_pid_namespace == "pid:[1]"
    assert first.own_ns_depth == 1
    assert first.hidepid is None


def test_hidepid_counts_for_a_plain_user_only(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.fake.write("900/mountinfo", f"2 1 0:2 / {node.fake.root} rw - proc proc rw,hidepid=2\n")
    monkeypatch.setattr(_holder_scan.os, "geteuid", lambda: 1000)
    assert t.cast(Surroundings, node.items()[0]).hidepid == "hidepid=2"
    monkeypatch.setattr(_holder_scan.os, "geteuid", lambda: 0)
    assert t.cast(Surroundings, node.items()[0]).hidepid is None


def test_details(node: Node) -> None:
    node.fake.add(40, comm="bash", ppid=1, cgroup="0::/system.slice/a.service")
    node.fake.add(
        50, ppid=40, uid=0, start=100_000, opens=[node.gpu], state="D", cgroup="0::/b", argv=["x", "y"], ns_pids=[50, 3]
    )
    node.fake.write("50/task/50/wchan", "uvm_wait")
    holder = node.holders()[50]
    assert holder.argv == ("x", "y")
    assert holder.exe == "/usr/bin/python3"
    assert holder.user is None, "its container has no list of users here, and the host's names are not its"
    assert holder.wchan == "uvm_wait"
    assert holder.status.ns_pids == (50, 3)
    assert holder.cgroup == "0::/b\n"
    assert holder.lineage == ((40, "0::/system.slice/a.service\n"),)
    assert holder.age_s == pytest.approx(5000 - 100_000 / os.sysconf("SC_CLK_TCK"))


def test_a_ring_of_parents_ends(node: Node) -> None:
    node.fake.add(50, ppid=51, opens=[node.gpu])
    node.fake.add(51, ppid=50)
    assert len(node.holders()[50].lineage) == 100


@pytest.mark.parametrize("table", ["fd", "maps"])
def test_a_table_that_cannot_be_read(node: Node, table: str) -> None:
    node.fake.add(50, uid=0)
    node.fake.make_unreadable(50, table)
    (entry,) = node.unreadable()
    assert (entry.pid, entry.what, entry.matters) == (50, table, True)
    assert "uid 0 may open a node" in entry.reason


def test_a_holder_by_mapping_is_found_though_its_files_cannot_be_read(node: Node) -> None:
    node.fake.add(50, maps=[node.gpu])
    node.fake.make_unreadable(50)
    assert vias(node.holders()[50]) == {("nvidia0", "map")}
    assert node.unreadable()[0].matters is False


def test_mappings_of_a_holder_that_cannot_be_read(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu])
    node.fake.make_unreadable(50, "maps")
    assert node.holders()[50].maps_read is False
    (entry,) = node.unreadable()
    assert entry.matters is False
    assert "listed as a holder" in entry.reason


def test_who_could_not_have_opened_a_node_does_not_matter(node: Node) -> None:
    os.chmod(node.gpu.parent, 0o700)
    node.fake.add(50, uid=4242, groups=[4242])
    node.fake.make_unreadable(50)
    node.fake.make_unreadable(1)
    entries = {entry.pid: entry for entry in node.unreadable()}
    assert entries[50].matters is False
    assert "could not have opened" in entries[50].reason
    assert entries[1].matters is False


def test_a_user_that_is_not_known_matters(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.fake.add(50)
    node.fake.make_unreadable(50)
    node.fake.make_unreadable(50, "status")
    for matters in (True, False):
        monkeypatch.setattr(NodeSet, "may_be_opened_by_others", lambda nodes, uid, matters=matters: matters)
        assert node.unreadable()[0].matters is matters


def test_tables_of_a_process_that_is_ending_do_not_matter(node: Node) -> None:
    node.fake.add(50, state="Z", tasks={50: {"state": "Z"}})
    node.fake.add(51, flags=ORDINARY | EXITING, tasks={51: {"flags": ORDINARY | EXITING}})
    node.fake.add(52, state="Z", tasks={52: {"state": "Z"}, 53: {"flags": ORDINARY | EXITING}})
    node.fake.make_unreadable(50)
    node.fake.make_unreadable(51)
    node.fake.make_unreadable(52, "task/53/fd")
    assert node.items()[1:] == []


def test_a_dead_leader_is_not_asked_for_its_closed_table(node: Node) -> None:
    node.fake.add(60, state="Z", tasks={60: {"state": "Z"}, 61: {"opens": [node.gpu]}})
    node.fake.make_unreadable(60)
    assert vias(node.holders()[60]) == {("nvidia0", "thread_fd")}
    assert node.unreadable() == []


def test_a_living_thread_that_cannot_be_read_matters(node: Node) -> None:
    node.fake.add(60, state="Z", tasks={60: {"state": "Z"}, 61: {}})
    node.fake.make_unreadable(60, "task/61/fd")
    assert [entry.pid for entry in node.unreadable()] == [60]


def test_empty_mappings_are_not_the_same_as_none(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu])
    node.fake.write("50/maps", "")
    assert node.holders()[50].maps_read is False


def test_vanished_processes_are_no_matter(node: Node) -> None:
    node.fake.write("50/comm", "x")  # nothing but a folder is left
    node.fake.add(51)
    (node.fake.path / "51/maps").unlink()
    assert node.holders() == {}
    assert node.unreadable() == []


def test_what_blocked_is_read_otherwise_or_not_at_all(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu], maps=[node.gpu], argv=["secret"])
    node.fake.write("50/mountinfo", "1 0 8:1 / / rw - ext4 x rw\n")
    holder = node.holders(skip={(50, LABEL), (0, USER)})[50]
    assert (holder.argv, holder.user) == ((), None)
    assert node.holders(skip={(50, MAPS)})[50].maps_read is False
    assert vias(node.holders(skip={(50, FD)})[50]) == {("nvidia0", "fd"), ("nvidia0", "map")}
    assert vias(node.holders(skip={(50, FD), (50, FD_LINKS)})[50]) == {("nvidia0", "map")}
    assert node.holders(skip={(50, STAT)}) == {}
    assert node.unreadable(skip={(50, STAT)})[0].matters is True


@pytest.mark.parametrize("content", ["", "nonsense", "50 (x) S"])
def test_a_process_of_which_nothing_is_known_matters(node: Node, content: str) -> None:
    node.fake.write("50/stat", content)
    assert [(entry.pid, entry.matters) for entry in node.unreadable()] == [(50, True)]


def test_a_number_that_was_given_to_another_process_meanwhile(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.fake.add(50, opens=[node.gpu], start=77)
    real = Proc.stat
    seen: list[int] = []

    def stat(self: Proc, pid: int, tid: int | None = None) -> ProcStat:
        entry = real(self, pid, tid)
        if pid == 50 and tid is None:
            seen.append(pid)
            return dataclasses.replace(entry, start_time=entry.start_time + len(seen) - 1)
        return entry

    monkeypatch.setattr(Proc, "stat", stat)
    assert node.holders() == {}
    assert len(seen) == 2


def test_processes_again(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu], start=77)
    reader = HolderReader(Proc(node.fake.root), [node.glob], None)
    (holder,) = reader.read_again([50], ())
    assert isinstance(holder, RawHolder)
    assert holder.stat.start_time == 77
    assert list(reader.read_again([51], ())) == []
