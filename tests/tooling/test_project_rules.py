# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each project rule finds a planted breach, and nothing in a clean tree."""

from __future__ import annotations

import pathlib
import textwrap
import typing as t

import project_rules
import pytest

HEAD = f"# {project_rules.LICENCE}\n"
GALAXY = "version: 0.2.0\n"


def tree(root: pathlib.Path, files: dict[str, str]) -> list[str]:
    (root / "REUSE.toml").write_text(
        'version = 1\n[[annotations]]\npath = ["**.md", "recorded/**"]\n', encoding="utf-8"
    )
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return sorted(files)


LICENCE_CASES: list[tuple[str, str, bool]] = [
    ("a.py", HEAD, True),
    ("a.py", "import os\n", False),
    ("a.py", "\n" * 9 + HEAD, False),
    ("a.py", "", False),
    ("README.md", "# Title\n", True),
    ("recorded/one.csv", "1, 2\n", True),
    ("elsewhere/one.csv", "1, 2\n", False),
    ("LICENSES/GPL-3.0-or-later.txt", "the text\n", True),
]


@pytest.mark.parametrize(("name", "text", "clean"), LICENCE_CASES)
def test_licence(tmp_path: pathlib.Path, name: str, text: str, clean: bool) -> None:
    assert (project_rules.without_licence(tmp_path, tree(tmp_path, {name: text})) == []) is clean


def test_licence_beside_the_file(tmp_path: pathlib.Path) -> None:
    tree(tmp_path, {"one.csv": "1, 2\n", "one.csv.license": HEAD})
    assert project_rules.without_licence(tmp_path, ["one.csv"]) == []


@pytest.mark.parametrize(
    ("name", "lines", "clean"),
    [("a.py", 400, True), ("a.py", 401, False), ("a.txt", 401, True), ("tests/recordings/a.yml", 401, True)],
)
def test_length(tmp_path: pathlib.Path, name: str, lines: int, clean: bool) -> None:
    assert (project_rules.too_long(tmp_path, tree(tmp_path, {name: "x\n" * lines})) == []) is clean


@pytest.mark.parametrize("word", project_rules.ABSENT)
def test_absent_words(tmp_path: pathlib.Path, word: str) -> None:
    files = tree(tmp_path, {"docs/a.md": f"fine\nsee {word} there\n"})
    assert project_rules.with_absent_words(tmp_path, files) == [f"docs/a.md:2: says {word!r}."]


def test_the_path_of_the_checkout_is_an_absent_word(tmp_path: pathlib.Path) -> None:
    files = tree(tmp_path, {"a.yml": f"path: {tmp_path}/node\n", "b.yml": "path: node\n"})
    assert [breach.partition(":")[0] for breach in project_rules.with_absent_words(tmp_path, files)] == ["a.yml"]


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("plugins/module_utils/_gate.py", True),
        ("plugins/module_utils/_utils.py", False),
        ("tests/unit/test__helpers.py", False),
        ("tests/common/a.py", False),
        ("roles/gpu_manager_list/tasks/main.yml", True),
    ],
)
def test_vague_names(name: str, clean: bool) -> None:
    assert (project_rules.vaguely_named([name]) == []) is clean


@pytest.mark.parametrize(("name", "clean"), [("tests/sanity/ignore-2.21.txt", False), ("tests/sanity/README.md", True)])
def test_sanity_exceptions(name: str, clean: bool) -> None:
    assert (project_rules.sanity_exceptions([name]) == []) is clean


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("plugins/modules/__init__.py", False),
        ("tests/unit/__init__.py", False),
        ("tests/simulator/x/__init__.py", True),
    ],
)
def test_init_files(name: str, clean: bool) -> None:
    assert (project_rules.packages_with_init([name]) == []) is clean


RECORDED = "releases: {0.2.0: {modules: [{name: gpu_x}]}}"
NAMED = "add object.playbook: [{name: stop, description: Stop}]"


@pytest.mark.parametrize(
    ("files", "breaches"),
    [
        ({"CHANGELOG.md": "x", "changelogs/changelog.yaml": "releases: {0.2.0: {}}"}, 0),
        ({"CHANGELOG.md": "x", "changelogs/changelog.yaml": "releases: {0.1.0: {}}"}, 1),
        ({"CHANGELOG.md": "x", "changelogs/fragments/1-a.yml": "bugfixes: [a.]"}, 0),
        ({"changelogs/changelog.yaml": "releases: {0.2.0: {}}"}, 1),
        ({}, 2),
        ({"CHANGELOG.md": "* cleanslate\\.gpu\\.gpu\\_x \\- X", "changelogs/changelog.yaml": RECORDED}, 0),
        ({"CHANGELOG.md": "* cleanslate\\.gpu\\.gpu\\_y \\- X", "changelogs/changelog.yaml": RECORDED}, 1),
        ({"CHANGELOG.md": "x", "changelogs/fragments/1-a.yml": "bugfixes: [a.]", "playbooks/stop.yml": "[]"}, 1),
        ({"CHANGELOG.md": "x", "changelogs/fragments/1-a.yml": NAMED, "playbooks/stop.yml": "[]"}, 0),
    ],
)
def test_changelog(tmp_path: pathlib.Path, files: dict[str, str], breaches: int) -> None:
    tree(tmp_path, {"galaxy.yml": GALAXY, **files})
    assert len(project_rules.changelog(tmp_path)) == breaches


def module(documentation: str) -> str:
    return f'{HEAD}DOCUMENTATION = r"""\n{textwrap.dedent(documentation)}"""\n'


OWN = module("options:\n  nvidia_smi: {type: str}\n")
SHARED = module("extends_documentation_fragment: [cleanslate.gpu.smi, cleanslate.gpu.attributes]\n")
OTHER = module("options:\n  unit: {type: str}\nextends_documentation_fragment: cleanslate.gpu.attributes\n")


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ({"one": OWN, "two": SHARED}, []),
        ({"one": OWN, "two": OTHER}, ["two is in the action group but"]),
        ({"one": OWN}, ["two is in the action group but"]),
        ({"one": OWN, "two": SHARED, "three": SHARED}, ["three takes nvidia_smi but"]),
        ({"one": OWN, "two": SHARED, "four": HEAD}, ["four.py: it has no DOCUMENTATION"]),
    ],
)
def test_action_group(tmp_path: pathlib.Path, modules: dict[str, str], words: t.Sequence[str]) -> None:
    tree(tmp_path, {f"plugins/modules/{name}.py": text for name, text in modules.items()})
    tree(tmp_path, {"meta/runtime.yml": "action_groups:\n  gpu: [one, two]\n"})
    breaches = project_rules.action_group(tmp_path)
    assert len(breaches) == len(words)
    assert all(word in breach for word, breach in zip(words, breaches))
