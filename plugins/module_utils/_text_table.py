# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Text of several columns that people read in a terminal."""

from __future__ import annotations

import typing as t


def aligned(header: t.Sequence[str], rows: t.Iterable[t.Sequence[str]]) -> list[str]:
    """The header and the rows, each column as wide as its widest cell."""
    lines = [header, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def printable(text: object) -> str:
    """What came from a node, without the control characters that could redraw somebody's terminal."""
    plain = str(text)
    return plain if plain.isprintable() else "".join(char if char.isprintable() else " " for char in plain)
