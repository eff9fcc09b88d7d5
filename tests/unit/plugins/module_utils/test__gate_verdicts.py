# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps the gate shut, what it is called, and how long it is waited for."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _gate
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container, PortOwner, Unreadable
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import (
    UUIDS,
    Node,
    faulty,
    holder,
    ok,
    scan,
)

# -- who is in the way ------------------------------------------------------------------------------------------------


def test_a_target_is_busy_and_ends_it_after_ten_unchanged_seconds() -> None:
    node = Node([ok(0, 76115)], scan(holder(4711)))
    result = node.wait()
    assert (result.verdict, result.passed) == ("busy", False)
    assert 10 <= result.waited_s < 11
    for text in ("GPU 1 holds 76115 MiB", "4711", "gpu_force_release"):
        assert text in result.message
    assert [one.pid for one in result.holders] == [4711]


def test_a_target_without_memory_keeps_it_shut() -> None:
    node = Node([ok(0, 0)], lambda s: scan(holder()) if s < 3 else scan())
    result = node.wait()
    assert result.passed
    assert result.waited_s >= 3


def test_busy_that_moves_is_waited_for() -> None:
    node = Node(lambda s: ok(0, int(max(90000 - 3000 * s, 0))), lambda s: scan(holder()) if s < 29 else scan())
    assert node.wait().passed


def test_a_foreign_holder_ends_it_and_is_named() -> None:
    node = Node(
        [ok(0, 20000)], scan(holder(20, "foreign", unit="vllm.service", user="bob", container=Container("lxc", "102")))
    )
    result = node.wait()
    assert (result.verdict, result.passed) == ("foreign", False)
    assert 10 <= result.waited_s < 11
    for text in ("vllm.service", "bob", "102", "left alone", "GPU 1 holds 20000 MiB"):
        assert text in result.message


STRANGER = PortOwner(
    "127.0.0.1:30000", 20, "nginx", "nginx -g", user="www-data", unit="nginx.service", reason="its own"
)


def test_a_stranger_on_the_port_ends_it_and_is_named() -> None:
    node = Node([ok(0, 0)], scan(port_owners=(STRANGER,)))
    result = node.wait()
    assert (result.verdict, result.passed) == ("foreign", False)
    assert 10 <= result.waited_s < 11, "a proxy may need a moment to notice that its container has gone"
    for text in ("pid 20", "nginx -g", "nginx.service", "www-data", "127.0.0.1:30000", "left alone"):
        assert text in result.message
    assert result.as_dict()["port_owners"][0]["pid"] == 20


def test_a_stranger_on_the_port_is_told_in_the_rehearsal_beside_targets() -> None:
    rehearsed = Node([ok(0, 76115)], scan(holder(), port_owners=(STRANGER,))).wait(check_mode=True)
    assert (rehearsed.verdict, rehearsed.passed, rehearsed.would_open_after_release) == ("foreign", False, False)


def test_a_stranger_who_leaves_the_port_lets_it_open() -> None:
    node = Node([ok(0, 0)], lambda s: scan(port_owners=(STRANGER,)) if s < 3 else scan())
    result = node.wait()
    assert result.passed
    assert result.waited_s >= 3


@pytest.mark.parametrize("about", [{"disposition": "target"}, {"dying": True}, {"ends_with_target": True}])
def test_who_leaves_the_port_with_the_release_is_no_stranger(about: dict[str, t.Any]) -> None:
    owner = dataclasses.replace(STRANGER, **about)
    rehearsed = Node([ok(0, 76115)], scan(holder(), port_owners=(owner,))).wait(check_mode=True)
    assert (rehearsed.verdict, rehearsed.passed) == ("busy", True)


def test_the_init_of_a_container_that_computes_is_foreign_too() -> None:
    node = Node([ok(0, 20000)], scan(holder(20, "never", computes=True)))
    assert node.wait(timeout=1).verdict == "foreign"


