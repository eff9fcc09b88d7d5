# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a page must keep to without a browser to look at it; in a browser: tests/integration/status_page."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import re
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._fleet_status import fleet_status
from ansible_collections.cleanslate.gpu.plugins.module_utils._html import Html, element, together
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_page import status_page
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fleet_looks import gone, look, stuck

NOW = "2026-11-29T18:40:12Z"
EVIL = "</style><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
VOID = {"meta", "link"}


class Reader(html.parser.HTMLParser):
    """Which elements, attributes and texts a page has, and whether every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, dummy in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def poisoned(value: t.Any) -> t.Any:
    """The same look, with every text in it replaced."""
    if isinstance(value, dict):
        return {key: poisoned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return EVIL if isinstance(value, str) else value


def test_no_text_of_any_place_becomes_markup() -> None:
    harmless = Reader(status_page(fleet_status([look("a"), stuck("b"), gone("c")], NOW)))
    looks = [poisoned(look("a")), poisoned(stuck("b")), poisoned(gone("c"))]
    hostile = Reader(status_page(fleet_status(looks, EVIL)))
    assert harmless.open == hostile.open == []
    assert hostile.names <= harmless.names
    assert hostile.attributes <= harmless.attributes
    assert any(EVIL in text for text in hostile.texts)


def test_the_policy_allows_the_style_sheet_of_this_page_and_nothing_else() -> None:
    page = status_page(fleet_status([look("a")], NOW))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (allowed,) = re.findall(r"style-src (.*?)\"", page)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert allowed == f"&#x27;sha256-{digest}&#x27;"
    assert "default-src &#x27;none&#x27;" in page
    assert "style=" not in page
    assert not re.search(r"(src|href)=\"(?!#node-\d+\"|data:,)", page)
    assert "url(" not in style
    assert "@import" not in style


def test_it_says_when_it_was_made_and_in_which_zone() -> None:
    page = status_page(fleet_status([], "2026-11-29T19:40:12+01:00"))
    assert '<time datetime="2026-11-29T19:40:12+01:00">2026-11-29 18:40:12 UTC</time>' in page
    assert "yesterday" in status_page(fleet_status([], "yesterday"))


def test_control_characters_stay_out() -> None:
    assert element("p", "a\x00b\x1bc\ud800d").text == "<p>a b c d</p>"


@pytest.mark.parametrize(("child", "expected"), [("<b>", "&lt;b&gt;"), (Html("<b>"), "<b>"), (None, "")])
def test_only_markup_is_taken_as_it_stands(child, expected) -> None:
    assert element("p", child, class_="x", title='"').text == f'<p class="x" title="&quot;">{expected}</p>'
    assert together([child]).text == expected
