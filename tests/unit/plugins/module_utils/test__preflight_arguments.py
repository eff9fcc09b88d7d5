# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import sys
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Check, Context
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_arguments import arguments, ask_parser
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import Launch
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import find_account
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_parser_program import MARK
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.launch_world import LaunchWorld

# An SGLang of a few lines: the parser and the reader of the config file, where the real one has them.
SERVER_ARGS = """
import json, os, sys
print("a line that an import prints")
SEEN = {"cuda": os.environ.get("CUDA_VISIBLE_DEVICES"), "home": os.environ.get("HOME"), "mode": os.environ.get("MODE"),
        "leaked": os.environ.get("LEAKED"), "uid": os.geteuid(), "groups": sorted(os.getgroups()),
        "temporary": os.environ["TMPDIR"]}
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", required=True)
        parser.add_argument("--tp-size", type=int)
        parser.add_argument("--dtype", choices=["auto", "half"])
        parser.add_argument("--api-key")
        parser.add_argument("--tell", choices=[json.dumps(SEEN)])
"""
MERGER = """
import yaml
class ConfigArgumentMerger:
    def __init__(self, parser):
        self.parser = parser
    def merge_config_with_args(self, words):
        path = words[words.index("--config") + 1]
        assert path.endswith(".yaml")
        found = []
        for key, value in yaml.safe_load(open(path)).items():
            if key.startswith("forbidden"):
                raise ValueError(f"Unsupported config option '{key}' with action 'X'")
            found += ["--" + key, str(value)]
        return found
"""

# Refuses whatever it gets.
NARROW = """
class ConfigArgumentMerger:
    def __init__(self, parser):
        pass
    def merge_config_with_args(self, words):
        raise ValueError("Config file must contain a dictionary at root level")
"""


@pytest.fixture
def world(tmp_path: pathlib.Path) -> LaunchWorld:
    return LaunchWorld(tmp_path)


def write_sglang(
    folder: pathlib.Path, server_args: str = SERVER_ARGS, newer: bool = False, merger: str = MERGER
) -> str:
    package = folder / "site" / "sglang" / "srt"
    (package / "utils").mkdir(parents=True)
    for path in (package.parent, package, package / "utils"):
        (path / "__init__.py").write_text("__version__ = '9.9.9'\n")
    (package / "server_args.py").write_text(server_args)
    name = "utils/server_args_config_parser.py" if newer else "server_args_config_parser.py"
    (package / name).write_text(merger)
    return str(folder / "site")


def ask(world: LaunchWorld, config: str, *argv: str, site: str = "", **changes: t.Any) -> Check:
    """The real program in this interpreter; as this user, whoever that is."""
    changes = {"python": (sys.executable,), "environment": {"PYTHONPATH": site, "MODE": "x"}, **changes}
    context = world.context(config=config, argv=argv, **changes)
    return arguments(without_user(context))


def without_user(context: Context) -> Context:
    return Context(
        devices=context.devices,
        expectation=context.expectation,
        runner=context.runner,
        clock=context.clock,
        launch=context.launch,
    )


@pytest.mark.parametrize("newer", [False, True])
def test_the_parser_of_the_environment_is_asked(newer: bool, world: LaunchWorld) -> None:
    site = write_sglang(world.folder, newer=newer)
    found = ask(world, 'model-path: "/m"\napi-key: "<<secret:api_key>>"\n', "--tp-size", "8", site=site)
    assert found.ok is True, found
    assert found.detail == "the parser of SGLang 9.9.9 takes all of them"


def test_every_refusal_is_told(world: LaunchWorld) -> None:
    site = write_sglang(world.folder)
    found = ask(
        world,
        "model-path: /m\nforbidden: 1\nforbidden-too: 2\n",
        "--dtype",
        "x",
        "--tp-size",
        "y",
        "--no",
        "1",
        site=site,
    )
    assert found.ok is False
    for words in (
        "SGLang 9.9.9 refuses in its config file, with exit code 1: Unsupported config option 'forbidden'",
        "Unsupported config option 'forbidden-too'",
        "SGLang 9.9.9 refuses, with exit code 2: ",
        "argument --dtype: invalid choice: 'x' (choose from ",
        "argument --tp-size: invalid int value: 'y'",
        "unrecognized arguments: --no 1",
    ):
        assert words in found.detail, found.detail
    assert "model-path" not in found.detail


