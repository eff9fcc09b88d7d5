# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Release and gate against what people type, and against the waiting of SGLang's own clean-up command."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time
import typing as t

from measuring import HERE, CouldNotRun, Report, boottime, need, until, use_collection

use_collection()

import contexts  # noqa: E402
from release_once import INTERVAL, SAMPLES  # noqa: E402
from simulated_nodes import Node, simulate  # noqa: E402

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import look  # noqa: E402

GPUS = 8
DELAYS = (0.05, 0.26, 2.2, 20.0)
LONG = 10.0  # seconds: such a delay is waited for twice, not three times
OURS, TYPED, KILLALL = "release and gate", "typed recipe", "killall's waits"
PEERS = {OURS: TYPED, KILLALL: TYPED}
BEYOND, WHOLE, EARLY = "after memory is 0", "whole, beyond the delay", "MiB held when it said it was done"
MOST_BEYOND = 0.35


@dataclasses.dataclass(frozen=True)
class Release:
    """One release. Moments on the simulator's clock; left_mib: what was really held when it ended."""

    first_death: float
    zero_at: float
    ended: float
    left_mib: int
    said: dict[str, t.Any]


def started_in(node: Node, name: str) -> list[int]:
    return [node.hold("--gpu", str(gpu), "--mib", "76115", "--as", name) for gpu in range(GPUS)]


def truth(node: Node) -> list[contexts.Context]:
    return contexts.contexts(str(node.folder / "contexts"))


def watch_end(node: Node, pids: t.Collection[int], delay: float, timeout: float = 90.0) -> tuple[float, float]:
    """When the first holder died, and when memory is 0 everywhere. Looks only until every holder is gone."""
    first = None
    end = time.monotonic() + timeout
    folder = str(node.folder / "contexts")
    freed: dict[str, float] = {}
    while time.monotonic() < end:
        gone = [pid for pid in pids if (contexts.process_stat(pid) or ("Z",))[0] in ("Z", "X")]
        if first is None and gone:
            first = boottime()
        if first is not None:
            found = contexts.contexts(folder)
            freed.update({context.path: context.freed_at for context in found if context.freed_at is not None})
            if len(gone) == len(pids) and not any(context.held for context in found):
                return first, max(freed.values(), default=first) + delay
        time.sleep(0.005)
    raise CouldNotRun(f"release: holders of {node.name} were not ended within {timeout:g} s.")


