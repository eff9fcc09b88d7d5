# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tests come by which lines of one file, and which statement a line belongs to."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
import types
import typing as t

import pytest

_TOOL = 3  # a number that nobody else uses for sys.monitoring


@dataclasses.dataclass(frozen=True)
class Seen:
    """One test: what it takes, and the lines it comes by."""

    seconds: float
    lines: frozenset[int]


def look(session: pytest.Session, codes: t.Iterable[types.CodeType]) -> list[Seen] | None:
    """Run every test once, in a child. None: one of them fails."""
    with tempfile.TemporaryFile("w+") as file:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.setsid()
                with contextlib.suppress(BaseException):
                    for one in _run(session, list(codes)):
                        print(json.dumps([one.seconds, sorted(one.lines)]), file=file)
                    file.flush()
                    code = 1 if session.testsfailed else 0
            finally:
                os._exit(code)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            return None
        file.seek(0)
        return [Seen(seconds, frozenset(lines)) for seconds, lines in map(json.loads, file)]


def _run(session: pytest.Session, codes: list[types.CodeType]) -> t.Iterator[Seen]:
    watch, lines = sys.monitoring, set[int]()

    def by(code: types.CodeType, line: int) -> t.Any:
        lines.add(line)
        return watch.DISABLE  # once per test is enough

    watch.use_tool_id(_TOOL, "mutation")
    watch.register_callback(_TOOL, watch.events.LINE, by)
    for code in codes:
        for one in [code, *_inside(code)]:
            watch.set_local_events(_TOOL, one, watch.events.LINE)
    following = [*session.items[1:], None]
    for item, then in zip(session.items, following):
        lines.clear()
        watch.restart_events()
        began = time.monotonic()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=then)
        yield Seen(round(time.monotonic() - began, 4), frozenset(lines))


def _inside(code: types.CodeType) -> t.Iterator[types.CodeType]:
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield one
            yield from _inside(one)


def statements(source: str) -> list[range]:
    """The lines of each statement, of one that has others inside those of its head only; the innermost come last."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            body = getattr(node, "body", None)
            end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
            found.append(range(node.lineno, max(end, node.lineno + 1)))
    return found


def lines_of(known: list[range], differ: t.Mapping[tuple[str, int], types.CodeType], line: int) -> set[int]:
    """The lines of the statement of that line; all of its function where it is in none (a clause, an argument)."""
    within = [one for one in known if line in one]
    if within:
        return set(min(within, key=len))
    every = [one for code in differ.values() for one in [code, *_inside(code)]]
    return {number for code in every for dummy, dummy2, number in code.co_lines() if number}


def who_comes_by(everything: t.Sequence[Seen], lines: t.AbstractSet[int]) -> set[int]:
    return {number for number, one in enumerate(everything) if one.lines & lines}