def test_others_on_other_gpus_do_not_matter_where_gpus_are_named() -> None:
    node = Node([ok(0, 90000)], scan(holder(20, "foreign", gpus=(UUIDS[1],)), holder(21, "foreign")))
    assert node.wait(Expectation(uuids=(UUIDS[0],))).passed


def test_one_of_whom_nothing_says_where_it_computes_is_suspected() -> None:
    node = Node([ok(800, 0)], scan(holder(21, "foreign")))
    result = node.wait(Expectation(uuids=(UUIDS[0],)), timeout=1)
    assert result.verdict == "foreign"
    assert "may belong" in result.message


@pytest.mark.parametrize("disposition", ["monitor", "protected", "self"])
def test_monitors_and_daemons_do_not_keep_it_shut(disposition: str) -> None:
    assert Node([ok(0, 0)], scan(holder(30, disposition))).wait().passed


def test_an_incomplete_scan_keeps_it_shut_until_the_timeout() -> None:
    broken = scan(
        unreadable=(Unreadable(77, "vllm", "fd", "Permission denied", True, "may open a node"),),
        complete=False,
        incomplete_reason="fd of pid 77",
    )
    node = Node([ok(0, 0)], broken)
    result = node.wait(timeout=20)
    assert (result.verdict, result.passed) == ("unknown", False)
    assert result.waited_s >= 20
    assert "77" in result.message


def test_without_holders_nobody_is_looked_for() -> None:
    node = Node([ok(0, 0)], scan(holder()))
    assert node.wait(with_holders=False).passed
    assert node.scanned == []
    result = Node([ok(0, 700)]).wait(with_holders=False)
    assert result.verdict == "busy"
    assert "holders: false" in result.message


def test_holders_are_scanned_seldom_while_memory_is_high_and_before_it_opens() -> None:
    node = Node(lambda s: ok(0, 900 if s < 9 else 0), lambda s: scan(holder(dying=True)) if s < 9 else scan())
    assert node.wait().passed
    high = [moment for moment in node.scanned if moment < 9]
    assert len(high) <= 5
    assert len(node.scanned) - len(high) == 1, "the last sample, and no other, sees who came meanwhile"


# -- on the way out ---------------------------------------------------------------------------------------------------


def test_the_dying_are_waited_for_though_memory_stands_still() -> None:
    """4712 MiB, unchanged for 7 s and more (measured for 40 GB of pinned memory; TP-8 takes over 30 s)."""
    node = Node(lambda s: ok(0, 4712 if s < 40 else 0), lambda s: scan(holder(dying=True)) if s < 40 else scan())
    result = node.wait()
    assert result.passed
    assert result.waited_s >= 40


def test_the_dying_that_do_not_end() -> None:
    result = Node([ok(0, 4712)], scan(holder(4711, dying=True))).wait(timeout=60)
    assert (result.verdict, result.passed) == ("dying", False)
    assert result.waited_s >= 60
    assert "4711" in result.message
    assert "reboot" in result.message


def test_a_foreign_process_that_is_dying_is_waited_for() -> None:
    assert Node([ok(0, 4712)], scan(holder(20, "foreign", dying=True))).wait(timeout=30).verdict == "dying"


def test_memory_after_a_kill_is_draining_until_the_timeout() -> None:
    node = Node([ok(0, 4712)])
    result = node.wait(killed_at=5000.0, timeout=60)
    assert (result.verdict, result.passed) == ("draining", False)
    assert result.waited_s >= 60


def test_a_kill_long_ago_explains_nothing_any_more() -> None:
    assert Node([ok(0, 4712)]).wait(killed_at=5000.0 - 181).verdict == "orphaned"


def test_memory_that_falls_is_draining_and_then_orphaned() -> None:
    node = Node(lambda s: ok(0, max(9000 - int(s) * 100, 8000)))
    result = node.wait()
    assert result.verdict == "orphaned"
    assert 29 <= result.waited_s < 33


