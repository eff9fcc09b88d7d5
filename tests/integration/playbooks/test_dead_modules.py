# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that is killed on the node between stop and start, and a server that somebody else starts there: what the
run says, what is live afterwards, and who is left alone."""

from __future__ import annotations

import typing as t

import pytest
from simulated_nodes import Node, Run, alive

# The module is the parent of its systemctl, as the OOM killer would see it.
DIES = "kill -KILL $PPID"
HOOK = """\
- name: Start the server past this run
  ansible.builtin.command: "{systemctl} --user start sglang.service"
  changed_when: true
"""


class Dead(t.NamedTuple):
    run: Run
    in_stop: Node
    in_start: Node
    taken: Node
    old: dict[str, int]
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def dead(make_shared_node, play, tmp_path_factory) -> Dead:
    nodes = [make_shared_node() for dummy in range(3)]
    in_stop, in_start, taken = nodes
    started = play("start", nodes, relaunch_serial="100%")
    assert started.rc == 0, str(started)
    old = {node.name: node.launchers()[0] for node in nodes}
    files = {node.name: node.config.read_bytes() for node in nodes}
    hook = tmp_path_factory.mktemp("hooks") / "start.yml"
    hook.write_text(HOOK.format(systemctl="{{ simulated_node }}/bin/systemctl"))
    in_stop.wrap_systemctl({"stop": DIES})
    in_start.wrap_systemctl({"start": DIES})
    taken_only = f"{{{{ {{'{taken.name}': '{hook}'}}[inventory_hostname] | default('') }}}}"
    run = play(
        "relaunch",
        nodes,
        relaunch_serial="100%",
        sglang_server_rollback=True,
        sglang_server_profile="slow",
        variables={"relaunch_hook_after_release": taken_only},
    )
    return Dead(run, in_stop, in_start, taken, old, files)


def test_killed_after_the_stop(dead) -> None:
    node = dead.in_stop
    assert dead.run.verbs(node, "stop", "start") == ["stop"], dead.run.of(node)
    text = dead.run.last_word(node)
    assert "was not stopped" not in text, text
    assert f"may be down on {node.name}: whether it was stopped is not known, and nothing was started" in text, text
    assert node.config.read_bytes() == dead.files[node.name]
    assert not list(node.config.parent.glob("*.staged"))


def test_killed_after_the_start(dead) -> None:
    """The server runs with the new files or not: nobody knows, so the former ones are put back for the next start."""
    node = dead.in_start
    assert dead.run.verbs(node, "stop", "start") == ["stop", "start"], dead.run.of(node)
    text = dead.run.last_word(node)
    assert "IS DOWN" not in text, text
    assert "nothing was started" not in text, text
    assert f"may be down on {node.name}: it was stopped, and whether it was started with the new files" in text, text
    assert node.config.read_bytes() == dead.files[node.name]
    assert not list(node.config.parent.glob("*.staged"))


def test_a_server_that_somebody_else_started_is_left_alone(dead) -> None:
    """No rollback ends it, and nobody says that it has the new profile."""
    node = dead.taken
    assert not alive(dead.old[node.name])
    assert dead.run.verbs(node, "stop", "start") == ["stop", "start"], dead.run.of(node)
    assert len(node.launchers()) == 1
    text = dead.run.last_word(node)
    assert "was started with profile" not in text, text
    assert "this run did not start it: somebody else did after the stop" in text, text
    assert node.config.read_bytes() == dead.files[node.name]
    assert not list(node.config.parent.glob("*.staged"))
