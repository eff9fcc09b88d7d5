# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process, against real small servers."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import (
    KEY,
    ServerProcess,
    UnitStandIn,
    free_port,
    installed_files,
    run_module,
)

KEYS = {
    "changed", "verdict", "reason", "stage", "witnesses", "requests", "since", "main_pid", "workers", "restarts",
    "log_tail", "log_position", "server_info", "models", "started_with",
}  # fmt: skip


class Node:
    """A unit, its log and its server."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.unit = UnitStandIn(folder)
        self.log = folder / "sglang.log"
        self.log.touch()

    def look(self, port: int, **arguments: t.Any) -> tuple[dict[str, t.Any], str]:
        return run_module(
            "sglang_health_info",
            self.folder,
            **{
                "unit": "sglang.service",
                "systemctl": self.unit.systemctl,
                "port": port,
                "log_file": str(self.log),
                "served_model_name": "kimi",
                "expected_workers": 2,
                **arguments,
            },
        )

    def look_until(self, port: int, verdict: str, **arguments: t.Any) -> dict[str, t.Any]:
        """A freshly started server needs a moment for its workers."""
        end = time.monotonic() + 60
        while True:
            result, dummy = self.look(port, **arguments)
            if result.get("verdict") == verdict or time.monotonic() > end:
                return result


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_no_such_unit(node: Node) -> None:
    result, dummy = node.look(free_port())
    assert (result["verdict"], result["changed"]) == ("absent", False)
    assert set(result) >= KEYS


def test_a_stopped_unit(node: Node) -> None:
    node.unit.says(LoadState="loaded", ActiveState="inactive", SubState="dead", MainPID="0")
    result, dummy = node.look(free_port())
    assert (result["verdict"], result["stage"], result["main_pid"]) == ("stopped", None, None)


def test_a_ready_server(node: Node) -> None:
    with ServerProcess(node.log, key=KEY) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        result = node.look_until(server.port, "ready", api_key=KEY)
        assert result["verdict"] == "ready", result["reason"]
        assert all(result["witnesses"][name]["ok"] for name in ("unit", "port", "workers", "model", "generation"))
        assert [worker["rank"] for worker in result["workers"]] == ["TP0", "TP1"]
        assert result["main_pid"] == server.pid
        assert result["restarts"] is None
        assert result["log_position"]["offset"] > 0
        assert "fired up" in result["log_tail"][-1]


def test_a_server_that_does_not_listen_yet(node: Node) -> None:
    with ServerProcess(node.log, lines=["server_args={}", "Load weight begin."], bind_after=600) as server:
        node.unit.runs(server.pid)
        end = time.monotonic() + 30
        while "Load weight" not in node.log.read_text() and time.monotonic() < end:
            time.sleep(0.05)
        result, dummy = node.look(server.port)
        assert (result["verdict"], result["stage"]) == ("starting", "load_weights")


def test_a_server_that_answers_503(node: Node) -> None:
    with ServerProcess(starting=600) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        result, dummy = node.look(server.port)
        assert result["verdict"] == "starting"


def test_a_server_that_listens_and_hangs(node: Node) -> None:
    with ServerProcess(hangs=True) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        result, dummy = node.look(server.port, timeout=1)  # the other name of request_timeout
        assert result["verdict"] == "hung"


def test_200_with_a_dead_worker_is_not_ready(node: Node) -> None:
    with ServerProcess(node.log, kill_worker=True) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        result = node.look_until(server.port, "failed")
        assert result["verdict"] == "failed"
        assert "only 1 of 2 workers are alive, without TP1" in result["reason"]


def test_200_with_a_zombie_worker_is_not_ready(node: Node) -> None:
    with ServerProcess(kill_worker=True, reap=False) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        assert node.look_until(server.port, "failed")["verdict"] == "failed"


def test_a_refused_key(node: Node) -> None:
    with ServerProcess(key=KEY) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        assert node.look_until(server.port, "unauthorized")["verdict"] == "unauthorized"


def test_another_model(node: Node) -> None:
    with ServerProcess(model="glm") as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        result = node.look_until(server.port, "wrong_model")
        assert result["verdict"] == "wrong_model"


def test_a_port_of_another_process(node: Node) -> None:
    with ServerProcess() as old, ServerProcess(bind_after=600) as unit:
        old.wait_for_port()
        node.unit.runs(unit.pid)
        result, dummy = node.look(old.port, api_key=KEY)
        assert result["verdict"] == "port_taken"
        assert f"process {old.pid}" in result["reason"]


def test_a_dead_main_process(node: Node) -> None:
    with ServerProcess(exit=3) as server:
        server.process.wait(30)
        node.unit.runs(server.pid)
        assert node.look(server.port)[0]["verdict"] == "failed"


def test_systemctl_that_is_not_there(node: Node) -> None:
    result, dummy = node.look(free_port(), systemctl=str(node.folder / "none"))
    assert result["verdict"] == "unknown"


def test_without_a_unit(node: Node) -> None:
    with ServerProcess() as server:
        server.wait_for_port()
        assert node.look_until(server.port, "ready", unit="")["verdict"] == "ready"
    assert node.look(server.port, unit="")[0]["verdict"] == "absent"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"unit": "sglang"}, "no unit name with its suffix"),
        ({"port": 0}, "from 1 to 65535"),
        ({"port": 70000}, "from 1 to 65535"),
        ({"expected_workers": 0}, "give 1 to 1024"),
        ({"request_timeout": 0}, "above 0"),
        ({"request_timeout": "inf"}, "above 0"),
        ({"api_key": "a\nb"}, "printable ASCII"),
        ({"installed": {"unit_path": "x", "config_path": "/y"}}, "installed: unit_path is 'x'"),
        ({"unit": "", "installed": {"unit_path": "/x", "config_path": "/y"}}, "without a unit no files"),
    ],
)
def test_options_that_cannot_be_meant(node: Node, arguments: dict[str, t.Any], sentence: str) -> None:
    result, dummy = node.look(**{"port": 30000, **arguments})
    assert result["failed"]
    assert sentence in result["msg"]


def test_what_the_server_says_of_itself_is_returned_where_it_is_asked_for(node: Node) -> None:
    with ServerProcess(key="open4711sesame") as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        asked = {"api_key": "open4711sesame", "with_server_info": True}
        result = node.look_until(server.port, "ready", **asked)
        # The module's own masking knows the key it was given; the server's second key only its name tells.
        assert result["server_info"]["internal_states"] == []
        assert result["models"]["data"] == [{"id": "kimi"}]
        assert "open4711sesame" not in str(result)
        result, dummy = node.look(server.port, api_key="open4711sesame")
        assert (result["server_info"], result["models"]) == (None, None)
    with ServerProcess() as old, ServerProcess(bind_after=600) as unit:
        old.wait_for_port()
        node.unit.runs(unit.pid)
        result, dummy = node.look(old.port, **asked)
        assert (result["verdict"], result["server_info"]) == ("port_taken", None)


def test_it_is_judged_by_what_it_was_started_with(node: Node) -> None:
    """The options name another port, a key that it refuses, and more workers than it has."""
    options: dict[str, t.Any] = {"api_key": "another-key", "expected_workers": 4}
    with ServerProcess(node.log, key=KEY) as server:
        options["installed"] = installed_files(node.folder, server.port, KEY, node.log)
        node.unit.runs(server.pid)
        server.wait_for_port()
        assert node.look_until(server.port, "unauthorized", api_key="another-key")["started_with"] is None
        result = node.look_until(free_port(), "ready", **options)
        dummy, printed = node.look(free_port(), **options)
    assert result["verdict"] == "ready", result["reason"]
    assert result["witnesses"]["workers"]["detail"] == "2 of 2 workers are alive"
    started = result["started_with"]
    assert (started["source"], started["told"], started["profile"]) == ("installed", True, "kimi")
    assert (started["port"], started["workers"]) == (server.port, 2)
    assert KEY not in printed


@pytest.mark.parametrize("sent", [KEY, "another-key"])
def test_the_key_is_printed_nowhere(node: Node, sent: str) -> None:
    lines = [
        f"server_args=ServerArgs(model_path='/m', api_key='{KEY}', admin_api_key='{KEY}')",
        f"Error: Authorization: Bearer {KEY}",
        f"Traceback: python -m sglang.launch_server --api-key {KEY}",
    ]
    with ServerProcess(node.log, key=KEY, lines=lines) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        result, printed = node.look(server.port, api_key=sent)
        assert KEY not in printed.replace(sent, "") if sent != KEY else KEY not in printed
        assert len(result["log_tail"]) >= 3
        dummy, printed = node.look(server.port, api_key=sent, unit="other.service")
        assert "PLANTED" not in printed
