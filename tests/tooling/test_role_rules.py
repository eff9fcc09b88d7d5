# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each rule about roles finds a planted breach, and nothing in a clean role."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import role_rules
import yaml


def option(kind: str = "int", **more: t.Any) -> dict[str, t.Any]:
    return {"type": kind, "description": ["Something."], **more}


def role(root: pathlib.Path, options: dict[str, t.Any], defaults: dict[str, t.Any], readme: str = "") -> pathlib.Path:
    place = root / "roles" / "gate"
    for name, content in (
        ("meta/argument_specs.yml", {"argument_specs": {"main": {"options": options}}}),
        ("defaults/main.yml", defaults),
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    if readme:
        (place / "README.md").write_text(readme, encoding="utf-8")
    return place


CLEAN: list[tuple[dict[str, t.Any], dict[str, t.Any]]] = [
    ({"gate_timeout": option(default=300)}, {"gate_timeout": 300}),
    ({"gate_count": option(required=True)}, {}),
    ({"gate_host": option("str")}, {}),
    ({"gate_count": option()}, {"gate_count": "{{ tp * pp }}"}),
    ({"gate_wait": option("float", default=1)}, {"gate_wait": 1}),
    ({"gate_units": option("list", elements="str", default=[])}, {"gate_units": []}),
]


@pytest.mark.parametrize(("options", "defaults"), CLEAN)
def test_clean(tmp_path: pathlib.Path, options: dict[str, t.Any], defaults: dict[str, t.Any]) -> None:
    assert role_rules.specification_breaches(role(tmp_path, options, defaults)) == []


PLANTED: list[tuple[dict[str, t.Any], dict[str, t.Any], str]] = [
    ({"gate_timeout": option(default=300)}, {"gate_timeout": 301}, "documented as 300"),
    ({"gate_timeout": option(default=300)}, {}, "not in defaults/main.yml"),
    ({"gate_timeout": option(default=300)}, {"gate_timeout": "300"}, "is a str"),
    ({"gate_on": option("bool", default=True)}, {"gate_on": 1}, "is a int"),
    ({"gate_on": option("int", default=1)}, {"gate_on": True}, "is a bool"),
    ({"gate_a": option(default=1)}, {"gate_a": 1, "gate_b": 2}, "gate_b is in no entry point"),
    ({"gate_count": option(required=True)}, {"gate_count": 8}, "it is required, yet"),
    ({"gate_count": option(default=8)}, {"gate_count": "{{ tp }}"}, "computes"),
    ({"gate_a": {"type": "int", "default": 1}}, {"gate_a": 1}, "no description"),
    ({"gate_a": {"description": "A.", "default": 1}}, {"gate_a": 1}, "the type is None"),
    ({"gate_a": option("list", default=[])}, {"gate_a": []}, "what its elements are"),
    ({"other_a": option(default=1)}, {"other_a": 1}, "begins with the role's name"),
    ({"gate_a": option("dict", options={"b": {"type": "int"}})}, {}, "gate_a.b: it has no description"),
    ({"gate_units": option("list", elements="str")}, {"gate_units": []}, "documented as None"),
]


@pytest.mark.parametrize(("options", "defaults", "words"), PLANTED)
def test_planted(tmp_path: pathlib.Path, options: dict[str, t.Any], defaults: dict[str, t.Any], words: str) -> None:
    breaches = role_rules.specification_breaches(role(tmp_path, options, defaults))
    assert len(breaches) >= 1
    assert any(words in breach for breach in breaches), breaches


def test_entry_points_agree(tmp_path: pathlib.Path) -> None:
    place = role(tmp_path, {}, {"gate_a": 1})
    entries = {"main": {"options": {"gate_a": option(default=1)}}, "look": {"options": {"gate_a": option("str")}}}
    (place / "meta" / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": entries}), encoding="utf-8")
    assert any("another entry point" in breach for breach in role_rules.specification_breaches(place))


def test_a_role_without_specification_is_a_breach(tmp_path: pathlib.Path) -> None:
    (tmp_path / "gate").mkdir()
    assert role_rules.specification_breaches(tmp_path / "gate") == [
        "gate: meta/argument_specs.yml has no entry point.",
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("when: gate_timeout > 3", {("gate", "gate_timeout")}),
        ("when: gate_idle_x > 3", {("gate_idle", "gate_idle_x")}),
        ("register: __gate_result", set()),
        ("vars: {my_gate_thing: 1}", set()),
        ("# gate_timeout is told elsewhere", set()),
        ("a: 1 # gate_timeout", set()),
        ("{# gate_timeout #}", set()),
        ("import_tasks: gate_release.yml", set()),
        ("x: '{{ gate_a|int }}{{gate_b}}'", {("gate", "gate_a"), ("gate", "gate_b")}),
        ("msg: gate_result.verdict", {("gate", "gate_result")}),
        ("name: cleanslate.gpu.gate_idle", set()),
    ],
)
def test_used_names(text: str, names: set[tuple[str, str]]) -> None:
    assert role_rules.used_names(text, ["gate", "gate_idle"]) == names


@pytest.mark.parametrize(("readme", "breaches"), [("It leaves gate_verdict behind.\n", 0), ("It leaves nothing.\n", 1)])
@pytest.mark.parametrize("place", ["roles/gate/tasks/main.yml", "roles/gate/templates/a.j2", "playbooks/a.yml"])
def test_undocumented_variables(tmp_path: pathlib.Path, place: str, readme: str, breaches: int) -> None:
    role(tmp_path, {"gate_timeout": option()}, {}, readme)
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("- x: '{{ gate_verdict ~ gate_timeout }}'\n", encoding="utf-8")
    assert len(role_rules.undocumented_variables(tmp_path, [])) == breaches
    assert role_rules.undocumented_variables(tmp_path, ["gate_verdict"]) == []


def test_without_readme(tmp_path: pathlib.Path) -> None:
    role(tmp_path, {}, {})
    assert role_rules.without_readme(tmp_path) == ["gate: it has no README.md."]
    role(tmp_path, {}, {}, "# gate\n")
    assert role_rules.without_readme(tmp_path) == []