def test_orphaned_names_the_suspects_and_the_place_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gate, "inside_container", lambda root: True)
    node = Node([ok(0, 10859, processes=[GpuProcess(UUIDS[1], 999_999_999, None, 10859)])], scan(holder(30, "monitor")))
    result = node.wait()
    assert (result.verdict, result.passed) == ("orphaned", False)
    assert 10 <= result.waited_s < 11
    for text in ("GPU 1 holds 10859 MiB", "999999999", "a child that inherited", "pid 30", "Suspects", "Proxmox host"):
        assert text in result.message


def test_orphaned_on_the_machine_itself_points_to_the_kernel_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gate, "inside_container", lambda root: False)
    result = Node([ok(0, 10859)]).wait()
    assert "Proxmox" not in result.message
    assert "Xid" in result.message


# -- a floor ----------------------------------------------------------------------------------------------------------


def test_a_floor_is_told_with_the_variable_that_accepts_it() -> None:
    result = Node([ok(4, 0)], scan(holder(30, "monitor"))).wait()
    assert (result.verdict, result.passed) == ("settled", False)
    assert 10 <= result.waited_s < 11
    assert "gpu_idle_settled_mib: 4" in result.message
    assert "GPU 0 holds 4 MiB" in result.message


@pytest.mark.parametrize(("floor", "passes"), [(4, True), (5, True), (3, False)])
def test_an_accepted_floor_passes(floor: int, passes: bool) -> None:
    result = Node([ok(4, 4)]).wait(settled_mib=floor)
    assert result.verdict == "settled"
    assert result.passed is passes
    assert result.waited_s >= 10


def test_every_gpu_has_to_be_within_the_floor() -> None:
    assert not Node([ok(4, 9)]).wait(settled_mib=4).passed


def test_a_floor_with_somebody_there_is_none() -> None:
    assert not Node([ok(4, 0)], scan(holder(20, "foreign"))).wait(settled_mib=8).passed
    assert not Node([ok(4, 0)], scan(holder(20, dying=True))).wait(settled_mib=8, timeout=30).passed


def test_one_of_whom_it_is_not_known_whether_it_computes_is_somebody() -> None:
    result = Node([ok(4, 0)], scan(holder(20, "foreign", computes=False))).wait(settled_mib=8)
    assert (result.verdict, result.passed) == ("orphaned", False)


def test_a_floor_takes_ten_seconds_to_be_one() -> None:
    assert Node([ok(4, 0)]).wait(settled_mib=8, timeout=5).verdict == "draining"


def test_more_than_a_few_mib_is_no_floor() -> None:
    result = Node([ok(65, 0)]).wait(settled_mib=512)
    assert (result.verdict, result.passed) == ("orphaned", False)


def test_a_server_that_passes_through_a_few_mib_does_not_pass() -> None:
    node = Node(lambda s: ok(75322 if s < 1 else 4 if s < 2.2 else 0, 0))
    result = node.wait(settled_mib=8)
    assert result.verdict == "idle"
    assert result.waited_s >= 2.2


# -- hardware ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "verdict", "words"),
    [
        (ok(0), "missing", "1 of 2"),
        (GpuLook("no_devices", 6, first_line="No devices were found"), "missing", "No devices were found"),
        (faulty(0, None), "faulty", "GPU 1: [GPU is lost]"),
        (GpuLook("error", 15, faulty=("00000000:01:00.0",), first_line="Unable"), "faulty", "GPU 00000000:01:00.0"),
        (ok(0, 0, mig=True), "faulty", "-mig 0"),
    ],
)
def test_hardware_that_will_not_mend_itself_ends_it_after_ten_seconds(look: GpuLook, verdict: str, words: str) -> None:
    result = Node([look]).wait()
    assert (result.verdict, result.passed) == (verdict, False)
    assert 10 <= result.waited_s < 11
    assert words in result.message


def test_patience_can_be_longer_for_nodes_that_appear_after_a_boot() -> None:
    node = Node(lambda s: ok(0) if s < 30 else ok(0, 0))
    assert not node.wait().passed
    assert Node(lambda s: ok(0) if s < 30 else ok(0, 0)).wait(patience=120.0).passed


