# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of a scheduled run that ended: run as systemd runs it, with a webhook that really listens."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import typing as t

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "roles" / "drift_schedule" / "files" / "report_run.py"
TOKEN = "T0PSECRET"
ENDED = {
    "well": {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"},
    "drifted": {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "2"},
    "unreachable": {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "4"},
    "too long": {"SERVICE_RESULT": "timeout", "EXIT_CODE": "exited", "EXIT_STATUS": "99"},
    "killed": {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"},
}


class Hook(t.NamedTuple):
    path: pathlib.Path
    got: list[dict[str, t.Any]]


@pytest.fixture
def hook(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[[int], Hook]]:
    servers: list[http.server.HTTPServer] = []

    def listen(answer: int) -> Hook:
        got: list[dict[str, t.Any]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.headers["Content-Type"] == "application/json"
                got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(answer)
                self.end_headers()

            def log_message(self, *arguments: t.Any) -> None:
                """Nothing."""

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = tmp_path / "hook"
        path.write_text(f"http://127.0.0.1:{server.server_port}/{TOKEN}\n")
        return Hook(path, got)

    yield listen
    for server in servers:
        server.shutdown()
        server.server_close()


def run(ended: str, *words: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "--name", "cleanslate-drift", *map(str, words)],
        env=ENDED[ended], capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ended", "success", "code"),
    [("well", 1, 0), ("drifted", 0, 2), ("unreachable", 0, 4), ("too long", 0, 99), ("killed", 0, -1)],
)  # fmt: skip
def test_the_metric_tells_how_it_ended(ended: str, success: int, code: int, tmp_path: pathlib.Path) -> None:
    assert run(ended, "--metrics-dir", tmp_path).returncode == 0
    (path,) = tmp_path.iterdir()
    assert path.name == "cleanslate-drift.prom"
    assert oct(path.stat().st_mode)[-3:] == "644"
    values = dict(line.rsplit(" ", 1) for line in path.read_text().splitlines() if not line.startswith("#"))
    assert values['cleanslate_schedule_last_run_success{name="cleanslate-drift"}'] == str(success)
    assert values['cleanslate_schedule_last_run_exit_code{name="cleanslate-drift"}'] == str(code)


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ("drifted", "has drifted"),
        ("unreachable", "could not be reached"),
        ("too long", "time limit"),
        ("killed", "signal KILL"),
    ],
)  # fmt: skip
def test_a_failure_is_sent_in_words(ended: str, words: str, hook: t.Callable[[int], Hook]) -> None:
    to = hook(200)
    assert run(ended, "--webhook-file", to.path).returncode == 0
    (sent,) = to.got
    assert (sent["schema"], sent["event"], sent["name"]) == (1, "scheduled_run_failed", "cleanslate-drift")
    assert words in sent["text"]
    assert "journalctl -u cleanslate-drift.service" in sent["text"]


def test_nothing_is_sent_where_all_is_well(hook: t.Callable[[int], Hook]) -> None:
    to = hook(200)
    assert run("well", "--webhook-file", to.path).returncode == 0
    assert to.got == []


def test_a_webhook_that_refuses_is_told_without_its_address(hook: t.Callable[[int], Hook]) -> None:
    done = run("drifted", "--webhook-file", hook(500).path)
    assert done.returncode == 1
    assert "the webhook answered 500" in done.stderr
    assert TOKEN not in done.stderr


@pytest.mark.parametrize(
    "says", [b"garbage\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n"]
)
def test_whoever_answers_with_something_else_than_http_is_told(says: bytes, tmp_path: pathlib.Path) -> None:
    def answer() -> None:
        connection, _address = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(says)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        (tmp_path / "hook").write_text(f"http://127.0.0.1:{listener.getsockname()[1]}/{TOKEN}\n")
        done = run("drifted", "--webhook-file", tmp_path / "hook")
    assert done.returncode == 1
    assert done.stderr.startswith("report_run: the failure was not sent: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert TOKEN not in done.stderr


def test_a_metric_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    """A full disk ends the same way; whatever is left would be one more file at each run."""
    (tmp_path / "cleanslate-drift.prom").mkdir()
    done = run("well", "--metrics-dir", tmp_path)
    assert done.returncode == 1
    assert "no metric in" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cleanslate-drift.prom"]


def test_one_reader_that_is_missing_does_not_keep_it_from_the_other(
    hook: t.Callable[[int], Hook], tmp_path: pathlib.Path
) -> None:
    to = hook(200)
    done = run("drifted", "--metrics-dir", tmp_path / "not there", "--webhook-file", to.path)
    assert done.returncode == 1
    assert "no metric in" in done.stderr
    assert len(to.got) == 1
