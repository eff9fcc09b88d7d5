# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What SGLang's own parser says of a config file and a command line.

The text of this file is run by the interpreter of the environment in which SGLang is installed, so it knows nothing of
this collection. It stops where the arguments are parsed: what SGLang does with them next looks at the GPUs. The
question is JSON in the first argument ("config", "argv", "seconds"), the answer is one line of JSON after MARK on
stdout.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import sys
import tempfile
import typing as t

MARK = "sglang-parser-answer:"
# Where the reader of the config file is, newer versions first.
MERGERS = ("sglang.srt.utils.server_args_config_parser", "sglang.srt.server_args_config_parser")
_MOST = 40  # refusals that are looked for; a profile has no more options than that
_OF_OPTION = re.compile(r"(?:argument|ambiguous option:) (--[^\s:]+)")


class RefusedError(Exception):
    """What argparse would print before it ends the process."""


def refuse(message: str) -> t.NoReturn:
    raise RefusedError(message)


def version() -> str:
    try:
        found = importlib.import_module("importlib.metadata").version("sglang")
    except Exception:  # noqa: BLE001 a source tree has no metadata
        found = getattr(sys.modules.get("sglang"), "__version__", "")
    return str(found)


def load() -> tuple[argparse.ArgumentParser, t.Any]:
    """The parser of the server and the class that merges the config file, as the launch itself gets them."""
    plugins = None
    try:
        plugins = importlib.import_module("sglang.srt.plugins")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("sglang.srt.plugins"):
            raise
    if plugins is not None and hasattr(plugins, "load_plugins"):
        plugins.load_plugins()
    arguments = importlib.import_module("sglang.srt.server_args")
    parser = argparse.ArgumentParser(prog="sglang serve")
    arguments.ServerArgs.add_cli_args(parser)
    for name in MERGERS:
        try:
            return parser, importlib.import_module(name).ConfigArgumentMerger
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
    raise ImportError(f"none of {', '.join(MERGERS)} is there, so this version reads no config file as known")


def merged(
    parser: argparse.ArgumentParser, merger: t.Any, text: str, folder: str
) -> tuple[list[str] | None, list[str]]:
    """The words that the config file stands for, and what is refused in it. One key at a time where the whole is
    refused: SGLang stops at the first. No words where it cannot be taken apart."""

    def words_of(content: str) -> list[str]:
        path = os.path.join(folder, "config.yaml")
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(content)
        return list(merger(parser).merge_config_with_args(["--config", path]))

    try:
        return words_of(text), []
    except ValueError as error:
        first = str(error)
    words: list[str] = []
    refused: list[str] = []
    try:
        entries = importlib.import_module("yaml").safe_load(text)
        for key, value in entries.items():
            try:
                words += words_of(json.dumps({key: value}))
            except ValueError as error:
                refused.append(str(error))
    except Exception:  # noqa: BLE001 the first refusal says enough
        return None, [first]
    return words, refused or [first]


def without(words: list[str], message: str) -> list[str] | None:
    """The words without the option that a refusal names; None where it names none that is there."""
    named = _OF_OPTION.match(message)
    spellings = named.group(1).split("/") if named else []
    for place, word in enumerate(words):
        if word.split("=")[0] in spellings:
            end = place + 1
            while end < len(words) and not words[end].startswith("--"):
                end += 1
            return words[:place] + words[end:]
    return None


def refusals(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """All that the parser refuses: argparse itself stops at the first, so what it named is taken out."""
    parser.error = refuse  # type: ignore[method-assign]
    said: list[str] = []
    rest: list[str] | None = words
    while rest is not None and len(said) < _MOST:
        try:
            parser.parse_args(rest)
            break
        except RefusedError as error:
            said.append(str(error))
        except SystemExit as error:
            said.append(f"an option ends the server at once, with exit code {error.code}")
            break
        except Exception as error:  # noqa: BLE001 an action of SGLang's own
            said.append(f"{type(error).__name__}: {error}")
            break
        rest = without(rest, said[-1])
    return said


def answer(question: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The version, and what is refused in the config file and behind it."""
    parser, merger = load()
    with tempfile.TemporaryDirectory() as folder:
        words, refused = merged(parser, merger, question["config"], folder)
    found = {"version": version(), "config_refused": refused}
    said = [] if words is None else refusals(parser, words + list(question["argv"]))
    return {**found, "arguments_refused": said}


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # what imports print is no answer
    os.nice(10)
    try:
        question = json.loads(sys.argv[1])
        # Whoever waits for it kills it, but not in a container, whose client only is killed.
        signal.alarm(int(question["seconds"]) + 1)
        found = answer(question)
    except BaseException as error:  # noqa: BLE001 whatever an import raises, it is the answer
        lines = str(error).strip().splitlines()
        found = {"version": version(), "error": f"{type(error).__name__}: {lines[-1] if lines else ''}"}
        found["imports"] = isinstance(error, (ImportError, SyntaxError))
        found["missing"] = str(error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    os.write(out, (MARK + json.dumps(found) + "\n").encode())
    os._exit(0)  # threads of an import cannot keep it


if __name__ == "__main__":
    main()
