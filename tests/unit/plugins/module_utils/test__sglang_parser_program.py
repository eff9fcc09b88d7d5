# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is asked of SGLang's own parser, in this interpreter and with an SGLang of a few lines.

That the text of the file runs alone in the server's interpreter is tested with the check that sends it there.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
import os
import pathlib
import signal
import sys
import textwrap
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _sglang_parser_program as program

ARGS = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=True)
        parser.add_argument("--tp-size", type=int)
        parser.add_argument("--tp-rank", type=int)
"""
MERGER = """
import yaml
class ConfigArgumentMerger:
    def __init__(self, parser):
        parser.parse_args  # it wants a parser
    def merge_config_with_args(self, words):
        flag, path = words
        found = []
        for key, value in yaml.safe_load(open(path)).items():
            if key.startswith("no"):
                raise ValueError("not known: " + key)
            found += ["--" + key, str(value)]
        return found
"""


class Installed:
    """An SGLang that can be imported here."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "site"
        self.write("sglang/__init__.py", "__version__ = '9.9.9'\n")
        self.write("sglang/srt/__init__.py", "")
        self.write("sglang/srt/utils/__init__.py", "")
        self.write("sglang/srt/server_args.py", ARGS)
        self.write("sglang/srt/server_args_config_parser.py", MERGER)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()

    def move_merger(self) -> None:
        (self.folder / "sglang/srt/server_args_config_parser.py").rename(
            self.folder / "sglang/srt/utils/server_args_config_parser.py"
        )


def forget_sglang() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]


@pytest.fixture
def installed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Installed]:
    one = Installed(tmp_path)
    monkeypatch.syspath_prepend(one.folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget_sglang()
    yield one
    forget_sglang()


def question(config: str, *argv: str) -> dict[str, t.Any]:
    return {"config": config, "argv": list(argv), "seconds": 30}


def test_what_is_taken(installed: Installed) -> None:
    assert program.answer(question("model-path: /m\n", "--tp-size", "8")) == {
        "version": "9.9.9",
        "config_refused": [],
        "arguments_refused": [],
    }


def test_the_reader_of_the_config_file_is_found_where_newer_versions_have_it(installed: Installed) -> None:
    installed.move_merger()
    assert program.load()[1].__module__ == program.MERGERS[0]
    assert program.answer(question("model-path: /m\n"))["config_refused"] == []


def test_a_version_that_reads_no_config_file_is_called_that(installed: Installed) -> None:
    (installed.folder / "sglang/srt/server_args_config_parser.py").unlink()
    with pytest.raises(ImportError, match=r"none of sglang\.srt\.utils\.server_args_config_parser, .* is there"):
        program.load()


@pytest.mark.parametrize("place", ["sglang/srt/plugins.py", "sglang/srt/utils/server_args_config_parser.py"])
def test_what_a_part_of_sglang_cannot_import_is_not_taken_for_an_older_version(
    installed: Installed, place: str
) -> None:
    """The name of the missing package is what a person needs."""
    installed.write(place, "import no_such_package\n")
    with pytest.raises(ModuleNotFoundError) as error:
        program.load()
    assert error.value.name == "no_such_package"


def test_plugins_may_add_options(installed: Installed) -> None:
    installed.write(
        "sglang/srt/plugins.py",
        """
        def load_plugins():
            import sglang.srt.server_args as arguments
            arguments.ServerArgs.add_cli_args = staticmethod(lambda parser: parser.add_argument("--of-a-plugin"))
        """,
    )
    assert program.answer(question("of-a-plugin: 1\n"))["arguments_refused"] == []


def test_plugins_without_a_loader_are_no_error(installed: Installed) -> None:
    installed.write("sglang/srt/plugins.py", "")
    assert program.answer(question("model-path: /m\n"))["arguments_refused"] == []


def test_the_version_of_the_installed_package_comes_first(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"sglang": "0.5.1"}[name])
    assert program.version() == "0.5.1"


def test_without_sglang_there_is_no_version(tmp_path: pathlib.Path) -> None:
    forget_sglang()
    assert program.version() == ""


