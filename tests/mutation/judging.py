# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the tests of one file against its mutants, each in a child of its own.

The tests are collected once. A mutant inside of a function is put into the function as it stands, in a child that is
forked after that, and costs no more than the tests take until one fails; whichever failed last is tried first. A mutant
outside of functions, or of one that is called there, has its effect during the import, so its child imports everything
again.

A mutant of what sends signals may send them to anybody, and one of a loop may never end. So all of this runs in a PID
namespace of its own.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import importlib.machinery
import os
import pathlib
import signal
import sys
import time
import types
import typing as t

import pytest

Outcome = t.Literal["killed", "timeout", "survived"]
_QUIET = ("-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-o", "pythonpath=", "-o", "addopts=")


def in_own_namespace() -> bool:
    return os.getpid() == 1


def enter_namespace(argv: list[str]) -> t.NoReturn:
    """Start this program again as the first process of a PID namespace."""
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    os.execvp("unshare", ["unshare", *rights, "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, *argv])


def end_everybody() -> None:
    """Whatever the tests left; only this namespace's processes are to be seen here."""
    if not in_own_namespace():
        raise RuntimeError("not the first process of a PID namespace: nobody is killed")
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # everybody in the namespace but its first process, which is this one
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """The functions that a module or class makes, at any depth of classes, by name and line."""
    found = {}
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            if one.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
                found[one.co_qualname, one.co_firstlineno] = one
            else:
                found.update(_codes(one))
    return found


def _outside(code: types.CodeType) -> tuple[object, ...]:
    """What a module or class does itself, whatever its functions do."""
    constants = tuple(
        (one.co_name if one.co_flags & 0x2 else _outside(one)) if isinstance(one, types.CodeType) else repr(one)
        for one in code.co_consts
    )
    return code.co_code, constants, code.co_names


def _called_by_import(source: str) -> set[str]:
    """The names that are called outside of functions: what they do is done when the tests are collected."""
    called: set[str] = set()
    open_ones: list[ast.AST] = [ast.parse(source)]
    while open_ones:
        node = open_ones.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
        inside = node.body if isinstance(node, (ast.FunctionDef, ast.Lambda)) else []
        body = inside if isinstance(inside, list) else [inside]
        open_ones += [child for child in ast.iter_child_nodes(node) if child not in body]
    return called


def in_functions(source: str, mutated: str, path: str) -> dict[tuple[str, int], types.CodeType] | None:
    """The functions that differ, None where what is done during the import does."""
    old, new = compile(source, path, "exec"), compile(mutated, path, "exec")
    before, after = _codes(old), _codes(new)
    if _outside(old) != _outside(new) or before.keys() != after.keys():
        return None
    differ = {key: code for key, code in after.items() if code != before[key]}
    if {name for name, dummy in differ} & _called_by_import(source):
        return None
    return differ if all(code.co_freevars == before[key].co_freevars for key, code in differ.items()) else None


class Judge:
    """A pytest plugin: instead of running the tests once, it runs them against every mutant."""

    def __init__(
        self, path: str, source: str, mutants: dict[str, str], told: t.Callable[[str, Outcome], None], until: float
    ) -> None:
        self.path = path
        self.source = source
        self.mutants = mutants
        self.told = told
        self.until = until
        self.seconds = 0.0  # of processor time that all tests take, and how long they took
        self.longest = 0.0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = list(session.items)
        functions = [
            one
            for one in gc.get_objects()
            # isinstance would ask proxies for their class, which imports what they stand for.
            if type(one) in (types.FunctionType,) and one.__code__.co_filename == self.path
        ]
        outcome, dummy = self._child(session, items, lambda: None, 600.0)
        if outcome != "survived":
            raise pytest.UsageError("the tests fail without a mutant")
        for key, mutated in self.mutants.items():
            if time.monotonic() > self.until:
                break
            differ = in_functions(self.source, mutated, self.path)
            if differ is None:
                apply: t.Callable[[], None] = functools.partial(self._import_again, mutated)
            else:
                apply = functools.partial(_patch, functions, differ)
            outcome, failed = self._child(session, items, apply, 5 + 5 * self.seconds, again=differ is None)
            if failed is not None and differ is not None:
                items.insert(0, items.pop(failed))
            self.told(key, outcome)
        return True

    def _child(
        self,
        session: pytest.Session,
        items: list[pytest.Item],
        apply: t.Callable[[], None],
        deadline: float,
        again: bool = False,
    ) -> tuple[Outcome, int | None]:
        """The outcome, and which test failed. The deadline is of processor time; asleep it may be for a bit longer."""
        reading, writing = os.pipe()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.close(reading)
                os.setsid()
                with contextlib.suppress(BaseException):
                    apply()
                    code = self._run_again(session) if again else self._run(session, items, writing)
            finally:
                os._exit(code)
        os.close(writing)
        code = None
        while code is None and time.monotonic() - began < max(4 * deadline, 3 * self.longest):
            pid, status, used = os.wait4(child, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
            if code is None:
                if _processor_time(child) > deadline:
                    break
                time.sleep(0.005)
            elif code == 0:
                self.seconds = max(self.seconds, used.ru_utime + used.ru_stime)
                self.longest = max(self.longest, time.monotonic() - began)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if code is None:
            os.waitpid(child, 0)
        with os.fdopen(reading) as file:
            failed = file.read() if code is not None else ""
        if code is None:
            return "timeout", None
        return ("survived" if code == 0 else "killed"), int(failed) if failed else None

    @staticmethod
    def _run(session: pytest.Session, items: list[pytest.Item], writing: int) -> int:
        for number, item in enumerate(items):
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                os.write(writing, str(number).encode())
                return 1
        return 0

    @staticmethod
    def _run_again(session: pytest.Session) -> int:
        return int(pytest.main(["-x", *_QUIET, *session.config.args]))

    def _import_again(self, mutated: str) -> None:
        mine = [name for name in sys.modules if name.startswith("ansible_collections")]
        mine += [name for name, one in sys.modules.items() if str(getattr(one, "__file__", "")).endswith("conftest.py")]
        for name in mine:
            sys.modules.pop(name, None)
        real = importlib.machinery.SourceFileLoader.get_code

        def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> types.CodeType | None:
            path = loader.get_filename(name)
            return compile(mutated, path, "exec") if path == self.path else real(loader, name)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _patch(functions: list[types.FunctionType], differ: dict[tuple[str, int], types.CodeType]) -> None:
    for function in functions:
        code = differ.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if code is not None:
            function.__code__ = code


def _processor_time(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def judge(
    place: pathlib.Path,
    tests: list[str],
    path: pathlib.Path,
    source: str,
    mutants: dict[str, str],
    until: float,
    keep: t.Callable[[str, Outcome], None],
) -> tuple[int, str]:
    """In a child of this process, which has the tools loaded and the collection not: how many, and what it printed."""
    outcomes: dict[str, Outcome] = {}
    log = place.parents[2] / "mutation.log"
    while True:
        left = {key: mutated for key, mutated in mutants.items() if key not in outcomes}
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _serve(place, tests, Judge(str(path), source, left, functools.partial(_say, writing), until), log)
        os.close(writing)
        began = len(outcomes)
        with os.fdopen(reading) as file:
            for line in file:
                key, outcome = line.split()
                outcomes[key] = t.cast(Outcome, outcome)
                keep(key, outcomes[key])
        dummy, status = os.waitpid(child, 0)
        end_everybody()
        if os.waitstatus_to_exitcode(status) >= 0:
            return len(outcomes), log.read_text(encoding="utf-8", errors="replace")
        # The mutant ended this child too: then a test would have seen it, had it been there to see.
        fatal = next(key for key in mutants if key not in outcomes)
        outcomes[fatal] = "killed"
        keep(fatal, "killed")
        if began + 1 == len(outcomes) and len(left) == len(mutants):
            return len(outcomes), log.read_text(encoding="utf-8", errors="replace")


def _say(pipe: int, key: str, outcome: Outcome) -> None:
    os.write(pipe, f"{key} {outcome}\n".encode())


def _serve(place: pathlib.Path, tests: list[str], plugin: Judge, log: pathlib.Path) -> t.NoReturn:
    code = 70
    try:
        os.chdir(place)
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.path.insert(0, str(place.parents[2]))
        os.environ["ANSIBLE_COLLECTIONS_PATH"] = str(place.parents[2])
        code = int(pytest.main([*_QUIET, "--import-mode=importlib", *tests], plugins=[plugin]))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)
