# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The holder scan against fuser and lsof, on the same device nodes and the same /proc."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import time
import typing as t

from measuring import HERE, CouldNotRun, Report, need, program, use_collection

use_collection()

from scan_once import scan  # noqa: E402
from simulated_nodes import Node, simulate  # noqa: E402

PEERS = {"scan": "fuser", "scan as a program": "fuser", "lsof": "fuser"}
# What a look must not miss; the words of the simulator's `hold`.
PLANTED = {
    "descriptors and mapping": (),
    "mapping without descriptor": ("--map-only",),
    "thread of a zombie leader": ("--zombie-leader",),
    "fork whose parent died": ("--orphan",),
}
SCHEDULERS, STORM = 8, 200


@contextlib.contextmanager
def crowd(shape: str, count: int) -> t.Iterator[None]:
    command = [sys.executable, "-I", "-S", str(HERE / "crowd.py"), shape, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        if process.stdout.readline() != "ready\n":
            process.kill()
            raise CouldNotRun(f"{count} {shape} could not be started; too little memory, or too many processes?")
        try:
            yield
        finally:
            process.stdin.close()
            process.wait()


def processes() -> int:
    return sum(entry.name.isdigit() for entry in pathlib.Path("/proc").iterdir())


def listed_by(*command: str) -> set[int]:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False, timeout=300)  # fmt: skip
    return {int(word) for word in done.stdout.split()}


def measure(report: Report, case: str, node: Node, wanted: t.Mapping[str, int], repeats: int) -> None:
    devices = str(node.folder / "dev" / "nvidia*")
    files = sorted(str(path) for path in (node.folder / "dev").glob("nvidia*") if path.is_file())
    tools: dict[str, t.Callable[[], set[int]]] = {
        "scan": lambda: ours(devices),
        "scan as a program": lambda: listed_program(devices),
        "fuser": lambda: listed_by(program("fuser"), *files),
        "lsof": lambda: listed_by(program("lsof"), "-t", *files),
    }
    runs: dict[str, list[float]] = {name: [] for name in tools}
    missed: dict[str, set[str]] = {name: set() for name in tools}
    for number in range(repeats + 1):
        for name, tool in tools.items():
            began = time.monotonic()
            seen = tool()
            if number:  # the first of each only warms the caches
                runs[name].append(time.monotonic() - began)
            missed[name] |= {what for what, pid in wanted.items() if pid not in seen}
    if missed["scan"]:
        raise CouldNotRun(f"scan: in the case {case} the look missed {', '.join(sorted(missed['scan']))}.")
    for name, seconds in runs.items():
        report.add(case, name, seconds)
    report.counts.append({
        "case": case, "processes": processes(),
        **{f"missed by {name}": ", ".join(sorted(what)) or "nobody" for name, what in missed.items()},
    })  # fmt: skip
    look, peer = report.of(case, "scan").median, report.of(case, "fuser").median
    alone = report.of(case, "scan as a program").median
    report.target(
        f"Scan, {case}",
        "no slower than fuser, and sees more",
        f"{look / peer:.2f} of fuser's time",
        look <= peer and missed["scan"] < missed["fuser"],
        f"Judged by the look itself, as a module takes it; as a program, with Python's start, {alone / peer:.2f}.",
    )


def ours(devices: str) -> set[int]:
    seen = scan(devices)
    if not seen.complete:
        raise CouldNotRun(f"scan: the look was not complete: {seen.incomplete_reason}")
    return {holder.pid for holder in seen.holders}


def listed_program(devices: str) -> set[int]:
    done = subprocess.run([sys.executable, str(HERE / "scan_once.py"), devices], capture_output=True, text=True,
                          check=True, timeout=300)  # fmt: skip
    return {int(word) for word in done.stdout.partition("[")[2].partition("]")[0].split(",")}


def run(folder: pathlib.Path, *, quick: bool) -> Report:
    need("fuser", "lsof")
    report = Report("scan")
    repeats = 2 if quick else 5
    try:
        node = Node(folder / "scanned")
        wanted = {what: node.hold("--gpu", str(gpu), *words) for gpu, (what, words) in enumerate(PLANTED.items())}
        for size in (300, 600) if quick else (300, 3000, 10000):
            with crowd("sleepers", max(size - processes(), 1)):
                measure(report, f"{size:,} processes", node, wanted, repeats)
        ranks = 2 if quick else SCHEDULERS
        with crowd("schedulers", ranks):
            measure(report, f"{ranks} schedulers", node, wanted, repeats)
        with crowd("storm", STORM):
            measure(report, "fork storm", node, wanted, repeats)
    finally:
        simulate("destroy", folder / "scanned", check=False)
    return report
