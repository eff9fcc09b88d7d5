# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks of this checkout, run as a user runs them, against the node; and what a stranger saw meanwhile."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import typing as t

from real_gpus import ROOT, SITE
from systemd_node import PORT, VMID, Node, health, memory_used

KEY = "hardware-key-0123456789abcdef"
MODEL = "/srv/models/tiny"
# What the unit needs of the environment in which this machine's PyTorch works.
HANDED_ON = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDAHOSTCXX", "TORCH_CUDA_ARCH_LIST", "NCCL_NVLS_ENABLE",
             "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")  # fmt: skip


def profiles(gpus: int) -> list[dict[str, t.Any]]:
    plain = {
        "model-path": MODEL, "served-model-name": "tiny", "load-format": "dummy", "skip-tokenizer-init": True,
        "attention-backend": "triton", "sampling-backend": "pytorch", "grammar-backend": "none",
        "disable-cuda-graph": True, "disable-custom-all-reduce": True, "tp-size": gpus, "port": PORT,
        "mem-fraction-static": 0.5,
    }  # fmt: skip
    return [
        {"name": "plain", "api_key": KEY, "args": plain, "description": "Four layers of a Llama, dummy weights."},
        {"name": "short", "inherit": "plain", "args": {"context-length": 2048, "mem-fraction-static": 0.4}},
        {"name": "hungry", "inherit": "plain", "args": {"mem-fraction-static": 0.0001}},
        {"name": "misspelt", "inherit": "plain", "args": {"contxt-length": 2048}},
    ]


def inventory(node: Node, gpus: int, smi: str) -> dict[str, t.Any]:
    environment = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    local = {"ansible_connection": "local", "ansible_remote_tmp": str(node.work / "ansible-tmp")}
    variables = {
        "ansible_python_interpreter": str(node.python),
        "gpu_release_nvidia_smi": smi,
        "sglang_server_python": sys.executable,
        "sglang_server_profile": "plain",
        "sglang_server_profiles": profiles(gpus),
        "sglang_server_environment": {**environment, "PYTHONPATH": SITE, "HF_HUB_OFFLINE": "1"},
        "sglang_server_load_budget": 420,
        "sglang_server_progress_timeout": 200,
        "gpu_drift_mode": "remediate",
        "gpu_drift_confirm_after": 15,
    }
    return {
        "all": {
            "children": {
                "gpu_hosts": {"hosts": {"gpuhost": {**local, "ansible_python_interpreter": "/usr/bin/python3"}}},
                "sglang_nodes": {"hosts": {"node": {**local, **variables}}},
            }
        }
    }


HOST_SIDE = {"gpu_release_host": "gpuhost", "gpu_release_lxc": [int(VMID)]}


@dataclasses.dataclass(frozen=True)
class Play:
    name: str
    code: int
    text: str
    began: float
    seconds: float
    steps: list[dict[str, t.Any]]
    result: t.Any  # the result file

    def last(self, task: str) -> dict[str, t.Any]:
        """The result of the last step whose name has these words; empty where there is none."""
        found = [step["result"] for step in self.steps if task in step["task"]]
        return found[-1] if found else {}

    def by_module(self, module: str) -> list[dict[str, t.Any]]:
        return [step["result"] for step in self.steps if step["action"] == f"cleanslate.gpu.{module}"]

    def told(self) -> str:
        """Why it failed, as a person reads it."""
        said = [f"{step['task']}: {step['result'].get('msg', '')}" for step in self.steps if step["status"] != "ok"]
        return " | ".join(" ".join(line.split()) for line in said)

    def longest(self, least: float = 0.4) -> list[tuple[str, float]]:
        """The steps that took time, in their order."""
        timed = [(step["task"], round(step["ended"] - (step["began"] or step["ended"]), 2)) for step in self.steps]
        return [(task, seconds) for task, seconds in timed if seconds >= least]

    def downtime(self) -> dict[str, float]:
        """Seconds from the step that stops to the ends of those that follow."""
        # A node that releases its own GPUs stops the server in the same step.
        begun = [
            step["began"] for step in self.steps if "Stop sglang" in step["task"] or "End who holds" in step["task"]
        ]
        marks = {"stopped": "Stop sglang", "released_and_gate_open": "End who holds", "started": "Start the ",
                 "ready": "Wait until the server serves"}  # fmt: skip
        if not begun:
            return {}
        found = {}
        for name, task in marks.items():
            ends = [step["ended"] for step in self.steps if task in step["task"] and step["ended"] > begun[0]]
            if ends:
                found[name] = round(ends[0] - begun[0], 2)
        return found