def test_the_fabric_is_waited_for() -> None:
    node = Node(lambda s: ok(0, 0, fabric_state="In Progress" if s < 40 else "Completed"))
    assert node.wait().passed
    result = Node([ok(0, 0, fabric_state="In Progress")]).wait(timeout=30)
    assert result.verdict == "fabric_not_ready"
    assert result.waited_s >= 30
    assert "fabricmanager" in result.message


@pytest.mark.parametrize("state", [None, "N/A", "[N/A]", "Not Supported", "Completed"])
def test_no_fabric_is_no_reason(state: str | None) -> None:
    assert Node([ok(0, 0, fabric_state=state)]).wait().passed


@pytest.mark.parametrize("state", ["no_tool", "no_driver", "library_mismatch", "blocked", "error"])
def test_an_answer_that_cannot_be_had_is_unknown_until_the_timeout(state: t.Any) -> None:
    result = Node([GpuLook(state, 1, first_line="x")]).wait(timeout=15)
    assert (result.verdict, result.passed) == ("unknown", False)
    assert result.waited_s >= 15


def test_a_value_that_cannot_be_read_is_not_zero() -> None:
    result = Node([ok(0, None)]).wait(timeout=15)
    assert (result.verdict, result.passed) == ("unknown", False)


def test_more_gpus_than_expected_is_not_idle() -> None:
    result = Node([ok(0, 0, 0)]).wait()
    assert (result.verdict, result.passed) == ("unknown", False)
    assert result.waited_s < 11


XORG = holder(31, "protected", computes=True, gpus=(UUIDS[1],))


@pytest.mark.parametrize(
    ("listed", "accepted", "opens"),
    [(3988, 0, False), (3988, 64, False), (None, 0, False), (4, 0, False), (4, 4, True), (None, 4, True)],
)
def test_what_a_protected_process_keeps_is_known_before_the_downtime(
    listed: int | None, accepted: int, opens: bool
) -> None:
    """A release would end the server, and the gate stay shut: the rehearsal has to say so while the server serves."""
    rows = [GpuProcess(UUIDS[0], 10, None, 76000), GpuProcess(UUIDS[1], 31, None, listed)]
    node = Node([ok(76115, 4000, processes=rows)], scan(holder(gpus=(UUIDS[0],)), XORG))
    result = node.wait(check_mode=True, settled_mib=accepted)
    assert (result.passed, result.verdict) == ((True, "busy") if opens else (False, "foreign"))
    if not opens:
        assert "31" in result.message
        assert "gpu_release_allow_protected" in result.message


def test_a_protected_process_that_no_list_names_may_hold_anything() -> None:
    node = Node([ok(76115, 4000)], scan(holder(), holder(31, "protected", computes=True)))
    assert node.wait(check_mode=True).verdict == "foreign"


def test_memory_of_a_protected_process_is_nobodys_orphan() -> None:
    node = Node([ok(0, 4000, processes=[GpuProcess(UUIDS[1], 31, None, 3988)])], scan(XORG))
    result = node.wait(timeout=20)
    assert (result.verdict, result.passed) == ("foreign", False)
    assert "can be seen" not in result.message


def test_a_protected_process_on_another_gpu_or_that_only_watches_changes_nothing() -> None:
    rows = [GpuProcess(UUIDS[1], 31, None, 3988)]
    node = Node([ok(76115, 4000, processes=rows)], scan(holder(gpus=(UUIDS[0],)), XORG))
    assert node.wait(Expectation(uuids=(UUIDS[0],)), check_mode=True).passed
    watcher = holder(32, "protected", computes=False)
    assert Node([ok(76115, 0)], scan(holder(gpus=(UUIDS[0],)), watcher)).wait(check_mode=True).passed


def test_what_is_dying_is_waited_for_beside_a_protected_process() -> None:
    node = Node([ok(76115, 4)], scan(holder(dying=True), XORG))
    assert node.wait(timeout=5).verdict == "dying"
