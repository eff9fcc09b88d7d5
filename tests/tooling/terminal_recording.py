# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program in a terminal of its own, and what was seen there as one animated SVG.

Played is what coloured line-wise output needs: lines, carriage returns, colours, erasing to the end of a line. Cursor
movements are dropped. Pauses are shortened and paths renamed; nothing else of the recording is changed.
"""

from __future__ import annotations

import dataclasses
import fcntl
import html
import itertools
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import typing as t

LONGEST_PAUSE = 1.5  # seconds of the recording that stay of a longer one
LAST_FRAME = 6.0
CELL_WIDTH, LINE_HEIGHT, MARGIN = 7.2, 16.0, 10.0
INK, PAPER = "#d8dee9", "#1b1f27"
COLOURS = {
    30: "#4c566a", 31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd", 36: "#56b6c2", 37: INK,
    90: "#7f848e", 91: "#e06c75", 92: "#98c379", 93: "#e5c07b", 94: "#61afef", 95: "#c678dd", 96: "#56b6c2", 97: "#fff",
}  # fmt: skip
_PIECE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[()][A-Z0-9]|([\r\n\b\t])|([^\x1b\r\n\b\t]+)|(.)", re.DOTALL)

Cell = tuple[str, str]  # character, colour
Row = tuple[Cell, ...]


@dataclasses.dataclass(frozen=True)
class Frame:
    """What stood on the screen from this second of the recording on."""

    second: float
    rows: tuple[Row, ...]


class Screen:
    """A terminal of so many columns; rows that scrolled out at the top are gone."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._rows: list[list[Cell]] = [[]]
        self._column = 0
        self._colour = INK

    def feed(self, text: str) -> None:
        for found in _PIECE.finditer(text):
            codes, final, control, plain, dummy = found.groups()
            if final == "m":
                self._colour_of(codes)
            elif final == "K":
                del self._rows[-1][self._column :]
            elif control == "\n":
                self._rows = [*self._rows, []][-self.lines :]
            elif control == "\r":
                self._column = 0
            elif control == "\b":
                self._column = max(0, self._column - 1)
            elif plain or control == "\t":
                for character in plain or " ":
                    self._put(character)

    def _colour_of(self, codes: str) -> None:
        for code in codes.split(";"):
            if code in ("", "0", "39"):
                self._colour = INK
            elif code.isdigit() and int(code) in COLOURS:
                self._colour = COLOURS[int(code)]

    def _put(self, character: str) -> None:
        if self._column >= self.columns:
            self._rows = [*self._rows, []][-self.lines :]
            self._column = 0
        row = self._rows[-1]
        row.extend([(" ", INK)] * (self._column + 1 - len(row)))
        row[self._column] = (character, self._colour)
        self._column += 1

    def rows(self) -> tuple[Row, ...]:
        return tuple(tuple(row) for row in self._rows)


def record(
    command: t.Sequence[str], *, columns: int, lines: int, every: float, deadline: float, cwd: str,
    environment: t.Mapping[str, str], called: t.Mapping[str, str] | None = None,
) -> tuple[list[Frame], int]:  # fmt: skip
    """Run a program in a terminal. Returns what was seen, at most one frame in `every` seconds, and its exit status.

    :param called: texts such as paths, and by what they are replaced.
    """

    def feed(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for this, that in (called or {}).items():
            text = text.replace(this, that)
        screen.feed(text)

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=dict(environment), start_new_session=True
    )
    os.close(theirs)
    screen, frames, waiting = Screen(columns, lines), [], b""
    began = shown = time.monotonic()
    try:
        while time.monotonic() - began < deadline:
            if select.select([ours], [], [], every)[0]:
                try:
                    waiting += os.read(ours, 65536)
                except OSError:  # the program has ended, and with it the terminal
                    break
            if waiting and time.monotonic() - shown >= every:
                shown = time.monotonic()
                feed(waiting)
                waiting = b""
                frames.append(Frame(shown - began, screen.rows()))
        feed(waiting)
        frames.append(Frame(time.monotonic() - began, screen.rows()))
        if time.monotonic() - began >= deadline:
            process.kill()
        return frames, process.wait(30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def _text(row: Row) -> str:
    """One row as SVG: a run of one colour is one piece at its own place, so that no font can shift the next."""
    pieces = []
    for colour, run in itertools.groupby(enumerate(row), key=lambda cell: cell[1][1]):
        cells = list(run)
        text = "".join(character for dummy, (character, _colour) in cells).rstrip()
        if text.strip():
            place = MARGIN + cells[0][0] * CELL_WIDTH
            fill = "" if colour == INK else f' fill="{colour}"'
            width = f"{len(text) * CELL_WIDTH:.1f}"
            shown = html.escape(text, quote=False)
            pieces.append(f'<text x="{place:.1f}"{fill} textLength="{width}">{shown}</text>')
    return "".join(pieces)


def paced(frames: t.Sequence[Frame]) -> list[float]:
    """When each frame begins, with long pauses shortened."""
    moments, last = [0.0], frames[0].second
    for frame in frames[1:]:
        moments.append(moments[-1] + min(LONGEST_PAUSE, frame.second - last))
        last = frame.second
    return moments


def as_svg(frames: t.Sequence[Frame], *, columns: int, lines: int, title: str) -> str:
    """All frames one below the other, of which a window shows one after another; without animation, the last one."""
    width, height = columns * CELL_WIDTH + 2 * MARGIN, lines * LINE_HEIGHT + 2 * MARGIN
    moments = paced(frames)
    total = moments[-1] + LAST_FRAME
    steps = "".join(
        f"{100 * moment / total:.3f}%{{transform:translateY({-number * height:.0f}px)}}"
        for number, moment in enumerate(moments)
    )
    final = f"translateY({-(len(frames) - 1) * height:.0f}px)"
    known: dict[Row, int] = {}
    drawn = []
    for number, frame in enumerate(frames):
        for place, row in enumerate(frame.rows):
            if any(character.strip() for character, dummy in row):
                index = known.setdefault(row, len(known))
                y = number * height + MARGIN + (place + 0.75) * LINE_HEIGHT
                drawn.append(f'<use href="#r{index}" y="{y:.0f}"/>')
    rows = "\n".join(f'<g id="r{index}">{_text(row)}</g>' for row, index in known.items())
    licence = "SPDX-License-" + "Identifier: GPL-3.0-or-later"
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Copyright (c) 2026 cleanslate.gpu contributors. {licence}
     A recording: made by tests/tooling/record_progress.py, never by hand. -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img">
<title>{html.escape(title)}</title>
<style>
text{{font:12px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:{INK}}}
{"".join(f'text[fill="{c}"]{{fill:{c}}}' for c in dict.fromkeys(COLOURS.values()) if c != INK)}
#film{{transform:{final};animation:film {total:.1f}s step-end infinite}}
@keyframes film{{{steps}100%{{transform:{final}}}}}
@media (prefers-reduced-motion:reduce){{#film{{animation:none}}}}
</style>
<defs>
{rows}
</defs>
<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>
<g id="film">
{"".join(drawn)}
</g>
</svg>
"""
