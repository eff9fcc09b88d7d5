# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests against real servers on loopback."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import address_to_ask
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import (
    MAX_BYTES,
    Answer,
    HttpOpener,
    check_key,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import (
    KEY,
    FakeClock,
    HttpStandIn,
    free_port,
)


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
    if mode == "garbage":
        assert answer.error == "BadStatusLine", "its text would quote what was received"


class Listener:
    """Answers one request with what it is told, and keeps the request."""

    def __init__(self, answer: bytes, *, posted: bool = False) -> None:
        self.answer = answer
        self.posted = posted
        self.request = b""
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self) -> None:
        with self.socket.accept()[0] as asker:
            end = b"}" if self.posted else b"\r\n\r\n"
            while not self.request.endswith(end):
                self.request += asker.recv(65536)
            asker.sendall(self.answer)

    def __enter__(self) -> Listener:  # noqa: PYI034 (typing.Self is younger than Python 3.9)
        self.thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.thread.join(10)
        self.socket.close()


def test_what_is_sent_with_and_without_a_payload() -> None:
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with Listener(ok) as got:
        assert opener(got.port)("/health", timeout=20).status == 200
    assert got.request.startswith(b"GET /health HTTP/1.1\r\n")
    assert b"Content-Type" not in got.request
    with Listener(ok, posted=True) as posted:
        assert opener(posted.port)("/generate", timeout=20, payload={"a": 1}).status == 200
    head, dummy, body = posted.request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /generate HTTP/1.1\r\n")
    assert b"Content-Type: application/json" in head
    assert json.loads(body) == {"a": 1}


@pytest.mark.parametrize(("more", "truncated"), [(0, False), (1, True)])
def test_two_mib_are_read_and_no_more(more: int, truncated: bool) -> None:
    size = 2 * 1024 * 1024 + more
    with Listener(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size) as got:
        answer = opener(got.port)("/server_info", timeout=20)
    assert (answer.status, answer.truncated, len(answer.body)) == (200, truncated, 2 * 1024 * 1024)


@pytest.mark.parametrize(("where", "failure"), [("connect", "unreachable"), ("getresponse", "broken")])
def test_how_far_a_request_came_before_the_network_failed(
    monkeypatch: pytest.MonkeyPatch, where: str, failure: str
) -> None:
    def fails(*given: t.Any) -> None:
        raise OSError(113, "No route to host")

    with HttpStandIn() as server:
        monkeypatch.setattr(http.client.HTTPConnection, where, fails)
        answer = opener(server.port)("/health", timeout=20)
    assert (answer.status, answer.failure) == (None, failure)
    assert "No route to host" in answer.error


def test_seconds_are_those_of_the_clock() -> None:
    with HttpStandIn() as server:
        assert HttpOpener("127.0.0.1", server.port, FakeClock())("/health", timeout=20).seconds == 0.0


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_none(body: bytes) -> None:
    assert Answer(status=200, body=body).json() is None
    assert (Answer(status=200).seconds, Answer(status=200).truncated) == (0.0, False)


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
