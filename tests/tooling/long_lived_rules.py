# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs in an interpreter that lives on, as under Mitogen, leaves nothing behind in it.

Module utilities are imported once there and used by every later execution, of other tasks too.
"""

from __future__ import annotations

import ast
import pathlib
import typing as t

# Programs of their own, in a process of their own.
PROGRAMS = ("_start_guard", "_sglang_parser_program")
# The handlers of a forked child, which ends by os._exit.
IN_A_CHILD = ("_scan_deadline",)
CACHES = frozenset({"cache", "lru_cache", "functools.cache", "functools.lru_cache"})
MUTATORS = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)
OF_THE_PROCESS = frozenset(
    {"os.chdir", "os.umask", "os.putenv", "os.unsetenv", "os.nice", "atexit.register", "signal.signal", "signal.alarm",
     "signal.setitimer", "locale.setlocale", "resource.setrlimit", "threading.Thread"}
)  # fmt: skip
KEEPERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Call)


def breaches(name: str, text: str) -> list[str]:
    tree = ast.parse(text)
    shared = {target for node in tree.body for target in _bound(node)} | {"os.environ", "sys.path", "sys.modules"}
    return [f"{name}:{line}: {what}" for line, what in _found(tree, shared, pathlib.PurePath(name).stem)]


def applies(name: str) -> bool:
    path = pathlib.PurePath(name)
    return path.suffix == ".py" and path.parts[:2] in (("plugins", "module_utils"), ("plugins", "modules")) and not (
        path.name.startswith(PROGRAMS)
    )  # fmt: skip


def _bound(node: ast.stmt) -> t.Iterator[str]:
    """Names of the module's own that hold something which can change."""
    value = getattr(node, "value", None)
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(value, KEEPERS):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _found(tree: ast.Module, shared: set[str], stem: str) -> t.Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node.lineno, f"global {', '.join(node.names)} outlives the execution"
        elif isinstance(node, ast.FunctionDef):
            decorators = (_dotted(item.func if isinstance(item, ast.Call) else item) for item in node.decorator_list)
            if CACHES & set(decorators):
                yield node.lineno, f"{node.name} remembers what an earlier execution saw"
        elif isinstance(node, ast.Call) and _dotted(node.func) in OF_THE_PROCESS and stem not in IN_A_CHILD:
            yield node.lineno, f"{_dotted(node.func)} changes the process, which lives on"
    # What happens while the module is imported happens once.
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    changed = {(node.lineno, _changes(node, shared)) for function in functions for node in ast.walk(function)
               if isinstance(node, (ast.Call, ast.Subscript))}  # fmt: skip
    yield from sorted((line, f"{name} changes what later executions see") for line, name in changed if name)


def _changes(node: ast.Call | ast.Subscript, shared: set[str]) -> str:
    """What of the shared this changes, as it is written."""
    if isinstance(node, ast.Subscript):
        owner = "" if isinstance(node.ctx, ast.Load) else _dotted(node.value)
        return f"{owner}[…]" if owner in shared else ""
    called = _dotted(node.func)
    owner, _dot, method = called.rpartition(".")
    return called if method in MUTATORS and owner in shared else ""


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
