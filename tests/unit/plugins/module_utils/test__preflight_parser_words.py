# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of an answer of SGLang's parser, without a process that gives it."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _preflight_arguments
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Check
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_arguments import arguments, ask_parser
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_parser_program import MARK
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.launch_world import LaunchWorld

SGLANG = Account("sglang", 990, frozenset({990, 44}), 990)
ROOT = Account("root", 0, frozenset({0}), 0)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> LaunchWorld:
    return LaunchWorld(tmp_path)


WELL: dict[str, t.Any] = {"version": "", "config_refused": [], "arguments_refused": []}


def said(
    world: LaunchWorld, answer: t.Any = None, python: tuple[str, ...] = ("/opt/python",), **fields: t.Any
) -> Check:
    stdout = "" if answer is None else f"noise\n{MARK}{json.dumps(answer)}\nmore noise\n"
    fields = {"exit_code": 0, "stdout": stdout, "stderr": "", **fields}
    return arguments(
        world.context(python=python), probe=lambda context, launch: CommandResult((), seconds=0.0, **fields)
    )


@pytest.mark.parametrize(
    ("python", "shown"),
    [
        (("/opt/python",), "/opt/python"),
        (("docker", "run"), "docker run …"),
        (("docker", "run", "--rm", "image", "python3"), "docker run …"),
    ],
)
def test_whose_interpreter_it_is(world: LaunchWorld, python: tuple[str, ...], shown: str) -> None:
    assert said(world, python=python, error="not_found").detail == f"{shown} does not exist"


@pytest.mark.parametrize(
    ("stderr", "last"),
    [
        ("", "it printed nothing"),
        ("one line\n", "one line"),
        ("Traceback\n  File\nOSError: no room\n", "OSError: no room"),
    ],
)
def test_the_last_line_is_quoted_where_there_was_no_answer(world: LaunchWorld, stderr: str, last: str) -> None:
    found = said(world, exit_code=7, stderr=stderr)
    assert found.detail == f"/opt/python ended with exit code 7 before SGLang's parser answered: {last}"


@pytest.mark.parametrize(("answer", "told"), [("[", False), ("3", False), (json.dumps(WELL), True)])
def test_an_answer_that_is_none(world: LaunchWorld, answer: str, told: bool) -> None:
    found = said(world, stdout=f"{MARK}{answer}\n")
    assert found.ok is told


@pytest.mark.parametrize(
    ("answer", "ok", "words"),
    [
        (
            {"error": "no sglang", "missing": "sglang"},
            False,
            "there is no SGLang in the environment of /opt/python (no",
        ),
        (
            {"error": "no sglang", "missing": "sglang.srt"},
            False,
            "there is no SGLang in the environment of /opt/python",
        ),
        ({"error": "no sglang", "missing": "sglang.srt.utils"}, False, "there is no SGLang in the environment"),
        (
            {"error": "x", "missing": "sglang.srt", "version": "1.2"},
            False,
            "SGLang 1.2 cannot be imported by /opt/python",
        ),
        ({"error": "no torch", "missing": "torch"}, False, "SGLang cannot be imported by /opt/python: no torch"),
        ({"error": "no torch", "missing": "torch.sglang"}, False, "SGLang cannot be imported by /opt/python: no torch"),
        ({"error": "no module"}, False, "SGLang cannot be imported by /opt/python: no module"),
        ({"error": "No CUDA GPUs are available"}, None, "SGLang cannot be imported while no GPU is shown to it (No"),
        ({"error": "no cuda", "imports": True}, False, "SGLang cannot be imported by /opt/python: no cuda"),
        ({**WELL, "version": "1.2"}, True, "the parser of SGLang 1.2 takes all of them"),
        (WELL, True, "the parser of SGLang of an unknown version takes all of them"),
        (
            {**WELL, "version": "1.2", "config_refused": ["a"]},
            False,
            "SGLang 1.2 refuses in its config file, with exit code 1: a",
        ),
        ({**WELL, "version": "1.2", "arguments_refused": ["b"]}, False, "SGLang 1.2 refuses, with exit code 2: b"),
    ],
)
def test_what_the_answer_means(world: LaunchWorld, answer: dict[str, t.Any], ok: bool | None, words: str) -> None:
    found = said(world, answer)
    assert (found.ok, found.detail.startswith(words)) == (ok, True), found


@pytest.mark.parametrize(("length", "quoted"), [(299, "x" * 299), (300, "x" * 300), (301, "x" * 300 + " …")])
def test_a_long_refusal_is_cut(world: LaunchWorld, length: int, quoted: str) -> None:
    found = said(world, {**WELL, "version": "1", "arguments_refused": ["x" * length]})
    assert found.detail == f"SGLang 1 refuses, with exit code 2: {quoted}"


@pytest.mark.parametrize(
    ("own_uid", "account", "runs_as"),
    [(0, SGLANG, SGLANG), (0, ROOT, None), (990, SGLANG, None), (1000, ROOT, None)],
)
def test_whom_the_parser_is_run_as(
    world: LaunchWorld, monkeypatch: pytest.MonkeyPatch, own_uid: int, account: Account, runs_as: Account | None
) -> None:
    """Only root can become the service user, and need not become itself."""
    given: list[Account | None] = []
    owned: list[tuple[int, int]] = []

    def runner(clock: t.Any, *, account: Account | None, **options: t.Any) -> t.Any:
        given.append(account)
        return lambda argv, timeout: CommandResult(tuple(argv), 0, "", "", 0.0)

    monkeypatch.setattr(_preflight_arguments, "CommandRunner", runner)
    monkeypatch.setattr(_preflight_arguments.os, "chown", lambda path, uid, gid: owned.append((uid, gid)))
    world.node.account = lambda user, group: account  # type: ignore[method-assign]
    context = world.node.context(launch=world.launch, own_uid=own_uid)
    assert context.launch is not None
    ask_parser(context, context.launch)
    assert given == [runs_as]
    assert owned == ([(990, 990)] if runs_as else [])
