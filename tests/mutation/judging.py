# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the tests of one file against its mutants, each in a child of its own.

The tests are collected once, and run once without a mutant to see which lines each of them comes by. A mutant inside
of a function is put into the function as it stands, in a child that is forked after that, and only those tests are run
that come by its statement, until one fails; whichever failed last is tried first, then the quick ones. A mutant outside
of functions, or of one that is called there, has its effect during the import, so its child imports everything again.

Deadlines are of processor time, and of time in which nobody does anything: on a machine that others keep busy a mutant
is no more likely to run "without end" than on a quiet one.

A mutant of what sends signals may send them to anybody, and one of a loop may never end. So all of this runs in a PID
namespace of its own.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import gc
import importlib.machinery
import os
import pathlib
import select
import shutil
import signal
import sys
import tempfile
import time
import types
import typing as t

import coverage_map as coverage
import pytest

Outcome = t.Literal["killed", "timeout", "survived"]
Broken = tuple[int, str]  # the line, and the whole source
_SLACK = 1.0  # seconds of processor time beyond four times what the tests take without a mutant
_IMPORT = 5.0  # and what importing everything again may take
_ASLEEP = 5.0  # seconds in which nobody does anything, beyond three times what the tests take
_QUIET = ("-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-o", "pythonpath=", "-o", "addopts=")


@dataclasses.dataclass(frozen=True)
class Work:
    """One file of the core in a copy of the project, how it is broken, and the tests that are asked about it."""

    place: pathlib.Path
    tests: list[str]
    path: pathlib.Path
    source: str
    mutants: dict[str, Broken]
    until: float


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
        (one.co_name if one.co_flags & 0x2 else _outside(one)) if isinstance(one, types.CodeType) else _constant(one)
        for one in code.co_consts
    )
    return code.co_code, constants, code.co_names


def _constant(value: object) -> str:
    # Equal sets need not be printed in the same order. repr, since 1 equals True.
    return str(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


@functools.lru_cache(maxsize=2)
def _parts(source: str, path: str) -> tuple[dict[tuple[str, int], types.CodeType], tuple[object, ...]]:
    """What a module's functions do, and what it does itself."""
    code = compile(source, path, "exec")
    return _codes(code), _outside(code)


@functools.lru_cache(maxsize=1)
def _called_by_import(source: str) -> set[str]:
    """The names that are called outside of functions: what they do is done when the tests are collected."""
    called: set[str] = set()
    open_ones: list[ast.AST] = [ast.parse(source)]
    while open_ones:
        node = open_ones.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
        called.update(one.id for one in getattr(node, "decorator_list", ()) if isinstance(one, ast.Name))
        inside = node.body if isinstance(node, (ast.FunctionDef, ast.Lambda)) else []
        body = inside if isinstance(inside, list) else [inside]
        open_ones += [child for child in ast.iter_child_nodes(node) if child not in body]
    return called


def in_functions(source: str, mutated: str, path: str) -> dict[tuple[str, int], types.CodeType] | None:
    """The functions that differ, None where what is done during the import does."""
    before, outside_before = _parts(source, path)
    after, outside_after = _parts(mutated, path)
    if outside_before != outside_after or before.keys() != after.keys():
        return None
    differ = {key: code for key, code in after.items() if code != before[key]}
    names = {name for name, dummy in differ}
    # A generator or lambda outside of functions has no name, and may be over when the import is.
    if names & _called_by_import(source) or any(name.rpartition(".")[2].startswith("<") for name in names):
        return None
    return differ if all(code.co_freevars == before[key].co_freevars for key, code in differ.items()) else None


class Judge:
    """A pytest plugin: instead of running the tests once, it runs them against every mutant."""

    def __init__(self, work: Work, told: t.Callable[[str, Outcome], None]) -> None:
        self.work = work
        self.path = str(work.path)
        self.told = told
        self.killers: list[int] = []  # tests that failed, the last one first

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions = [
            one
            for one in gc.get_objects()
            # isinstance would ask proxies for their class, which imports what they stand for.
            if type(one) in (types.FunctionType,) and one.__code__.co_filename == self.path
        ]
        gc.freeze()  # what every child shares stays shared
        everything = coverage.look(session, {one.__code__ for one in functions})
        if everything is None:
            raise pytest.UsageError("the tests fail without a mutant")
        statements = coverage.statements(self.work.source)
        for key, (line, mutated) in self.work.mutants.items():
            if time.monotonic() > self.work.until:
                break
            differ = in_functions(self.work.source, mutated, self.path)
            if differ is None:
                took = sum(one.seconds for one in everything) + _IMPORT
                outcome, dummy = self._child(functools.partial(self._all_again, session, mutated), took)
            else:
                chosen = coverage.who_comes_by(everything, coverage.lines_of(statements, differ, line))
                # Where nobody is seen to come by, a test may do so in a process of its own.
                chosen = chosen or set(range(len(everything)))
                order = [one for one in self.killers if one in chosen]
                order += sorted(chosen.difference(order), key=lambda one: everything[one].seconds)
                took = sum(everything[one].seconds for one in order)
                apply = functools.partial(_patch, functions, differ)
                outcome, failed = self._child(functools.partial(self._some, session, order, apply), took)
                if failed is not None:
                    self.killers = [failed, *(one for one in self.killers if one != failed)]
            self.told(key, outcome)
        return True

    @staticmethod
    def _child(work: t.Callable[[], tuple[int, int | None]], took: float) -> tuple[Outcome, int | None]:
        """The outcome, and which test failed."""
        reading, writing = os.pipe()
        used_before = _processor_time()
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.close(reading)
                os.setsid()
                with contextlib.suppress(BaseException):
                    code, failed = work()
                    os.write(writing, b"" if failed is None else str(failed).encode())
            finally:
                os._exit(code)
        os.close(writing)
        ended, asleep, looked = os.pidfd_open(child), 0.0, time.monotonic()
        while not (over := bool(select.select([ended], [], [], 0.1)[0])):
            idle, now = not _anybody_runs(), time.monotonic()
            # A look that comes late says little about the time since the last one.
            asleep, looked = asleep + (min(now - looked, 0.2) if idle else 0.0), now
            if _processor_time() - used_before > _SLACK + 4 * took or asleep > _ASLEEP + 3 * took:
                break
        os.close(ended)
        _end_others()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        shutil.rmtree(os.environ["PYTEST_DEBUG_TEMPROOT"], ignore_errors=True)
        os.makedirs(os.environ["PYTEST_DEBUG_TEMPROOT"])
        with os.fdopen(reading, "rb") as file:
            os.set_blocking(file.fileno(), False)  # whoever escaped the group may hold the other end
            failed_one = file.read() or b""
        if not over:
            return "timeout", None
        return ("survived" if code == 0 else "killed"), int(failed_one) if failed_one else None

    @staticmethod
    def _some(session: pytest.Session, order: list[int], apply: t.Callable[[], None]) -> tuple[int, int | None]:
        apply()
        for number, following in zip(order, [*order[1:], None]):
            item, then = session.items[number], None if following is None else session.items[following]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=then)
            if session.testsfailed:
                return 1, number
        return 0, None

    def _all_again(self, session: pytest.Session, mutated: str) -> tuple[int, int | None]:
        self._import_again(mutated)
        return self._run_again(session), None

    @staticmethod
    def _run_again(session: pytest.Session) -> int:
        return int(pytest.main(["-x", *_QUIET, *session.config.args]))

    def _import_again(self, mutated: str) -> None:
        # The tests too: pytest takes a module that was imported once, with what it got from the core as it was.
        root = str(pathlib.Path(self.path).parents[2])
        mine = [name for name, one in sys.modules.items() if str(getattr(one, "__file__", None)).startswith(root)]
        for name in [*mine, *(name for name in sys.modules if name.startswith("ansible_collections"))]:
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


