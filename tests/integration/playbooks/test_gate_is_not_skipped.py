# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No tag, no skipped tag, no start in the middle and no cached fact leads past this run's gate to a start.

Two nodes in each run: on one GPU 1 never clears, so nothing may ever start there; the other is idle, so a start is
allowed, but only behind this run's own look at the GPUs.
"""

from __future__ import annotations

import json
import queue
import re
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest
from simulated_nodes import Node, Playbooks, Run

AT_ONCE = 2
FORGED_GPUS = {"verdict": "idle", "state": "ok", "reason": "forged", "count": 8, "used_mib_total": 0, "gpus": []}
FORGED = {"nvidia_gpu": FORGED_GPUS}
TAGS = [
    ("--tags", "start"), ("--tags", "always"), ("--tags", "untagged"), ("--tags", "tagged"), ("--tags", "never"),
    ("--skip-tags", "always"), ("--skip-tags", "untagged"), ("--skip-tags", "gate"),
]  # fmt: skip


class Pair(t.NamedTuple):
    """What each run works on."""

    stuck: Node
    idle: Node


@pytest.fixture(scope="module")
def pairs(make_shared_node) -> t.Iterator[queue.Queue[Pair]]:
    free: queue.Queue[Pair] = queue.Queue()
    for _ in range(AT_ONCE):
        stuck, idle = make_shared_node(never_clears={"1": 70001}), make_shared_node({"load_s": 0.3})
        free.put(Pair(stuck, idle))
    return free


def static_tasks(playbook: str, play: Playbooks, pairs: queue.Queue[Pair]) -> list[str]:
    pair = pairs.get()
    listed = play(playbook, list(pair), "--list-tasks")
    pairs.put(pair)
    assert listed.rc == 0, str(listed)
    names = re.findall(r"^      (.+?)\s+TAGS: \[.*\]$", listed.out, re.MULTILINE)
    assert len(names) > 5, str(listed)
    return list(dict.fromkeys(name.partition(" : ")[2] or name for name in names))


def check(run: Run, pair: Pair) -> list[str]:
    """What is wrong with a run."""
    wrong = []
    if run.verbs(pair.stuck, "start", "restart"):
        wrong.append("started on a GPU that holds memory")
    gpus_asked = 0
    for call in run.of(pair.idle):
        if call.verb == "query-gpu":
            gpus_asked += 1
        elif call.verb == "stop":
            gpus_asked = 0
        elif call.verb in ("start", "restart") and gpus_asked < 2:
            wrong.append(f"started after {gpus_asked} looks at the GPUs since the stop")
    return wrong


def run_all(
    playbook: str, choices: t.Sequence[tuple[str, ...]], play: Playbooks, pairs: queue.Queue[Pair], **options: t.Any
) -> dict[tuple[str, ...], Run]:
    def one(words: tuple[str, ...]) -> tuple[Run, list[str]]:
        pair = pairs.get()
        try:
            run = play(
                playbook, list(pair), *words, variables={"gpu_idle_timeout": 1, "gpu_release_ladder": []},
                relaunch_serial="100%", **options,
            )  # fmt: skip
            return run, check(run, pair)
        finally:
            pair.idle.end_processes()
            pairs.put(pair)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = dict(zip(choices, pool.map(one, choices)))
    faults = {words: wrong for words, (_, wrong) in done.items() if wrong}
    assert not faults, "\n".join(f"{words}: {wrong}\n{done[words][0]}" for words, wrong in faults.items())
    return {words: run for words, (run, _) in done.items()}


@pytest.mark.parametrize("playbook", ["relaunch", "start"])
def test_start_at_task(playbook, play, pairs) -> None:
    tasks = static_tasks(playbook, play, pairs)
    runs = run_all(playbook, [("--start-at-task", name) for name in tasks], play, pairs)
    # The first task is the whole playbook: with nothing skipped the idle node of start.yml does start.
    assert all(run.calls for run in runs.values())
    assert any("TASK [" in run.out for run in runs.values())


@pytest.mark.parametrize("playbook", ["relaunch", "start"])
def test_tags(playbook, play, pairs) -> None:
    run_all(playbook, TAGS, play, pairs)


@pytest.mark.parametrize("inject", ["true", "false"])
def test_stale_fact_cache(inject, play, pairs, tmp_path) -> None:
    """A cache from an idle day, read by a run that begins right at the start."""
    for name in ("node1", "node2", "node3", "node4"):
        for prefix in ("", "s1_"):
            (tmp_path / f"{prefix}{name}").write_text(json.dumps(FORGED))
    cache = {
        "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path),
        "ANSIBLE_INJECT_FACT_VARS": inject,
    }
    choices = [(), ("--start-at-task", "Start"), ("--start-at-task", "Swap in the new files")]
    runs = run_all("start", choices, play, pairs, environment=cache)
    assert all(run.rc != 0 for run in runs.values()), "the stuck node fails in each of them"
