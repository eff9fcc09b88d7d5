# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters around the decisions. Their rules are tested with the core."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter import drift_decision as plugin
from ansible_collections.cleanslate.gpu.plugins.filter.drift_decision import drift_breaker, drift_decision
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import START, UNIT, Node

POLICY = {"unit": UNIT, "mode": "remediate"}


def test_a_decision_is_plain_and_whole(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    node.die()
    found = drift_decision(node.look(), POLICY, START)
    assert json.loads(json.dumps(found)) == found
    assert (found["action"], found["row"], found["profile"]) == ("relaunch", "dead", "kimi")
    assert found["memory"] == {"state": "none", "key": f"dead: {UNIT}", "revision": 0}
    assert found["situation"]["server"] == "failed"
    assert found["reasons"][0] == "it is dead"


def test_only_the_windows_go_by_the_controllers_clock(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    node.die()
    policy = {**POLICY, "windows": ["08:00-09:00 UTC"]}
    assert drift_decision(node.look(), policy, START)["action"] == "relaunch"
    late = drift_decision(node.look(), policy, START + 3600)
    assert (late["held_back"], late["action"]) == ("window", "report")


def test_as_a_playbook_uses_them(tmp_path: pathlib.Path) -> None:
    """With Ansible's own kinds of containers, texts and numbers."""
    node = Node(tmp_path)
    node.hang()
    decision = "{{ look | cleanslate.gpu.drift_decision(policy) }}"
    answer = tmp_path / "answer.json"
    tasks = [
        {"set_fact": {"decision": decision}},
        {"set_fact": {"breaker": "{{ {'a': none, 'b': decision} | cleanslate.gpu.drift_breaker(1) }}"}},
        {"copy": {"dest": str(answer), "content": "{{ {'decision': decision, 'breaker': breaker} | to_json }}"}},
    ]
    policy = {"unit": "{{ the_unit }}", "mode": "remediate", "load_budget": "{{ 60 * 45 }}", "windows": []}
    variables = {"look": node.look(), "policy": policy, "the_unit": UNIT, "ansible_python_interpreter": sys.executable}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    collections = str(pathlib.Path(plugin.__file__).parents[5])
    ran = subprocess.run(
        [sys.executable, "-m", "ansible.cli.playbook", "-i", "localhost,", str(tmp_path / "play.yml")],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_LOCALHOST_WARNING": "false"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(answer.read_text())
    assert (found["decision"]["row"], found["decision"]["held_back"]) == ("hung", "confirmation")
    assert found["decision"]["memory"]["state"] == "noted"
    assert (found["breaker"]["tripped"], found["breaker"]["hosts"], found["breaker"]["allowed"]) == (False, ["b"], 1)


@pytest.mark.parametrize("policy", [None, {}, {"unit": "sglang"}, {**POLICY, "windows": ["x"]}, {**POLICY, "limit": 3}])
def test_a_policy_that_cannot_be_meant(policy: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match=r"^drift_decision: "):
        drift_decision({}, policy)


@pytest.mark.parametrize(
    ("decisions", "share", "hosts", "sentence"),
    [
        ([], 0.3, None, "a mapping of hosts"),
        ({}, 0, None, "share is 0; it must be above 0"),
        ({}, 1.01, None, "share is 1.01"),
        ({}, "half", None, "numbers are needed"),
        ({}, 0.3, 0, "hosts is 0; at least 1"),
    ],
)
def test_a_breaker_that_cannot_be_meant(decisions: t.Any, share: t.Any, hosts: t.Any, sentence: str) -> None:
    with pytest.raises(AnsibleFilterError, match=re.escape(sentence)):
        drift_breaker(decisions, share, hosts)
