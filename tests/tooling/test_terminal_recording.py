# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a terminal shows, and the picture of it."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree

import terminal_recording
from terminal_recording import COLOURS, INK, Frame, Screen, as_svg, paced, record


def shown(screen: Screen) -> list[str]:
    return ["".join(character for character, dummy in row) for row in screen.rows()]


def after(text: str, columns: int = 20, lines: int = 3) -> list[str]:
    screen = Screen(columns, lines)
    screen.feed(text)
    return shown(screen)


def test_lines_returns_and_erasing() -> None:
    assert after("one\r\ntwo") == ["one", "two"]
    assert after("load 1/4\rload 2/4") == ["load 2/4"]
    assert after("a longer line\rshort\x1b[K") == ["short"]
    assert after("ab\bc") == ["ac"]
    assert after("\x1b[2J\x1b(Bx\x1b[?25l") == ["x"]


def test_a_long_line_is_folded_and_old_ones_scroll_out() -> None:
    assert after("12345678", columns=5) == ["12345", "678"]
    assert after("1\r\n2\r\n3\r\n4") == ["2", "3", "4"]


def test_colours_last_until_they_are_taken_back() -> None:
    screen = Screen(20, 1)
    screen.feed("a\x1b[0;32mb\x1b[0mc")
    assert [colour for dummy, colour in screen.rows()[0]] == [INK, COLOURS[32], INK]


def test_a_program_has_a_terminal_of_its_own() -> None:
    script = "import os; print(os.isatty(1), os.get_terminal_size().columns); print('<&>', '/x/y'); raise SystemExit(3)"
    frames, status = record(
        [sys.executable, "-c", script],
        columns=40,
        lines=5,
        every=0.1,
        deadline=30,
        cwd="/",
        environment=os.environ,
        called={"/x": "~"},
    )
    assert status == 3
    picture = as_svg(frames, columns=40, lines=5, title="a < b")
    assert "True 40" in picture
    root = xml.etree.ElementTree.fromstring(picture.encode())
    assert "<&> ~/y" in [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_program_that_never_ends_is_ended() -> None:
    frames, status = record(
        [sys.executable, "-c", "import time; print('x', flush=True); time.sleep(60)"],
        columns=40, lines=5, every=0.1, deadline=1.0, cwd="/", environment=os.environ,
    )  # fmt: skip
    assert status != 0
    assert frames


def test_long_pauses_are_shortened_and_short_ones_kept() -> None:
    assert paced([Frame(3.0, ()), Frame(4.0, ()), Frame(100.0, ())]) == [
        0.0,
        1.0,
        1.0 + terminal_recording.LONGEST_PAUSE,
    ]


def test_a_row_that_stays_is_drawn_once() -> None:
    rows = (((("x", INK)),),)
    picture = as_svg([Frame(0.0, rows), Frame(1.0, rows)], columns=10, lines=2, title="t")
    assert picture.count(">x<") == 1
    assert picture.count("<use ") == 2
