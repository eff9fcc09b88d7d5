# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvidia_gpu_facts with 1, 8 and 16 GPUs and 0 and 500 processes, against the queries that it has to make."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time

from controller import Controller
from measuring import CouldNotRun, Report, use_collection

use_collection()

from simulated_nodes import Node, simulate  # noqa: E402

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import judge  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import look  # noqa: E402

LOOK, QUERIES, TASK, PING = "look", "two bare queries", "nvidia_gpu_facts", "ping"
PEERS = {LOOK: QUERIES, TASK: PING}
FIELDS = ("gpu_uuid", "gpu_bus_id", "pid", "process_name", "used_memory")
TASKS = 6


def list_processes(node: Node, recordings: pathlib.Path, count: int) -> None:
    """Let compute-apps list so many processes, spread over the GPUs: a recording that the node's nvidia-smi replays."""
    gpus = json.loads((node.folder / "node.json").read_text())["gpus"]
    on = [gpus[number % len(gpus)] for number in range(count)]
    rows = [f"{gpu['uuid']}, {gpu['bus_id']}, {1000000 + n}, /usr/bin/python3, 700" for n, gpu in enumerate(on)]
    place = recordings / node.name
    place.mkdir(parents=True, exist_ok=True)
    (place / "listed.csv").write_text("".join(f"{row}\n" for row in rows))
    entry = {"file": "listed.csv", "query": "apps", "exit_code": 0, "stderr": ""}
    (place / "index.json").write_text(json.dumps({"fixtures": [entry], "queries": {"apps": {"fields": FIELDS}}}))
    node.script(faults=[{"effect": "replay", "file": str(place / "listed.csv"), "query": "apps"}])


def query(tool: str) -> None:
    for kind, fields in (("gpu", "index,uuid,memory.used,memory.total"), ("compute-apps", "gpu_uuid,pid,used_memory")):
        subprocess.run([tool, f"--query-{kind}={fields}", "--format=csv,noheader,nounits"], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip


def measure(
    report: Report, case: str, node: Node, controller: Controller, expected: tuple[int, int], repeats: int
) -> None:
    gpus, processes = expected
    tool = str(node.folder / "bin" / "nvidia-smi")
    looks, queries = [], []
    for dummy in range(repeats):
        began = time.monotonic()
        seen = look(CommandRunner(SystemClock()), nvidia_smi=tool, timeout=60.0)
        judge(seen, Expectation(count=gpus), 0)
        looks.append(time.monotonic() - began)
        if len(seen.gpus) != gpus or len(seen.processes) != processes:
            raise CouldNotRun(
                f"facts: {len(seen.gpus)} GPUs and {len(seen.processes)} processes seen, not {gpus} and {processes}."
            )
        began = time.monotonic()
        query(tool)
        queries.append(time.monotonic() - began)
    report.add(case, QUERIES, queries)
    report.add(case, LOOK, looks)
    page = controller.folder / "facts.yml"
    module = {"cleanslate.gpu.nvidia_gpu_facts": {"nvidia_smi": tool, "expected_count": gpus}}
    tasks = [
        task for n in range(TASKS) for task in ({"name": PING, "ansible.builtin.ping": {}}, {"name": TASK, **module})
    ]
    page.write_text(json.dumps([{"name": "Facts", "hosts": "sglang_nodes", "gather_facts": False, "tasks": tasks}]))
    played = controller.play(page, [node])
    for subject in (PING, TASK):
        # The first of each compiles and warms.
        report.add(case, subject, [task["seconds"] for task in played.tasks if task["task"] == subject][1:])


def run(folder: pathlib.Path, *, quick: bool) -> Report:
    report = Report("facts")
    controller = Controller(folder / "controller")
    recordings = folder / "recordings"
    try:
        for gpus in (1, 8) if quick else (1, 8, 16):
            place = folder / f"facts{gpus}"
            node = Node(place, gpus=gpus)
            for processes in (0, 500):
                list_processes(node, recordings, processes)
                measure(
                    report,
                    f"{gpus} GPUs, {processes} processes",
                    node,
                    controller,
                    (gpus, processes),
                    2 if quick else 5,
                )
    finally:
        for gpus in (1, 8, 16):
            simulate("destroy", folder / f"facts{gpus}", check=False)
    return report
