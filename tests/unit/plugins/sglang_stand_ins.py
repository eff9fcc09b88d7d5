# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand-ins for the tests of what talks to SGLang: clock, HTTP server, systemctl, and a tiny server process."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer
from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

KEY = "sk-PLANTED-4711-secret"


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)


class FakeOpener:
    """Answers by path; remembers what was asked and whether the key would have been sent."""

    def __init__(self, answers: t.Mapping[str, Answer | list[Answer]], clock: FakeClock | None = None) -> None:
        self.answers = {path: list(given) if isinstance(given, list) else [given] for path, given in answers.items()}
        self.asked: list[str] = []
        self.with_key: list[str] = []
        self._clock = clock

    def __call__(
        self, path: str, *, timeout: float, payload: t.Mapping[str, t.Any] | None = None, with_key: bool = True
    ) -> Answer:
        self.asked.append(path)
        if with_key:
            self.with_key.append(path)
        given = self.answers.get(path, [Answer(status=404)])
        answer = given.pop(0) if len(given) > 1 else given[0]
        if self._clock is not None:
            self._clock.sleep(answer.seconds)
        return answer


def answer(data: t.Any, status: int = 200, seconds: float = 0.1) -> Answer:
    return Answer(status=status, body=json.dumps(data).encode(), seconds=seconds)


