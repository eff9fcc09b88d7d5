# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node for the module as a real process: plain files as device nodes, and processes that really hold them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

HOLD_NODE = pathlib.Path(__file__).parent.parent / "module_utils/hold_node.py"
LONG = 120
UUIDS = tuple(f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in range(2))

# Holds the node, writes down which signals it gets, and does with TERM what it is told.
HOLDER = """
import mmap, os, signal, sys, time
node, log, on_term = sys.argv[1:4]
stream = open(node, "rb")
area = mmap.mmap(stream.fileno(), 4096, prot=mmap.PROT_READ)
def note(signum, frame):
    with open(log, "a") as out:
        out.write(f"{os.getpid()} {signal.Signals(signum).name}\\n")
    if on_term == "fork":
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)
        os._exit(0)
    if on_term == "end":
        os._exit(0)
signal.signal(signal.SIGTERM, note)
for dummy in range(int(sys.argv[4]) if len(sys.argv) > 4 else 0):
    if os.fork() == 0:
        break
os.write(1, b"ready %d\\n" % os.getpid())  # one write, since children write to the same pipe
while True:
    time.sleep(300)
"""

NVIDIA_SMI = """#!{python}
import os, sys
kind, fields = sys.argv[1].split("=", 1)
folder = {folder!r}
with open(os.path.join(folder, "calls"), "a") as calls:
    calls.write(kind + "\\n")
if kind == "--query-gpu":
    used = open(os.path.join(folder, "used")).read().split()
    for index, mib in enumerate(used):
        row = {{
            "index": index, "uuid": {uuids!r}[index], "pci.bus_id": f"00000000:0{{index}}:00.0", "name": "NVIDIA X",
            "memory.used": mib, "memory.total": 97887, "count": len(used), "driver_version": "580.1",
            "mig.mode.current": "Disabled", "fabric.state": "[N/A]", "gpu_recovery_action": "None",
            "persistence_mode": "Enabled", "compute_mode": "Default",
        }}
        print(", ".join(str(row.get(field, 0)) for field in fields.split(",")))
"""


class Node:
    """A folder with device nodes, a nvidia-smi and the processes that were started in it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.log = folder / "signals"
        self.log.touch()
        (folder / "dev").mkdir()
        for name in ("nvidia0", "nvidia1", "nvidiactl"):
            (folder / "dev" / name).write_bytes(b"\0" * 4096)
        self.smi = folder / "nvidia-smi"
        self.smi.write_text(NVIDIA_SMI.format(python=sys.executable, folder=str(folder), uuids=UUIDS))
        self.smi.chmod(0o755)
        self.used(0, 0)
        self.started: list[subprocess.Popen[str]] = []

    def used(self, *mib: int) -> None:
        (self.folder / "used").write_text(" ".join(str(one) for one in mib))

    def start(self, *argv: str, lines: int = 1, **options: t.Any) -> list[int]:
        process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, text=True, **options)
        self.started.append(process)
        assert process.stdout is not None
        return [int(process.stdout.readline().split()[1]) for dummy in range(lines)]

    def hold(self, on_term: str, children: int = 0) -> list[int]:
        script = self.folder / "holder.py"
        script.write_text(HOLDER)
        node = str(self.folder / "dev/nvidia1")
        return self.start(str(script), node, str(self.log), on_term, str(children), lines=children + 1)

    def close(self) -> None:
        end_all_of(self.folder)
        for process in self.started:
            process.wait(LONG)
            assert process.stdout is not None
            process.stdout.close()

    def signals(self) -> list[tuple[int, str]]:
        return [(int(pid), name) for pid, name in (line.split() for line in self.log.read_text().splitlines())]

    def release(self, *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        arguments = {
            "devices": [f"{self.folder}/dev/nvidia*"],
            "nvidia_smi": str(self.smi),
            "scope": "own",
            "ladder": [{"signal": "TERM", "wait": 3}, {"signal": "KILL", "wait": 60}],
            # This test is the living parent of what it starts, which would be watched.
            "respawn_watch": 0,
            "_ansible_check_mode": check,
            "_ansible_diff": True,
            **params,
        }
        return module_process.run("gpu_force_release", self.folder, arguments)


def end_all_of(folder: pathlib.Path) -> None:
    """Whoever has this test's own folder in its command line, also children that outlived their parent."""
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def gone(*pids: int) -> bool:
    """Killed processes take a moment to become invisible."""
    deadline = time.monotonic() + LONG
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
