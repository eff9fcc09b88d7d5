# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process, with a nvidia-smi that prints one number after the other."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

# ansible-test extends the path of this process, not the variable.
HOLD_NODE = pathlib.Path(__file__).parent.parent / "module_utils/hold_node.py"
LONG = 120
UUIDS = tuple(f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in range(2))
KEYS = {
    "changed",
    "msg",
    "verdict",
    "waited_s",
    "looks",
    "history",
    "gpus",
    "holders",
    "smi_state",
    "would_open_after_release",
}

NVIDIA_SMI = """#!{python}
import os, sys
kind, fields = sys.argv[1].split("=", 1)
folder = {folder!r}
if kind != "--query-gpu":
    sys.exit(0)
series = open(os.path.join(folder, "series")).read().split()
counter = os.path.join(folder, "calls")
done = os.path.getsize(counter) if os.path.exists(counter) else 0
with open(counter, "a") as calls:
    calls.write(".")
mib = series[min(done, len(series) - 1)]
for index, used in enumerate((0, mib)):
    row = {{
        "index": index, "uuid": {uuids!r}[index], "pci.bus_id": f"00000000:0{{index}}:00.0", "name": "NVIDIA X",
        "memory.used": used, "memory.total": 97887, "count": 2, "driver_version": "580.1",
        "mig.mode.current": "Disabled", "fabric.state": "[N/A]", "gpu_recovery_action": "None",
        "persistence_mode": "Enabled", "compute_mode": "Default",
    }}
    print(", ".join(str(row.get(field, 0)) for field in fields.split(",")))
"""


class Node:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / "dev").mkdir()
        (folder / "dev/nvidia1").write_bytes(b"\0" * 4096)
        self.smi = folder / "nvidia-smi"
        self.smi.write_text(NVIDIA_SMI.format(python=sys.executable, folder=str(folder), uuids=UUIDS))
        self.smi.chmod(0o755)

    def asked(self) -> int:
        calls = self.folder / "calls"
        return calls.stat().st_size if calls.exists() else 0

    def wait(self, *series: int, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        (self.folder / "series").write_text(" ".join(str(mib) for mib in series))
        arguments = {
            "devices": [f"{self.folder}/dev/nvidia*"],
            "nvidia_smi": str(self.smi),
            "expected_count": 2,
            "interval": 0.01,
            "_ansible_check_mode": check,
            **params,
        }
        given = {name: value for name, value in arguments.items() if value is not None}
        result = module_process.run("gpu_wait_idle", self.folder, given)
        assert not result.get("changed")
        return result


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_it_opens_at_the_second_zero_in_a_row(node: Node) -> None:
    result = node.wait(80000, 900, 4, 0, 4, 0, 0)
    assert (result["verdict"], result["looks"], node.asked()) == ("idle", 7, 7)
    assert [entry["used_mib"][UUIDS[1]] for entry in result["history"]] == [80000, 900, 4, 0, 4, 0]
    assert result.keys() >= KEYS
    assert len(result["gpus"]) == 2


def test_a_target_is_named_and_a_rehearsal_passes_over_it(node: Node) -> None:
    argv = [sys.executable, str(HOLD_NODE), "map", str(node.folder / "dev/nvidia1")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"ready")
            result = node.wait(76115, check=True)
            assert (result["verdict"], result["would_open_after_release"]) == ("busy", True)
            assert node.asked() == 1
            result = node.wait(76115, timeout=0.5)
            assert result["failed"]
            assert result["verdict"] == "busy"
            assert result.keys() >= KEYS
            assert "GPU 1 holds 76115 MiB" in result["msg"]
            assert str(process.pid) in result["msg"]
        finally:
            process.kill()


def test_memory_that_nobody_holds(node: Node) -> None:
    result = node.wait(76115, check=True)
    assert result["failed"]
    assert (result["verdict"], result["would_open_after_release"]) == ("orphaned", False)


def test_a_nvidia_smi_that_hangs_is_asked_once(node: Node) -> None:
    node.smi.write_text(f"#!/bin/sh\necho . >> '{node.folder}/calls'\nexec sleep 600\n")
    result = node.wait(0, smi_timeout=1)
    assert result["failed"]
    assert (result["verdict"], result["smi_state"]) == ("unknown", "hung")
    assert (node.folder / "calls").read_text() == ".\n"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"expected_count": None}, "expected_count and expected_uuids"),
        ({"expected_uuids": [UUIDS[0]]}, "exclude each other"),
        ({"expected_count": None, "expected_uuids": ["nonsense"]}, "nonsense"),
        ({"samples": 0}, "samples is 0"),
        ({"interval": 0}, "interval is 0"),
        ({"scope": "lxc"}, "lxc is empty"),
        ({"port": 30000, "holders": False}, "port is 30000"),
    ],
)
def test_options_that_cannot_be_meant_fail_before_anything_runs(
    params: dict[str, t.Any], words: str, node: Node
) -> None:
    result = node.wait(0, **params)
    assert result["failed"]
    assert words in result["msg"]
    assert node.asked() == 0


def test_memory_of_one_that_was_killed_elsewhere_is_no_orphans(node: Node) -> None:
    """On the GPU host, by a release that this node knows nothing of."""
    for killed_ago, verdict in ((5, "draining"), (181, "orphaned"), (None, "orphaned")):
        assert node.wait(76115, timeout=0.2, killed_ago=killed_ago)["verdict"] == verdict
