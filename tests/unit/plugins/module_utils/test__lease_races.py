# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several processes at once, and one that is killed."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.lease_world import BOOT, GPUS, Host


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


class SlowClock(BootClock):
    """The date is asked for between reading and writing: a long gap there lets a race show itself."""

    def wall(self) -> float:
        self.sleep(0.01)
        return super().wall()


def in_processes(number: int, work: t.Callable[[int], t.Any]) -> list[t.Any]:
    """Run work(0..number-1) in processes that start together, and return what each returned."""
    ready, go = os.pipe()
    children = []
    for index in range(number):
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(go)
                os.read(ready, 1)
                os.write(into, json.dumps(work(index)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(into)
        children.append((pid, out))
    os.close(ready)
    os.close(go)
    answers = []
    for pid, out in children:
        with os.fdopen(out, "rb") as pipe:
            answers.append(json.loads(pipe.read() or b"null"))
        os.waitpid(pid, 0)
    return answers


def test_thirty_processes_race_for_one_lease(host: Host) -> None:
    def work(index: int) -> str:
        request = LeaseRequest("held", f"run-{index}", "n1")
        return _lease.lease(request, host.path, BOOT, SlowClock()).verdict

    answers = in_processes(30, work)
    assert sorted(answers) == ["acquired"] + ["busy"] * 29


def test_eight_processes_take_a_gpu_each(host: Host) -> None:
    def work(index: int) -> str:
        request = LeaseRequest("held", f"run-{index}", "n1", (GPUS[index],))
        return _lease.lease(request, host.path, BOOT, SlowClock()).verdict

    assert in_processes(8, work) == ["acquired"] * 8
    document = json.loads(host.file.read_text())
    assert sorted(lease["run_id"] for lease in document["leases"]) == [f"run-{index}" for index in range(8)]


def test_a_holder_that_is_killed_leaves_a_lease_that_runs_out(host: Host) -> None:
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(into, json.dumps(dataclasses.asdict(host.held("A", ttl=60))).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        assert pipe.read(1), "it holds the lease"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert host.held("B").verdict == "busy"
    host.clock.now += 60
    assert host.held("B").verdict == "acquired"
