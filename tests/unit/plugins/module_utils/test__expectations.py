# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When an expectation holds and what is said when it does not; the query language is a stand-in: names and dots."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._expectations import shape_faults, unmet


class NoQuery(Exception):
    """What the stand-in says of a query that it does not understand."""


class Query:
    def __init__(self, names: list[str]) -> None:
        self._names = names

    def search(self, value: t.Any) -> t.Any:
        for name in self._names:
            if name == "fails":
                raise NoQuery("no such\n   function, key=PLANTED")
            value = value.get(name)
        return value


def parse(query: str) -> Query:
    if "(" in query:
        raise NoQuery("unclosed\n   (")
    return Query(query.split("."))


def redact(text: str) -> str:
    return text.replace("PLANTED", "***")


DATA = {
    "server_info": {
        "int": 8, "float": 2.5, "text": "kimi 0.5", "true": True, "null": None, "list": [1, "a"], "dict": {"k": 1},
        "long": "x" * 198, "longer": "x" * 199, "key": "PLANTED", "digits": "12",
    }
}  # fmt: skip


def said(entry: dict[str, t.Any], data: t.Any = None) -> list[str]:
    return unmet(DATA if data is None else data, [entry], parse, (NoQuery,), redact)


@pytest.mark.parametrize(
    ("item", "comparison", "wanted", "holds"),
    [
        ("int", "equals", 8, True), ("int", "equals", 8.0, True), ("int", "equals", " 8 ", True),
        ("int", "equals", 9, False), ("int", "equals", True, False), ("true", "equals", True, True),
        ("true", "equals", " True", True), ("true", "equals", 1, False), ("true", "equals", False, False),
        ("text", "equals", "kimi 0.5", True), ("text", "equals", 8, False), ("null", "equals", None, True),
        ("null", "equals", "", False), ("list", "equals", [1, "a"], True), ("list", "equals", ["a"], False),
        ("digits", "equals", 12, False), ("text", "contains", "kimi", True), ("text", "contains", 0.5, True),
        ("text", "contains", "glm", False), ("list", "contains", "a", True), ("list", "contains", 1, True),
        ("list", "contains", "b", False), ("dict", "contains", "k", True), ("dict", "contains", 1, False),
        ("int", "contains", 8, False), ("text", "matches", "^kimi", True), ("text", "matches", "^0", False),
        ("int", "matches", "^8$", True), ("null", "matches", "null", False), ("dict", "matches", '"k": 1', True),
        ("int", "at_least", 8, True), ("int", "at_least", 9, False), ("int", "at_most", 8, True),
        ("int", "at_most", 7, False), ("float", "at_least", "2.5", True), ("digits", "at_least", 12, True),
        ("text", "at_least", 0, False), ("true", "at_least", 0, False), ("list", "at_most", 9, False),
        ("null", "at_most", 9, False),
    ],
)  # fmt: skip
def test_when_an_expectation_holds(item: str, comparison: str, wanted: t.Any, holds: bool) -> None:
    assert (said({"query": f"server_info.{item}", comparison: wanted}) == []) is holds


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"query": "server_info.int", "equals": 9}, "Expectation 1: server_info.int must be 9; found 8."),
        ({"query": "server_info.int", "at_least": 9, "says": " Two. "}, "Two. Expectation 1: server_info.int must"),
        ({"query": "server_info.int", "at_most": 7}, "must be at most 7; found 8."),
        ({"query": "server_info.text", "contains": "x"}, 'must contain "x"; found "kimi 0.5".'),
        ({"query": "server_info.text", "matches": "x"}, 'must match "x"; found "kimi 0.5".'),
        ({"query": "server_info.null", "equals": 1}, "; found nothing there."),
        ({"query": "server_info.key", "equals": 1}, '; found "***".'),
        ({"query": "server_info.fails", "equals": None}, "; the query failed: no such function, key=***."),
        ({"query": "models.id", "equals": None}, "; models could not be had."),
        ({"query": "models.a || nvidia_gpu.b", "equals": None}, "; models and nvidia_gpu could not be had."),
        ({"query": "server_info.long", "equals": 1}, f'; found "{"x" * 198}".'),
        ({"query": "server_info.longer", "equals": 1}, f'; found "{"x" * 199}….'),
    ],
)
def test_what_does_not_hold_is_said_with_what_was_found(entry: dict[str, t.Any], words: str) -> None:
    (sentence,) = said(entry)
    assert words in sentence


def test_every_one_that_does_not_hold_is_said_by_its_place() -> None:
    entries = [{"query": "server_info.int", "equals": number} for number in (7, 8, 9)]
    found = unmet(DATA, entries, parse, (NoQuery,), redact)
    assert [one.partition(":")[0] for one in found] == ["Expectation 1", "Expectation 3"]


@pytest.mark.parametrize("data", [{}, {"server_info": None}, {"server_info": {}}])
def test_what_could_not_be_had_is_never_met(data: dict[str, t.Any]) -> None:
    assert "server_info could not be had" in said({"query": "server_info.int", "equals": None}, data)[0]


GOOD = {"query": "server_info.int", "equals": 8}


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (GOOD, None),
        ({**GOOD, "says": "Eight GPUs."}, None),
        ({"query": "models.x", "at_least": "2"}, None),
        ({"query": "nvidia_gpu", "matches": "a+"}, None),
        ("x", "it is a str, not a mapping of query and a comparison"),
        (
            {**GOOD, "b": 1, "a": 1},
            "unknown fields a, b; known are at_least, at_most, contains, equals, matches, query,",
        ),
        ({**GOOD, "query": None}, "query must be a JMESPath expression"),
        ({**GOOD, "query": " "}, "query must be a JMESPath expression"),
        ({"query": "models"}, "exactly one of equals, at_least, at_most, contains, matches must be given, not none"),
        ({**GOOD, "at_most": 9}, "must be given, not equals and at_most"),
        ({**GOOD, "says": 1}, "says must be a sentence"),
        ({"query": "server_info", "at_least": True}, "at_least must be a number, not True"),
        ({"query": "server_info", "at_most": "many"}, "at_most must be a number, not 'many'"),
        ({"query": "server_info", "at_most": None}, "at_most must be a number, not None"),
        ({"query": "server_info", "matches": "("}, "matches is no regular expression: "),
        ({"query": "server_info(", "equals": 1}, "query 'server_info(' is no JMESPath expression: unclosed ("),
        ({"query": "server_infos.x", "equals": 1}, "looks at none of server_info, models, nvidia_gpu"),
    ],
)
def test_one_that_cannot_be_meant_is_told_by_its_place(entry: t.Any, fault: str | None) -> None:
    found = shape_faults([GOOD, entry], parse, (NoQuery,))
    assert len(found) == (fault is not None)
    assert fault is None or (found[0].startswith("expectation 2: ") and fault in found[0])


@pytest.mark.parametrize(("expect", "kind"), [("x", "str"), (b"x", "bytes"), ({}, "dict"), (None, "NoneType")])
def test_expectations_are_a_list(expect: t.Any, kind: str) -> None:
    assert shape_faults(expect, parse, (NoQuery,)) == [f"expect must be a list of expectations, not {kind}"]
    assert shape_faults((GOOD,), parse, (NoQuery,)) == []
