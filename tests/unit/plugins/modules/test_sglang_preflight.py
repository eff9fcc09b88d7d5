# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import socket
import sys
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.simulator import model_folder
from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

KEYS = {"checks", "gate", "health", "verdict", "msg", "changed"}
CHECKS = ["service_user", "device_nodes", "device_kind", "device_access", "driver_match"]
OF_LAUNCH = [
    "arguments",
    "model_files",
    "context_length",
    "draft_model",
    "tensor_parallel",
    "trust_remote_code",
    "served_model_name",
    "disk_space",
    "shared_memory",
    "unit_syntax",
    "root_paths",
    "gate",
    "port",
]
UNASKED = [None] * len(OF_LAUNCH)


def run(folder: pathlib.Path, **params: t.Any) -> tuple[int, dict[str, t.Any]]:
    """The module as a process of its own, the way a target runs it."""
    arguments = {"devices": [str(folder / "dev/nvidia*")], "expected_count": 2, **params}
    result = module_process.run("sglang_preflight", folder, arguments)
    result.pop("invocation", None)
    failed = int(bool(result.pop("failed", False)))
    assert set(result) == KEYS
    return failed, result


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (tmp_path / "dev" / name).write_text("")
    return tmp_path


@pytest.mark.parametrize("check", [False, True])
def test_a_simulated_node_passes(folder: pathlib.Path, check: bool) -> None:
    code, result = run(folder, _ansible_check_mode=check)
    assert (code, result["verdict"], result["changed"]) == (0, "pass", False)
    assert [(one["name"], one["ok"]) for one in result["checks"]] == list(
        zip(CHECKS + OF_LAUNCH, [None, True, True, True, None, *UNASKED])
    )
    assert result["msg"].startswith("Passed: device_nodes, device_kind, device_access. Not checked: service_user (")


@pytest.mark.parametrize("check", [False, True])
def test_all_failures_at_once(folder: pathlib.Path, check: bool) -> None:
    (folder / "dev/nvidia-uvm").unlink()
    (folder / "dev/nvidia1").unlink()
    (folder / "dev/nvidia1").mkdir()
    code, result = run(folder, service_user="nobody-of-that-name", _ansible_check_mode=check)
    assert (code, result["verdict"], result["changed"]) == (1, "refuse", False)
    assert [(one["name"], one["ok"]) for one in result["checks"]] == list(
        zip(CHECKS + OF_LAUNCH, [False, False, False, None, None, *UNASKED])
    )
    for words in (
        "3 of 18 checks failed",
        "service_user: the user nobody-of-that-name does not exist.",
        f"device_nodes: {folder}/dev/nvidia-uvm is missing. On the host",
        f"device_kind: {folder}/dev/nvidia1 is a folder",
    ):
        assert words in result["msg"]
    assert all(one["cure"] for one in result["checks"] if one["ok"] is False)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"expected_count": 0}, "expected_count is 0"),
        ({"expected_uuids": ["x"], "expected_count": None}, "expected_uuids contains 'x'"),
        ({"devices": []}, "devices is empty"),
        ({"devices": ["nvidia*"]}, "an entry of devices is 'nvidia*'"),
        ({"majors": [5000]}, "majors holds 5000"),
        ({"timeout": 0}, "timeout is 0:"),
        ({"timeout": "inf"}, "timeout is inf:"),
        ({"service_group": "gpu"}, "service_group is 'gpu', but service_user is empty"),
        ({"parser_timeout": -1}, "parser_timeout is -1:"),
        ({"model_timeout": 0}, "model_timeout is 0:"),
        ({"min_free_mib": -1}, "min_free_mib is -1:"),
        ({"unit_text": "[Unit]"}, "unit_text is given, but unit is empty"),
        ({"profile": {"args": {"a b": 1}}}, "profile.args: 'a b' is not the name of an SGLang option"),
        ({"profile": {}, "folders": ["log"]}, "an entry of folders is 'log', which is not an absolute path"),
        ({"port": 70000}, "port is 70000"),
        ({"smi_timeout": 0}, "smi_timeout is 0"),
        ({"scope": "unit"}, "scope is 'unit', but units is empty"),
    ],
)
def test_options_that_do_not_fit(folder: pathlib.Path, params: dict[str, t.Any], sentence: str) -> None:
    code, result = run(folder, **params)
    assert (code, result["verdict"], result["checks"]) == (1, "refuse", [])
    assert result["msg"].startswith(sentence)


def launch(folder: pathlib.Path, **args: t.Any) -> dict[str, t.Any]:
    """A launch that can succeed, with an SGLang of one option."""
    model_folder.make(str(folder / "model"))
    package = folder / "site" / "sglang" / "srt"
    package.mkdir(parents=True)
    for path in (package.parent, package):
        (path / "__init__.py").write_text("__version__ = '9.9.9'\n")
    (package / "server_args.py").write_text(
        "class ServerArgs:\n"
        "    @staticmethod\n"
        "    def add_cli_args(parser):\n"
        "        parser.add_argument('--model-path', required=True)\n"
    )
    (package / "server_args_config_parser.py").write_text(
        "class ConfigArgumentMerger:\n"
        "    def __init__(self, parser):\n"
        "        pass\n"
        "    def merge_config_with_args(self, words):\n"
        "        return open(words[1]).read().split()\n"
    )
    return {
        "profile": {
            "args": {"model-path": str(folder / "model"), "tp-size": 2, **args},
            "config": f"--model-path {folder}/model",
            "env": {"PYTHONPATH": str(folder / "site")},
        },
        "python": [sys.executable],
        "folders": [str(folder)],
        "min_free_mib": 0,
        "min_shm_mib": 0,
        "unit": "sglang.service",
    }


