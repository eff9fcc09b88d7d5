# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role run_record writes on a node and its GPU host, and what history.yml shows of it."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from simulated_nodes import Node

# Unreachable where that file is: ssh to a port where nobody listens.
LOST = {
    "ansible_connection": "{{ 'ssh' if (simulated_node ~ '/lost') is file else 'local' }}",
    "ansible_host": "127.0.0.1",
    "ansible_port": 1,
    "ansible_ssh_retries": 0,
}
# A run that is recorded from its beginning to its end, or is cut off before it.
RECORDED = """\
- name: Relaunch
  hosts: sglang_nodes
  gather_facts: false
  environment: "{{ cleanslate_environment }}"
  vars:
    gpu_release_run_id: "{{ recorded_run }}"
  tasks:
    - name: Know the variables
      ansible.builtin.import_role:
        name: cleanslate.gpu.run_record
        tasks_from: validate
    - name: Work
      block:
        - name: Begin
          ansible.builtin.import_role:
            name: cleanslate.gpu.run_record
            tasks_from: begun
            rolespec_validate: false
        - name: Keep evidence
          ansible.builtin.import_role:
            name: cleanslate.gpu.run_record
            tasks_from: evidence
            rolespec_validate: false
      always:
        - name: End
          ansible.builtin.import_role:
            name: cleanslate.gpu.run_record
            tasks_from: ended
            rolespec_validate: false
          vars:
            run_record_entry: {verdict: ready, mode: drain}
          when: recorded_end | default(true)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("recorded") / "recorded.yml"
    path.write_text(RECORDED)
    return path


def variables(**more: t.Any) -> dict[str, t.Any]:
    return {"run_record_dir": "{{ simulated_node }}/record", "run_record_py_spy": "/no/py-spy", **more}


def lines(node: Node, folder: str = "record") -> list[dict[str, t.Any]]:
    path = node.folder / folder / "runs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_is_recorded_and_shown(make_node, play, recorded) -> None:
    node, other = make_node(), make_node()
    own = variables()
    rehearsed = play(recorded, node, "--check", variables=own, recorded_run="r0")
    assert rehearsed.rc == 0, str(rehearsed)
    assert not lines(node)

    run = play(recorded, node, variables=own, recorded_run="r1")
    assert run.rc == 0, str(run)
    begun, ended = lines(node)
    assert (begun["event"], begun["verdict"], begun["profile"]) == ("begun", None, "demo")
    assert (ended["event"], ended["verdict"], ended["mode"], ended["node"]) == ("ended", "ready", "drain", node.name)
    assert begun["run_id"] == ended["run_id"] == "r1"
    assert (ended["playbook"], ended["unit"]) == ("relaunch.yml", "sglang.service")
    folder = pathlib.Path(ended["evidence"])
    assert folder.parent == node.folder / "record" / "evidence"
    assert json.loads((folder / "index.json").read_text())["run_id"] == "r1"
    assert json.loads((folder / "gpus.json").read_text())["state"] == "ok"

    cut = play(recorded, node, variables=own, recorded_run="r2", recorded_end=False)
    assert cut.rc == 0, str(cut)
    play(recorded, node, variables=own, recorded_run="r3")

    # It lies where the run was called, not in the folder of the playbooks.
    result = play.folder / "shown-history.json"
    shown = play("history", [node, other], variables=own, history_file=result.name)
    assert shown.rc == 0, str(shown)
    assert "began and has no end: it was interrupted." in shown.text, str(shown)
    assert "no run is recorded" in shown.text, "the other node has none"
    first, second = json.loads(result.read_text())
    assert [(one["run_id"], one["verdict"]) for one in first["runs"]] == [
        ("r1", "ready"), ("r2", "interrupted"), ("r3", "ready"),
    ]  # fmt: skip
    assert (second["host"], second["runs"], second["problem"]) == (other.name, [], "")

    as_json = play("history", node, variables=own, history_format="json", history_limit=1)
    assert as_json.rc == 0, str(as_json)
    assert '"run_id": "r3"' in as_json.text
    assert '"run_id": "r1"' not in as_json.text


def test_a_node_that_is_lost_is_known_to_its_host(make_node, play, recorded) -> None:
    node, host = make_node(), make_node()
    where = {
        "run_record_dir": f"{host.folder}/record",
        "gpu_release_host": host.name,
        "gpu_release_lxc": [101],
    }
    # Both write into one folder here, so each line stands there twice.
    run = play(recorded, [node, host], "-l", node.name, variables=where, recorded_run="r1")
    assert run.rc == 0, str(run)
    assert [line["event"] for line in lines(host)] == ["begun", "begun", "ended", "ended"]

    kept = sorted(path.name for path in (host.folder / "record" / "evidence").iterdir())
    assert kept == [f"r1-{node.name}-sglang.service", "r1-sglang.service"]

    (node.folder / "lost").touch()
    shown = play("history", [node, host], variables={**where, **LOST})
    assert shown.rc == 0, str(shown)
    assert f"{node.name}: it does not answer, this is what {host.name} recorded about it." in shown.text, str(shown)
    assert "relaunch.yml" in shown.text


def test_a_record_that_cannot_be_written_is_said_and_fails_nobody(make_node, play, recorded) -> None:
    node = make_node()
    (node.folder / "record").write_text("no folder")
    run = play(recorded, node, variables=variables(), recorded_run="r1")
    assert run.rc == 0, str(run)
    assert "WARNING: run r1 of relaunch.yml" in run.text, str(run)
    assert "was not recorded" in run.text
    shown = play("history", node, variables=variables())
    assert shown.rc == 0, str(shown)
    assert "could not be read" in shown.text, str(shown)


def test_a_wrong_variable_is_refused_on_the_controller(make_node, play, recorded) -> None:
    node = make_node()
    run = play(recorded, node, variables=variables(run_record_keeep=3), recorded_run="r1")
    assert run.rc == 2, str(run)
    assert "run_record_keep" in run.text
    assert not lines(node)
    wrong = play("history", node, variables=variables(), history_limit="many")
    assert wrong.rc == 2, str(wrong)
    assert "history_limit is many" in wrong.text
