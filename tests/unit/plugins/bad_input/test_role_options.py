# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every role refuses what cannot be meant before its first task; every option refuses another type."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.cleanslate.gpu.plugins.filter.odd_options import odd_options
from ansible_collections.cleanslate.gpu.tests.unit.plugins.bad_input import bad_values as bad
from ansible_collections.cleanslate.gpu.tests.unit.plugins.bad_input.role_rows import ROWS, VALID

ROLES = pathlib.Path(__file__).resolve().parents[4] / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir() if path.is_dir())
LONG = 500
BOBS = "a-folder-of-bobs"

# drift's policy is about the unit of sglang_server, whose variables then are every later host's too: a play of its own.
PLAY = """\
- hosts: all:!gpu_drift_*
  gather_facts: false
  connection: local
  tasks:
    - ansible.builtin.include_role:
        name: cleanslate.gpu.{{ role_under_test }}
        tasks_from: validate

- hosts: gpu_drift_*
  gather_facts: false
  connection: local
  tasks:
    - ansible.builtin.include_role:
        name: cleanslate.gpu.sglang_server
        tasks_from: variables
        public: true
    - ansible.builtin.include_role:
        name: cleanslate.gpu.gpu_drift
        tasks_from: validate
"""
TELL = """\
import json
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader


class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "stdout", "tell"

    def v2_playbook_on_play_start(self, play):
        # As the lookup nodes does for the playbooks: what is loaded before the workers are forked, none loads anew.
        filter_loader.get("cleanslate.gpu.misspelt_options")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        told = getattr(result, "result", None) or result._result
        host = getattr(result, "host", None) or result._host
        print("TOLD " + json.dumps([host.get_name(), str(told.get("msg"))]), flush=True)

    def v2_runner_on_ok(self, result):
        pass
"""


