# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the recorder of SGLang's parsers makes of an option; the recordings themselves need the wheels."""

from __future__ import annotations

import argparse
import typing as t

import pytest
import record_sglang_parsers as recorder


class Replaced(argparse.Action):
    """An action of SGLang's own kind."""

    def __call__(self, *words: t.Any) -> None:
        pass


class Merger:
    """Knows a key by the attribute that it sets, as SGLang up to 0.5.15."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        plain = (argparse._StoreAction, argparse._StoreTrueAction)
        self.refused = {action.dest for action in parser._actions if not isinstance(action, plain)}
        self.switches = {action.dest for action in parser._actions if isinstance(action, argparse._StoreTrueAction)}

    def _convert_config_to_args(self, config: dict[str, t.Any]) -> list[str]:
        words: list[str] = []
        for key, value in config.items():
            name = key.replace("-", "_")
            if name in self.refused:
                raise ValueError(f"Unsupported config option {name}")
            if value is True and name in self.switches:
                words.append(f"--{key}")
            else:
                words += [f"--{key}", str(value).lower() if isinstance(value, bool) else str(value)]
        return words


@pytest.fixture
def told() -> dict[str, dict[str, t.Any]]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--dtype", type=str, choices={"half", "auto"}, default="auto")
    parser.add_argument("--trust", action="store_true")
    parser.add_argument("--old-name", dest="renamed", action="store_true")
    parser.add_argument("--size-decode", type=int)
    parser.add_argument("--size", dest="size_decode", action=Replaced, nargs=None)
    parser.add_argument("--tf32", action=argparse.BooleanOptionalAction)
    merger = Merger(parser)
    found = [recorder.described(action, merger) for action in parser._actions[1:]]
    return {option["flags"][0]: option for option in found}


def test_plain_options(told: dict[str, dict[str, t.Any]]) -> None:
    # With the second spelling the reader of the file sees an option with a value, which it is.
    assert told["--model-path"] == {"flags": ["--model-path", "--model"], "action": "store", "required": True}
    assert told["--dtype"]["choices"] == ["auto", "half"], "a set has no order of its own"
    assert told["--dtype"]["default"] == "auto"
    assert told["--trust"]["action"] == "store_true"
    assert "not_in_config" not in told["--trust"]


def test_a_switch_with_a_no_form_is_not_taken_in_the_file(told: dict[str, dict[str, t.Any]]) -> None:
    assert told["--tf32"]["action"] == "boolean_optional"
    assert "tf32" in told["--tf32"]["not_in_config"]


def test_an_option_whose_old_alias_is_not_taken_is_not_taken_either(told: dict[str, dict[str, t.Any]]) -> None:
    assert told["--size-decode"]["not_in_config"] == ["size-decode"]


def test_a_switch_under_a_name_that_the_file_does_not_know(told: dict[str, dict[str, t.Any]]) -> None:
    """It would become "--old-name true", which the parser refuses."""
    assert told["--old-name"]["not_in_config"] == ["old-name"]
