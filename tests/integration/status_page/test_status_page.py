# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The status page in a real browser: on a wide screen and on a phone, in light and in dark."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import chromium
from shown_nodes import three_nodes, worst_node

PAGES = {"three nodes": three_nodes, "the worst node": worst_node}
SCREENS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
# Text that is shown, with the contrast to the ground behind it, as WCAG 2 computes it.
CONTRASTS = """
(() => {
  const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const channel = (value) => { const c = value / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.body.querySelectorAll('*')) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join('').trim();
    if (!text || !element.getClientRects().length) continue;
    const pair = [light(numbers(getComputedStyle(element).color)), light(ground(element))].sort((a, b) => b - a);
    found.push([(pair[0] + 0.05) / (pair[1] + 0.05), text.slice(0, 40)]);
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def browser() -> t.Iterator[chromium.Chromium]:
    program = chromium.find()
    if program is None:
        pytest.skip(f"no browser is on PATH ({', '.join(chromium.NAMES)}): the page is not looked at")
    with chromium.opened(program) as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(params=PAGES)
def page(request, folder) -> pathlib.Path:
    path = folder / f"{request.param.replace(' ', '-')}.html"
    path.write_text(PAGES[request.param](), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_it_fits_is_legible_and_fetches_nothing(browser, page, width, scheme) -> None:
    browser.show(page, width, scheme)
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    outside = "[...document.body.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)"
    assert browser.evaluate(f"{outside}.map((e) => e.outerHTML.slice(0, 80))") == []
    contrasts = browser.evaluate(CONTRASTS)
    assert len(contrasts) > 20
    assert [entry for entry in contrasts if entry[0] < 4.5] == []
    assert browser.complaints() == []
    assert [url for url in browser.fetched() if url != page.as_uri() and not url.startswith("data:")] == []
    assert browser.evaluate("getComputedStyle(document.body).colorScheme") == "light dark"
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0] < 100")
    assert dark is (scheme == "dark")


def test_hostile_names_are_shown_and_do_nothing(browser, folder) -> None:
    path = folder / "hostile.html"
    path.write_text(worst_node(), encoding="utf-8")
    browser.show(path, 1280, "light")
    assert browser.evaluate("document.querySelectorAll('script, img, iframe, object').length") == 0
    assert browser.evaluate("window.hurt") is None
    text = browser.evaluate("document.body.innerText")
    assert "<script>window.hurt = 1</script>" in text
    assert "<img src=x" in text


def test_the_policy_of_the_page_would_stop_a_script(browser, folder) -> None:
    """The second line of defence, should a value ever come through unescaped."""
    path = folder / "broken.html"
    path.write_text(three_nodes().replace("<footer>", "<script>window.hurt = 3</script><footer>"), encoding="utf-8")
    browser.show(path, 1280, "light")
    assert browser.evaluate("document.querySelectorAll('script').length") == 1
    assert browser.evaluate("window.hurt") is None
    assert browser.complaints()


def test_it_is_built_for_those_who_do_not_see_it(browser, folder) -> None:
    path = folder / "structure.html"
    path.write_text(three_nodes(), encoding="utf-8")
    browser.show(path, 390, "dark")
    assert browser.evaluate("document.documentElement.lang") == "en"
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    assert browser.evaluate("[...document.querySelectorAll('h2')].map((e) => e.textContent)") == [
        "gpu1",
        "gpu2",
        "gpu3",
    ]
    unnamed = "[...document.querySelectorAll('table')].filter((e) => !e.caption || !e.querySelector('th[scope=col]'))"
    assert browser.evaluate(f"{unnamed}.length") == 0
    # Each state says its word, whatever its colour.
    badges = browser.evaluate("[...document.querySelectorAll('h2 + .badge')].map((e) => e.innerText.trim())")
    assert badges == ["✓ well", "! attention", "? not known"]
    links = browser.evaluate("[...document.links].map((e) => !!document.querySelector(e.getAttribute('href')))")
    assert links == [True, True, True]


def test_a_bar_is_as_long_as_its_gpu_is_full_and_unread_is_not_empty(browser, folder) -> None:
    path = folder / "bars.html"
    path.write_text(worst_node(), encoding="utf-8")
    browser.show(path, 1280, "light")
    full = browser.evaluate(
        "[...document.querySelectorAll('.bar')].map((bar) => bar.querySelector('rect') &&"
        " bar.querySelector('rect').getBoundingClientRect().width / bar.getBoundingClientRect().width)"
    )
    assert full[0] is None
    assert [round(share, 2) for share in full[1:]] == [1.0, 0.01, 0.0]
    striped = "getComputedStyle(document.querySelector('.bar.unread')).backgroundImage.includes('repeating')"
    assert browser.evaluate(striped)