def test_a_config_file_that_cannot_be_taken_apart(world: LaunchWorld) -> None:
    """Nothing is said of options that only seem to be missing."""
    found = ask(world, "forbidden: [1\n", site=write_sglang(world.folder, merger=NARROW))
    assert found.ok is False
    assert "required" not in found.detail


def test_what_it_runs_in(world: LaunchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, the unit's environment and nothing else, and a folder that is gone afterwards."""
    monkeypatch.setenv("LEAKED", "secret")
    site = write_sglang(world.folder)
    found = ask(world, "model-path: /m\n", "--tell", "x", site=site)
    told = json.loads(found.detail.partition("choose from ")[2].strip("')").replace("\\", ""))
    assert told["cuda"] == ""
    assert told["leaked"] is None
    assert told["mode"] == "x"
    assert told["home"] == os.path.expanduser("~")
    assert not os.path.exists(told["temporary"])


def test_root_asks_as_the_service_user(world: LaunchWorld) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nobody = find_account("nobody")
    program = "import os; print(os.geteuid(), os.getegid(), os.environ['HOME'], os.environ['USER'], os.getcwd())"
    # The interpreter of the tests may lie where nobody may not go.
    context = without_user(world.context(python=("/bin/sh", "-c", f'exec /usr/bin/python3 -c "{program}"; :')))
    context = dataclasses.replace(context, service_user="nobody")
    assert context.launch is not None
    result = ask_parser(context, context.launch)
    assert result.stdout.split() == [str(nobody.uid), str(nobody.gid), nobody.home, "nobody", "/"], result


@pytest.mark.parametrize(
    ("server_args", "ok", "words"),
    [
        ("import no_such_package\n", False, "ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise ImportError('libcudart.so.13: cannot open shared object file')\n", False, "libcudart.so.13"),
        ("x = (\n", False, "SyntaxError"),
        ("raise RuntimeError('No CUDA GPUs are available')\n", None, "while no GPU is shown to it"),
        ("raise RuntimeError('odd')\n", False, "RuntimeError: odd"),
        ("raise SystemExit(3)\n", False, "SystemExit: 3"),
    ],
)
def test_an_environment_in_which_it_cannot_be_imported(
    server_args: str, ok: bool | None, words: str, world: LaunchWorld
) -> None:
    found = ask(world, "model-path: /m\n", site=write_sglang(world.folder, server_args))
    assert found.ok is ok, found
    assert words in found.detail
    if ok is False:
        assert "-c 'import sglang.srt.server_args'" in found.cure


def test_an_environment_without_it(world: LaunchWorld) -> None:
    (world.folder / "empty").mkdir()
    found = ask(world, "model-path: /m\n", site=str(world.folder / "empty"))
    assert found.ok is False
    assert f"there is no SGLang in the environment of {sys.executable}" in found.detail


def test_an_interpreter_that_is_not_there(world: LaunchWorld) -> None:
    found = ask(world, "", python=("/opt/nowhere/bin/python",))
    assert (found.ok, found.detail) == (False, "/opt/nowhere/bin/python does not exist")


def test_an_interpreter_that_may_not_be_run(world: LaunchWorld) -> None:
    (world.folder / "python").write_text("")
    found = ask(world, "", python=(str(world.folder / "python"),))
    assert (found.ok, found.detail) == (False, f"{world.folder}/python may not be run by the service user")


def test_it_has_a_deadline(world: LaunchWorld) -> None:
    site = write_sglang(world.folder, "import time\ntime.sleep(60)\n")
    found = ask(world, "model-path: /m\n", site=site, parser_timeout=1.0)
    assert found.ok is False
    assert "did not answer within 1 s" in found.detail


GOOD: dict[str, t.Any] = {"version": "1", "config_refused": [], "arguments_refused": []}


def answered(stdout: str, **changes: t.Any) -> t.Callable[[Context, Launch], CommandResult]:
    values = {"exit_code": 0, "stdout": stdout, "stderr": "", **changes}
    return lambda context, launch: CommandResult((), seconds=0.0, **values)


@pytest.mark.parametrize(
    ("stdout", "changes", "words"),
    [
        ("noise\n", {"exit_code": 1, "stderr": "bad --api-key=hunter2hunter2\n"}, "answered: bad --api-key=********"),
        (f"{MARK}{{\n", {}, "answered: it printed nothing"),
        (
            f'{MARK}{{"version": "1", "config_refused": ["api_key: abcdefgh"], "arguments_refused": []}}',
            {},
            "api_key: ********",
        ),
    ],
)
def test_odd_answers_and_no_secrets(stdout: str, changes: dict[str, t.Any], words: str, world: LaunchWorld) -> None:
    found = arguments(world.context(), probe=answered(stdout, **changes))
    assert found.ok is False
    assert words in found.detail


def test_a_long_list_of_choices_is_cut(world: LaunchWorld) -> None:
    said = json.dumps({**GOOD, "arguments_refused": ["x" * 5000]})
    assert len(arguments(world.context(), probe=answered(MARK + said)).detail) < 400


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(DEEP, id="deep"),
        pytest.param(f'{{"version": "1", "config_refused": {DEEP}', id="deep inside"),
        "[]",
        "5",
        "null",
        "{}",
        '{"version": "1"}',
        *(
            json.dumps({**about, word: value})
            for about, words in ((GOOD, tuple(GOOD)), ({"error": "x"}, ("error", "version", "missing")))
            for word in words
            for value in (5, None, True, {"a": 1}, [5], [["x"]], [None])
        ),
        '{"version": "1", "config_refused": [], "arguments_refused": "refused"}',
    ],
)
def test_an_answer_that_the_program_never_gives_is_no_pass_and_no_crash(said: str, world: LaunchWorld) -> None:
    """The environment belongs to the server's user: whatever it says, the preflight refuses with a sentence."""
    assert arguments(world.context(), probe=answered(MARK + json.dumps(GOOD))).ok is True
    found = arguments(world.context(), probe=answered(MARK + said))
    assert found.ok is False
    assert "ended with exit code 0 before SGLang's parser answered" in found.detail