def _others() -> t.Iterator[tuple[int, list[str]]]:
    """The PID, and what /proc/PID/stat has from the state on, of everybody but this process and the first one."""
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) not in (1, os.getpid()):
            with contextlib.suppress(OSError):
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                yield int(folder.name), text.rpartition(")")[2].split()


def _anybody_runs() -> bool:
    return any(fields[0] in ("R", "D") for dummy, fields in _others())


def _processor_time() -> float:
    """Seconds that everybody else used, and the children that they saw end."""
    return sum(sum(map(int, fields[11:15])) for dummy, fields in _others()) / os.sysconf("SC_CLK_TCK")


def _end_others() -> None:
    """What a mutant leaves running would be counted as the next one's."""
    if os.getppid() != 1:  # which judge() has seen to be of this namespace
        raise RuntimeError("not a child of the first process of a PID namespace: nobody is killed")
    for pid, dummy in _others():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def judge(work: Work, keep: t.Callable[[str, Outcome], None]) -> tuple[int, str]:
    """In a child of this process, which has the tools loaded and the collection not: how many, and what it printed."""
    if not in_own_namespace():
        raise RuntimeError("not the first process of a PID namespace: mutants may signal anybody")
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as temporary:
        return _judge(work, keep, temporary)


def _judge(work: Work, keep: t.Callable[[str, Outcome], None], temporary: str) -> tuple[int, str]:
    outcomes: dict[str, Outcome] = {}
    log = work.place.parents[2] / "mutation.log"
    while True:
        left = {key: one for key, one in work.mutants.items() if key not in outcomes}
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            open_ones = dataclasses.replace(work, mutants=left)
            _serve(open_ones, functools.partial(_say, writing), log, temporary)
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
        fatal = next(key for key in work.mutants if key not in outcomes)
        outcomes[fatal] = "killed"
        keep(fatal, "killed")
        if began + 1 == len(outcomes) and len(left) == len(work.mutants):
            return len(outcomes), log.read_text(encoding="utf-8", errors="replace")


def _say(pipe: int, key: str, outcome: Outcome) -> None:
    os.write(pipe, f"{key} {outcome}\n".encode())


def _serve(work: Work, told: t.Callable[[str, Outcome], None], log: pathlib.Path, temporary: str) -> t.NoReturn:
    code = 70
    try:
        os.chdir(work.place)
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.path.insert(0, str(work.place.parents[2]))
        os.environ["ANSIBLE_COLLECTIONS_PATH"] = str(work.place.parents[2])
        # pytest looks through what earlier runs left, which every child would do anew.
        os.environ["PYTEST_DEBUG_TEMPROOT"] = temporary
        code = int(pytest.main([*_QUIET, "--import-mode=importlib", *work.tests], plugins=[Judge(work, told)]))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)
