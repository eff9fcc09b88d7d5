# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
import stories
from driving import until

KEY = "sim-secret-key"
QUICK = {"load_s": 0.5, "warmup_s": 0.05, "gpu_mib": 6000, "time_scale": 0.01, "release_delay_s": 0.1,
         "release_tail": [4, 0.1]}  # fmt: skip


class Server:
    """A server started by hand, as our child: its end can be seen."""

    def __init__(self, node, *argv, config=None, **settings):
        self.node = node
        text = {"model-path": "/models/m", "served-model-name": "m", "tp-size": 8, "port": node.port, **(config or {})}
        self.config = pathlib.Path(node.path, "server.yaml")
        self.config.write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in text.items()), encoding="utf-8")
        self.log = pathlib.Path(node.path, "server.log")
        environment = dict(os.environ, SIM_SERVER=json.dumps({**QUICK, **settings}))
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [node.path + "/bin/python", "-m", "sglang.launch_server", "--config", str(self.config), *argv],
                stdout=output, stderr=output, start_new_session=True, env=environment,
            )  # fmt: skip

    def text(self):
        return self.log.read_bytes().decode()

    def says(self, words, timeout=30):
        return until(lambda: words in self.text(), timeout)

    def ready(self):
        assert self.says("fired up and ready to roll!"), self.text()
        return self

    def get(self, path, key=None, body=None, timeout=20):
        request = urllib.request.Request(f"http://127.0.0.1:{self.node.port}{path}")
        request.data = None if body is None else json.dumps(body).encode()
        if key:
            request.add_header("Authorization", "Bearer " + key)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (OSError, ValueError):
            return 0, ""

    def end(self, timeout=30):
        return self.process.wait(timeout)


def ranks(node):
    return sorted(role for role in node.processes() if role.startswith("scheduler"))


# ---- a server that works


def test_tree_titles_nodes_and_memory(node):
    server = Server(node).ready()
    found = node.processes()
    assert ranks(node) == [f"scheduler_TP{rank}" for rank in range(8)]
    launcher = found["launcher"][0]
    assert launcher.pid == server.process.pid
    assert " -m sglang.launch_server --config " in launcher.cmdline
    assert not launcher.held()
    for rank in range(8):
        one = found[f"scheduler_TP{rank}"][0]
        assert (one.parent, one.cmdline, one.comm) == (launcher.pid, f"sglang::scheduler_TP{rank}", "sglang::schedul")
        assert {f"dev/nvidia{gpu}" for gpu in range(8)} <= one.fds
        assert {n for n in one.maps if n.startswith("dev/")} == {f"dev/nvidia{rank}", "dev/nvidiactl", "dev/nvidia-uvm"}
    detokenizer = found["detokenizer"][0]
    assert (detokenizer.cmdline, detokenizer.comm) == ("sglang::detokenizer", "sglang::detoken")
    assert len(found["compile worker"]) == 2
    assert {one.comm for one in found["compile worker"]} == {"python3"}
    assert all("dev/nvidia7" in one.fds for one in found["compile worker"]), "they inherit every descriptor"
    assert node.used() == [6000] * 8
    assert [row[2] for row in node.apps()] == [f"sglang::scheduler_TP{rank}" for rank in range(8)]


def test_the_log_has_the_real_lines_in_the_real_order(node):
    server = Server(node, config={"api-key": KEY}).ready()
    text = server.text()
    places = [text.find(words) for words in (
        "server_args=ServerArgs(", "Init parallel begin.", "Load weight begin.", "Multi-thread loading shards:   0%",
        " 58% Completed | 37/64 [", "100% Completed | 64/64 [", "Load weight end.", "KV Cache is allocated.",
        "Memory pool end.", "Capture target decode CUDA graph begin.", "CUDA graph end.", "max_total_num_tokens=",
        f"Started server process [{server.process.pid}]", "Application startup complete.",
        f"Uvicorn running on http://127.0.0.1:{node.port}", "The server is fired up and ready to roll!")]  # fmt: skip
    assert -1 not in places
    assert places == sorted(places)
    assert f"api_key='{KEY}'" in text, "the real one prints its key too"
    shown = text[text.index("\rMulti-thread") : text.index("Load weight end")]
    assert shown.count("\r") == 65
    assert shown.count("\n") == 1
    assert re.search(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d TP0\] Load weight begin", text, re.M)


def test_health_refused_then_503_then_200(node):
    server = Server(node, load_s=1.5, warmup_s=1.5)
    assert server.says("Load weight begin")
    assert server.get("/health")[0] == 0
    middle = [used for used in (node.used(),) if used]
    assert server.says("Uvicorn running")
    assert server.get("/health")[0] == 503
    server.ready()
    assert server.get("/health")[0] == 200
    assert all(value <= 6000 for value in middle[0])
    assert node.used() == [6000] * 8


