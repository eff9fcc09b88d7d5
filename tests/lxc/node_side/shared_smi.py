# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fake nvidia-smi where one node's GPUs are shared by a host and its containers.

Memory is the whole GPU's wherever one looks. Processes are named as the real driver does it: on the host all of them by
host PID, in a container its own by its own PIDs. Nothing is translated here: who holds a context is read from
/proc/locks, where the kernel shows each reader the locks of his PID namespace, in its numbers, and the host also those
whose owner is dead and whose fork holds on.
"""

from __future__ import annotations

import json
import os
import sys
import typing as t

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(HERE)), "simulator"))

import contexts as ctx  # noqa: E402
import smi  # noqa: E402

DEAD = "[Not Found]"
# What is scripted for all (never_clears, release_*), beside the contexts that all share.
SHARED_SCENARIO = os.path.join("contexts", "gpus.json")
_read_json = smi.read_json


def read_json(path: str) -> dict[str, t.Any]:
    found = _read_json(path)
    if os.path.basename(path) == "scenario.json":
        found = {**found, **_read_json(os.path.join(os.path.dirname(path), SHARED_SCENARIO))}
    return found


def open_nodes(node: str, minors: t.Iterable[int]) -> list[int]:
    """As the simulator's, but a console must not become our controlling terminal."""
    dev = os.path.join(node, "dev")
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    try:
        os.open(os.path.join(dev, "nvidiactl"), flags)
    except OSError:
        raise smi.Answer("Failed to initialize NVML: GPU access blocked by the operating system\n", 17) from None
    there = []
    for minor in minors:
        try:
            os.open(os.path.join(dev, f"nvidia{minor}"), flags)
            there.append(minor)
        except OSError:
            pass
    return there


def lock_owners() -> dict[tuple[int, int], int]:
    """(device, inode) → PID that took the exclusive flock, in the numbers of this PID namespace."""
    owners = {}
    with open("/proc/locks", encoding="ascii") as handle:
        for line in handle:
            words = line.split()
            if words[1:4] == ["FLOCK", "ADVISORY", "WRITE"]:
                major, minor, inode = words[5].split(":")
                owners[os.makedev(int(major, 16), int(minor, 16)), int(inode)] = int(words[4])
    return owners


def noted_owner(path: str) -> int | None:
    """The PID that the driver process noted while the context was held; valid in its own PID namespace only."""
    try:
        with open(path[:-4] + ".owner", encoding="ascii") as handle:
            note = json.load(handle)
    except (OSError, ValueError):
        return None
    return int(note["pid"]) if note["namespace"] == os.readlink("/proc/self/ns/pid") else None


def app_rows(
    node: str, scenario: t.Mapping[str, t.Any], gpus: t.Sequence[t.Mapping[str, t.Any]]
) -> list[dict[str, t.Any]]:
    by_minor = {gpu["minor"]: gpu for gpu in gpus}
    rows = []
    moment = ctx.now()
    owners = lock_owners()
    for context in ctx.contexts(os.path.join(node, "contexts")):
        mib = ctx.still_used(context, scenario, moment)
        if mib <= ctx.CONTEXT_ONLY_MIB or context.gpu not in by_minor:
            continue
        try:
            about = os.stat(context.path)
        except FileNotFoundError:
            continue  # given back meanwhile
        noted = noted_owner(context.path)
        pid = owners.get((about.st_dev, about.st_ino)) or noted
        name = smi.process_name(pid, context.start_time) if pid else DEAD
        if pid is None or (name == DEAD and noted is None):
            continue  # of another namespace; or dead, which only the host can tell
        mib = max(mib - smi.APPS_SHORT_MIB, 1)
        rows.append(dict(by_minor[context.gpu], pid=pid, process_name=name, name=name, used_memory=mib,
                         used_gpu_memory=mib))  # fmt: skip
    return sorted(rows, key=lambda row: (row["index"], row["pid"]))


def main(node: str, argv: t.Sequence[str]) -> None:
    smi.read_json = read_json
    smi.open_nodes = open_nodes
    smi.app_rows = app_rows
    smi.main(node, argv)
