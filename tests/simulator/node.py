# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder that is a node: made, marked as ours, removed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shlex
import shutil
import socket
import sys
import typing as t
import uuid

import model_folder

HERE = os.path.dirname(os.path.realpath(__file__))
MARK = "cleanslate_simulated_node"
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
MEMORY_MIB = 97887
DRIVER = "580.159.04"
BUS_IDS = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF", "16", "27", "38", "49", "5A", "6B", "7C", "8D")
NODE_BYTES = 4096  # one page, so that a node can be mapped
EMPTY_SCENARIO: dict[str, t.Any] = {"faults": [], "server": {}}


class NodeError(Exception):
    pass


def free_port(node: str) -> int:
    """A port below the range from which the kernel picks ports for outgoing connections, so that it stays free, and
    not that of a node beside this one, whose server may not run yet."""
    taken = set()
    for path in pathlib.Path(node).absolute().parent.glob("*/node.json"):
        with contextlib.suppress(NodeError):
            taken.add(read(str(path.parent)).get("port"))
    low = random.randrange(20000, 29000)
    for port in list(range(low, 30000)) + list(range(20000, low)):
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise NodeError("no free port between 20000 and 29999 on 127.0.0.1")


def read(node: str) -> dict[str, t.Any]:
    """node.json of a node that we made; an error otherwise."""
    path = os.path.join(node, "node.json")
    try:
        with open(path, encoding="utf-8") as handle:
            about = json.load(handle)
    except FileNotFoundError:
        raise NodeError(f"{node} is not a simulated node: it has no node.json (make one with: create)") from None
    except ValueError as error:
        raise NodeError(f"{path} cannot be read: {error}") from None
    if not isinstance(about, dict) or about.get(MARK) != 1:
        raise NodeError(f"{path} was not written by this simulator (no {MARK} in it)")
    return t.cast("dict[str, t.Any]", about)


def write_atomically(path: str, text: str, mode: int = 0o644) -> None:
    new = f"{path}.{os.getpid()}.new"
    with open(new, "w", encoding="utf-8") as handle:
        handle.write(text)
    os.chmod(new, mode)
    os.replace(new, path)


def create(node: str, *, gpus: int, memory_mib: int, name: str, python: str, port: int | None) -> dict[str, t.Any]:
    """Make the folder, or complete a half-made one. A finished node keeps its UUIDs, port and scenario."""
    if not 1 <= gpus <= len(BUS_IDS):
        raise NodeError(f"--gpus {gpus}: between 1 and {len(BUS_IDS)}")
    if not os.access(python, os.X_OK):
        raise NodeError(f"--python {python} cannot be executed")
    marker = os.path.join(node, ".simulated-node")
    if os.path.isdir(node) and os.listdir(node) and not os.path.exists(marker):
        raise NodeError(f"{node} exists, is not empty and was not made by this simulator: left alone")
    os.makedirs(node, exist_ok=True)
    write_atomically(marker, MARK + "\n")
    for folder, mode in (("dev/nvidia-caps", 0o700), ("dev", 0o700), ("bin", 0o755), ("contexts", 0o777),
                         ("counters", 0o777), ("processes", 0o777), ("home/.config/systemd/user", 0o755),
                         ("run", 0o700), ("pycache", 0o777)):  # fmt: skip
        os.makedirs(os.path.join(node, folder), exist_ok=True)
        os.chmod(os.path.join(node, folder), mode)
    try:
        before: dict[str, t.Any] = read(node)
    except NodeError:
        before = {}
    about = {
        MARK: 1,
        "name": name,
        "memory_mib": memory_mib,
        "driver_version": DRIVER,
        # An NVLink machine says Completed; a PCIe one has no fabric.
        "fabric_state": "Completed" if " H" in name else "[N/A]",
        "python": python,
        "port": port or before.get("port") or free_port(node),
        "gpus": (before.get("gpus", []) + [
            {"minor": n, "uuid": f"GPU-{uuid.uuid4()}", "bus_id": f"00000000:{BUS_IDS[n]}:00.0"}
            for n in range(len(before.get("gpus", [])), gpus)
        ])[:gpus],
    }  # fmt: skip
    names = [f"nvidia{n}" for n in range(gpus)] + ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
    for device in [*names, "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"]:
        fd = os.open(os.path.join(node, "dev", device), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(fd, NODE_BYTES)
        os.close(fd)
    for log in ("calls.jsonl", "sglang.log"):
        with open(os.path.join(node, log), "a", encoding="utf-8"):
            pass
    if not os.path.exists(os.path.join(node, "scenario.json")):
        write_atomically(os.path.join(node, "scenario.json"), json.dumps(EMPTY_SCENARIO, indent=2) + "\n")
    model_folder.make(os.path.join(node, "models", "demo-397b"))
    for tool, text in launchers(node, python).items():
        write_atomically(os.path.join(node, "bin", tool), text, 0o755)
    write_atomically(os.path.join(node, "node.json"), json.dumps(about, indent=2) + "\n")
    return about


def launchers(node: str, python: str) -> dict[str, str]:
    q = shlex.quote
    start = "import sys; sys.path[:0] = [%r]; import %s; %s.main(%r, sys.argv[1:])"
    cache = "pycache_prefix=" + os.path.join(node, "pycache")
    fake = os.path.join(HERE, "fake_sglang")
    return {
        "nvidia-smi": '#!/bin/sh\nexec {} -I -S -X {} -c {} "$@"\n'.format(
            q(python), q(cache), q(start % (HERE, "smi", "smi", node))
        ),
        # Without a cache prefix: the big file that it loads was compiled when it was installed.
        "systemctl": '#!/bin/sh\nCLEANSLATE_SIMULATED_NODE={} exec {} -I -B -c {} "$@"\n'.format(
            q(node), q(python), q(start % (HERE, "systemctl_bridge", "systemctl_bridge", node))
        ),
        "python": "#!/bin/sh\nCLEANSLATE_SIMULATED_NODE={} PYTHONPYCACHEPREFIX={} PYTHONPATH={}\n"
        'export CLEANSLATE_SIMULATED_NODE PYTHONPYCACHEPREFIX PYTHONPATH\nexec {} "$@"\n'.format(
            q(node), q(os.path.join(node, "pycache")), q(fake + os.pathsep + HERE), q(python)
        ),
    }


def check_ours(node: str) -> None:
    """Stop and destroy touch only what create made; a folder that is not there is fine."""
    if os.path.lexists(node) and not os.path.isfile(os.path.join(node, ".simulated-node")):
        raise NodeError(f"{node} was not made by this simulator: left alone")


def forget(node: str) -> None:
    """After stop: no context, no recorded process and no running job is left over in the folder."""
    for folder in ("contexts", "processes", "run/jobs"):
        path = os.path.join(node, folder)
        for name in os.listdir(path) if os.path.isdir(path) else []:
            os.unlink(os.path.join(path, name))


def destroy(node: str) -> None:
    """Remove a node's folder (its processes must be gone)."""
    check_ours(node)
    if os.path.lexists(node):
        shutil.rmtree(node)


def default_python() -> str:
    return sys.executable
