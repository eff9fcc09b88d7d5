# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What a profile expects of its running server: JMESPath questions, and what must come out.

The JMESPath library comes in as an argument; only the controller has it.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import kind_of

SOURCES = ("server_info", "models", "nvidia_gpu")
COMPARISONS = ("equals", "at_least", "at_most", "contains", "matches")
_FIELDS = {"query", "says", *COMPARISONS}
_SHOWN = 200  # characters of a found value
_WORDS = {"equals": "be", "at_least": "be at least", "at_most": "be at most", "contains": "contain", "matches": "match"}


class Expression(t.Protocol):
    """A parsed JMESPath expression."""

    def search(self, value: t.Any) -> t.Any: ...


Parse = t.Callable[[str], Expression]


def _number(value: t.Any) -> float | None:
    """A number, also one that a template made text of."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _shape_fault(entry: t.Any, parse: Parse, errors: tuple[type[Exception], ...]) -> str:
    """What is wrong with one expectation, empty where nothing is."""
    if not isinstance(entry, t.Mapping):
        return f"it is a {kind_of(entry)}, not a mapping of query and a comparison"
    unknown = sorted(set(map(str, entry)) - _FIELDS)
    if unknown:
        return f"unknown fields {', '.join(unknown)}; known are {', '.join(sorted(_FIELDS))}"
    query = entry.get("query")
    if not isinstance(query, str) or not query.strip():
        return "query must be a JMESPath expression"
    compared = [name for name in COMPARISONS if name in entry]
    if len(compared) != 1:
        return f"exactly one of {', '.join(COMPARISONS)} must be given, not {' and '.join(compared) or 'none'}"
    if not isinstance(entry.get("says", ""), str):
        return "says must be a sentence"
    if compared[0] in ("at_least", "at_most") and _number(entry[compared[0]]) is None:
        return f"{compared[0]} must be a number, not {entry[compared[0]]!r}"
    if compared[0] == "matches":
        try:
            re.compile(str(entry["matches"]))
        except re.error as error:
            return f"matches is no regular expression: {error}"
    try:
        parse(query)
    except errors as error:
        return f"query {query!r} is no JMESPath expression: {' '.join(str(error).split())}"
    # A misspelt source would be a null for ever.
    if not re.search(rf"\b({'|'.join(SOURCES)})\b", query):
        return f"query {query!r} looks at none of {', '.join(SOURCES)}"
    return ""


def shape_faults(expect: t.Any, parse: Parse, errors: tuple[type[Exception], ...]) -> list[str]:
    """One text per expectation that cannot be meant, each with its position."""
    if not isinstance(expect, t.Sequence) or isinstance(expect, (str, bytes)):
        return [f"expect must be a list of expectations, not {kind_of(expect)}"]
    faults = ((number, _shape_fault(entry, parse, errors)) for number, entry in enumerate(expect, 1))
    return [f"expectation {number}: {fault}" for number, fault in faults if fault]


def _holds(comparison: str, found: t.Any, wanted: t.Any) -> bool:
    if comparison == "equals":
        if isinstance(found, (int, float)) and isinstance(wanted, str):
            return json.dumps(found) == wanted.strip().lower()  # a template makes text of numbers and booleans
        return (type(found) is type(wanted) and found == wanted) or _same_number(found, wanted)
    if comparison == "contains":
        if isinstance(found, str):
            return str(wanted) in found
        return isinstance(found, (list, dict)) and any(_holds("equals", one, wanted) for one in found)
    if comparison == "matches":
        return (
            found is not None
            and re.search(str(wanted), found if isinstance(found, str) else json.dumps(found)) is not None
        )
    number, bound = _number(found), _number(wanted)
    if number is None or bound is None:
        return False
    return number >= bound if comparison == "at_least" else number <= bound


def _same_number(found: t.Any, wanted: t.Any) -> bool:
    numbers = (int, float)
    plain = not isinstance(found, bool) and not isinstance(wanted, bool)
    return plain and isinstance(found, numbers) and isinstance(wanted, numbers) and found == wanted


def _shown(value: t.Any, redact: t.Callable[[str], str]) -> str:
    text = redact(json.dumps(value, ensure_ascii=False, sort_keys=True))  # masked before it is cut
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def unmet(
    data: t.Mapping[str, t.Any],
    expect: t.Sequence[t.Mapping[str, t.Any]],
    parse: Parse,
    errors: tuple[type[Exception], ...],
    redact: t.Callable[[str], str],
) -> list[str]:
    """A sentence for each expectation that does not hold. What could not be had is never taken for met."""
    sentences = []
    for number, entry in enumerate(expect, 1):
        comparison = next(name for name in COMPARISONS if name in entry)
        query, wanted = str(entry["query"]), entry[comparison]
        absent = [source for source in SOURCES if re.search(rf"\b{source}\b", query) and not data.get(source)]
        found = None
        if absent:
            why = f"{' and '.join(absent)} could not be had"
        else:
            try:
                found = parse(query).search(dict(data))
                why = f"found {_shown(found, redact)}" if found is not None else "found nothing there"
            except errors as error:
                why = f"the query failed: {redact(' '.join(str(error).split()))}"
                absent = [query]
        if absent or not _holds(comparison, found, wanted):
            said = f"{str(entry['says']).strip()} " if entry.get("says") else ""
            must = f"{query} must {_WORDS[comparison]} {_shown(wanted, redact)}"
            sentences.append(f"{said}Expectation {number}: {must}; {why}.")
    return sentences
