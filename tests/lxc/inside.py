# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the tests look at the played host and act on it: by means of their own, never by the modules under test."""

from __future__ import annotations

import os
import subprocess
import sys

import commands
import containers
import layout
import teardown

HARNESS = [sys.executable, os.path.join(layout.HERE, "harness.py")]


def harness(*words: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HARNESS, *words], capture_output=True, text=True, timeout=timeout, check=False)


class Inside:
    """One container."""

    def __init__(self, vmid: int) -> None:
        self.about = layout.container(vmid)

    def pct(self, *argv: str, check: bool = True, timeout: float = 60) -> str:
        return commands.run(
            [layout.PCT, "exec", str(self.about.vmid), "--", *argv], check=check, timeout=timeout
        ).stdout

    def ssh(self, command: str) -> str:
        return commands.run([*containers.ssh_command(self.about), command]).stdout

    def put(self, path: str, text: str, mode: str = "644") -> None:
        # By pct, since an SSH session leaves a user manager behind, which ends some seconds later.
        write = ["sh", "-c", f"cat >{path}; chmod {mode} {path}"]
        commands.run([layout.PCT, "exec", str(self.about.vmid), "--", *write], feed=text)

    def init(self) -> int:
        return containers.init_pid(self.about)

    def host_pid(self, pid: int) -> int:
        """The host's number of one of its processes: same PID namespace as its init, that number inside."""
        namespace = os.readlink(f"/proc/{self.init()}/ns/pid")
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{name}/ns/pid") != namespace:
                    continue
                with open(f"/proc/{name}/status", encoding="utf-8") as handle:
                    numbers = next(line.split()[1:] for line in handle if line.startswith("NSpid:"))
            except OSError:
                continue
            if int(numbers[-1]) == pid:
                return int(name)
        raise AssertionError(f"no process {pid} in container {self.about.vmid}")

    def hold_command(self, options: str) -> list[str]:
        place = os.path.join(layout.SOURCES, "lxc", "node_side", "hold.py")
        return [layout.PYTHON, "-B", place, layout.NODE, "1", options]

    def hold(self, gpu: int, mib: int, more: str = "") -> int:
        """A holder outside every unit, as from `pct exec`; its host PID."""
        options = f'{{"gpu": {gpu}, "mib": {mib}{more}}}'
        answer = os.path.join(layout.STATE, "log", f"holder-{self.about.vmid}")
        with open(answer, "w+", encoding="ascii") as output:
            subprocess.Popen(
                [layout.PCT, "exec", str(self.about.vmid), "--", "setsid", *self.hold_command(options)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, env=commands.environment(),
            )  # fmt: skip
            commands.wait_for("the holder answers", lambda: os.path.getsize(answer), 30)
            output.seek(0)
            return self.host_pid(int(output.read()))

    def run_unit(self, name: str, *argv: str) -> None:
        self.pct("systemd-run", "--quiet", "--collect", "--unit=" + name, *argv)

    def main_pid(self, unit: str) -> int:
        """The host PID of a unit's main process."""
        inside = int(self.pct("systemctl", "show", "--value", "--property=MainPID", unit))
        return self.host_pid(inside) if inside else 0

    def smi(self, query: str) -> list[list[str]]:
        return rows(self.pct("nvidia-smi", query, "--format=csv,noheader,nounits"))


def rows(text: str) -> list[list[str]]:
    return [line.split(", ") for line in text.splitlines()]


def host_smi(query: str) -> list[list[str]]:
    smi = os.path.join(layout.NODE, "bin", "nvidia-smi")
    return rows(commands.run([smi, query, "--format=csv,noheader,nounits"]).stdout)


def memory() -> list[int]:
    return [int(mib) for (mib,) in host_smi("--query-gpu=memory.used")]


def end_holders() -> None:
    """Before all and after each test: stop the units, end our holders, wait for the memory."""
    for one in layout.CONTAINERS:
        inside = Inside(one.vmid)
        inside.pct("systemctl", "stop", "sglang.service", "test-*.service", check=False)
        inside.pct("systemctl", "reset-failed")
    # Also whoever starts holders again: their command is in its command line.
    commands.wait_for("no holder is left", lambda: not kill_holders(), 30)
    commands.wait_for("all GPUs are empty", lambda: not any(memory()), 30)


def kill_holders() -> bool:
    """True if there were any."""
    folders = [os.path.join(root, one.cgroups[0]) for root in teardown.cgroup_roots() for one in layout.CONTAINERS]
    found = False
    for folder in folders:
        for place, _folders, _files in os.walk(folder):
            for pid in map(int, teardown.read(os.path.join(place, "cgroup.procs")).split()):
                start = teardown.start_time(pid)
                if start is not None and b"node_side/hold.py" in teardown.read(f"/proc/{pid}/cmdline"):
                    teardown.end(pid, start)
                    found = True
    return found
