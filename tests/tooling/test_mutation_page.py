# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page about the mutation check says what was found, and what is argued is still there to argue about."""

from __future__ import annotations

import importlib
import pathlib
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "mutation"))
    return importlib.import_module("report")


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "mutation"))
    return importlib.import_module("judging")


def test_the_page_is_what_the_results_make_of_it(report: types.ModuleType) -> None:
    assert (ROOT / report.PAGE).read_text(encoding="utf-8") == report.page(ROOT), "write it with `nox -s mutation`"


def test_nothing_is_argued_that_a_test_notices(report: types.ModuleType) -> None:
    assert report.idle(ROOT) == []


SOURCE = """
def makes(x):
    return x + 1

def works(x):
    return x < 1

class Table:
    limit = 5

    def holds(self):
        return [one for one in self.rows if one]

ROWS = makes(3)
"""


@pytest.mark.parametrize(
    ("old", "new", "inside"),
    [
        pytest.param("x < 1", "x <= 1", ["works"], id="a function"),
        pytest.param("if one", "if not one", ["Table.holds"], id="a method"),
        pytest.param("limit = 5", "limit = 6", None, id="the body of a class"),
        pytest.param("makes(3)", "makes(4)", None, id="the module itself"),
        pytest.param("x + 1", "x - 1", None, id="a function that the import calls"),
    ],
)
def test_a_mutant_is_put_in_only_where_the_import_is_over(
    judging: types.ModuleType, old: str, new: str, inside: list[str] | None
) -> None:
    found = judging.in_functions(SOURCE, SOURCE.replace(old, new), "x.py")
    assert (None if found is None else [name for name, dummy in found]) == inside


def test_nobody_is_killed_outside_of_a_namespace_of_its_own(judging: types.ModuleType) -> None:
    assert not judging.in_own_namespace()
    with pytest.raises(RuntimeError, match="nobody is killed"):
        judging.end_everybody()
