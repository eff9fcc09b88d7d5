# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units and configurations as the role renders them, many in one run of ansible-playbook, without any host."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[3]

RENDER = """
- name: Render
  ansible.builtin.include_role:
    name: cleanslate.gpu.sglang_stop
    tasks_from: variables
    public: true
- name: Check
  ansible.builtin.include_role:
    name: cleanslate.gpu.sglang_server
    tasks_from: validate
    public: true
- name: Write
  ansible.builtin.copy:
    content: "{{ lookup('ansible.builtin.template', rendering_templates ~ '/' ~ item.from) }}"
    dest: "{{ rendering_to }}/{{ item.to }}"
    mode: "0600"
  loop:
    - {from: sglang.service.j2, to: unit}
    - {from: sglang.yaml.j2, to: config}
"""

BASE: dict[str, t.Any] = {
    "sglang_server_profile": "p",
    "sglang_server_profiles": [{"name": "p", "args": {"model-path": "/models/m", "tp-size": 8, "port": 30000}}],
}


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What came of one set of variables; problem is the message where it was refused."""

    unit: str
    config: str
    problem: str

    def values(self, directive: str) -> list[str]:
        return [line.partition("=")[2] for line in self.unit.splitlines() if line.startswith(f"{directive}=")]

    def value(self, directive: str) -> str:
        (found,) = self.values(directive)
        return found


def play_cases(
    folder: pathlib.Path, tasks: str, cases: t.Mapping[str, t.Mapping[str, t.Any]]
) -> tuple[dict[str, str], str]:
    """One ansible-playbook with each case as a host of its own, so that one that is refused says nothing about the
    others: what each of them failed with (empty where it did not), and all that was printed."""
    (folder / "tasks.yml").write_text(tasks)
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"include_tasks": "tasks.yml"}]}
    (folder / "play.yml").write_text(json.dumps([play]))
    common = {**BASE, "ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {name: {**common, **variables} for name, variables in cases.items()}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "CLEANSLATE_"))}
    own |= {
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    }
    command = [str(pathlib.Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=300, check=False)
    problems = {}
    for name in cases:
        after = done.stdout.partition(f"fatal: [{name}]: FAILED! => ")[2]
        problems[name] = str(json.JSONDecoder().raw_decode(after)[0]["msg"]) if after else ""
    return problems, done.stdout + done.stderr


def render(folder: pathlib.Path, cases: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, Rendered]:
    """What the templates of a unit make of each case."""
    for name in cases:
        (folder / name).mkdir()
    templates = str(ROOT / "roles" / "sglang_server" / "templates")
    hosts = {
        name: {**variables, "rendering_to": str(folder / name), "rendering_templates": templates}
        for name, variables in cases.items()
    }
    problems, printed = play_cases(folder, RENDER, hosts)
    results = {}
    for name, problem in problems.items():
        texts = [
            (folder / name / part).read_text() if (folder / name / part).exists() else "" for part in ("unit", "config")
        ]
        assert problem or all(texts), printed
        results[name] = Rendered(*texts, problem)
    return results
