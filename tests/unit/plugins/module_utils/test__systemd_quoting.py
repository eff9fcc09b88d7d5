# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quoting for units, read back by systemd's rules (systemd.service(5), systemd.syntax(7)) written down here anew."""

from __future__ import annotations

import re
import typing as t
import unicodedata

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd_quoting import argument, environment

try:
    from hypothesis import given, settings
    from hypothesis import strategies as st
except ImportError:
    given = None  # type: ignore[assignment]

ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "s": " ",
}


def split_words(text: str) -> list[str]:
    """extract_first_word(EXTRACT_UNQUOTE | EXTRACT_CUNESCAPE) until the end, and the lone semicolon."""
    words: list[str] = []
    i = 0
    while i < len(text):
        if text[i] in " \t":
            i += 1
            continue
        if text[i] == ";" and (i + 1 == len(text) or text[i + 1] in " \t"):
            raise AssertionError("a lone semicolon begins another command")
        word, quote = "", ""
        while i < len(text) and (quote or text[i] not in " \t"):
            character = text[i]
            if character == "\\":
                following = text[i + 1]
                if following in ESCAPES:
                    word += ESCAPES[following]
                    i += 2
                    continue
                raise AssertionError(f"escape \\{following} is not produced here")
            if quote:
                if character == quote:
                    quote = ""
                else:
                    word += character
            elif character in "\"'":
                quote = character
            else:
                word += character
            i += 1
        assert not quote, "unbalanced quote"
        words.append(word)
    return words


def expand_specifiers(word: str) -> str:
    """%% is a percent sign; any other % is somebody's host name or boot id."""
    assert not re.search(r"%[^%]", word.replace("%%", "")), f"a specifier is left in {word!r}"
    assert word.count("%") % 2 == 0
    return word.replace("%%", "%")


def expand_variables(word: str) -> str:
    """replace_env(): $$ is a dollar sign, $NAME and ${NAME} are variables, a lone $ stays."""
    result, i = "", 0
    while i < len(word):
        if word[i] == "$":
            assert word[i + 1 : i + 2] == "$", f"a variable is left in {word!r}"
            i += 1
        result += word[i]
        i += 1
    return result


def exec_words(line: str) -> list[str]:
    return [expand_variables(expand_specifiers(word)) for word in split_words(line)]


def environment_words(line: str) -> list[str]:
    return [expand_specifiers(word) for word in split_words(line)]


HOSTILE = [
    "50%", "%h", "%%", "$HOME", "${HOME}", "$$", "$", '{"a":"b c"}', '{"a": "b\\"c"}', "/path with a blank",
    "a\\b", "\\", "\\n", "'", '"', "a'b\"c", ";", "a;b", "", " ", "  x  ", "#", "-x", "@x", "!x", "é", "模型 🦙", "=",
    "%$\\\"'", "\\x41", "~", "*", "a=b", "a\u00a0b", "`id`", "|", "&&", "\\\\", '"\\', "%%$$", "<", ">",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_an_argument_arrives_as_it_was_given(text: str) -> None:
    assert exec_words(argument(text)) == [text]


def test_many_arguments_stay_apart() -> None:
    assert exec_words(" ".join(argument(text) for text in HOSTILE)) == HOSTILE


@pytest.mark.parametrize("text", HOSTILE)
def test_an_assignment_arrives_as_it_was_given(text: str) -> None:
    assert environment_words(environment(f"NAME={text}")) == [f"NAME={text}"]


def test_dollars_are_not_doubled_where_nothing_expands_them() -> None:
    assert environment("A=$HOME") == '"A=$HOME"'
    assert argument("$HOME") == '"$$HOME"'


def test_what_needs_no_quotes_gets_none() -> None:
    assert argument("/opt/sglang/bin/python3") == "/opt/sglang/bin/python3"
    assert environment("NCCL_P2P_LEVEL=SYS") == "NCCL_P2P_LEVEL=SYS"


@pytest.mark.parametrize("text", ["a\nb", "a\0b", "a\rb", "\x1b[31m", "a\tb", "\ud800"])
@pytest.mark.parametrize("filter_", [argument, lambda text: environment(f"A={text}")], ids=["argument", "environment"])
def test_control_characters_are_refused(filter_: t.Callable[[str], str], text: str) -> None:
    with pytest.raises(ValueError, match=r"contains .*, which neither a config file nor a unit can carry"):
        filter_(text)


@pytest.mark.parametrize("assignment", ["A", "=x", "1A=x", "A B=x", "A-B=x", "é=x", "", "A\n=x"])
def test_what_is_no_assignment_is_refused_without_its_value(assignment: str) -> None:
    with pytest.raises(ValueError, match="NAME=value"):
        environment(assignment)


def test_of_what_is_no_assignment_little_is_shown() -> None:
    with pytest.raises(ValueError, match=f"^'{'-' * 40}' does not begin a NAME=value"):
        environment("-" * 100)


def test_a_refused_value_is_not_shown() -> None:
    with pytest.raises(ValueError, match="the value of TOKEN") as caught:
        environment("TOKEN=hush\n")
    assert "hush" not in str(caught.value)


if given is not None:
    ordinary = st.text(
        st.characters(exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp", "Cn", "Co")), max_size=40
    ) | st.text(alphabet="%$\\\"' ;{}=a", max_size=20)

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(st.lists(ordinary, min_size=1, max_size=5))
    def test_any_arguments_survive(texts: list[str]) -> None:
        assert exec_words(" ".join(argument(text) for text in texts)) == texts

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(ordinary)
    def test_any_value_survives(text: str) -> None:
        assert environment_words(environment(f"A={text}")) == [f"A={text}"]

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(st.text(max_size=20))
    def test_nothing_breaks_out_of_its_line(text: str) -> None:
        try:
            line = argument(text)
        except ValueError:
            return
        assert not any(unicodedata.category(character) == "Cc" for character in line)
        assert exec_words(line) == [text]

else:

    @pytest.mark.skip(reason="hypothesis is not installed")
    def test_any_arguments_survive() -> None: ...