def test_endpoints_and_keys(node):
    server = Server(node, config={"api-key": KEY, "enable-metrics": True}).ready()
    for path in ("/health", "/health_generate", "/ready", "/metrics"):
        assert server.get(path)[0] == 200, path
    for path in ("/v1/models", "/model_info", "/get_model_info", "/server_info", "/v1/loads", "/ping", "/"):
        assert server.get(path)[0] == 401, path
        assert server.get(path, "wrong")[0] == 401, path
        assert server.get(path, KEY)[0] == 200, path
    assert json.loads(server.get("/v1/models", KEY)[1])["data"][0]["id"] == "m"
    assert KEY in server.get("/server_info", KEY)[1], "as the real one"
    assert server.get("/nosuch", KEY)[0] == 404
    for path in ("/generate", "/v1/completions", "/v1/chat/completions"):
        assert server.get(path, body={})[0] == 401
        assert " ok" in server.get(path, KEY, body={"max_tokens": 1})[1]


def test_without_metrics_and_in_an_older_version(node):
    server = Server(node, version="0.5.15").ready()
    assert [server.get(path)[0] for path in ("/metrics", "/ready", "/v1/models")] == [404, 404, 200]
    assert "TP0] Init torch distributed begin." in server.text(), "recorded; 0.5.23 has other words"
    server.process.terminate()
    server.end()
    assert f"kill_process_tree called: parent_pid={server.process.pid}," in server.text()


# ---- ends


@pytest.mark.parametrize(("version", "code"), [("0.5.23", 0), ("0.5.15", -signal.SIGKILL), ("0.5.12", -signal.SIGKILL)])
def test_sigterm_drains_and_ends_as_the_version_does(node, version, code):
    server = Server(node, version=version, requests_running=3, requests_finish_s=0.3).ready()
    server.process.terminate()
    assert server.says("Remaining number of requests 3.")
    assert server.end() == code
    assert server.says("Remaining number of requests 0.")
    assert until(lambda: node.used() == [0] * 8)
    assert ranks(node) == []


def test_the_drain_has_no_end_while_requests_run(node):
    server = Server(node, requests_running=1).ready()
    server.process.terminate()
    assert until(lambda: server.text().count("Remaining number of requests 1.") > 5)
    assert server.get("/health")[0] == 503
    assert server.process.poll() is None


def test_sigterm_during_load_is_fatal_at_once(node):
    server = Server(node, load_s=30)
    assert server.says("Load weight begin")
    server.process.terminate()
    assert server.end() == -signal.SIGTERM
    assert until(lambda: ranks(node) == []), "by their death signal"


def test_sigterm_ignored(node):
    server = Server(node, ignore_term=True).ready()
    server.process.terminate()
    time.sleep(0.3)
    assert server.process.poll() is None
    assert server.get("/health")[0] == 200


@pytest.mark.parametrize(("settings", "code", "words"), [
    ({"die_at": {"stage": "init", "exit_code": 1}}, 1, "Scheduler hit an exception"),
    ({"die_at": {"stage": "graph", "signal": 9}}, -9, "Memory pool end"),
    ({"die_at": {"stage": "arguments", "exit_code": 2}}, 2, "server_args"),
    ({"die_after_s": 0.1}, 0, "fired up"),
    ({"die_after_s": 0.1, "die": {"signal": 11}}, -11, "fired up"),
    ({"worker_dies_at": {"stage": "weights", "rank": 3}}, -9, "Rank 3 scheduler died during initialization"),
    ({"worker_dies_after_s": 0.1}, -9, "Subprocess scheduler_0 (pid="),
])  # fmt: skip
def test_deaths(node, settings, code, words):
    server = Server(node, **settings)
    assert server.end() == code, server.text()
    assert words in server.text()
    assert until(lambda: node.used() == [0] * 8)
    assert ranks(node) == []


def test_a_taken_port_is_noticed_after_the_load_only(node):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", node.port))
        taken.listen()
        server = Server(node)
        assert server.end() == 3
    assert "Memory pool end" in server.text()
    assert "error while attempting to bind on address" in server.text()


@pytest.mark.parametrize(("config", "argv", "code", "words"), [
    ({"tp_size": 8}, [], 2, "unrecognized arguments: --tp_size 8"),
    ({"nonsense": 1}, [], 2, "unrecognized arguments: --nonsense 1"),
    ({}, ["--bogus"], 2, "launch_server.py: error: unrecognized arguments: --bogus"),
    ({"disable-cuda-graph": True}, [], 1, "Unsupported config option"),
    ({"served-model-name": "a:b"}, [], 1, "colon"),
])  # fmt: skip
def test_arguments_that_are_refused(node, config, argv, code, words):
    server = Server(node, *argv, config=config)
    assert server.end() == code
    assert words in server.text()


