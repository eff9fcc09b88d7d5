# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every option of every module refuses what cannot be meant, in a sentence, before anything is touched."""

from __future__ import annotations

import importlib
import re
import typing as t

import pytest
import yaml

from ansible_collections.cleanslate.gpu.tests.unit.plugins.bad_input import bad_values as bad
from ansible_collections.cleanslate.gpu.tests.unit.plugins.bad_input import option_rows as table
from ansible_collections.cleanslate.gpu.tests.unit.plugins.bad_input.module_calls import (
    MODULES,
    Answer,
    call,
    specification,
)

LONGEST_SENTENCE = 700
PLUGINS = "ansible_collections.cleanslate.gpu.plugins.modules"
SPECIFICATIONS = {name: specification(name) for name in MODULES}
# Of a refusal in Ansible's own words a module never hears.
ANSIBLES_OWN = re.compile(
    r"^value of .* must be |^argument .* is of type |^missing required |^Unsupported |are missing: |mutually exclusive|"
    r"^Elements value for option |^dictionary requested|^Failed to convert"
)
OPTIONS = [(name, option) for name in MODULES for option in SPECIFICATIONS[name]]


def refused(answer: Answer, said: str) -> list[str]:
    """What is wrong with a refusal."""
    result, wrong = answer.result, []
    message = str(result.get("msg"))
    if not result.get("failed"):
        wrong.append("it was not refused")
    if result.get("changed"):
        wrong.append("it says that something changed")
    if answer.touched:
        wrong.append(f"touched: {answer.touched[:3]}")
    if "exception" in result or "Traceback" in message:
        wrong.append("an exception instead of a sentence")
    if "Unsupported parameters" in message:
        wrong.append("the option is not one of the module's")
    if said not in message:
        wrong.append(f"{said!r} is not named")
    return [f"{complaint}; it said {message[:300]!r}" for complaint in wrong]


def missing_keys(name: str, answer: Answer) -> list[str]:
    """What a module documents as always there, and leaves out where it refuses its options."""
    if ANSIBLES_OWN.search(str(answer.result.get("msg"))):
        return []
    documented = yaml.safe_load(importlib.import_module(f"{PLUGINS}.{name}").RETURN)
    return sorted(
        key for key, entry in documented.items() if entry["returned"] == "always" and key not in answer.result
    )


def test_every_option_has_a_row() -> None:
    missing = [f"{name}: {option}" for name, option in OPTIONS if table.rows_of(name, option) is None]
    assert not missing, f"say in option_rows.py what these must refuse: {missing}"
    assert set(table.BASES) == set(MODULES)


def test_no_row_is_without_its_option() -> None:
    known = {option for _name, option in OPTIONS}
    assert set(table.ROWS) <= known
    assert {(name, option) for name, rows in table.OF_MODULE.items() for option in rows} <= set(OPTIONS)


def test_only_a_closed_list_is_left_to_ansible() -> None:
    for name, option in OPTIONS:
        row, spec = table.rows_of(name, option), SPECIFICATIONS[name][option]
        assert row is not table.CHOICES or spec.get("choices"), (name, option)
        assert row is not table.YES_OR_NO or spec["type"] == "bool", (name, option)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_a_value_of_another_type(name: str, option: str) -> None:
    spec = SPECIFICATIONS[name][option]
    values: list[t.Any] = list(bad.OF_ANOTHER_TYPE[spec["type"]])
    if spec.get("choices"):
        values += ["another", "", " ", f"{spec['choices'][0]}\n", spec["choices"][0].upper()]
    for value in values:
        if "options" in spec and spec["type"] == "dict":
            continue  # Ansible refuses these in its own words, without the option's name
        answer = call(name, {**table.BASES[name], option: value})
        assert not refused(answer, option), (bad.fragment(value), refused(answer, option))


@pytest.mark.parametrize("check", [False, True], ids=["run", "check"])
@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_a_value_that_cannot_be_meant(name: str, option: str, check: bool) -> None:
    rows = table.rows_of(name, option)
    for row in rows if isinstance(rows, tuple) else ():
        for value in row.values[:1] if check else row.values:
            given = {**table.BASES[name], **row.given, option: value}
            answer = call(name, {key: one for key, one in given.items() if one is not None}, check=check)
            wrong = refused(answer, option)
            message = answer.result.get("msg", "")
            if row.named and bad.fragment(value) not in message:
                wrong.append(f"the value is not named: {message[:300]}")
            if len(message) > LONGEST_SENTENCE:
                wrong.append(f"{len(message)} characters are no sentence: {message[:300]}")
            if missing_keys(name, answer):
                wrong.append(f"RETURN says always: {missing_keys(name, answer)}; it said {message[:300]}")
            assert not wrong, (str(value)[:60], wrong)