def carry_out(node: Node, subject: str, delay: float) -> Release:
    name = f"held-{node.name}"
    node.script(release_delay_s=delay, release_tail=[0, 0])
    until(f"{node.name} idle before", lambda: not truth(node), delay + 30)
    pids = started_in(node, name)
    if subject == KILLALL:
        # The launcher, found by its name alone.
        pids.append(node.hold("--gpu", "0", "--no-map", "--as", name))
    commands = {
        OURS: [sys.executable, str(HERE / "release_once.py"), str(node.folder), str(GPUS)],
        TYPED: ["/bin/sh", str(HERE / "peers" / "typed_release.sh")],
        KILLALL: [sys.executable, str(HERE / "peers" / "killall_waits.py"), f"[h]eld-{node.name}$"],
    }
    environment = {
        **os.environ,
        "PATH": f"{node.folder}/bin:{os.environ['PATH']}",
        "DEVICES": f"{shlex.quote(str(node.folder))}/dev/nvidia[0-9c-]*[0-9ms]",
        "PATTERN": f"^{name}$",
    }
    with subprocess.Popen(commands[subject], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        try:
            first, zero = watch_end(node, pids, delay)
            out, err = process.communicate(timeout=150)
        except BaseException:
            process.kill()
            raise
    ended = boottime()
    left = sum(contexts.still_used(context, {"release_delay_s": delay}, ended) for context in truth(node))
    said: dict[str, t.Any] = {}
    if subject == OURS:
        if process.returncode or json.loads(out)["failed"]:
            raise CouldNotRun(f"release: it failed on {node.name}: {out}{err}")
        said = json.loads(out)
        ended = said["ended"]
        if left:
            raise CouldNotRun(f"release: the gate opened on {node.name} while {left} MiB were held.")
    return Release(first, zero, ended, left, said)


def query_costs(node: Node, repeats: int) -> tuple[float, float]:
    """Seconds of one bare query of nvidia-smi, and of one look of the gate (two queries)."""
    tool = str(node.folder / "bin" / "nvidia-smi")
    bare, whole = [], []
    for dummy in range(repeats):
        began = time.monotonic()
        subprocess.run([tool, "--query-gpu=index,memory.used", "--format=csv"], check=True, stdout=subprocess.DEVNULL)
        bare.append(time.monotonic() - began)
        began = time.monotonic()
        seen = look(CommandRunner(SystemClock()), nvidia_smi=tool, timeout=60.0)
        whole.append(time.monotonic() - began)
        if seen.state != "ok":
            raise CouldNotRun(f"release: nvidia-smi of {node.name} answered {seen.state}.")
    return statistics.median(bare), statistics.median(whole)


def judge(report: Report, case: str, releases: t.Sequence[Release], query: float) -> None:
    beyond = report.add(f"{case}: {BEYOND}", OURS, [one.ended - one.zero_at for one in releases])
    most = SAMPLES * (INTERVAL + query)
    report.target(
        f"Gate open, {case}", f"at most {most:.2f} s after memory is 0 (2 samples, each 0.1 s and one look)",
        f"{beyond.median:.2f} s", beyond.median <= most, f"One query took {query * 1000:.0f} ms.",
    )  # fmt: skip
    whole = report.add(
        f"{case}: {WHOLE}", OURS,
        [one.said["ended"] - one.said["began"] - (one.zero_at - one.first_death) for one in releases],
    )  # fmt: skip
    most = MOST_BEYOND + INTERVAL
    parts = "; ".join(
        f"looks and signals {one.said['release_s']:.2f} s, gate {one.said['gate_s']:.2f} s ({one.said['looks']} looks)"
        for one in releases[:1]
    )
    report.target(
        f"Whole release, {case}", f"at most {most:.2f} s above the driver's delay", f"{whole.median:.2f} s",
        whole.median <= most, f"In the first run: {parts}; one look {query * 1000:.0f} ms.",
    )  # fmt: skip


def run(folder: pathlib.Path, *, quick: bool) -> Report:
    need("fuser", "pkill")
    report = Report("release")
    delays = DELAYS[:2] if quick else DELAYS
    repeats = 2 if quick else 3
    # killall's waits are mostly sleep: all of them at once, each on a node of its own.
    sleepers = [] if quick else [(delay, number) for delay in delays for number in range(2)]
    folders = [folder / "released", *(folder / f"waited{n}" for n in range(max(len(sleepers), 1)))]
    try:
        node = Node(folders[0])
        bare, query = query_costs(node, 2 if quick else 5)
        report.add("one query", "nvidia-smi", [bare])
        report.add("one query", "look of the gate", [query])
        for delay in delays:
            case = f"delay {delay:g} s"
            times = repeats if delay < LONG else 2
            ours = [carry_out(node, OURS, delay) for dummy in range(times)]
            typed = [carry_out(node, TYPED, delay) for dummy in range(times)]
            until("memory of the typed recipe's node", lambda: not truth(node), 60)
            for subject, done in ((OURS, ours), (TYPED, typed)):
                report.add(f"{case}: first signal to done", subject, [one.ended - one.first_death for one in done])
            report.counts.append({"case": case, EARLY: {OURS: 0, TYPED: max(one.left_mib for one in typed)}})
            judge(report, case, ours, query)
        waited = [Node(place) for place in folders[1:]]
        plan = sleepers or [(delays[0], 0)]
        with concurrent.futures.ThreadPoolExecutor(len(plan)) as pool:
            done = list(pool.map(lambda one: carry_out(one[0], KILLALL, one[1][0]), zip(waited, plan)))
        for delay in delays:
            mine = [one for one, (of, dummy) in zip(done, plan) if of == delay]
            if mine:
                report.add(f"delay {delay:g} s: first signal to done", KILLALL,
                           [one.ended - one.first_death for one in mine])  # fmt: skip
                entry = next(count for count in report.counts if count["case"] == f"delay {delay:g} s")
                entry[EARLY][KILLALL] = max(one.left_mib for one in mine)
    finally:
        for place in folders:
            simulate("destroy", place, check=False)
    return report
