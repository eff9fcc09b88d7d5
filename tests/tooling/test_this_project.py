# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""This checkout keeps its own rules. That each rule finds a breach is shown by the tests of the rules, beside this."""

from __future__ import annotations

import pathlib
import re

import page_rules
import project_rules
import pytest
import role_rules
import stage
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = stage.files(ROOT)
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
PAGES = [name for name in FILES if name.endswith(".md") and not name.startswith("tests/recordings/")]


def nothing(breaches: list[str]) -> None:
    assert not breaches, "\n" + "\n".join(breaches)


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 50
    assert ROLES
    assert PAGES


def test_every_file_says_its_licence() -> None:
    nothing(project_rules.without_licence(ROOT, FILES))


def test_no_file_is_too_long() -> None:
    nothing(project_rules.too_long(ROOT, FILES))


def test_the_project_speaks_of_itself_alone() -> None:
    nothing(project_rules.with_absent_words(ROOT, FILES))


def test_no_name_is_vague() -> None:
    nothing(project_rules.vaguely_named(FILES))


def test_no_sanity_finding_is_ignored() -> None:
    nothing(project_rules.sanity_exceptions(FILES))


def test_no_package_has_an_init() -> None:
    nothing(project_rules.packages_with_init(FILES))


def test_the_changelog_knows_the_version() -> None:
    nothing(project_rules.changelog(ROOT))


def test_the_action_group_is_true() -> None:
    nothing(project_rules.action_group(ROOT))


@pytest.mark.parametrize("role", ROLES)
def test_defaults_and_specification_agree(role: str) -> None:
    nothing(role_rules.specification_breaches(ROOT / "roles" / role))


def test_every_variable_of_a_role_is_documented() -> None:
    modules = {path.stem for path in (ROOT / "plugins").rglob("*.py")}
    nothing(role_rules.undocumented_variables(ROOT, modules))


def test_every_role_has_a_readme() -> None:
    nothing(role_rules.without_readme(ROOT))


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_pages_exist(page: str) -> None:
    nothing(page_rules.wrong_commands(ROOT, page))


def test_the_supported_versions_are_said_the_same_everywhere() -> None:
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    oldest = re.fullmatch(r">=(2\.\d+)\.0", runtime["requires_ansible"])
    assert oldest, runtime["requires_ansible"]
    requirements = (ROOT / "tests" / "tooling" / "requirements" / "oldest.txt").read_text(encoding="utf-8")
    assert f"ansible-core~={oldest[1]}." in requirements
    modules = yaml.safe_load((ROOT / "tests" / "config.yml").read_text(encoding="utf-8"))["modules"]
    assert modules["python_requires"] == ">=3.9"
    for role in ROLES:
        meta = yaml.safe_load((ROOT / "roles" / role / "meta" / "main.yml").read_text(encoding="utf-8"))
        assert str(meta["galaxy_info"]["min_ansible_version"]) in (oldest[1], f"{oldest[1]}.0"), role
