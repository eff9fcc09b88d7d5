# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process, against real small servers that start, die and stall."""

from __future__ import annotations

import base64
import json
import pathlib
import threading
import time
import typing as t
import zlib

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import (
    KEY,
    ServerProcess,
    UnitStandIn,
    free_port,
    run_module,
)

KEYS = {
    "changed", "verdict", "reason", "finished", "resume", "stage", "stages", "progress", "waited_s", "guess",
    "witnesses", "requests", "since", "main_pid", "workers", "restarts", "log_tail", "log_position",
    "gpu_memory", "estimate", "guard", "server_info", "models",
}  # fmt: skip


class Node:
    """A unit, its log and its server."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.unit = UnitStandIn(folder)
        self.log = folder / "sglang.log"
        self.log.touch()

    def wait(self, port: int, **arguments: t.Any) -> tuple[dict[str, t.Any], str]:
        return run_module(
            "sglang_wait_ready",
            self.folder,
            **{
                "unit": "sglang.service",
                "systemctl": self.unit.systemctl,
                "nvidia_smi": str(self.folder / "no-nvidia-smi"),
                "port": port,
                "log_file": str(self.log),
                "served_model_name": "kimi",
                "expected_workers": 2,
                "timeout": 60,
                "settle": 0.2,
                **arguments,
            },
        )


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_a_server_that_comes_up(node: Node) -> None:
    with ServerProcess(node.log, lines=["server_args={}", "Load weight begin."], bind_after=1, starting=1) as server:
        node.unit.runs(server.pid)
        result, dummy = node.wait(server.port)
        assert result.get("failed") is not True, result
        assert (result["verdict"], result["finished"], result["resume"]) == ("ready", True, None)
        assert set(result) >= KEYS
        assert result["changed"] is False
        assert "load_weights" in result["stages"]


def test_a_server_that_never_listens(node: Node) -> None:
    with ServerProcess(node.log, lines=["server_args={}", "Init parallel begin."], bind_after=600) as server:
        node.unit.runs(server.pid)
        result, dummy = node.wait(server.port, timeout=3)
        assert (result["failed"], result["verdict"]) == (True, "starting")
        assert "not ready within 3 s" in result["msg"]
        assert "NCCL" in result["msg"]
        assert set(result) >= KEYS
        result, dummy = node.wait(server.port, progress_timeout=3)
        assert (result["failed"], result["verdict"]) == (True, "no_progress")
        assert result["guess"]["cure"] in result["msg"]


def test_a_unit_that_dies_ends_the_wait_early(node: Node) -> None:
    lines = ["server_args={}", "Load weight begin.", "torch.OutOfMemoryError: CUDA out of memory."]
    with ServerProcess(node.log, lines=lines, exit=1) as server:
        node.unit.runs(server.pid)

        def fail() -> None:
            server.process.wait(60)
            node.unit.says(
                LoadState="loaded", ActiveState="failed", SubState="failed", MainPID="0", Result="exit-code",
                ExecMainCode="1", ExecMainStatus="1",
            )  # fmt: skip

        ending = threading.Thread(target=fail)
        ending.start()
        begun = time.monotonic()
        result, dummy = node.wait(server.port, timeout=1800, progress_timeout=1800)
        ending.join()
        assert time.monotonic() - begun < 60
    assert (result["failed"], result["verdict"]) == (True, "failed")
    assert "exit status 1" in result["msg"]
    assert "CUDA out of memory" in "\n".join(result["log_tail"])
    assert "mem-fraction-static" in result["msg"]


def test_200_with_a_dead_worker_ends_the_wait_early(node: Node) -> None:
    with ServerProcess(node.log, kill_worker=True) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        result, dummy = node.wait(server.port, timeout=1800)
        assert (result["failed"], result["verdict"]) == (True, "failed")
        assert "without TP1" in result["msg"]


def test_a_refused_key_ends_the_wait_early(node: Node) -> None:
    with ServerProcess(node.log, key=KEY) as server:
        node.unit.runs(server.pid)
        result, printed = node.wait(server.port, timeout=1800, api_key="wrong")
        assert (result["failed"], result["verdict"]) == (True, "unauthorized")
        assert KEY not in printed


def test_a_port_of_another_process_ends_the_wait_early(node: Node) -> None:
    with ServerProcess() as old, ServerProcess(bind_after=600) as unit:
        old.wait_for_port()
        node.unit.runs(unit.pid)
        result, dummy = node.wait(old.port, timeout=1800, api_key=KEY)
        assert (result["failed"], result["verdict"]) == (True, "port_taken")
        assert f"process {old.pid}" in result["msg"]


def test_check_mode_looks_once_and_does_not_fail(node: Node) -> None:
    node.unit.says(LoadState="loaded", ActiveState="failed", SubState="failed", MainPID="0")
    result, dummy = node.wait(free_port(), _ansible_check_mode=True)
    assert result.get("failed") is not True
    assert (result["verdict"], result["finished"], result["resume"]) == ("failed", True, None)


def test_slices(node: Node) -> None:
    with ServerProcess(node.log, lines=["server_args={}", "Load weight begin."], bind_after=3) as server:
        node.unit.runs(server.pid)
        token, slices = "", 0
        while True:
            result, dummy = node.wait(server.port, resume=token, progress_interval=0.5)
            assert result.get("failed") is not True, result
            slices += 1
            if result["finished"]:
                break
            # One look in the middle of a change can show anything; it ends nothing.
            token = result["resume"]
            assert token
        assert result["verdict"] == "ready"
        assert slices >= 2
        assert result["waited_s"] >= 1
        assert "load_weights" in result["stages"]


def test_lines_of_an_earlier_run_do_not_count(node: Node) -> None:
    node.log.write_text(
        "[2020-01-01 00:00:00] Scheduler hit an exception: old\n[2020-01-01 00:00:00] SIGQUIT received.\n"
    )
    with ServerProcess(node.log, bind_after=1) as server:
        node.unit.runs(server.pid)
        result, dummy = node.wait(server.port)
        assert result["verdict"] == "ready", result
        assert "old" not in "\n".join(result["log_tail"])


def test_the_place_in_the_log_can_be_given(node: Node) -> None:
    old = "Scheduler hit an exception: old\n"
    node.log.write_text(old)
    position = {"inode": node.log.stat().st_ino, "offset": len(old)}
    with ServerProcess(node.log) as server:
        node.unit.runs(server.pid)
        result, dummy = node.wait(server.port, log_position=position)
        assert result["verdict"] == "ready", result
        result, dummy = node.wait(server.port, log_since=time.time() + 3600)
        assert result["verdict"] == "ready", result
        assert not result["stages"].get("load_weights")


def test_a_good_start_is_remembered_and_the_next_one_is_estimated(node: Node) -> None:
    path = node.folder / "var" / "starts.json"
    kept = {"profile": "kimi", "starts_file": str(path)}
    lines = ["server_args={}", "Load weight begin.", "Load weight end."]
    with ServerProcess(node.log, lines=lines, bind_after=2) as server:
        node.unit.runs(server.pid)
        first, dummy = node.wait(server.port, resume="", progress_interval=0.2, **kept)
        assert (first["finished"], first["estimate"]) == (False, None)
        result, dummy = node.wait(server.port, **kept, with_server_info=True)
        assert (result["verdict"], result["estimate"]) == ("ready", None)
        assert result["server_info"]["internal_states"] == []
        assert result["models"] == {"data": [{"id": "kimi"}]}
    assert "load_weights" in json.loads(path.read_text())["profiles"]["kimi"][0]["stages"]
    with ServerProcess(node.log, lines=lines, bind_after=600) as server:
        node.unit.runs(server.pid)
        result, dummy = node.wait(server.port, resume="", progress_interval=0.2, **kept)
        assert set(result["estimate"]) == {"left_s", "last_s"}
        assert result["server_info"] is None
        result, dummy = node.wait(server.port, timeout=1, **kept)
        assert result["failed"]
    assert len(json.loads(path.read_text())["profiles"]["kimi"]) == 1


def test_what_cannot_be_remembered_is_a_warning(node: Node) -> None:
    spoilt = node.folder / "starts.json"
    spoilt.write_text("{")
    with ServerProcess(node.log, lines=["server_args={}", "Load weight begin."]) as server:
        node.unit.runs(server.pid)
        server.wait_for_port()
        arguments = {
            "profile": "kimi",
            "starts_file": str(spoilt),
            "resume": "",
            "progress_interval": 0.01,
            "settle": 5,
        }
        result, dummy = node.wait(server.port, **arguments)
        assert "it is ignored" in str(result["warnings"])
        result, dummy = node.wait(server.port, profile="kimi", starts_file="/proc/no/starts.json")
        assert result["verdict"] == "ready"
        assert "could not be kept" in str(result["warnings"])


def test_the_guard_s_refusal_is_returned_and_named(node: Node) -> None:
    report = node.folder / "guard.json"
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    said = {"verdict": "refused", "reason": "GPU 3 is held by 4711", "boot_id": boot_id, "started_at": time.time()}
    report.write_text(json.dumps(said))
    node.unit.says(LoadState="loaded", ActiveState="failed", SubState="failed", MainPID="0", Result="exit-code")
    result, dummy = node.wait(free_port(), guard_file=str(report))
    assert (result["failed"], result["verdict"], result["guard"]) == (True, "failed", said)
    assert "its start guard did not let it start: GPU 3 is held by 4711" in result["msg"]
    result, dummy = node.wait(free_port())
    assert result["guard"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"timeout": 0}, "timeout is 0"),
        ({"progress_timeout": -1}, "progress_timeout is -1"),
        ({"settle": -1}, "settle is -1"),
        ({"progress_interval": 0}, "progress_interval is 0"),
        ({"smi_timeout": 0}, "smi_timeout is 0"),
        ({"log_position": {"a": 1}}, "it must be what sglang_health_info returned"),
        ({"resume": "nonsense"}, "leave it out to begin a new wait"),
        ({"unit": "sglang"}, "no unit name with its suffix"),
    ],
)
def test_options_that_cannot_be_meant(node: Node, arguments: dict[str, t.Any], sentence: str) -> None:
    result, dummy = node.wait(**{"port": free_port(), **arguments})
    assert result["failed"]
    assert sentence in result["msg"]


@pytest.mark.parametrize("dies", [True, False])
def test_the_key_is_printed_nowhere(node: Node, dies: bool) -> None:
    lines = [
        f"server_args=ServerArgs(model_path='/m', api_key='{KEY}', admin_api_key='{KEY}')",
        f"Error: Authorization: Bearer {KEY}",
        f"Scheduler hit an exception: --api-key {KEY}" if dies else f"{{'api_key': '{KEY}'}}",
    ]
    with ServerProcess(node.log, key=KEY, lines=lines, bind_after=600 if dies else 0) as server:
        node.unit.runs(server.pid)
        # The module does not know the key of another profile, so masking its own option is not enough.
        for sent in (KEY, "another"):
            result, printed = node.wait(server.port, api_key=sent, resume="", progress_interval=0.2)
            assert KEY not in printed
            if result.get("resume"):
                assert KEY not in zlib.decompress(base64.urlsafe_b64decode(result["resume"])).decode()
            result, printed = node.wait(server.port, api_key=sent, timeout=3, with_server_info=True)
            assert KEY not in printed
            assert any("server_args" in line for line in result["log_tail"])
