# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real processes that hold a plain file as a node: they need a /proc, and nothing else."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import (
    ScanRequest,
    hold_again,
    look_for_holders,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import look_until_complete
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import make_nodes

HOLD_NODE = pathlib.Path(__file__).with_name("hold_node.py")
GPU0, GPU1 = (f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in range(2))
OWN = Scope("own", units=("sglang.service",))


@contextlib.contextmanager
def holding(way: str, path: pathlib.Path) -> t.Iterator[int]:
    """The PID of a real process that holds a node in this way."""
    process = subprocess.Popen([sys.executable, str(HOLD_NODE), way, str(path)], stdout=subprocess.PIPE, text=True)
    pid = process.pid
    try:
        assert process.stdout is not None
        word, number = process.stdout.readline().split()
        assert word == "ready"
        pid = int(number)
        if way == "inherit":
            process.wait()
        yield pid
    finally:
        for victim in sorted({pid, process.pid}):
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None or victim != process.pid:
                    os.kill(victim, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def real_request(path: pathlib.Path) -> ScanRequest:
    return ScanRequest(Scope("own"), devices=(str(path.parent / "nvidia*"),), timeout=60)


def real_look(path: pathlib.Path, listed: t.Sequence[int] = ()) -> dict[int, Holder]:
    processes = [GpuProcess(GPU0, pid, "python3", 1) for pid in listed]
    clock = SystemClock()
    # As the modules do: a process of this machine that ends just now is unreadable for a moment.
    scan = look_until_complete(
        lambda: look_for_holders(real_request(path), processes, unit_states=dict.fromkeys, clock=clock), clock
    )
    assert scan.complete, scan.incomplete_reason
    return {holder.pid: holder for holder in scan.holders}


@pytest.fixture
def gpu(tmp_path: pathlib.Path) -> pathlib.Path:
    make_nodes(tmp_path / "dev", ["nvidia0"])
    return tmp_path / "dev/nvidia0"


@pytest.mark.parametrize(
    ("way", "vias", "computes"),
    [
        ("open", ("fd",), False),
        ("map", ("map",), True),
        ("both", ("fd", "map"), True),
        ("zombie-leader", ("thread_fd",), False),
        ("mapping-zombie-leader", ("thread_fd", "map"), True),
        ("inherit", ("fd", "map"), True),
    ],
)
def test_a_real_holder(gpu: pathlib.Path, way: str, vias: tuple[str, ...], computes: bool) -> None:
    with holding(way, gpu) as pid:
        found = wait_for(lambda: _seen(gpu, pid, way))
        assert set(found) == {pid}
        holder = found[pid]
        assert holder.via == vias
        assert holder.computes is computes
        assert holder.disposition == ("target" if computes else "monitor")
        assert not holder.dying
        (again,) = hold_again([holder], real_request(gpu))
        assert again is not None
        assert (again.start_time, again.via, again.dying) == (holder.start_time, vias, False)
        os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: _dying(holder, gpu))
    assert real_look(gpu) == {}


def _dying(holder: Holder, gpu: pathlib.Path) -> bool:
    (again,) = hold_again([holder], real_request(gpu))
    return again is None or again.dying


def _seen(gpu: pathlib.Path, pid: int, way: str) -> dict[int, Holder]:
    found = real_look(gpu)
    if pid in found and (not way.endswith("zombie-leader") or found[pid].state == "Z"):
        return found
    return {}


def wait_for(ask: t.Callable[[], t.Any]) -> t.Any:
    until = time.monotonic() + 60
    while True:
        answer = ask()
        if answer or time.monotonic() > until:
            return answer
        time.sleep(0.02)


def test_a_real_zombie_is_nobody_but_a_listed_one_is_dying(gpu: pathlib.Path) -> None:
    with holding("open", gpu) as pid:
        assert set(real_look(gpu)) == {pid}
        os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: pid not in real_look(gpu))
        (holder,) = real_look(gpu, [pid]).values()
        assert holder.dying
        assert holder.state == "Z"


def test_this_process_is_self_and_its_child_is_not_seen(gpu: pathlib.Path) -> None:
    with open(gpu, "rb"):
        found = real_look(gpu)
    assert {pid: holder.disposition for pid, holder in found.items()} == {os.getpid(): "self"}