GOOD = {
    "/health": Answer(status=200, seconds=1.0),
    "/v1/models": answer({"object": "list", "data": [{"id": "kimi"}]}),
    "/v1/completions": answer({"choices": [{"text": "x"}], "usage": {"completion_tokens": 4}}),
    "/v1/loads": answer({"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 1, "num_used_tokens": 10}]}),
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Handler(http.server.BaseHTTPRequestHandler):
    """Plays the endpoints according to the server's mode."""

    server: HttpStandIn

    def log_message(self, format: str, *args: t.Any) -> None:  # noqa: A002
        pass

    def _reply(self, status: int, body: bytes = b"", headers: t.Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._handle()

    def _handle(self) -> None:
        server = self.server
        server.seen.append((self.path, self.headers.get("Authorization")))
        mode = server.modes.get(self.path, server.modes.get("*", "ok"))
        if mode == "hang":
            server.released.wait(30)
            return
        if mode == "drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            with contextlib.suppress(OSError):
                while not server.released.wait(0.1):
                    self.wfile.write(b"x")
                    self.wfile.flush()
            return
        if mode == "short":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")
            return
        if mode == "garbage":
            self.wfile.write(b"SSH-2.0-nothing\r\n")
            return
        if mode == "big":
            self._reply(200, b"y" * (3 * 1024 * 1024))
            return
        if mode == "huge":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                for dummy in range(1024):
                    self.wfile.write(b"z" * 65536)
                    server.sent += 65536
            return
        if mode == "redirect":
            self._reply(302, headers={"Location": server.elsewhere})
            return
        if mode.isdigit():
            self._reply(int(mode), server.error_body)
            return
        sent = self.headers.get("Authorization")
        if server.key is not None and self.path not in ("/health", "/metrics") and sent != f"Bearer {server.key}":
            self._reply(401, json.dumps({"error": f"Unauthorized {sent}"}).encode())
            return
        bodies = {
            "/health": {},
            "/v1/models": {"data": [{"id": server.model}]},
            "/v1/completions": {"choices": [{"text": "hi"}]},
            "/v1/loads": {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0, "num_used_tokens": 0}]},
            "/server_info": {"api_key": server.key},
        }
        if self.path in bodies:
            self._reply(200, json.dumps(bodies[self.path]).encode())
        else:
            self._reply(404)


class HttpStandIn(http.server.ThreadingHTTPServer):
    """A tiny HTTP server. modes: path (or *) to ok, hang, drip, short, garbage, big, huge, redirect, or a status."""

    daemon_threads = True

    def __init__(self, modes: t.Mapping[str, str] | None = None, key: str | None = None, model: str = "kimi") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.modes = dict(modes or {})
        self.key = key
        self.model = model
        self.elsewhere = ""
        self.error_body = b""
        self.sent = 0
        self.seen: list[tuple[str, str | None]] = []
        self.released = threading.Event()
        self.port: int = self.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> HttpStandIn:  # noqa: PYI034 (typing.Self is younger than Python 3.9)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        pass


class UnitStandIn:
    """A systemctl script that prints the properties of one unit, which the test may change at any time."""

    def __init__(self, folder: t.Any) -> None:
        self.systemctl = os.path.join(str(folder), "systemctl")
        self._answer = os.path.join(str(folder), "systemctl.answer")
        with open(self.systemctl, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\ncat "$0.answer"\n')
        os.chmod(self.systemctl, 0o755)
        self.says(LoadState="not-found", ActiveState="inactive", SubState="dead")

    def says(self, **properties: str) -> None:
        with open(self._answer + ".new", "w", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in properties.items())
        os.rename(self._answer + ".new", self._answer)

    def runs(self, pid: int, **more: str) -> None:
        self.says(LoadState="loaded", ActiveState="active", SubState="running", MainPID=str(pid), **more)


# Starts children that carry a scheduler's title, writes a log, binds its port late, and dies when told so.
_SERVER = r"""
import http.server, json, os, signal, subprocess, sys, time
options = json.loads(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *a: os._exit(0))
log = open(options["log"], "a", buffering=1) if options["log"] else None
def say(text, end="\n"):
    if log:
        log.write(time.strftime("[%Y-%m-%d %H:%M:%S] ") * (end == "\n") + text + end); log.flush()
code = "import os,sys,time\nwhile os.getppid() == int(sys.argv[1]): time.sleep(0.05)"
workers = [subprocess.Popen([f"sglang::scheduler_TP{i}", "-c", code, str(os.getpid())], executable=sys.executable)
           for i in range(options["workers"])]
for line in options["lines"]:
    say(line)
if options["kill_worker"]:
    workers[1].kill()
    if options["reap"]:
        workers[1].wait()
if options["exit"] is not None:
    os._exit(options["exit"])
time.sleep(options["bind_after"])
bound = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self): self.answer()
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", "0"))); self.answer()
    def answer(self):
        status, body = 200, {}
        if options["hangs"]: time.sleep(600)
        if self.path == "/health" and time.monotonic() - bound < options["starting"]: status = 503
        elif self.path != "/health" and options["key"] and self.headers["Authorization"] != "Bearer " + options["key"]:
            status, body = 401, {"error": "bad key, wanted " + options["key"]}
        elif self.path == "/v1/models": body = {"data": [{"id": options["model"]}]}
        elif self.path == "/v1/completions": body = {"choices": [{"text": "x"}]}
        elif self.path == "/server_info": body = {"api_key": options["key"], "internal_states": []}
        elif self.path != "/health": status = 404
        data = json.dumps(body).encode()
        self.send_response(status); self.send_header("Content-Length", str(len(data))); self.end_headers()
        self.wfile.write(data)
server = http.server.ThreadingHTTPServer(("127.0.0.1", options["port"]), Handler)
server.daemon_threads = True
say("Uvicorn running on http://127.0.0.1:%d" % options["port"])
say("The server is fired up and ready to roll!")
server.serve_forever(0.02)
"""


class ServerProcess:
    """A real process that looks like a small SGLang from outside: tree, titles, log, port, endpoints."""

    def __init__(self, log: t.Any = "", **options: t.Any) -> None:
        self.port: int = options.pop("port", None) or free_port()
        defaults: dict[str, t.Any] = {
            "workers": 2,
            "lines": (),
            "kill_worker": False,
            "reap": True,
            "exit": None,
            "bind_after": 0.0,
            "starting": 0.0,
            "hangs": False,
            "key": None,
            "model": "kimi",
        }
        unknown = set(options) - set(defaults)
        if unknown:
            raise AssertionError(f"Contract violation: no such option: {unknown}")
        chosen = {**defaults, **options, "port": self.port, "log": str(log)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, json.dumps(chosen)], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def __enter__(self) -> ServerProcess:  # noqa: PYI034
        return self

    def __exit__(self, *args: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for_port(self, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        raise AssertionError(f"port {self.port} was not opened within {seconds} s")


def installed_files(folder: t.Any, port: int, key: str, log: t.Any) -> dict[str, str]:
    """Unit and configuration of a server with two workers, in the role's form and older than anything that runs."""
    unit, config = (os.path.join(str(folder), name) for name in ("sglang.service", "sglang.yaml"))
    texts = {
        unit: "# Written by cleanslate.gpu.sglang_server for profile kimi; changes are lost at the next relaunch.\n"
        f"[Service]\nExecStart=python -m sglang.launch_server --config {config}\nStandardOutput=append:{log}\n",
        config: f'api-key: "{key}"\nmodel-path: "/m"\nport: {port}\ntp-size: 2\n',
    }
    for path, text in texts.items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.utime(path, (1e9, 1e9))
    return {"unit_path": unit, "config_path": config}


def run_module(name: str, folder: t.Any, **arguments: t.Any) -> tuple[dict[str, t.Any], str]:
    """A module as a real process: its result, and everything it printed."""
    given = {"_ansible_remote_tmp": str(folder), **arguments}
    return module_process.finish(module_process.start(name, pathlib.Path(folder), given))
