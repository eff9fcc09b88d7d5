# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts that go wrong while they load: the right verdict, within ten seconds of the event."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest
from launch_node import TP, LaunchNode
from planted_faults import LOAD, WITHIN, LoadFault
from simulated_nodes import Node

from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import run_module

KEY = "PLANTED-4711-key"


def wait(launch: LaunchNode, **options: t.Any) -> dict[str, t.Any]:
    chosen = {
        "unit": "sglang.service", "systemctl": launch.unit.systemctl, "port": launch.port, "api_key": KEY,
        "served_model_name": "demo", "expected_workers": TP, "log_file": str(launch.log), "timeout": 100, "settle": 0,
        "progress_timeout": 60, "request_timeout": 5, "guard_file": str(launch.guard),
        "nvidia_smi": str(launch.node.folder / "bin" / "nvidia-smi"), **options,
    }  # fmt: skip
    result, printed = run_module("sglang_wait_ready", launch.folder, **chosen)
    assert KEY not in printed
    return result


@pytest.mark.parametrize("fault", LOAD, ids=lambda fault: fault.name)
def test_load_fault(node: Node, tmp_path: pathlib.Path, fault: LoadFault) -> None:
    launch = LaunchNode(node, tmp_path, fault)
    try:
        launch.start()
        launch.listen()
        result = wait(launch, **fault.wait)
        ended = time.monotonic()
        late = ended - launch.event()
        print(f"{fault.name}: {result['verdict']} {late:.1f} s after the event; {result.get('msg', result['reason'])}")
        assert result["verdict"] == fault.verdict, result
        assert bool(result.get("failed")) is (fault.verdict != "ready")
        assert fault.says in result.get("msg", ""), result["msg"]
        assert fault.stage in (None, result["stage"]), result["stage"]
        assert late <= WITHIN
        if fault.event == "still":
            # Not before its time either: a slow start is no hang.
            assert late >= -1.0
    finally:
        launch.end()


def test_the_hang_after_the_last_shard_shows_all_of_them(node: Node, tmp_path: pathlib.Path) -> None:
    launch = LaunchNode(node, tmp_path, next(fault for fault in LOAD if fault.name == "hang after all shards"))
    try:
        launch.start()
        result = wait(launch, progress_timeout=8)
        assert (result["progress"]["done"], result["progress"]["total"]) == (64, 64)
        assert result["gpu_memory"]["gpus"] == 8
        assert result["gpu_memory"]["used_mib"] > 1000
    finally:
        launch.end()


def test_the_table_holds_what_a_launch_is_known_to_die_of() -> None:
    names = [fault.name for fault in LOAD]
    assert len(names) == len(set(names))
    assert len([fault for fault in LOAD if fault.verdict != "ready"]) >= 22