def specification(role: str) -> dict[str, t.Any]:
    specs = yaml.safe_load((ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    return t.cast("dict[str, t.Any]", specs)


OPTIONS = [(role, name) for role in NAMES for name in specification(role)["argument_specs"]["main"]["options"]]


@pytest.mark.parametrize(("role", "option"), OPTIONS)
def test_another_type_is_refused(role: str, option: str) -> None:
    spec = specification(role)["argument_specs"]["main"]["options"][option]
    values = list(bad.OF_ANOTHER_TYPE[spec["type"]]) + (["another", ""] if spec.get("choices") else [])
    for value in values:
        found = ArgumentSpecValidator({option: spec}).validate({option: value})
        assert found.error_messages, (option, bad.fragment(value))


@pytest.mark.parametrize(("role", "option"), OPTIONS)
def test_text_that_is_no_line_and_numbers_that_are_none_are_refused(role: str, option: str) -> None:
    specs = specification(role)
    spec = specs["argument_specs"]["main"]["options"][option]
    is_list = spec["type"] == "list"
    kind = spec["elements"] if is_list else spec["type"]
    values: tuple[t.Any, ...] = {
        "str": bad.BROKEN_LINES,
        "path": (
            *(f"/x/{line}" for line in bad.BROKEN_LINES),
            *(() if option == "sglang_server_python" else ("../x",)),
        ),
        "int": (bad.HUGE, -bad.HUGE),
        "float": (bad.NAN, bad.INFINITE, 1e308, "nan"),
    }.get(kind, ())
    for value in values:
        (sentence,) = odd_options({option: [value] if is_list else value}, specs, ["sglang_server_python"])
        assert option in sentence
        assert bad.fragment(value) in sentence or value == -bad.HUGE
        assert len(sentence) < LONG


@pytest.mark.parametrize(("role", "option"), OPTIONS)
def test_what_is_no_list_is_refused_where_a_list_belongs(role: str, option: str) -> None:
    """Ansible splits a text at its commas, and the role would count its letters."""
    specs = specification(role)
    if specs["argument_specs"]["main"]["options"][option]["type"] != "list":
        return
    for value in ("text", "a,b", 7, {"a": 1}, None):
        (sentence,) = odd_options({option: value}, specs)
        assert option in sentence
        assert "list" in sentence
        assert str(value)[:4] in sentence
    assert odd_options({option: []}, specs) == []


@pytest.mark.parametrize("role", NAMES)
def test_a_role_begins_with_its_validation(role: str) -> None:
    text = (ROLES / role / "tasks" / "main.yml").read_text(encoding="utf-8")
    first = yaml.safe_load(text)[0]
    assert next(value for key, value in first.items() if key.startswith("ansible.builtin.i")) == "validate.yml"
    validation = (ROLES / role / "tasks" / "validate.yml").read_text(encoding="utf-8")
    variables = (ROLES / role / "vars" / "main.yml").read_text(encoding="utf-8")
    assert "odd_options" in validation or (f"__{role}_wrong" in validation and "gpu.wrong_options" in variables)


@pytest.mark.parametrize("role", [role for role in NAMES if role != "drift_schedule"])
def test_the_playbooks_ask_every_role(role: str) -> None:
    text = (ROLES.parent / "playbooks" / "tasks" / "validate.yml").read_text(encoding="utf-8")
    assert f"__{role}_wrong" in text


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one run said to each host. The last hosts are valid, one for each role."""
    folder = tmp_path_factory.mktemp("roles")
    hosts: dict[str, t.Any] = {}
    for number, (role, changes, _said) in enumerate(ROWS):
        given = {name: value for name, value in {**VALID, **changes}.items() if value is not None}
        hosts[f"{role}_row{number}"] = {**given, "role_under_test": role}
    hosts |= {f"{role}_valid": {**VALID, "role_under_test": role} for role in NAMES}
    bobs = folder / BOBS
    bobs.mkdir()
    if os.geteuid() == 0:
        os.chown(bobs, 4711, 4711)
    hosts["drift_schedule_bobs"] = {
        **VALID,
        "role_under_test": "drift_schedule",
        "drift_schedule_log_file": str(bobs / "drift.log"),
    }
    for variables in hosts.values():
        variables["ansible_python_interpreter"] = sys.executable
    (folder / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    (folder / "tell.py").write_text(TELL, encoding="utf-8")
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": str(folder),
        "ANSIBLE_STDOUT_CALLBACK": "tell",
        "ANSIBLE_FORKS": "4",
        "ANSIBLE_COLLECTIONS_PATH": str(ROLES.parent / ".ansible" / "collections"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
    }
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "inventory.json", "play.yml"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=550, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    assert lines, done.stdout[-2000:] + done.stderr[-2000:]
    return dict(json.loads(line[len("TOLD ") :]) for line in lines)


def test_a_valid_host_is_not_refused(told: dict[str, str]) -> None:
    assert {host: said for host, said in told.items() if host.endswith("_valid")} == {}


@pytest.mark.parametrize(
    "number", range(len(ROWS)), ids=lambda number: f"{ROWS[number][0]}-{next(iter(ROWS[number][1]))}"
)
def test_what_cannot_be_meant_is_refused(told: dict[str, str], number: int) -> None:
    role, changes, said = ROWS[number]
    sentence = told.get(f"{role}_row{number}", "")
    assert said in sentence, sentence[:600] or "it was not refused"
    name = next(iter(changes))
    # A profile is named by itself.
    assert name in sentence or "profile" in sentence or "the value of A" in sentence, sentence[:600]


def test_a_log_in_a_folder_of_somebody_else_is_refused(told: dict[str, str]) -> None:
    """Its owner could put a link there, and root would append to what it leads to."""
    assert f"/{BOBS} belongs to uid " in told["drift_schedule_bobs"]


def test_every_role_has_rows() -> None:
    assert {role for role, _changes, _said in ROWS} == set(NAMES)
