# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Any user of a node writes command lines and log lines: the redactor's time stays in proportion to their length."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import (
    MASK,
    MOST_OF_A_COMMAND_LINE,
    redact,
    redact_argv,
)

# What a rule begins with, ends with or runs across, each without what would end it.
HOSTILE = [
    *("\n", "\r", "\t", " ", " \n", "\\", "'", '"', "\\'", '\\"', "''", "[", "(", "{", "-", "--", "- ", ",", ";", "@"),
    *("token=[", "token=[\n", "token=[x,", "api_key='", 'api_key="', "api_key=\\'", "'api_key': '", "token=", "token:"),
    *(
        "token:\n",
        "token:\n ",
        "token: |\n",
        "token: |\n ",
        'token: "\n ',
        "- token: ",
        "token=a,",
        "token=a,b{",
        "token ",
    ),
    *(
        "['--api-key', '",
        "('token', '",
        "(\\\\'token\\\\', '",
        "--api-key ",
        "--api-key\n",
        "--api",
        "a-",
        "a.",
        "a",
        "A_",
    ),
    *("KEY", "KEY=", "KEY=\n", "A_TOKENS=", "api_key=None", "http", "https://", "https://a:", "Authorization: "),
    *("authorization", "bearer ", "Authorization: Bearer ", "Cookie: ", "cookie", "curl ", "curl -u ", "curl -u a:"),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "hf_", "sk-", "eyJ", "eyJaaaaaaaa.", "eyJaaaaaaaa.aaaaaaaa-"),
    *("\u00e9", "\u2028", "\0", MASK, f"token={MASK}"),
]
SIZES = (1 << 12, 1 << 14, 1 << 16)
NOISE = 0.1  # seconds: below that a busy machine says nothing


def _quotes_of_every_length(size: int) -> str:
    text, number = [], 0
    while size > 0:
        text.append("token=" + "\\" * number + "' ")
        number, size = number + 1, size - len(text[-1])
    return "".join(reversed(text))  # none is found again after itself


def _seconds(work: t.Callable[[str], str], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


def _in_proportion(work: t.Callable[[str], str], text: t.Callable[[int], str]) -> None:
    before = None
    for size in SIZES:
        took = _seconds(work, text(size))
        assert before is None or took < NOISE or took < 8 * before, (
            f"{size} characters took {took:.2f} s, not {before:.2f}"
        )
        before = took


@pytest.mark.parametrize("piece", HOSTILE)
def test_four_times_the_text_takes_about_four_times_as_long(piece: str) -> None:
    _in_proportion(redact, lambda size: piece * (size // len(piece)))


def test_quotes_of_every_length_take_time_in_proportion() -> None:
    _in_proportion(redact, _quotes_of_every_length)


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_command_line_takes_longer_than_its_first_part(piece: str) -> None:
    text = piece * ((1 << 20) // len(piece))
    for argv in ([text], ["python3", text], ["python3", *[piece] * 100_000]):
        assert _seconds(redact_argv, argv) < 1  # type: ignore[arg-type]  # redact's work on 4 KiB is milliseconds


def test_a_long_command_line_says_what_is_left_out() -> None:
    shown = redact_argv(["python3", "-c", "word " * 10_000, "--port", "30000"])
    assert shown.startswith("python3 -c 'word word")
    assert len(shown) < MOST_OF_A_COMMAND_LINE + 100
    kept = shown.count("word ") + 1
    assert shown.endswith(f" [{50_000 + 11 - 5 * kept + 1} more characters]")


@pytest.mark.parametrize("before", range(MOST_OF_A_COMMAND_LINE - 60, MOST_OF_A_COMMAND_LINE))
@pytest.mark.parametrize(
    "text", ["https://user:Q7vvQ7vv@host/", "--api-key 'Q7vv Q7vv'", '{"api_key": "Q7vv Q7vv"}', "hf_" + "Q7vv" * 5]
)
def test_a_command_line_is_not_cut_within_a_secret(before: int, text: str) -> None:
    assert "Q7v" not in redact_argv(["sh", "-c", "x" * (before - 4) + " " + text])
    assert "Q7v" not in redact_argv(["x" * before, "--api-key", "Q7vv", "x"])
