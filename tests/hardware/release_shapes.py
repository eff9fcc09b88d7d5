# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each shape of holder three times over: the driver's own time, our release with KILL alone, and the default ladder.

And beside them what people type, and SGLang's own killall, in the same run.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
import typing as t

from real_gpus import SITE, Machine, drivers_own_time, expect, release

KILL_ONLY = [{"signal": "KILL", "wait": 60}]
LIMIT = 0.35 + 0.1  # seconds that a release may add to the driver's own time: the target, and one interval

Shape = t.Callable[[Machine], list[int]]


def plain(gib: float, *flags: str) -> Shape:
    return lambda machine: machine.holder(gib, "--orphan", *flags)


def every_gpu(machine: Machine) -> list[int]:
    return machine.holder(40, "--orphan", f"--gpus={','.join(map(str, range(machine.gpus)))}")


def last_gpu(machine: Machine) -> list[int]:
    return machine.holder(40, "--orphan", f"--gpus={machine.gpus - 1}")


def left_behind(*flags: str) -> Shape:
    """Children of a holder that was killed: nobody who took the memory is left, and it stays."""

    def make(machine: Machine) -> list[int]:
        parent, *children = machine.holder(20, "--orphan", *flags)
        os.kill(parent, signal.SIGKILL)
        time.sleep(0.5)
        expect(any(machine.used()), "memory outlives the process that took it")
        return children

    return make


def second_node(machine: Machine) -> list[int]:
    """The same device under another inode, as an LXC container has it: `fuser /dev/nvidia0` does not see the holder."""
    node = machine.work / f"second-node-{time.monotonic_ns()}"
    os.mknod(node, 0o020666, os.stat("/dev/nvidia0").st_rdev)
    node.chmod(0o666)
    script = f'mount --bind {node} /dev/nvidia0 && exec "$@"'
    return machine.holder(5, "--orphan", within=["unshare", "--mount", "sh", "-c", script, "sh"])


SHAPES: dict[str, Shape] = {
    "1 GiB": plain(1),
    "40 GiB": plain(40),
    "120 GiB": plain(120),
    "40 GiB on every GPU": every_gpu,
    "40 GiB on the last GPU only": last_gpu,
    "40 GiB, ignores TERM": plain(40, "--ignore-term"),
    "zombie leader with a living thread, 20 GiB": plain(20, "--zombie-leader"),
    "child of a dead holder, 20 GiB": left_behind("--fork=1"),
    "70 workers of a dead launcher, 20 GiB": left_behind("--fork=70"),
    "through a second device node, 5 GiB": second_node,
    "16 GiB of pinned host memory": plain(1, "--pinned=16"),
}


def beside_the_driver(machine: Machine, shape: Shape, rounds: int = 1) -> dict[str, t.Any]:
    """What the release adds to the driver's own time, one after the other, with the default ladder beside it."""
    empty, own, added, runs = [], [], [], []
    for dummy in range(rounds):
        memory, ended = drivers_own_time(machine, shape(machine))
        empty.append(memory)
        own.append(ended)
        machine.end_all()
        pids = shape(machine)
        seen, lines = machine.holders(*pids)
        for holder in seen:
            expect(holder["computes"] and holder["disposition"] == "target", "it is a target that computes", holder)
        expect(len(seen) == len(pids), "every holder is seen", lines)
        runs.append(release(machine, ladder=KILL_ONLY))
        expect(not any(machine.alive(pid) for pid in pids), "every holder is gone")
        added.append(round(runs[-1]["first_signal_to_gate_open_s"] - own[-1], 3))
        machine.end_all()
    pids = shape(machine)
    default = release(machine)
    expect(not any(machine.alive(pid) for pid in pids), "every holder is gone by the default ladder")
    return {
        "drivers_own_s": statistics.median(own),
        "driver_memory_0_s": statistics.median(empty),
        "default_ladder_s": default["first_signal_to_gate_open_s"],
        "default_ladder_signals": default["signals"],
        "added_s": statistics.median(added),
        "within_target": statistics.median(added) <= LIMIT,
        "lines": lines[:3],
        **runs[-1],
        "all_rounds": [[*alone, run["first_signal_to_gate_open_s"]] for *alone, run in zip(empty, own, runs)],
    }


def only_ours_hold(machine: Machine) -> None:
    """What follows signals whoever has a device open: that may only be what this run has started, and not itself."""
    seen, lines = machine.holders()
    sessions = {os.getsid(0), *(child.pid for child in machine.children)}
    strangers = [one for one in seen if one["disposition"] != "target" and _session(one["pid"]) not in sessions]
    expect(seen and not strangers, "nobody but what this run started has a GPU open", lines)
    expect(os.getpid() not in [one["pid"] for one in seen], "this process has none open", lines)


def _session(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return os.getsid(0)  # ended meanwhile


def typed_recipe(machine: Machine, name: str = "sglang.launch_server") -> dict[str, t.Any]:
    """pkill -9 -f NAME; fuser -k /dev/nvidia*; sleep 2; nvidia-smi"""
    only_ours_hold(machine)
    began = time.monotonic()
    nodes = [node for node in glob.glob("/dev/nvidia*") if not pathlib.Path(node).is_dir()]
    for command in (["pkill", "-9", "-f", name], ["fuser", "-k", *nodes], ["sleep", "2"], ["nvidia-smi"]):
        subprocess.run(command, capture_output=True, check=False, timeout=60)
    took = round(time.monotonic() - began, 3)
    return {"first_signal_to_gate_open_s": took, "msg": f"then held: {machine.used()} MiB"}


def sglang_killall(machine: Machine) -> dict[str, t.Any]:
    only_ours_hold(machine)
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "sglang.cli.killall"], capture_output=True, text=True, check=False, timeout=150,
        env={**os.environ, "PYTHONPATH": SITE},
    )  # fmt: skip
    took = round(time.monotonic() - began, 3)
    expect(ended.returncode == 0, "killall ends with 0", ended.stdout[-800:] + ended.stderr[-800:])
    said = (ended.stdout.strip().splitlines() or [""])[-1]
    return {"first_signal_to_gate_open_s": took, "msg": f"its process; last line: {said}; held: {machine.used()} MiB"}


def typed_for_a_plain_holder(machine: Machine) -> dict[str, t.Any]:
    plain(40)(machine)
    return typed_recipe(machine, "cuda_holder.py")


def killall_for_a_plain_holder(machine: Machine) -> dict[str, t.Any]:
    plain(40)(machine)
    return sglang_killall(machine)