def test_every_key_that_is_refused_is_told_and_the_others_are_kept(installed: Installed) -> None:
    parser, merger = program.load()
    config = "model-path: /m\nno-a: 1\ntp-size: 2\nno-b: 2\n"
    folder = str(installed.folder)
    assert program.merged(parser, merger, config, folder) == (
        ["--model-path", "/m", "--tp-size", "2"],
        ["not known: no-a", "not known: no-b"],
    )


@pytest.mark.parametrize("config", ["[1, 2]", "a: [1\n", "3"])
def test_a_config_that_cannot_be_taken_apart_has_one_refusal_and_no_words(installed: Installed, config: str) -> None:
    """Else every option that stands in it would be called missing."""

    class Narrow:
        def __init__(self, parser: argparse.ArgumentParser) -> None: ...

        def merge_config_with_args(self, words: list[str]) -> list[str]:
            raise ValueError("it must be a dictionary")

    parser = program.load()[0]
    assert program.merged(parser, Narrow, config, str(installed.folder)) == (None, ["it must be a dictionary"])


def test_a_config_that_is_refused_only_as_a_whole(installed: Installed) -> None:
    class Together:
        def __init__(self, parser: argparse.ArgumentParser) -> None: ...

        def merge_config_with_args(self, words: list[str]) -> list[str]:
            text = pathlib.Path(words[1]).read_text(encoding="utf-8")
            if "a" in text and "b" in text:
                raise ValueError("a and b exclude each other")
            return ["--" + text.strip('{}": 1')]

    parser = program.load()[0]
    assert program.merged(parser, Together, "a: 1\nb: 1\n", str(installed.folder)) == (
        ["--a", "--b"],
        ["a and b exclude each other"],
    )


@pytest.mark.parametrize(
    ("words", "message", "rest"),
    [
        (["--a", "1", "--b", "2"], "argument --a: invalid int value: '1'", ["--b", "2"]),
        (["--x", "--a", "1", "2", "--b"], "argument --a: invalid", ["--x", "--b"]),
        (["--x", "--a=1", "--b"], "argument --a/--aa: invalid", ["--x", "--b"]),
        (["--aa", "1"], "argument --a/--aa: invalid", []),
        (["--tp", "2"], "ambiguous option: --tp could match --tp-size, --tp-rank", []),
        (["--a", "1"], "argument --b: expected one argument", None),
        (["--a", "1"], "unrecognized arguments: --a 1", None),
        ([], "argument --a: invalid", None),
    ],
)
def test_what_a_refusal_named_is_taken_out(words: list[str], message: str, rest: list[str] | None) -> None:
    assert program.without(words, message) == rest


