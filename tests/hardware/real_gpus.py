# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real GPUs, real holders on them, the real modules as processes, and memory as NVML itself tells it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODULES = "ansible_collections.cleanslate.gpu.plugins.modules"
SITE = "/opt/sglang-site"  # where SGLang can be imported from
MIB = 1024 * 1024


class Failed(Exception):
    """What was expected and what was seen instead."""


def expect(condition: t.Any, sentence: str, seen: t.Any = None) -> None:
    if not condition:
        raise Failed(f"{sentence}; seen: {json.dumps(seen, default=str)[:1500]}")


class _Memory(ctypes.Structure):
    """nvmlMemory_v2_t: what the driver keeps for itself is not in `used`, as in nvidia-smi's memory.used."""

    _fields_: t.ClassVar = [
        ("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong),
    ]  # fmt: skip


class Nvml:
    """Used memory without a process for each look. While it is open, this process has the devices open."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        expect(self._library.nvmlInit_v2() == 0, "NVML starts")
        count = ctypes.c_uint()
        self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        self._devices = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            expect(self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0, "a GPU's handle")
            self._devices.append(device)

    def close(self) -> None:
        self._library.nvmlShutdown()

    def used(self) -> list[int]:
        """MiB for each GPU."""
        found = []
        for device in self._devices:
            memory = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
            code = self._library.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory))
            expect(code == 0, "NVML tells used memory", code)
            found.append(memory.used // MIB)
        return found


class Watcher(threading.Thread):
    """Looks at used memory every 5 ms by NVML, beside whatever is being tried."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped, self._ready = threading.Event(), threading.Event()
        self.samples: list[tuple[float, int]] = []
        self.start()
        expect(self._ready.wait(30), "NVML answers within 30 s")

    def close(self) -> None:
        self._stopped.set()
        self.join(30)

    def run(self) -> None:
        with contextlib.closing(Nvml()) as nvml:
            self._ready.set()
            while not self._stopped.wait(0.005):
                self.samples.append((time.time(), sum(nvml.used())))

    def zero(self) -> float | None:
        """When memory was 0 for good, by the clock of time.time()."""
        held = [moment for moment, used in self.samples if used]
        after = [moment for moment, used in self.samples if not used and (not held or moment > held[-1])]
        return after[0] if after else None


class Machine:
    def __init__(self, work: pathlib.Path, site: pathlib.Path | None = None) -> None:
        """Site: a folder with ansible-core, where this Python has none."""
        self.work = work
        self.children: list[subprocess.Popen[bytes]] = []
        path = work / "collections" / "ansible_collections" / "cleanslate"
        path.mkdir(parents=True)
        (path / "gpu").symlink_to(ROOT)
        places = [str(work / "collections"), *([str(site)] if site else []), os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        self.gpus = len(self.used())

    def used(self) -> list[int]:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return [int(line) for line in subprocess.check_output(query, text=True).split()]

    def module(
        self, name: str, *, within: t.Sequence[str] = (), user: str | None = None, **options: t.Any
    ) -> dict[str, t.Any]:
        """Within: a command that runs the module somewhere else, such as in another namespace."""
        arguments = self.work / f"{name}.json"
        arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": options}))
        ended = subprocess.run(
            [*within, sys.executable, "-m", f"{MODULES}.{name}", str(arguments)],
            capture_output=True, text=True, timeout=300, env=self.environment, check=False, user=user,
        )  # fmt: skip
        try:
            result: dict[str, t.Any] = json.loads(ended.stdout)
        except ValueError:
            raise Failed(f"{name} printed no JSON: {ended.stdout[-500:]} {ended.stderr[-1500:]}") from None
        return result

    def facts(self, **named: t.Any) -> dict[str, t.Any]:
        result = self.module("nvidia_gpu_facts", **{"expected_count": self.gpus, **named})
        fact: dict[str, t.Any] = result["ansible_facts"]["nvidia_gpu"]
        return fact

    def holders(self, *pids: int) -> tuple[list[dict[str, t.Any]], list[str]]:
        seen = self.module("gpu_holders_info", scope="own")
        return [holder for holder in seen["holders"] if not pids or holder["pid"] in pids], seen["lines"]

    def holder(self, gib: float, *flags: str, within: t.Sequence[str] = (), **environment: str) -> list[int]:
        ready = self.work / f"ready-{time.monotonic_ns()}"
        command = [*within, sys.executable, str(HERE / "cuda_holder.py"), str(ready), str(gib), *flags]
        child = subprocess.Popen(command, start_new_session=True, env={**os.environ, **environment})
        self.children.append(child)
        deadline = time.monotonic() + 120
        while not ready.exists():
            waiting = child.poll() in (None, 0) and time.monotonic() < deadline
            expect(waiting, f"a CUDA process holds {gib} GiB", child.poll())
            time.sleep(0.02)
        return [int(pid) for pid in ready.read_text().split()]

    def alive(self, pid: int) -> bool:
        """Whether any thread of it is."""
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return False
        for thread in threads:
            # One that ends between the two says nothing about the others.
            with contextlib.suppress(OSError):
                stat = pathlib.Path(f"/proc/{pid}/task/{thread}/stat").read_text()
                if stat.rpartition(")")[2].split()[0] not in "ZX":
                    return True
        return False

    def end_all(self) -> None:
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                # A group of its own, which an orphan is still in; the number is not reused while anybody is.
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(60)
        self.children.clear()
        deadline = time.monotonic() + 60
        while any(self.used()) and time.monotonic() < deadline:
            time.sleep(0.2)


def release(machine: Machine, timeout: int = 60, **options: t.Any) -> dict[str, t.Any]:
    """gpu_force_release with its gate: how long it took by its own clock, and by that of a stranger."""
    with contextlib.closing(Watcher()) as watcher:
        began = time.time()
        result = machine.module(
            "gpu_force_release", scope="own", wait_idle=True, expected_count=machine.gpus, timeout=timeout, **options
        )
        ended = time.time()
    expect(not result.get("failed"), "gpu_force_release passes", result.get("msg"))
    expect(result["verdict"] == "released", "the verdict is released", result["verdict"])
    expect(result["gate"]["verdict"] == "idle", "the gate says idle", result["gate"])
    zero, first = watcher.zero(), result["signalled"][0]["after_s"]
    return {
        "first_signal_to_gate_open_s": round(result["elapsed_s"] - first + result["gate"]["waited_s"], 3),
        "first_signal_to_released_s": round(result["elapsed_s"] - first, 3),
        "module_process_s": round(ended - began, 3),
        "gate_opened_after_memory_was_zero_s": None if zero is None else round(ended - zero, 3),
        "signalled": len(result["signalled"]),
        "signals": sorted({entry["signal"] for entry in result["signalled"]}),
        "gate_history": [[point["t"], sum(point["used_mib"].values())] for point in result["gate"]["history"]][-12:],
        "msg": result["msg"],
    }


def drivers_own_time(machine: Machine, pids: t.Sequence[int]) -> tuple[float, float]:
    """Seconds from SIGKILL by hand until NVML, asked every 5 ms, says 0 MiB, and until the driver has let the last
    thread of the processes end as well (unpinning host memory goes on after that): with nothing of ours."""
    with contextlib.closing(Nvml()) as nvml:
        began = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        empty = None
        while True:
            used = nvml.used()
            # Read after each look: the driver holds NVML's answer back while it unpins, and the looks at /proc too.
            passed = round(time.monotonic() - began, 3)
            if empty is None and not any(used):
                empty = passed
            if empty is not None and not any(machine.alive(pid) for pid in pids):
                return empty, round(time.monotonic() - began, 3)
            expect(passed < 120, "the driver gives the memory back and lets the processes end", used)
            time.sleep(0.005)
