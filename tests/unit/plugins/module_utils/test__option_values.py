# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an option can be, to its very bounds, and how a value stands in a sentence."""

from __future__ import annotations

import collections
import math
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _option_values as values


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("kimi", "'kimi'"),
        ("a\nb", "'a\\nb'"),
        ("x" * 60, f"'{'x' * 60}'"),
        ("x" * 61, f"'{'x' * 60}'… (61 characters)"),
        (0.5, "0.5"),
        (5.0, "5"),
        (float("nan"), "nan"),
        (-7, "-7"),
        (10**20 - 1, "9" * 20),
        (-(10**20), "a number of 67 bits"),
        (10**20, "a number of 67 bits"),
        (True, "True"),
        (None, "None"),
        (["a"], "['a']"),
        ([1] * 40, f"{str([1] * 40)[:60]}… (120 characters)"),
    ],
)
def test_a_value_in_a_sentence_is_one_line_and_not_endless(value: t.Any, words: str) -> None:
    assert values.shown(value) == words


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool"), (1, "int"), (1.5, "float"), ("x", "str"), (b"x", "bytes"), ({}, "dict"), ((), "tuple"),
        ([], "list"), (collections.OrderedDict(), "dict"), (None, "NoneType"),
    ],
)  # fmt: skip
def test_kinds_have_the_names_that_people_know(value: t.Any, kind: str) -> None:
    assert values.kind_of(value) == kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain text", None),
        ("Füße 模型", None),
        ("zero\u200cwidth\u200djoiners", None),
        ("a\nb", "a newline"),
        ("a\rb", "a carriage return"),
        ("a\0b", "a NUL"),
        ("a\tb", "a tab"),
        ("a\x1bb", "the character U+001B"),
        ("a\u202eb", "the character U+202E"),
        ("a\u2028b", "the character U+2028"),
        ("a\u2029b", "the character U+2029"),
        ("a\ud800b", "the character U+D800"),
        ("a\ufffeb", "the character U+FFFE"),
        ("a\uffffb", "the character U+FFFF"),
        ("a\ufffdb", None),
        ("\n\t", "a newline"),
    ],
)
def test_what_ends_or_garbles_a_line_is_named(text: str, said: str | None) -> None:
    assert values.odd_character(text) == said


@pytest.mark.parametrize(
    ("name", "can"), [("PATH", True), ("_a1", True), ("1a", False), ("A-B", False), ("", False), ("A\n", False)]
)
def test_names_of_variables(name: str, can: bool) -> None:
    assert values.is_variable(name) is can


def test_a_line_has_at_most_as_many_bytes_as_a_path() -> None:
    for text in ("x" * 4095, "é" * 2047):
        assert values.check_line("who", text) == text
    for text in ("x" * 4096, "é" * 2048):
        with pytest.raises(ValueError, match=r"who is '.*at most 4095 bytes are possible\."):
            values.check_line("who", text)
    with pytest.raises(ValueError, match="which contains a newline; give one line of text"):
        values.check_line("who", "a\nb")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("var/log", "dir is 'var/log', which is not an absolute path."),
        ("", "dir is '', which is not an absolute path."),
        ("/a\0b", "which contains a NUL"),
    ],
)
def test_a_path_is_absolute_and_one_line(path: str, words: str) -> None:
    assert values.check_path("dir", "/var/log") == "/var/log"
    with pytest.raises(ValueError, match="dir is") as caught:
        values.check_path("dir", path)
    assert words in str(caught.value)


def test_a_program_is_a_name_or_a_path_and_no_option() -> None:
    for program in ("systemctl", "/usr/bin/nvidia-smi", "my tool"):
        assert values.check_program("systemctl", program) == program
    for program in ("", " ", "-x", "a\nb"):
        with pytest.raises(ValueError, match="systemctl is "):
            values.check_program("systemctl", program)


@pytest.mark.parametrize("unit", ["sglang.service", "sglang@gpu0.service", "a\\x2db.service", "x" * 247 + ".service"])
def test_a_unit_that_can_be_meant(unit: str) -> None:
    assert values.check_unit("unit", unit) == unit


@pytest.mark.parametrize(
    "unit", ["sglang", "a.socket", "-x.service", "a b.service", "../x.service", "x" * 248 + ".service", "a.service\n"]
)
def test_a_unit_that_cannot_be_meant(unit: str) -> None:
    with pytest.raises(ValueError, match=r"unit is .*no unit name with its suffix, as in sglang\.service\."):
        values.check_unit("unit", unit)


def test_what_holds_the_whole_machine_is_no_unit_to_name() -> None:
    assert values.check_unit("units", "session-1.scope", values.SUFFIXES) == "session-1.scope"
    for unit in ("init.scope", "user.slice", "multi-user.target"):
        with pytest.raises(ValueError, match="no unit name"):
            values.check_unit("units", unit, values.SUFFIXES)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("sglang", "sglang.service"),
        ("sglang.service", "sglang.service"),
        ("my.model", "my.model.service"),
        ("a.scope", "a.scope"),
        ("user.slice", "user.slice"),
    ],
)
def test_a_name_without_a_suffix_is_that_of_a_service(name: str, unit: str) -> None:
    assert values.with_suffix(name) == unit


@pytest.mark.parametrize(
    ("check", "good", "bad", "words"),
    [
        (
            values.check_host,
            ["127.0.0.1", "[::1]", "gpu-1.example", "x" * 255],
            ["", "a b", "a/b", "x" * 256],
            "host name",
        ),
        (values.check_vmid, ["1", "101", "999999999"], ["0", "01", "", "a", "1000000000", "1\n"], "no VMID"),
        (
            values.check_account,
            ["sglang", "_apt", "1000", "x" * 256],
            ["", "-x", "a b", "a:b", "x" * 257],
            "user or group",
        ),
    ],
)
def test_names_of_hosts_containers_and_accounts(
    check: t.Callable[[str, str], str], good: list[str], bad: list[str], words: str
) -> None:
    assert [check("option", value) for value in good] == good
    for value in bad:
        with pytest.raises(ValueError, match=words):
            check("option", value)


@pytest.mark.parametrize("seconds", [0.001, 0.5, 1, 7 * 86400])
def test_seconds_that_can_be_waited(seconds: float) -> None:
    assert values.check_seconds("timeout", seconds) == seconds


@pytest.mark.parametrize("seconds", [0, -0.001, 7 * 86400 + 1, math.inf, -math.inf, math.nan])
def test_seconds_that_cannot_be_waited(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"timeout is .*: it must be above 0 and at most 604800 seconds\."):
        values.check_seconds("timeout", seconds)


def test_no_seconds_at_all_only_where_that_means_something() -> None:
    assert values.check_seconds("settle", 0, zero=True) == 0
    assert values.check_seconds("settle", 5, zero=True, most=5) == 5
    for seconds in (-1, 6, math.nan):
        with pytest.raises(ValueError, match=r"settle is .*: it must be 0 or more and at most 5 seconds\."):
            values.check_seconds("settle", seconds, zero=True, most=5)


def test_a_number_keeps_its_bounds() -> None:
    for number in (1, 2, 1 << 53):
        assert values.check_number("keep", number, 1) == number
    for number in (0, -1, (1 << 53) + 1):
        with pytest.raises(ValueError, match=r"keep is .*: it must be between 1 and 9007199254740992\."):
            values.check_number("keep", number, 1)