def test_what_is_told_of_an_answer_is_bounded_and_can_be_written_down(world: LaunchWorld) -> None:
    for about in (
        {**GOOD, "version": "\ud800" * 5000, "config_refused": ["\udfff" * 5000] * 10_000},
        {"error": "\ud800" * 5000, "version": "1" * 5000},
    ):
        found = arguments(world.context(), probe=answered(MARK + json.dumps(about)))
        assert found.ok is False
        assert len(found.detail.encode()) < 100_000


def test_a_folder_that_cannot_be_taken_away_does_not_end_the_preflight(
    world: LaunchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders can be nested so deep that removing them runs out of stack."""

    site, remove, left = write_sglang(world.folder), shutil.rmtree, []

    def too_deep(folder: str) -> None:
        left.append(folder)
        raise RecursionError

    monkeypatch.setattr(shutil, "rmtree", too_deep)
    found = ask(world, "model-path: /m\n", site=site)
    monkeypatch.undo()
    for folder in left:
        remove(folder)
    assert found.ok is True
    assert left


def test_what_is_not_asked(world: LaunchWorld) -> None:
    assert arguments(world.node.context()).ok is None
    assert arguments(world.context(python=())).ok is None


def test_a_user_that_does_not_exist(world: LaunchWorld) -> None:
    context = world.node.context(launch=world.launch, service_user="nobody-of-that-name")
    assert arguments(context).ok is None
