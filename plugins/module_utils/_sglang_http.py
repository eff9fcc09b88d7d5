# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Requests to one SGLang server: bounded in time and size, never redirected, the key only in the header."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import socket
import threading
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import address_to_ask

MAX_BYTES = 2 * 1024 * 1024
_TEXT_BYTES = 16384

Failure = t.Literal["refused", "timeout", "broken", "unreachable"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came back. `failure` says why there is no status; `error` is the operating system's text for it."""

    status: int | None = None
    body: bytes = b""
    seconds: float = 0.0
    failure: Failure | None = None
    error: str = ""
    truncated: bool = False

    def json(self) -> t.Any:
        """The body as JSON, None where it is not."""
        try:
            return json.loads(self.body.decode("utf-8"))
        except (ValueError, RecursionError):
            return None

    def text(self) -> str:
        """The beginning of the body on one line, for a message."""
        return " ".join(self.body[:_TEXT_BYTES].decode("utf-8", "replace").split())


class Opener(t.Protocol):
    """One request to the server. Never raises for what the server does."""

    def __call__(
        self, path: str, *, timeout: float, payload: t.Mapping[str, t.Any] | None = None, with_key: bool = True
    ) -> Answer: ...


def check_key(key: str | None) -> None:
    """ValueError for a key that cannot stand in a header. The message never holds the key."""
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip() and key):
        raise ValueError("api_key must be printable ASCII without blanks at its ends: SGLang can compare no other")


class HttpOpener:
    """The real Opener. A redirect is an answer like any other: it is not followed, so the key goes nowhere else."""

    def __init__(self, host: str, port: int, clock: Clock, *, api_key: str | None = None) -> None:
        check_key(api_key)
        self._host = address_to_ask(host)
        self._port = port
        self._clock = clock
        self._key = api_key

    def __call__(
        self, path: str, *, timeout: float, payload: t.Mapping[str, t.Any] | None = None, with_key: bool = True
    ) -> Answer:
        begun = self._clock.monotonic()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        expired = threading.Event()
        cut: threading.Timer | None = None
        try:
            connection.connect()
            # A socket's own timeout counts per read: a server that sends a byte now and then would never meet it.
            left = max(0.05, timeout - (self._clock.monotonic() - begun))
            cut = threading.Timer(left, _cut, (connection.sock, expired))
            cut.daemon = True
            cut.start()
            answer = self._ask(connection, path, payload, with_key)
        except (http.client.HTTPException, OSError) as error:
            answer = _failed(error, timeout, connected=cut is not None)
        finally:
            if cut is not None:
                cut.cancel()
            connection.close()
        if expired.is_set() and answer.failure is not None:
            answer = Answer(failure="timeout", error=f"no complete answer within {timeout:g} s")
        return dataclasses.replace(answer, seconds=max(0.0, self._clock.monotonic() - begun))

    def _ask(
        self, connection: http.client.HTTPConnection, path: str, payload: t.Mapping[str, t.Any] | None, with_key: bool
    ) -> Answer:
        headers = {"Accept": "application/json", "Connection": "close"}
        if self._key is not None and with_key:
            headers["Authorization"] = f"Bearer {self._key}"
        body = None
        if payload is not None:
            body = json.dumps(payload).encode()
            headers["Content-Type"] = "application/json"
        connection.request("GET" if body is None else "POST", path, body=body, headers=headers)
        response = connection.getresponse()
        content = response.read(MAX_BYTES + 1)
        expected = response.length  # what Content-Length promised and was not read
        if expected and len(content) <= MAX_BYTES:
            return Answer(failure="broken", error=f"the answer ended {expected} bytes early")
        return Answer(status=response.status, body=content[:MAX_BYTES], truncated=len(content) > MAX_BYTES)


def _failed(error: Exception, timeout: float, *, connected: bool) -> Answer:
    if isinstance(error, ConnectionRefusedError):
        return Answer(failure="refused", error="connection refused")
    # Python 3.9 has a class of its own for a socket's time-out.
    if isinstance(error, (TimeoutError, socket.timeout)):
        return Answer(failure="timeout", error=f"no answer within {timeout:g} s")
    # Only the class for protocol errors: their text may quote what was received or sent.
    if isinstance(error, http.client.HTTPException):
        return Answer(failure="broken", error=type(error).__name__)
    return Answer(failure="broken" if connected else "unreachable", error=str(error))


def _cut(sock: socket.socket, expired: threading.Event) -> None:
    expired.set()
    with contextlib.suppress(OSError):  # it has ended in the meantime
        sock.shutdown(socket.SHUT_RDWR)
