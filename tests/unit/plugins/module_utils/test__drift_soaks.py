# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Long times under a 5-minute timer in which nothing may be done, looked at by a played clock."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._container_locks import ContainerLock
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import RUNNING, Node, holder

MINUTE, HOUR = 60.0, 3600.0
TIMER = 5 * MINUTE
JOB = holder(9100, unit="session-7.scope", disposition="foreign", cmdline="python train.py")
OTHERS = {"verdict": "foreign", "msg": "pid 9100 (python train.py) of ben computes on GPU 3", "holders": [JOB]}


def loads(node: Node) -> None:
    node.load()


def busy(node: Node) -> None:
    """/health says no all the time, and requests move."""
    node.health = {"verdict": "busy", "reason": "503 after 20 s, but the model moves", "witnesses": {}}
    node.requests = {"running": 4, "queued": 60, "progress": True}


def stopped_by_systemctl(node: Node) -> None:
    """Past the playbooks: what is wanted still says serving."""
    node.die(state="inactive", verdict="stopped", left_active_us=100, main_ended_us=200)


def stopped_while_its_guard_waited(node: Node) -> None:
    node.die(start_pre="{ argv[]=x ; code=exited ; status=5 }")


def stopped_by_playbook(node: Node) -> None:
    stopped_by_systemctl(node)
    node.wanted = {**(node.wanted or {}), "state": "stopped", "profile": None, "by": "stop.yml", "outcome": "done"}


def trial_profile(node: Node) -> None:
    """Chosen with -e, and served by another name and from other files than the inventory's."""
    node.wanted = {**(node.wanted or {}), "profile": "trial-of-ana"}


def trial_that_loads(node: Node) -> None:
    trial_profile(node)
    node.load()


def trial_that_failed(node: Node) -> None:
    """Whoever tried it knows, and may be at it: the server is left down for a night."""
    node.die()
    node.wanted = {**(node.wanted or {}), "profile": "trial-of-ana", "outcome": "failed"}


def job_beside_the_server(node: Node) -> None:
    """A colleague's, in a tmux, on the GPUs of a server that serves."""
    node.gate = OTHERS


def job_beside_a_hung_server(node: Node) -> None:
    node.hang()
    node.gate = OTHERS


def job_where_the_server_died(node: Node) -> None:
    node.die()
    node.gate = OTHERS


def job_in_the_same_container(node: Node) -> None:
    """Seen from the GPU host alone, for which all of the container is one."""
    node.hang()
    lock = {"leases": [], "starting": [], "container_locks": [ContainerLock("101").as_dict()]}
    job = {**JOB, "disposition": "target"}
    node.more = {"host_gate": {**node.gate, "holders": [holder(), job]}, "host_lock": lock}


def frozen_by_the_kernel(node: Node) -> None:
    node.hang()
    node.service = {**RUNNING, "frozen": True}


def locked_by_a_backup(node: Node) -> None:
    node.hang()
    lock = {"leases": [], "starting": [], "container_locks": [ContainerLock("101", "backup").as_dict()]}
    node.more = {"host_gate": node.gate, "host_lock": lock}


def frozen_past_answering(node: Node) -> None:
    """Not even the node answers: every look ends with nothing."""
    node.more = {"node": {}, "health": {}, "gate": {}, "unreachable": "See what is installed: no answer in 180 s"}


SOAKS: dict[t.Callable[[Node], None], tuple[float, str]] = {
    loads: (25 * MINUTE, "loading"),
    busy: (HOUR, "busy"),
    stopped_by_systemctl: (60 * HOUR, "operators_stop"),
    stopped_while_its_guard_waited: (60 * HOUR, "operators_stop"),
    stopped_by_playbook: (60 * HOUR, "stopped_as_wanted"),
    trial_profile: (24 * HOUR, "healthy"),
    trial_that_loads: (25 * MINUTE, "loading"),
    trial_that_failed: (12 * HOUR, "left_to_a_person"),
    job_beside_the_server: (24 * HOUR, "others_on_gpus"),
    job_beside_a_hung_server: (24 * HOUR, "others_on_gpus"),
    job_where_the_server_died: (24 * HOUR, "others_on_gpus"),
    job_in_the_same_container: (24 * HOUR, "others_on_gpus"),
    frozen_by_the_kernel: (2 * HOUR, "frozen"),
    locked_by_a_backup: (2 * HOUR, "frozen"),
    frozen_past_answering: (2 * HOUR, "wanted_unreadable"),
}


@pytest.mark.parametrize("befalls", SOAKS, ids=lambda befalls: befalls.__name__)
def test_nothing_is_done_nor_noted(tmp_path: pathlib.Path, befalls: t.Callable[[Node], None]) -> None:
    node = Node(tmp_path, config="apply")
    befalls(node)
    how_long, row = SOAKS[befalls]
    rows = set()
    for dummy in range(int(how_long // TIMER) + 1):
        verdict = node.run()
        assert verdict.action in ("nothing", "report"), verdict
        assert verdict.would == verdict.action, "nothing to be confirmed, held back or waited for"
        rows.add(verdict.row)
        node.pass_time(TIMER)
    assert rows == {row}
    assert node.relaunches == []
    assert not pathlib.Path(node.path).parent.exists(), "the node is left exactly as it is"


@pytest.mark.parametrize("befalls", [frozen_by_the_kernel, locked_by_a_backup])
def test_looks_before_and_after_a_backup_confirm_nothing(
    tmp_path: pathlib.Path, befalls: t.Callable[[Node], None]
) -> None:
    """A hang is suspected, the container is frozen for a while, and the first look after it sees the hang again."""
    node = Node(tmp_path)
    node.hang()
    assert node.run().held_back == "confirmation"
    service, more = node.service, node.more
    befalls(node)
    for dummy in range(3):
        node.pass_time(TIMER)
        assert node.run().action in ("nothing", "report")
    node.service, node.more = service, more
    node.pass_time(TIMER)
    found = node.run()
    assert (found.would, found.action) == ("relaunch", "report"), found
