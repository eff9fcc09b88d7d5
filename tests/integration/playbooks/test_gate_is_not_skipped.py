# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No tag, no skipped tag, no start in the middle and no cached fact leads past this run's gate to a start.

On the node of these runs GPU 1 never clears, so whoever passed the gate would stand still there: any start is one that
went round it.
"""

from __future__ import annotations

import queue
import re
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest
from simulated_nodes import Node, Playbooks, Run

AT_ONCE = 2
TAGS = [("--tags", "start"), ("--tags", "untagged"), ("--skip-tags", "always,gate")]
# Whoever starts before this task skips nothing but refusals: of those the first is tried. Behind LAST nothing starts.
FIRST_THAT_MATTERS = {"relaunch": "Note when the downtime begins", "start": "gpu_idle : "}
LAST = "Start the server"
VARIABLES = {"gpu_idle_timeout": 1, "gpu_release_ladder": [{"signal": "KILL", "wait": 1}]}
IDLE = {"verdict": "idle", "failed": False, "changed": False, "state": "ok", "count": 8, "gpus": []}
# The fact that a person may well cache, and the registered results that nobody should.
FORGED = {
    "nvidia_gpu": IDLE,
    "gpu_idle_result": IDLE,
    "gpu_release_result": {"gate": IDLE},
    "sglang_server_gate": IDLE,
    "sglang_server_health": {"verdict": "stopped"},
}


INSTALL = """
- hosts: sglang_nodes
  gather_facts: false
  environment: "{{ cleanslate_environment }}"
  tasks:
    - ansible.builtin.include_role:
        name: cleanslate.gpu.sglang_server
"""


@pytest.fixture(scope="module")
def free(make_shared_node, play, tmp_path_factory) -> queue.Queue[Node]:
    """Nodes with an installed unit: without one nothing could be started, and every test here would pass."""
    install = tmp_path_factory.mktemp("install") / "install.yml"
    install.write_text(INSTALL)
    ready = [make_shared_node(never_clears={"1": 70001}) for dummy in range(AT_ONCE)]
    installed = play(install, ready)
    assert installed.rc == 0, str(installed)
    nodes: queue.Queue[Node] = queue.Queue()
    for node in ready:
        assert node.unit.exists()
        nodes.put(node)
    return nodes


def static_tasks(playbook: str, play: Playbooks, free: queue.Queue[Node]) -> list[str]:
    node = free.get()
    listed = play(playbook, node, "--list-tasks")
    free.put(node)
    assert listed.rc == 0, str(listed)
    names = [name.strip() for name in re.findall(r"^      (\S.*?)\s+TAGS: \[.*\]$", listed.out, re.MULTILINE)]
    first = next(place for place, name in enumerate(names) if FIRST_THAT_MATTERS[playbook] in name)
    last = next(place for place, name in enumerate(names) if LAST in name)
    # Ansible starts at the first task of a name, so a second one cannot be chosen.
    chosen = dict.fromkeys([names[0], *(name for name in names[first : last + 1] if name not in names[:first])])
    assert len(chosen) > 5, str(listed)
    return list(chosen)


def run_all(
    playbook: str, choices: t.Sequence[tuple[str, ...]], play: Playbooks, free: queue.Queue[Node], **options: t.Any
) -> dict[tuple[str, ...], Run]:
    def one(words: tuple[str, ...]) -> tuple[Run, list[str]]:
        node = free.get()
        try:
            run = play(playbook, node, *words, variables=VARIABLES, **options)
            return run, run.verbs(node, "start", "restart", "try-restart", "reload-or-restart")
        finally:
            free.put(node)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = dict(zip(choices, pool.map(one, choices)))
    past = {words: run for words, (run, starts) in done.items() if starts}
    assert not past, "\n".join(f"{words} led past the gate: {run}" for words, run in past.items())
    return {words: run for words, (run, dummy) in done.items()}


@pytest.mark.parametrize("playbook", ["relaunch", "start"])
def test_start_at_task(playbook, play, free) -> None:
    tasks = static_tasks(playbook, play, free)
    runs = run_all(playbook, [("--start-at-task", name) for name in tasks], play, free)
    missed = [words for words, run in runs.items() if "No matching task" in run.out or "TASK [" not in run.out]
    assert not missed, f"nothing was run at all: {missed}"
    at_the_start = next(run for words, run in runs.items() if LAST in words[1])
    assert at_the_start.rc == 2, str(at_the_start)


@pytest.mark.parametrize("playbook", ["relaunch", "start"])
def test_tags(playbook, play, free) -> None:
    run_all(playbook, TAGS, play, free)


def test_stale_fact_cache(play, free, tmp_path) -> None:
    """A cache from an idle day, injected as variables, read by runs that begin at the gate and behind it."""
    cache = {
        "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts"),
        "ANSIBLE_INJECT_FACT_VARS": "true",
    }
    fill = tmp_path / "fill.yml"
    fill.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        f"    - ansible.builtin.set_fact: {{cacheable: true, {str(FORGED)[1:-1].replace('False', 'false')}}}\n"
    )
    nodes = [free.get() for dummy in range(AT_ONCE)]
    filled = play(fill, nodes, environment=cache)
    assert filled.rc == 0, str(filled)
    assert len(list((tmp_path / "facts").iterdir())) == AT_ONCE
    for node in nodes:
        free.put(node)
    places = [name for name in static_tasks("start", play, free) if "gate of this run" in name or "Start the " in name]
    assert len(places) == 2
    runs = run_all("start", [(), *(("--start-at-task", name) for name in places)], play, free, environment=cache)
    assert all(run.rc == 2 for run in runs.values()), "\n".join(map(str, runs.values()))


@pytest.mark.parametrize("task", ["Note when the downtime begins", "*End who holds the GPUs of *"])
def test_nobody_is_stopped_before_lease_and_rehearsal(task: str, make_node, play: Playbooks) -> None:
    node = make_node()
    assert play("start", node).rc == 0
    (old,) = node.launchers()

    run = play("relaunch", node, "--start-at-task", task)

    assert run.rc != 0, str(run)
    assert "Run the playbook from its beginning" in run.text, str(run)
    assert not run.verbs(node, "stop", "kill", "restart"), str(run)
    assert node.launchers() == [old]
