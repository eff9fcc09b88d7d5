# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who was there before and after, and who got a signal: by the kernel's account, never by the modules under test."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import typing as t

import commands
import consoles
import layout
import teardown
from inside import Inside

TRACING = os.path.join(layout.STATE, "tracing")
INSTANCE = os.path.join(TRACING, "instances", "cleanslate-lxc")
# Death and job control of children is no news.
WATCHED = {1: "HUP", 2: "INT", 3: "QUIT", 6: "ABRT", 9: "KILL", 10: "USR1", 12: "USR2", 15: "TERM"}
LINE = re.compile(r"^\s*(.+)-(\d+)\s+\[\d+\].*signal_generate: sig=(\d+) errno=\S+ code=(\S+) comm=(.*) pid=(\d+) grp=")

ASKED = re.compile(r' - "(GET|POST) /\S+ HTTP/1.1" ')


@dataclasses.dataclass(frozen=True)
class Signal:
    sender: int
    sender_name: str
    name: str
    pid: int
    comm: str


@contextlib.contextmanager
def traced() -> t.Iterator[t.Callable[[], list[Signal]]]:
    """The kernel writes down every signal of these kinds on this machine; the function tells those so far."""
    os.makedirs(TRACING, exist_ok=True)
    if not os.path.ismount(TRACING):
        commands.run(["mount", "-t", "tracefs", "nodev", TRACING])
    os.makedirs(INSTANCE, exist_ok=True)

    def set_to(name: str, value: str) -> None:
        with open(os.path.join(INSTANCE, name), "w", encoding="ascii") as handle:
            handle.write(value)

    event = "events/signal/signal_generate"
    set_to(event + "/filter", "||".join(f"sig=={number}" for number in WATCHED))
    set_to("trace", "")
    set_to(event + "/enable", "1")
    try:
        yield read_signals
    finally:
        set_to(event + "/enable", "0")


def read_signals() -> list[Signal]:
    found = []
    with open(os.path.join(INSTANCE, "trace"), encoding="utf-8", errors="replace") as handle:
        for line in handle:
            match = LINE.match(line)
            if match:
                name, sender, number, _code, comm, pid = match.groups()
                found.append(Signal(int(sender), name.strip(), WATCHED[int(number)], int(pid), comm))
    return found


def processes(vmid: int) -> dict[int, str]:
    """PID → start time of everything in a container, by cgroup; without login sessions, which come and go."""
    found = {}
    for root in teardown.cgroup_roots():
        for place, _folders, _files in os.walk(os.path.join(root, layout.container(vmid).cgroups[0])):
            for pid in map(int, teardown.read(os.path.join(place, "cgroup.procs")).split()):
                begun = teardown.start_time(pid)
                if begun is not None and b"/user.slice/" not in teardown.read(f"/proc/{pid}/cgroup"):
                    found[pid] = begun
    return found


@dataclasses.dataclass(frozen=True)
class UnitState:
    """What a signal or a restart would have changed."""

    shown: dict[str, str]
    processes: dict[int, str]  # of its cgroup, by host PID
    journal: str
    log: str


def unit_state(inside: Inside, unit: str = "sglang.service") -> UnitState:
    names = "MainPID,InvocationID,NRestarts,ActiveState,ActiveEnterTimestampMonotonic,StateChangeTimestampMonotonic"
    shown = dict(
        line.split("=", 1) for line in inside.pct("systemctl", "show", "-p", names, unit).splitlines() if "=" in line
    )
    folder = f"{layout.container(inside.about.vmid).cgroups[0]}/ns/system.slice/{unit}"
    found: dict[int, str] = {}
    for root in teardown.cgroup_roots():
        for pid in map(int, teardown.read(os.path.join(root, folder, "cgroup.procs")).split()):
            found[pid] = teardown.start_time(pid) or ""
    journal = inside.pct("journalctl", "-u", unit, "-o", "short-monotonic", "--no-pager", "-q")
    log = inside.pct("sh", "-c", "cat /var/log/sglang/sglang.log 2>/dev/null || true")
    # Being asked whether one serves is no touch.
    told = [line for line in log.splitlines() if not ASKED.search(line)]
    return UnitState(shown, found, journal, "\n".join(told))


def holders() -> set[int]:
    """Every process with a GPU's node open, by device number."""
    held = consoles.holders()
    gpus = [layout.CONSOLES[f"nvidia{n}"] for n in range(layout.GPUS)]
    return {int(who.split()[0]) for minor in gpus for who in held.get(minor, ())}


def of_container(pids: t.Iterable[int], vmid: int) -> set[int]:
    return set(pids) & set(processes(vmid))


def seen_by(tool: str) -> set[int]:
    """What fuser or lsof tells on the host, asked for the nodes there as everybody does."""
    nodes = [os.path.join(layout.NODE, "dev", name) for name in layout.CONSOLES if "/" not in name]
    argv = {"fuser": ["fuser", *nodes], "lsof": ["lsof", "-t", *nodes]}[tool]
    return {int(word) for word in commands.run(argv, check=False).stdout.split()}


def our_scan(vmid: int) -> list[dict[str, t.Any]]:
    """gpu_holders_info on the host, run as Ansible runs it: a process with its arguments in a file."""
    arguments = {"scope": "lxc", "lxc": [str(vmid)], "devices": [layout.NODE + "/dev/nvidia*"],
                 "majors": [layout.TTY_MAJOR], "nvidia_smi": layout.NODE + "/bin/nvidia-smi"}  # fmt: skip
    return run_module("gpu_holders_info", arguments)["holders"]  # type: ignore[no-any-return]


def run_module(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    place = os.path.join(layout.STATE, "log", "arguments.json")
    layout.write(place, json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_remote_tmp": "/tmp"}}))
    done = subprocess.run(
        [sys.executable, "-B", "-m", "ansible_collections.cleanslate.gpu.plugins.modules." + name, place],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        env={**commands.environment(), "PYTHONPATH": os.path.join(layout.ROOT, ".ansible", "collections")},
    )  # fmt: skip
    try:
        return json.loads(done.stdout)  # type: ignore[no-any-return]
    except ValueError:
        raise AssertionError(f"{name}: {done.stdout}{done.stderr}") from None
