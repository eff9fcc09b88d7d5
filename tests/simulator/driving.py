# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated node in the hands of a test."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

import node as nodes
import processes
import simulate
import stories

STD = (
    "index,uuid,pci.bus_id,name,memory.total,memory.used,memory.free,memory.reserved,utilization.gpu,"
    "mig.mode.current,compute_mode,persistence_mode,driver_version"
)
CSV = "--format=csv,noheader,nounits"


class Node:
    def __init__(self, path: pathlib.Path, **options: t.Any) -> None:
        self.path = str(path)
        # One compiled copy for all nodes of a test run.
        os.makedirs(self.path)
        shared = path.parent.parent / "simulated-pycache"
        shared.mkdir(exist_ok=True)
        pathlib.Path(self.path, ".simulated-node").touch()
        os.symlink(str(shared), self.path + "/pycache")
        settings: dict[str, t.Any] = {
            "gpus": 8, "memory_mib": nodes.MEMORY_MIB, "name": nodes.NAME, "python": sys.executable, "port": None
        }  # fmt: skip
        self.about = nodes.create(self.path, **{**settings, **options})
        self.port = self.about["port"]

    def smi(self, *argv: str, timeout: float = 30) -> subprocess.CompletedProcess[bytes]:
        tool = self.path + "/bin/nvidia-smi"
        return subprocess.run([tool, *argv], capture_output=True, timeout=timeout, check=False)

    def query(self, fields: str, kind: str = "gpu") -> list[list[str]]:
        done = self.smi(f"--query-{kind}={fields}", CSV)
        assert (done.returncode, done.stderr) == (0, b"")
        return [line.split(", ") for line in done.stdout.decode().splitlines()]

    def used(self) -> list[int]:
        return [int(row[0]) for row in self.query("memory.used")]

    def apps(self) -> list[list[str]]:
        return self.query("gpu_uuid,pid,process_name,used_memory", "compute-apps")

    def script(self, **scenario: t.Any) -> None:
        simulate.set_script(self.path, json.dumps(scenario))

    def hold(self, gpu: int = 1, mib: int = 5000, **options: t.Any) -> int:
        plain = {"name": None, "map_only": False, "no_map": False, "ignore_term": False, "second_node": None,
                 "shape": [], "release_delay": 0.0}  # fmt: skip
        return stories.start_holder(self.path, gpu=gpu, mib=mib, **{**plain, **options})

    def processes(self) -> dict[str, list[processes.Process]]:
        found: dict[str, list[processes.Process]] = {}
        for process in processes.belonging(self.path):
            found.setdefault(process.role, []).append(process)
        return found

    def calls(self, tool: str) -> list[dict[str, t.Any]]:
        lines = pathlib.Path(self.path, "calls.jsonl").read_text(encoding="utf-8").splitlines()
        return [call for call in map(json.loads, lines) if call["tool"] == tool]

    def stop(self) -> None:
        assert processes.stop(self.path) == []
        nodes.forget(self.path)


def until(test: t.Callable[[], t.Any], timeout: float = 30.0) -> t.Any:
    deadline = time.monotonic() + timeout
    while True:
        result = test()
        if result or time.monotonic() > deadline:
            return result
        time.sleep(0.05)
