# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests against real servers on loopback."""

from __future__ import annotations

import socket
import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import address_to_ask
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import (
    MAX_BYTES,
    HttpOpener,
    check_key,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import KEY, HttpStandIn, free_port


def opener(port: int, key: str | None = None) -> HttpOpener:
    return HttpOpener("127.0.0.1", port, SystemClock(), api_key=key)


def test_an_answer_has_status_body_and_seconds() -> None:
    with HttpStandIn() as server:
        answer = opener(server.port)("/v1/models", timeout=20)
    assert (answer.status, answer.failure, answer.truncated) == (200, None, False)
    assert answer.json() == {"data": [{"id": "kimi"}]}
    assert 0 <= answer.seconds < 20


def test_a_payload_makes_it_a_post() -> None:
    with HttpStandIn() as server:
        answer = opener(server.port)("/v1/completions", timeout=20, payload={"prompt": "x"})
    assert answer.json() == {"choices": [{"text": "hi"}]}


def test_a_closed_port_is_refused() -> None:
    answer = opener(free_port())("/health", timeout=20)
    assert (answer.status, answer.failure) == (None, "refused")


@pytest.mark.parametrize("mode", ["hang", "drip"])
def test_the_deadline_holds_for_silence_and_for_a_trickle(mode: str) -> None:
    with HttpStandIn({"*": mode}) as server:
        begun = time.monotonic()
        answer = opener(server.port)("/health", timeout=1.0)
        assert time.monotonic() - begun < 15
    assert (answer.status, answer.failure) == (None, "timeout")


def test_a_port_that_accepts_and_says_nothing_meets_the_deadline() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        answer = opener(listening.getsockname()[1])("/health", timeout=0.5)
    assert answer.failure == "timeout"


@pytest.mark.parametrize("mode", ["short", "garbage"])
def test_a_broken_answer_is_no_answer(mode: str) -> None:
    with HttpStandIn({"*": mode}) as server:
        answer = opener(server.port)("/health", timeout=20)
    assert (answer.status, answer.failure) == (None, "broken")


def test_a_big_answer_is_cut() -> None:
    with HttpStandIn({"*": "big"}) as server:
        answer = opener(server.port)("/server_info", timeout=20)
    assert answer.truncated
    assert len(answer.body) == MAX_BYTES


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with HttpStandIn({"*": "huge"}) as server:
        answer = opener(server.port)("/server_info", timeout=60)
        assert answer.truncated
        assert server.sent < 32 * 1024 * 1024


def test_a_redirect_is_not_followed_and_the_key_goes_nowhere() -> None:
    with HttpStandIn({"*": "redirect"}) as server, HttpStandIn() as other:
        server.elsewhere = f"http://127.0.0.1:{other.port}/v1/models"
        answer = opener(server.port, KEY)("/v1/models", timeout=20)
        assert answer.status == 302
        assert other.seen == []


def test_the_key_is_in_the_header_only_and_only_where_it_is_wanted() -> None:
    with HttpStandIn(key=KEY) as server:
        ask = opener(server.port, KEY)
        assert ask("/v1/models", timeout=20).status == 200
        assert ask("/health", timeout=20, with_key=False).status == 200
        assert server.seen == [("/v1/models", f"Bearer {KEY}"), ("/health", None)]


@pytest.mark.parametrize("key", ["", "zq\nb", "zq\r\nX: y", "schlüssel", " zq", "zq ", "zq\0b"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        check_key(key)
    assert not key.strip() or key not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("[::]", "::1"), ("", "127.0.0.1"), ("10.0.0.5", "10.0.0.5")],
)
def test_wildcard_addresses_are_asked_on_loopback(host: str, asked: str) -> None:
    assert address_to_ask(host) == asked


def test_the_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with HttpStandIn() as server:
        assert opener(server.port)("/health", timeout=20).status == 200