class Player:
    def __init__(self, node: Node, site: pathlib.Path, gpus: int, smi: str) -> None:
        self.node, self.site = node, site
        self.folder = node.work / "plays"
        self.folder.mkdir()
        collections = node.work / "collections"
        (collections / "ansible_collections" / "cleanslate").mkdir(parents=True)
        (collections / "ansible_collections" / "cleanslate" / "gpu").symlink_to(ROOT)
        self.collections = collections
        self.inventory = node.work / "inventory.json"
        self.inventory.write_text(json.dumps(inventory(node, gpus, smi)))
        self.inventory.chmod(0o600)
        self.count = 0

    def play(self, playbook: str, timeout: float = 500, **extra: t.Any) -> Play:
        self.count += 1
        place = self.folder / f"{self.count:02d}-{playbook}"
        place.mkdir()
        steps, result = place / "steps.jsonl", place / "result.json"
        name = {"relaunch": "relaunch_result_file", "drift": "gpu_drift_result_file"}.get(playbook)
        given = {**({name: str(result)} if name else {}), **extra}
        began = time.time()
        with open(place / "output", "w", encoding="utf-8") as out:
            code = subprocess.run(
                [sys.executable, "-m", "ansible.cli.playbook", "-i", str(self.inventory), "-e", json.dumps(given),
                 str(ROOT / "playbooks" / f"{playbook}.yml")],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=timeout, cwd=ROOT, check=False,
                env={**os.environ, "PYTHONPATH": str(self.site), "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1",
                     "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
                     "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests" / "lxc" / "callback"),
                     "ANSIBLE_CALLBACKS_ENABLED": "lxc_steps", "CLEANSLATE_LXC_STEPS": str(steps)},
            ).returncode  # fmt: skip
        seconds = round(time.time() - began, 1)
        lines = steps.read_text().splitlines() if steps.exists() else []
        told = json.loads(result.read_text()) if result.exists() else None
        text = (place / "output").read_text()
        return Play(playbook, code, text, began, seconds, [json.loads(line) for line in lines], told)


class Stranger(threading.Thread):
    """Samples /health and memory.used beside a case, by calls that have nothing to do with the collection."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self.node = node
        self.began = time.time()
        self.health: list[tuple[float, str]] = []
        self.memory: list[tuple[float, list[int]]] = []
        self.states: list[tuple[float, str, int]] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        asking = threading.Thread(target=self.ask, daemon=True)
        asking.start()
        while not self.stopped.wait(0.05):
            try:
                used, at = memory_used(), round(time.time() - self.began, 2)
            except subprocess.CalledProcessError:
                continue  # a case signals everybody who has a device open
            states = "".join(sorted(one.state for one in self.node.schedulers()))
            if "Z" in states:  # SGLang's own end: the leader is a zombie, and its threads still hold memory
                self.states.append((at, states, sum(used)))
            if not self.memory or self.memory[-1][1] != used:
                self.memory.append((at, used))
        asking.join(30)

    def ask(self) -> None:
        while not self.stopped.wait(0.3):
            began = round(time.time() - self.began, 2)
            said = health(timeout=25)
            if not self.health or self.health[-1][1] != said:
                self.health.append((began, said))

    def end(self) -> dict[str, t.Any]:
        self.stopped.set()
        self.join(60)
        memory = self.memory
        if len(memory) > 60:  # the first, the last, and every so many between: a load changes it a thousand times
            step = len(memory) // 58
            memory = [*memory[::step], memory[-1]]
        return {"health": self.health, "memory_mib": memory, "zombie_schedulers": self.states[:40]}