def test_a_launch_that_can_succeed(folder: pathlib.Path) -> None:
    code, result = run(folder, **launch(folder))
    checks = {check["name"]: check for check in result["checks"]}
    assert (code, result["verdict"]) == (0, "pass"), result
    assert [name for name in OF_LAUNCH if not checks[name]["ok"]] == [
        "draft_model",
        "unit_syntax",
        "root_paths",
        "gate",
        "port",
    ]
    assert checks["arguments"]["detail"] == "the parser of SGLang 9.9.9 takes all of them"


def test_a_launch_that_cannot(folder: pathlib.Path) -> None:
    """Whatever is wrong is told at once."""
    asked = launch(folder, **{"context-length": "1M", "served-model-name": "a:b", "speculative-algorithm": "EAGLE3"})
    asked["profile"]["argv"] = ["--no-such-option"]
    asked["min_shm_mib"] = asked["min_free_mib"] = 1 << 40
    asked["profile"]["args"]["tp-size"] = 6
    (folder / "model" / "model-00001-of-00002.safetensors").unlink()
    code, result = run(folder, **asked)
    assert (code, result["verdict"]) == (1, "refuse")
    wrong = [check["name"] for check in result["checks"] if check["ok"] is False]
    assert wrong == [
        "arguments",
        "model_files",
        "context_length",
        "draft_model",
        "tensor_parallel",
        "served_model_name",
        "disk_space",
        "shared_memory",
    ]
    assert all(check["cure"] for check in result["checks"] if check["ok"] is False)


def test_a_port_that_is_taken(folder: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        # This very process listens, which no release may end.
        code, result = run(folder, port=taken.getsockname()[1], host="127.0.0.1")
    check = result["checks"][-1]
    assert (code, check["name"], check["ok"]) == (1, "port", False), result
    assert str(os.getpid()) in check["detail"]


def stuck_smi(folder: pathlib.Path) -> tuple[str, t.Callable[[], int]]:
    """A nvidia-smi that never answers, and how often it was asked."""
    tool, log = folder / "nvidia-smi", folder / "asked"
    tool.write_text(f"#!/bin/sh\necho asked >> {log}\nexec sleep 60\n")
    tool.chmod(0o755)
    return str(tool), lambda: len(log.read_text().splitlines())


@pytest.mark.parametrize("asked", [{"gate": {}}, {"port": 1}, {"gate": {}, "port": 1}], ids=str)
def test_a_nvidia_smi_that_hangs_is_asked_once_and_refuses(folder: pathlib.Path, asked: dict[str, t.Any]) -> None:
    """What comes after the preflight would wait for it as long again."""
    tool, times = stuck_smi(folder)
    code, result = run(folder, nvidia_smi=tool, smi_timeout=0.9, **asked)
    wrong = [check for check in result["checks"] if check["ok"] is False]
    assert (code, [check["name"] for check in wrong]) == (1, ["gate"]), result
    assert "nvidia-smi did not answer within 1 s" in wrong[0]["detail"]
    assert "No second one is started while one is stuck" in wrong[0]["detail"]
    assert wrong[0]["cure"] in result["msg"]
    assert times() == 1
    assert (result["gate"] or {}).get("verdict") == ("unknown" if "gate" in asked else None)


def test_the_gate_is_rehearsed_in_the_same_execution(folder: pathlib.Path) -> None:
    """Without a nvidia-smi it stays shut; where nobody asks for it, nothing is said against the launch."""
    missing = str(folder / "no-nvidia-smi")
    code, result = run(folder, nvidia_smi=missing, gate={})
    check = {check["name"]: check for check in result["checks"]}["gate"]
    assert (code, check["ok"], result["gate"]["verdict"]) == (1, False, "unknown")
    assert result["gate"]["msg"].rstrip(".") == check["detail"]
    code, result = run(folder, nvidia_smi=missing, port=1)
    assert (code, result["gate"]) == (0, None)


def test_the_server_is_looked_at_in_the_same_execution(folder: pathlib.Path) -> None:
    """What it is like does not decide; whoever asked for the look does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, result = run(folder, health={"port": port, "api_key": "topsecret"})
    assert (code, result["health"]["verdict"], result["health"]["requests"]["running"]) == (0, "absent", None), result
    assert f"127.0.0.1:{port}" in result["health"]["reason"]
    code, result = run(folder)
    assert (code, result["health"]) == (0, None)
    code, result = run(folder, health={"port": 0})
    assert (code, result["health"], result["msg"].partition(":")[0]) == (1, None, "health")
