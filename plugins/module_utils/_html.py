# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""HTML that cannot be left unescaped: text becomes markup only through element()."""

from __future__ import annotations

import dataclasses
import html
import typing as t

_VOID = frozenset({"meta", "link"})


@dataclasses.dataclass(frozen=True)
class Html:
    """Markup. Made by element(), and by hand only from constants."""

    text: str


Child = t.Union[str, Html, None]


def _inside(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child.text
    # Control characters have no place in a document, NUL least of all.
    return html.escape("".join(char if char.isprintable() or char == "\n" else " " for char in str(child)))


def element(tag: str, /, *children: Child, **attributes: str | None) -> Html:
    """An element. Text and values of attributes are escaped; class_ is class, and aria_label is aria-label."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_inside(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{''.join(map(_inside, children))}</{tag}>")


def together(parts: t.Iterable[Child]) -> Html:
    """Parts in a row."""
    return Html("".join(map(_inside, parts)))
