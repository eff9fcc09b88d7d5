# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The HTTP side: the endpoints, keys and answers of the real server, one token deep."""

from __future__ import annotations

import http.server
import json
import socket
import sys
import threading
import time
import typing as t

from sglang import workers
from sglang.behaviour import Behaviour

ALWAYS_OPEN = ("/health", "/ready", "/metrics")


class State:
    """What the endpoints tell, shared with the launcher's main loop."""

    def __init__(self, behaviour: Behaviour, arguments: t.Any, below: t.Sequence[workers.Worker]) -> None:
        self.behaviour = behaviour
        self.arguments = arguments
        self.below = below
        self.status = "Starting"  # Starting, Up, UnHealthy
        self.draining = False
        self.running = behaviour.requests_running
        self.ready_at: float | None = None
        self.one_at_a_time = threading.Lock()
        self.model = behaviour.served_model or arguments.served_model_name or arguments.model_path

    @property
    def overloaded(self) -> bool:
        return self.ready_at is not None and time.monotonic() - self.ready_at < self.behaviour.overloaded_s

    def used_tokens(self) -> int:
        """They change with every step of the model, which goes on under too many requests as well."""
        return int(time.monotonic() * 1000) if self.overloaded else 0

    def generate(self) -> bool:
        limit = 20 * self.behaviour.time_scale
        if self.overloaded:
            time.sleep(limit)
            return False
        if self.behaviour.healthy_without_worker:
            return True
        if not self.one_at_a_time.acquire(timeout=limit):
            return False
        try:
            return workers.round_trip(self.below, limit)
        finally:
            self.one_at_a_time.release()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "uvicorn"
    sys_version = ""
    state: State
    log: t.Callable[[str], None]

    def log_message(self, format: str, *args: t.Any) -> None:  # noqa: A002
        """uvicorn's access log goes to stdout."""
        host, port = self.client_address[:2]
        sys.stdout.write(f"{time.strftime('[%Y-%m-%d %H:%M:%S]')} INFO:     {host}:{port} - {format % args}\n")
        sys.stdout.flush()

    def log_request(self, code: t.Any = "-", size: t.Any = "-") -> None:
        phrase = http.server.BaseHTTPRequestHandler.responses.get(int(code), ("",))[0]
        self.log_message('"%s" %d %s', self.requestline, int(code), phrase)

    def reply(self, code: int, body: t.Any = None, kind: str = "application/json") -> None:
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refused(self, path: str) -> bool:
        key = self.state.arguments.api_key
        if path.startswith(ALWAYS_OPEN) or not key:
            return False
        if self.headers.get("authorization") == "Bearer " + key:
            return False
        self.reply(self.state.behaviour.key_refusal, {"error": "Unauthorized"})
        return True

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        state = self.state
        if self.refused(path):
            return
        if path in ("/health", "/health_generate"):
            self.health()
        elif path == "/ready" and state.behaviour.version == "0.5.23":
            self.reply(200 if state.status == "Up" and not state.draining else 503)
        elif path == "/ping":
            self.reply(200 if state.status == "Up" else 503)
        elif path == "/":
            self.reply(200, "SGLang is running", "text/plain")
        elif path in ("/model_info", "/get_model_info"):
            self.reply(200, {"model_path": state.arguments.model_path, "is_generation": True})
        elif path in ("/server_info", "/get_server_info"):
            info = dict(vars(state.arguments), version=state.behaviour.version, internal_states=[{}])
            self.reply(200, info)
        elif path == "/v1/models":
            card = {"id": state.model, "object": "model", "owned_by": "sglang", "root": state.arguments.model_path}
            self.reply(200, {"object": "list", "data": [card]})
        elif path == "/v1/loads":
            load = {"dp_rank": 0, "num_running_reqs": state.running, "num_waiting_reqs": 0,
                    "num_used_tokens": state.used_tokens()}  # fmt: skip
            together = {"total_running_reqs": state.running, "total_waiting_reqs": 0}
            self.reply(200, {"loads": [load], "aggregate": together})
        elif path == "/metrics" and state.arguments.enable_metrics:
            label = f'{{model_name="{state.model}"}}'
            self.reply(200, f"sglang:num_running_reqs{label} {state.running}\nsglang:num_queue_reqs{label} 0\n",
                       "text/plain")  # fmt: skip
        else:
            self.reply(404, {"detail": "Not Found"})

    def health(self) -> None:
        state = self.state
        if state.draining:
            self.log("Health check request received during shutdown. Returning 503.")
            self.reply(503)
        elif state.status == "Starting":
            self.reply(503)
        elif state.generate():
            # The real handler looks once a second whether its token has come.
            time.sleep(1.0 * state.behaviour.time_scale)
            state.status = "Up"
            self.reply(200)
        else:
            state.status = "UnHealthy"
            self.log(
                "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
                "tic start time: {}. last_heartbeat time: {}".format(time.strftime("%X"), time.strftime("%X"))
            )
            self.reply(503)

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.refused(path):
            return
        try:
            asked = json.loads(raw or b"{}")
        except ValueError:
            self.reply(400, {"object": "error", "message": "the body is not JSON", "code": 400})
            return
        if path not in ("/generate", "/v1/completions", "/v1/chat/completions"):
            self.reply(404, {"detail": "Not Found"})
            return
        if not self.state.generate():
            # The real one never answers; here the client is cut off, so that the thread can end.
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if path == "/generate":
            self.reply(200, {"text": " ok", "meta_info": {"finish_reason": {"type": "length", "length": 1}, **usage}})
            return
        choice: dict[str, t.Any] = {"index": 0, "finish_reason": "length"}
        choice.update({"text": " ok"} if path == "/v1/completions" else {"message": {"role": "assistant",
                                                                                     "content": " ok"}})  # fmt: skip
        self.reply(200, {"id": "sim-1", "object": "text_completion", "created": int(time.time()),
                         "model": asked.get("model") or self.state.model, "choices": [choice],
                         "usage": usage})  # fmt: skip


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def bind(state: State, log: t.Callable[[str], None]) -> Server:
    """Raises OSError when the port is taken."""
    handler = type("BoundHandler", (Handler,), {"state": state, "log": staticmethod(log)})
    return Server((state.arguments.host, int(state.arguments.port)), handler)
