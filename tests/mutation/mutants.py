# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mutants of one file: what cosmic-ray's operators, and one of our own, make of it.

Left out is what no test could or should notice: annotations are never evaluated; `frozen` guards against ourselves; and
of the replacements of one operator those stay that mean something else (the opposite, the bound), not all eleven.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import typing as t

import cosmic_ray.ast
import cosmic_ray.mutating
import cosmic_ray.plugins
from cosmic_ray.operators.operator import Example, Operator
from parso.python.tree import Keyword, Name

Position = tuple[int, int]

_COMPARED = (
    "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt", "Is_IsNot",
    "IsNot_Is",
)  # fmt: skip
_COMPUTED = (
    "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "BitAnd_BitOr", "BitOr_BitAnd",
    "LShift_RShift", "RShift_LShift",
)  # fmt: skip
_NO_PRODUCT = re.compile(r"(?:\(|, |^)/,")  # the star before arguments that go by name
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{one}" for one in _COMPARED),
    *(f"core/ReplaceBinaryOperator_{one}" for one in _COMPUTED),
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceUnaryOperator_Delete_USub",
    "core/AddNot",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/NumberReplacer",
    "core/RemoveDecorator",
    "core/ZeroIterationForLoop",
    "SwapIn",
    "Uncaught",
)


class SwapIn(Operator):
    """`in` becomes `not in`, and the other way round: cosmic-ray has none for these."""

    def mutation_positions(self, node: t.Any) -> t.Iterator[tuple[Position, Position]]:
        parent = getattr(node, "parent", None)
        if parent is None or parent.type != "comparison":
            return
        if (node.type == "keyword" and node.value == "in") or (
            node.type == "comp_op" and [child.value for child in node.children] == ["not", "in"]
        ):
            yield node.start_pos, node.end_pos

    def mutate(self, node: t.Any, index: int) -> t.Any:
        becomes = "not in" if node.type == "keyword" else "in"
        return Keyword(becomes, node.start_pos, prefix=node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("x in y", "x not in y"), Example("x not in y", "x in y"))


class Uncaught(Operator):
    """One exception of a handler is not caught: its place takes one that nothing here raises.

    cosmic-ray's puts a name there that is not defined. So the other exceptions of the handler fail as well, which makes
    it easier to notice than it is, and names with a dot it cannot replace.
    """

    def mutation_positions(self, node: t.Any) -> t.Iterator[tuple[Position, Position]]:
        for one in _caught(node):
            yield one.start_pos, one.end_pos

    def mutate(self, node: t.Any, index: int) -> t.Any:
        old = _caught(node)[index]
        fresh = Name("StopAsyncIteration", old.start_pos, prefix=old.get_first_leaf().prefix)
        siblings = old.parent.children
        siblings[siblings.index(old)] = fresh
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("try: x()\nexcept a.B: pass", "try: x()\nexcept StopAsyncIteration: pass"),)


def _caught(node: t.Any) -> list[t.Any]:
    """The exceptions that a clause names."""
    if node.type != "except_clause":
        return []
    named = node.children[1]
    if named.type != "atom":
        return [named]
    inside = named.children[1]
    return list(inside.children[::2]) if inside.type == "testlist_comp" else [inside]


OWN = {"SwapIn": SwapIn, "Uncaught": Uncaught}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """was and becomes: the lines that differ, which is how an argument names it whatever the line numbers are."""

    operator: str
    occurrence: int
    line: int
    was: str
    becomes: str
    source: str

    @property
    def key(self) -> str:
        return f"{self.operator}:{self.occurrence}"


def _operator(name: str) -> Operator:
    return OWN[name]() if name in OWN else t.cast(Operator, cosmic_ray.plugins.get_operator(name)())


def _left_out(source: str) -> list[tuple[Position, Position]]:
    """Where nothing is mutated."""
    nodes: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.AnnAssign):
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            nodes.append(node.returns)
        elif isinstance(node, ast.ClassDef):
            nodes += [one for one in node.decorator_list if "dataclass" in ast.unparse(one)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("t.cast", "t.TypeVar"):
            nodes += node.args[:1]
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)) for node in nodes if node
    ]


def _difference(source: str, mutated: str) -> tuple[int, str, str]:
    old, new = source.splitlines(), mutated.splitlines()
    first = next((number for number, (one, other) in enumerate(zip(old, new)) if one != other), min(len(old), len(new)))
    end = 0
    while end < min(len(old), len(new)) - first and old[-1 - end] == new[-1 - end]:
        end += 1

    def text(lines: list[str]) -> str:
        return " ".join(line.strip() for line in lines[first : len(lines) - end])

    return first + 1, text(old), text(new)


def _is_program(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def mutants(source: str) -> list[Mutant]:
    """In the order of the lines."""
    left_out = _left_out(source)
    operators = {name: _operator(name) for name in OPERATORS}
    before = dict.fromkeys(OPERATORS, 0)  # occurrences in the pieces before this one
    found = []
    place = 0
    # Piece by piece: every mutant is parsed anew, and a statement is parsed sooner than a file.
    for piece in (child.get_code() for child in cosmic_ray.ast.get_ast(source).children):
        nodes = list(cosmic_ray.ast.ast_nodes(cosmic_ray.ast.get_ast(piece)))
        lines = source.count("\n", 0, place)
        for name, operator in operators.items():
            positions = [start for node in nodes for start, dummy in operator.mutation_positions(node)]
            for number, (line, column) in enumerate(positions):
                if any(first <= (line + lines, column) < last for first, last in left_out):
                    continue
                becomes = cosmic_ray.mutating.mutate_code(piece, _operator(name), number)
                if becomes is None or becomes == piece:
                    continue
                mutated = source[:place] + becomes + source[place + len(piece) :]
                if not _is_program(mutated):
                    continue
                mutant = Mutant(name, before[name] + number, *_difference(source, mutated), mutated)
                if not _NO_PRODUCT.search(mutant.becomes):
                    found.append(mutant)
            before[name] += len(positions)
        place += len(piece)
    return sorted(found, key=lambda one: (one.line, one.key))
