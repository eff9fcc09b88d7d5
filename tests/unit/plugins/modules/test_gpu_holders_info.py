# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import make_nodes

HOLD_NODE = pathlib.Path(__file__).parent.parent / "module_utils/hold_node.py"
KEYS = {
    "holders", "lines", "verdict", "complete", "incomplete_reason", "unreadable", "stale_nodes", "port_owners",
    "processes_state", "pid_namespace", "scan_seconds", "changed",
}  # fmt: skip
UUID = "GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7"


def run(folder: pathlib.Path, **params: t.Any) -> tuple[int, dict[str, t.Any]]:
    """The module as a process of its own, the way a target runs it."""
    arguments = {"devices": [str(folder / "dev/nvidia*")], "nvidia_smi": str(folder / "nvidia-smi"), **params}
    result = module_process.run("gpu_holders_info", folder, arguments)
    result.pop("invocation", None)
    return int(bool(result.get("failed"))), result


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    make_nodes(tmp_path / "dev", ["nvidia0", "nvidiactl"])
    return tmp_path


@pytest.fixture
def holder(folder: pathlib.Path) -> t.Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, str(HOLD_NODE), "both", str(folder / "dev/nvidia0")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def test_nobody(folder: pathlib.Path) -> None:
    code, result = run(folder)
    assert code == 0
    assert set(result) == KEYS
    assert (result["verdict"], result["holders"], result["changed"]) == ("none", [], False)
    assert result["processes_state"] == "no_tool"


@pytest.mark.parametrize("check", [False, True])
def test_somebody(folder: pathlib.Path, holder: int, check: bool) -> None:
    code, result = run(folder, processes=False, _ansible_check_mode=check)
    assert code == 0
    assert set(result) == KEYS
    assert result["verdict"] == "some"
    (seen,) = result["holders"]
    assert (seen["pid"], seen["computes"], seen["disposition"]) == (holder, True, "target")
    assert seen["devices"] == [str(folder / "dev/nvidia0")]
    assert seen["via"] == ["fd", "map"]
    assert len(result["lines"]) == 1
    assert result["processes_state"] == "not_asked"


def test_what_nvidia_smi_says_names_the_gpu(folder: pathlib.Path, holder: int) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(
        f"""#!{sys.executable}
import sys
query = next(word for word in sys.argv if word.startswith("--query-"))
fields = query.split("=", 1)[1].split(",")
gpu = {{"index": "3", "gpu_uuid": "{UUID}", "uuid": "{UUID}", "pci.bus_id": "00000000:43:00.0", "name": "NVIDIA H200",
        "memory.total": "143771", "memory.used": "76115", "memory.reserved": "616", "count": "1",
        "driver_version": "580.159.04", "utilization.gpu": "0", "mig.mode.current": "Disabled",
        "persistence_mode": "Enabled",
        "compute_mode": "Default", "gpu_recovery_action": "None", "fabric.state": "[N/A]",
        "pid": "{holder}", "process_name": "python3", "used_memory": "76100", "used_gpu_memory": "76100"}}
print(", ".join(gpu.get(field, "[N/A]") for field in fields))
"""
    )
    tool.chmod(0o755)
    _code, result = run(folder)
    assert result["processes_state"] == "ok"
    assert result["holders"][0]["gpus"] == [UUID]
    assert "GPU 3 nvidia0" in result["lines"][0]


def test_no_node_is_incomplete(folder: pathlib.Path) -> None:
    code, result = run(folder, devices=[str(folder / "none/nvidia*")])
    assert code == 0
    assert result["verdict"] == "incomplete"
    assert "none/nvidia*" in result["incomplete_reason"]


def test_a_plain_file_among_real_devices_is_stale(folder: pathlib.Path) -> None:
    _code, result = run(folder, devices=[str(folder / "dev/nvidia*"), "/dev/null"], processes=False)
    assert result["verdict"] == "incomplete"
    assert {node["path"] for node in result["stale_nodes"]} == {
        str(folder / "dev/nvidia0"), str(folder / "dev/nvidiactl"), "/dev/null"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("params", "word"),
    [({"scope": "unit"}, "units is empty"), ({"scope": "all"}, "allow_foreign"), ({"smi_timeout": -1}, "smi_timeout")],
)
def test_options_that_contradict_themselves(folder: pathlib.Path, params: dict[str, t.Any], word: str) -> None:
    code, result = run(folder, **params)
    assert code == 1
    assert result["failed"] is True
    assert word in result["msg"]
    assert set(result) == KEYS | {"failed", "msg"}
    assert result["verdict"] == "incomplete"
