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

def wraps(x):
    return x or 2

@wraps
def works(x):
    return x < 1

class Table:
    limit = 5

    def holds(self):
        return [one for one in self.rows if one]

ROWS = makes(3)
NAMES = tuple(row for row in ROWS if row)
"""


@pytest.mark.parametrize(
    ("old", "new", "inside"),
    [
        pytest.param("x < 1", "x <= 1", ["works"], id="a function"),
        pytest.param("if one", "if not one", ["Table.holds"], id="a method"),
        pytest.param("limit = 5", "limit = 6", None, id="the body of a class"),
        pytest.param("makes(3)", "makes(4)", None, id="the module itself"),
        pytest.param("x or 2", "x and 2", None, id="a function that wraps others"),
        pytest.param("if row", "if not row", None, id="a generator of the module"),
        pytest.param("x + 1", "x - 1", None, id="a function that the import calls"),
    ],
)
def test_a_mutant_is_put_in_only_where_the_import_is_over(
    judging: types.ModuleType, old: str, new: str, inside: list[str] | None
) -> None:
    found = judging.in_functions(SOURCE, SOURCE.replace(old, new), "x.py")
    assert (None if found is None else [name for name, dummy in found]) == inside


@pytest.fixture
def coverage_map(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "mutation"))
    return importlib.import_module("coverage_map")


STATEMENTS = """
def works(x):
    if (
        x < 1
    ):
        return sum(
            [x,
             1])
    try:
        x += 1
    except ValueError:
        pass
"""


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        pytest.param(4, {3, 4, 5}, id="the head of an if"),
        pytest.param(8, {6, 7, 8}, id="a statement of three lines"),
        pytest.param(10, {10}, id="inside of a try"),
        pytest.param(11, {2, 4, 6, 7, 8, 9, 10, 11, 12}, id="a clause: whoever comes by its function"),
    ],
)
def test_which_lines_a_test_must_come_by_to_notice(coverage_map: types.ModuleType, line: int, lines: set[int]) -> None:
    code = next(one for one in compile(STATEMENTS, "x.py", "exec").co_consts if isinstance(one, types.CodeType))
    found = coverage_map.lines_of(coverage_map.statements(STATEMENTS), {("works", 2): code}, line)
    assert found == lines
    seen = [coverage_map.Seen(0.1, frozenset(lines)), coverage_map.Seen(0.1, frozenset({99}))]
    assert coverage_map.who_comes_by(seen, found) == {0}


def test_nobody_is_killed_outside_of_a_namespace_of_its_own(judging: types.ModuleType) -> None:
    assert not judging.in_own_namespace()
    with pytest.raises(RuntimeError, match="nobody is killed"):
        judging.end_everybody()
    with pytest.raises(RuntimeError, match="mutants may signal anybody"):
        judging.judge(judging.Work(ROOT, [], ROOT / "x.py", "", {}, 0.0), lambda key, outcome: None)
