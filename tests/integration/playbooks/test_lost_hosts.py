# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node whose connection breaks in the middle of a relaunch ends in rescue, with words that say how it stands."""

from __future__ import annotations

import re
import typing as t

import pytest
from simulated_nodes import Node, Run, alive

# Unreachable from the moment that the file is there: ssh to a port where nobody listens.
BREAKS = {
    "ansible_connection": "{{ 'ssh' if (simulated_node ~ '/lost') is file else 'local' }}",
    # Another address for each: one with the same address would be taken for a second server of one machine.
    "ansible_host": "127.0.0.{{ inventory_hostname | regex_replace('[^0-9]', '') | int + 1 }}",
    "ansible_port": 1,
    "ansible_ssh_retries": 0,
}
HOOK = """\
- name: Lose the connection
  ansible.builtin.file:
    path: "{{ simulated_node }}/lost"
    state: touch
    mode: "0644"
  delegate_to: localhost
"""


class Lost(t.NamedTuple):
    """One run in which three nodes are lost, each at another moment."""

    run: Run
    after_stop: Node
    after_gate: Node
    after_start: Node
    old: dict[str, int]


@pytest.fixture(scope="module")
def lost(make_shared_node, play, tmp_path_factory) -> Lost:
    nodes = [make_shared_node() for dummy in range(3)]
    after_stop, after_gate, after_start = nodes
    started = play("start", nodes, relaunch_serial="100%")
    assert started.rc == 0, str(started)
    old = {node.name: node.launchers()[0] for node in nodes}
    hook = tmp_path_factory.mktemp("hooks") / "lose.yml"
    hook.write_text(HOOK)
    for node, verb in ((after_stop, "stop"), (after_start, "start")):
        node.wrap_systemctl({verb: f"touch {node.folder}/lost"})
    hooks = f"{{{{ {{'{after_gate.name}': '{hook}'}}[inventory_hostname] | default('') }}}}"
    run = play(
        "relaunch", nodes, variables={**BREAKS, "relaunch_hook_after_release": hooks}, relaunch_serial="100%"
    )  # fmt: skip
    return Lost(run, after_stop, after_gate, after_start, old)


def test_the_run_fails(lost) -> None:
    # 2: a task failed; 4: a host was unreachable. Both mean that a person must look.
    assert lost.run.rc in (2, 4), str(lost.run)


def assert_may_be_down(node: Node, said: str) -> None:
    """It was to be started next: whether that reached the node cannot be told from here."""
    assert f"may be down on {node.name}: it was stopped" in said, said
    assert "status.yml" in said, said
    assert "run relaunch.yml again" in said, said


def test_lost_between_stop_and_start(lost) -> None:
    node = lost.after_stop
    assert lost.run.verbs(node, "stop", "start") == ["stop"], lost.run.of(node)
    assert not alive(lost.old[node.name])
    assert not node.launchers()
    said = lost.run.last_word(node)
    assert "was lost" in said, said
    assert_may_be_down(node, said)


def test_lost_after_the_gate(lost) -> None:
    node = lost.after_gate
    assert lost.run.verbs(node, "stop", "start") == ["stop"], lost.run.of(node)
    assert not node.launchers()
    assert_may_be_down(node, lost.run.last_word(node))


def test_lost_after_the_start(lost) -> None:
    """It may well be serving; the message must not claim that it is down, nor that it serves."""
    node = lost.after_start
    assert lost.run.verbs(node, "stop", "start") == ["stop", "start"], lost.run.of(node)
    assert len(node.launchers()) == 1
    said = lost.run.last_word(node)
    assert "was lost" in said, said
    assert "IS DOWN" not in said, said
    assert "not proved to serve" in said or "not known" in said, said
    assert "status.yml" in said, said


def test_always_ran_for_each(lost) -> None:
    stats = lost.run.out[lost.run.out.index("CUSTOM STATS") :]
    for node in (lost.after_stop, lost.after_gate, lost.after_start):
        assert f"{node.name}:  cleanslate_verdict: failed" in stats, stats


def test_a_person_brings_it_back(lost, play) -> None:
    """Once the network is back: the lease of the dead run still stands, and the refusal says how to end it."""
    node = lost.after_stop
    (node.folder / "lost").unlink()
    node.unwrap_systemctl()
    refused = play("relaunch", node)
    assert refused.rc == 2, str(refused)
    (run_id,) = set(re.findall(r"unlock\.yml -e unlock_run_id=(\S+) takes it over", refused.text))
    assert not refused.verbs(node, "stop", "start"), refused.of(node)
    unlocked = play("unlock", node, unlock_run_id=run_id)
    assert unlocked.rc == 0, str(unlocked)
    run = play("relaunch", node)
    assert run.rc == 0, str(run)
    assert len(node.launchers()) == 1