def test_argv_goes_before_the_file_before_the_default(node):
    server = Server(node, "--served-model-name", "from-argv", "--tp-size", "2", config={"tp-size": 4}).ready()
    assert json.loads(server.get("/v1/models")[1])["data"][0]["id"] == "from-argv"
    assert ranks(node) == ["scheduler_TP0", "scheduler_TP1"]


# ---- servers that hang, lie or leave something behind


@pytest.mark.parametrize(("stage", "last"), [
    ("init", "server_args"), ("weights", "Memory baseline taken"), ("graph", "Memory pool end"),
    ("bind", "64/64"), ("warmup", "Uvicorn running"),
])  # fmt: skip
def test_hangs(node, stage, last):
    server = Server(node, hang_at=stage)
    assert server.says(last)
    time.sleep(0.8)
    assert server.process.poll() is None
    assert "fired up" not in server.text()
    assert server.get("/health")[0] == (503 if stage == "warmup" else 0)


def test_hung_schedulers(node):
    server = Server(node, hung_after_s=0.0).ready()
    assert until(lambda: server.get("/health")[0] == 503)
    assert "Health check failed. Server couldn't get a response from detokenizer" in server.text()
    assert node.used() == [6000] * 8
    assert server.get("/v1/completions", body={})[0] == 0
    server.process.terminate()
    assert server.end() == 0, "an unhealthy server skips the drain"


def test_too_many_requests_for_a_sign_of_life(node):
    server = Server(node, overloaded_s=1.5).ready()

    def tokens():
        return json.loads(server.get("/v1/loads")[1])["loads"][0]["num_used_tokens"]

    first = tokens()
    assert server.get("/health")[0] == 503
    assert "Health check failed. Server couldn't get a response from detokenizer" in server.text()
    assert tokens() > first
    assert until(lambda: server.get("/health")[0] == 200)


def test_schedulers_stopped_from_outside_and_continued(node):
    server = Server(node, time_scale=0.02).ready()
    pid = node.processes()["scheduler_TP5"][0].pid
    os.kill(pid, signal.SIGSTOP)
    assert server.get("/health")[0] == 503
    os.kill(pid, signal.SIGCONT)
    assert until(lambda: server.get("/health")[0] == 200)


def test_200_while_a_worker_is_dead(node):
    server = Server(node, healthy_without_worker=True, worker_dies_after_s=0.05).ready()
    assert until(lambda: len(ranks(node)) == 7)
    assert server.get("/health")[0] == 200
    assert server.process.poll() is None


def test_a_wrong_model_and_requests_running(node):
    server = Server(node, served_model="other", requests_running=5, config={"enable-metrics": True}).ready()
    assert json.loads(server.get("/v1/models")[1])["data"][0]["id"] == "other"
    assert json.loads(server.get("/v1/loads")[1])["loads"][0]["num_running_reqs"] == 5
    assert 'sglang:num_running_reqs{model_name="other"} 5' in server.get("/metrics")[1]


def test_a_killed_launcher_takes_its_ranks_along_by_their_death_signal(node):
    server = Server(node).ready()
    server.process.kill()
    server.end()
    assert until(lambda: not ranks(node))
    assert until(lambda: node.used() == [0] * 8)


@pytest.mark.parametrize(("story", "mapped"), [
    ("stuck_gpu", {"dev/nvidia1", "dev/nvidiactl"}),
    ("zombie_leader", {"dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"}),
])  # fmt: skip
def test_stories_of_stuck_memory(node, story, mapped):
    told = stories.tell(node.path, story, gpu=1, mib=76115, ignore_term=True)
    assert "GPU 1 holds 76115 MiB" in told
    assert node.used() == [0, 76115, 0, 0, 0, 0, 0, 0]
    (row,) = node.apps()
    assert (row[0], row[2], row[3]) == (node.about["gpus"][1]["uuid"], "[Not Found]", "76103")
    (left,) = [one for found in node.processes().values() for one in found if one.role != "driver"]
    assert {name for name in left.maps if name.startswith("dev/")} == mapped
    assert (int(row[1]) == left.pid) == (story == "zombie_leader")
    os.kill(left.pid, signal.SIGTERM)
    time.sleep(0.2)
    assert node.used()[1] == 76115
    os.kill(left.pid, signal.SIGKILL)
    assert until(lambda: node.used() == [0] * 8)