def options(count: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    for number in range(count):
        parser.add_argument(f"--o{number}", type=int)
    return parser


def test_all_refusals_are_found_one_behind_the_other(installed: Installed) -> None:
    parser = program.load()[0]
    said = program.refusals(parser, ["--model", "/m", "--tp", "1", "--tp-size", "x", "--tp-rank", "y", "--z"])
    assert [one.partition(":")[0] for one in said] == [
        "ambiguous option",
        "argument --tp-size",
        "argument --tp-rank",
        "unrecognized arguments",
    ]


@pytest.mark.parametrize(("wrong", "told"), [(1, 1), (39, 39), (40, 40), (41, 40), (60, 40)])
def test_the_search_for_refusals_ends(wrong: int, told: int) -> None:
    words = [word for number in range(wrong) for word in (f"--o{number}", "x")]
    assert len(program.refusals(options(wrong), words)) == told


def test_an_option_that_ends_the_server_is_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    said = program.refusals(options(1), ["--o0", "x", "--help"])
    assert said == ["argument --o0: invalid int value: 'x'", "an option ends the server at once, with exit code 0"]


def test_an_action_that_fails_in_its_own_way_is_a_refusal() -> None:
    class Own(argparse.Action):
        def __call__(self, *given: t.Any) -> None:
            raise RuntimeError("no such backend")

    parser = options(0)
    parser.add_argument("--backend", action=Own)
    assert program.refusals(parser, ["--backend", "x"]) == ["RuntimeError: no such backend"]


def test_nothing_is_said_of_missing_options_where_the_config_could_not_be_read(installed: Installed) -> None:
    installed.write("sglang/srt/server_args_config_parser.py", MERGER.replace("flag, path = words", "raise ValueError"))
    found = program.answer(question("3"))
    assert (found["config_refused"], found["arguments_refused"]) == ([""], [])


@dataclasses.dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str

    @property
    def answer(self) -> t.Any:
        (line,) = self.stdout.splitlines()
        assert line.startswith(program.MARK)
        return json.loads(line[len(program.MARK) :])


def run(folder: pathlib.Path, argument: str) -> Ended:
    """The program from its first line to its last, in a child of this process."""
    paths = [folder / "stdout", folder / "stderr"]
    child = os.fork()
    if child == 0:
        try:
            for number, path in enumerate(paths, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.stdout = os.fdopen(1, "w")
            sys.argv = ["-c", argument]
            program.main()
        finally:
            os._exit(99)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(status, *(path.read_text() for path in paths))


def test_its_answer_is_one_line_whatever_imports_print(installed: Installed, tmp_path: pathlib.Path) -> None:
    installed.write("sglang/srt/server_args.py", "print('loading', flush=True)\n" + ARGS)
    ended = run(tmp_path, json.dumps(question("model-path: /m\n")))
    assert ended.status == 0
    assert ended.answer == {"version": "9.9.9", "config_refused": [], "arguments_refused": []}
    assert "loading" in ended.stderr


def test_it_steps_back_and_ends_itself(installed: Installed, tmp_path: pathlib.Path) -> None:
    """Where the client of a container is killed, nobody ends what it runs; and the old server still serves."""
    installed.write(
        "sglang/srt/server_args.py",
        "import os, signal\nraise RuntimeError(f'{signal.alarm(0)} s, nice {os.getpriority(os.PRIO_PROCESS, 0)}')\n",
    )
    nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    asked = {**question("model-path: /m\n"), "seconds": 300}
    assert run(tmp_path, json.dumps(asked)).answer["error"] == f"RuntimeError: 301 s, nice {nice}"


def test_one_that_hangs_is_ended_by_its_own_clock(installed: Installed, tmp_path: pathlib.Path) -> None:
    installed.write("sglang/srt/server_args.py", "import select\nselect.select([], [], [], 20)\n")
    began = time.monotonic()
    assert run(tmp_path, json.dumps({**question(""), "seconds": -0.5})).status == -signal.SIGALRM
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("server_args", "error", "imports", "missing"),
    [
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'", True, "no_such_package"),
        ("raise ModuleNotFoundError\n", "ModuleNotFoundError: ", True, ""),
        ("raise ImportError('libcudart.so.13', name='x')\n", "ImportError: libcudart.so.13", True, ""),
        ("x = (\n", "SyntaxError: ", True, ""),
        ("raise RuntimeError('first\\nNo CUDA GPUs')\n", "RuntimeError: No CUDA GPUs", False, ""),
        ("raise SystemExit(3)\n", "SystemExit: 3", False, ""),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt: ", False, ""),
    ],
)
def test_why_it_could_not_be_asked(
    installed: Installed, tmp_path: pathlib.Path, server_args: str, error: str, imports: bool, missing: str
) -> None:
    installed.write("sglang/srt/server_args.py", server_args)
    ended = run(tmp_path, json.dumps(question("")))
    said = ended.answer
    assert (ended.status, said["version"], said["imports"], said["missing"]) == (0, "9.9.9", imports, missing)
    assert said["error"].startswith(error)
    assert "\n" not in said["error"]


def test_a_question_that_is_none_is_answered_too(tmp_path: pathlib.Path) -> None:
    ended = run(tmp_path, "{")
    assert (ended.status, ended.answer["error"].partition(":")[0]) == (0, "JSONDecodeError")
