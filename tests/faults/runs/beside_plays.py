# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How two get in each other's way, by real processes where the moment matters."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import signal
import typing as t

from clock_plays import says
from run_row import RunFault

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import Node
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.lease_world import BOOT, Host


class SlowClock(BootClock):
    """The date is asked for between reading and writing: a long gap there lets a race show itself."""

    def wall(self) -> float:
        self.sleep(0.01)
        return super().wall()


def race_for_the_lease(row: RunFault, folder: pathlib.Path) -> None:
    out, into = os.pipe()
    children = []
    for number in range(12):
        pid = os.fork()
        if pid == 0:
            request = LeaseRequest("held", f"run-{number}", "n1")
            result = _lease.lease(request, str(folder / "cleanslate"), BOOT, SlowClock())
            os.write(into, json.dumps([result.verdict, result.reason]).encode() + b"\n")
            os._exit(0)
        children.append(pid)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        answers = [json.loads(line) for line in pipe]
    for pid in children:
        os.waitpid(pid, 0)
    assert sorted(verdict for verdict, dummy in answers) == ["acquired"] + ["busy"] * 11
    for verdict, reason in answers:
        if verdict == "busy":
            says(row, reason)


def drift_does_not_wait(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    host.held("A", purpose="relaunch.yml", who="ana")
    before = host.file.read_bytes()
    refused = host.held("drift", wait=0)
    assert (refused.verdict, refused.failed, host.clock.slept) == ("busy", True, 0)
    says(row, refused.reason)
    assert host.file.read_bytes() == before


def two_looks(row: RunFault, folder: pathlib.Path) -> None:
    node = Node(folder)
    node.die()
    first, second = node.judge(), node.judge()
    assert first.action == second.action == "relaunch"
    revision = first.as_dict()["memory"]["revision"]
    assert node.remember("begun", revision=revision, run_id="one", action="relaunch").verdict == "written"
    late = node.remember("begun", revision=revision, run_id="two", action="relaunch")
    assert (late.verdict, late.failed) == ("moved", True)
    says(row, late.reason)
    assert [one.run_id for one in node.memory().remediations] == ["one"]


def unlock_wrongly(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    host.held("A")
    result = host.released("unlock", takeover="B")
    assert result.verdict == "not_held"
    says(row, result.reason)
    assert host.runs() == ["A"]


def _taken_over(folder: pathlib.Path) -> Host:
    host = Host(folder)
    host.held("A")
    assert host.released("unlock", takeover="A").verdict == "released"
    assert host.held("B").verdict == "acquired"
    return host


def unlocked_run_renews(row: RunFault, folder: pathlib.Path) -> None:
    host = _taken_over(folder)
    result = host.held("A", wait=60, wait_for_others=True)
    assert (result.verdict, result.failed) == ("expired", True)
    says(row, result.reason)
    assert host.runs() == ["B"]


def unlocked_run_gives_back(row: RunFault, folder: pathlib.Path) -> None:
    host = _taken_over(folder)
    result = host.released("A", marker_ttl=2700)
    assert result.verdict == "expired"
    says(row, result.reason)
    assert host.runs() == ["B"]


def expired_and_taken(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    host.held("A", ttl=900)
    host.clock.now += 901
    assert host.held("B").verdict == "acquired"
    result = host.held("A")
    assert (result.verdict, result.failed) == ("expired", True)
    says(row, result.reason)
    assert host.runs() == ["B"]


def expired_and_free(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    host.held("A", ttl=900)
    host.clock.now += 901
    result = host.held("A")
    assert (result.verdict, result.failed) == ("acquired", False)
    says(row, result.reason)


def killed_while_writing(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    host.held("A")
    host.released("A")
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        lock = os.open(os.path.join(host.path, "leases.lock"), os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        pathlib.Path(host.path, f".{host.file.name}.new").write_text('{"version": 1, "lea')
        os.write(go, b"x")
        signal.pause()
    os.read(ready, 1)
    assert host.held("B").verdict == "busy", "while it lives it has the lock"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    slept = host.clock.slept
    assert host.held("B").verdict == "acquired"
    assert host.clock.slept == slept
    assert sorted(os.listdir(host.path)) == [host.file.name, "leases.lock"]


def lock_is_kept(row: RunFault, folder: pathlib.Path) -> None:
    host = Host(folder)
    host.held("A")
    before = host.file.read_bytes()
    with open(os.path.join(host.path, "leases.lock"), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = host.released("A")
    assert (result.verdict, result.failed) == ("busy", True)
    says(row, result.reason)
    assert 5 <= host.clock.slept < 6
    assert host.file.read_bytes() == before


def remedies_that_never_end(row: RunFault, folder: pathlib.Path) -> None:
    node = Node(folder, max_remediations=2)
    node.die()
    for _look in range(6):
        verdict = node.run("lost")
        node.pass_time(86400)
    assert len(node.relaunches) == 2
    assert verdict.held_back == "gave_up"
    says(row, " ".join(verdict.reasons))


PLAYS: dict[str, t.Callable[[RunFault, pathlib.Path], None]] = {
    play.__name__: play
    for play in (
        race_for_the_lease, drift_does_not_wait, two_looks, unlock_wrongly, unlocked_run_renews,
        unlocked_run_gives_back, expired_and_taken, expired_and_free, killed_while_writing, lock_is_kept,
        remedies_that_never_end,
    )
}  # fmt: skip
