# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

MODULE = "ansible_collections.cleanslate.gpu.plugins.modules.sglang_preflight"
KEYS = {"checks", "verdict", "msg", "changed"}
CHECKS = ["service_user", "device_nodes", "device_kind", "device_access", "driver_match"]


def run(folder: pathlib.Path, **params: t.Any) -> tuple[int, dict[str, t.Any]]:
    """The module as a process of its own, the way a target runs it."""
    arguments = {"devices": [str(folder / "dev/nvidia*")], "expected_count": 2, **params}
    path = folder / "arguments.json"
    path.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, "-m", MODULE, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=300,
    )
    result: dict[str, t.Any] = json.loads(done.stdout)
    result.pop("invocation", None)
    result.pop("failed", None)
    assert set(result) == KEYS
    return done.returncode, result


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
    assert [(one["name"], one["ok"]) for one in result["checks"]] == list(zip(CHECKS, [None, True, True, True, None]))
    assert result["msg"].startswith("Passed: device_nodes, device_kind, device_access. Not checked: service_user (")


@pytest.mark.parametrize("check", [False, True])
def test_all_failures_at_once(folder: pathlib.Path, check: bool) -> None:
    (folder / "dev/nvidia-uvm").unlink()
    (folder / "dev/nvidia1").unlink()
    (folder / "dev/nvidia1").mkdir()
    code, result = run(folder, service_user="nobody-of-that-name", _ansible_check_mode=check)
    assert (code, result["verdict"], result["changed"]) == (1, "refuse", False)
    assert [(one["name"], one["ok"]) for one in result["checks"]] == list(
        zip(CHECKS, [False, False, False, None, None])
    )
    for words in (
        "3 of 5 checks failed",
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
        ({"expected_uuids": ["x"], "expected_count": None}, 'expected_uuids contains "x"'),
        ({"devices": []}, "devices is empty"),
        ({"devices": ["nvidia*"]}, "devices holds 'nvidia*'"),
        ({"majors": [5000]}, "majors holds 5000"),
        ({"timeout": 0}, "timeout is 0;"),
        ({"timeout": "inf"}, "timeout is inf;"),
        ({"service_group": "gpu"}, "service_group is gpu, but service_user is empty"),
    ],
)
def test_options_that_do_not_fit(folder: pathlib.Path, params: dict[str, t.Any], sentence: str) -> None:
    code, result = run(folder, **params)
    assert (code, result["verdict"], result["checks"]) == (1, "refuse", [])
    assert result["msg"].startswith(sentence)
