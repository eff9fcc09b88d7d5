# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names, numbers and places of the played Proxmox host. Everything it makes lies below STATE or is named here."""

from __future__ import annotations

import json
import os
import typing as t

HERE = os.path.dirname(os.path.realpath(__file__))
TESTS = os.path.dirname(HERE)
ROOT = os.path.dirname(TESTS)

STATE = "/var/lib/cleanslate-lxc"
MARKER = os.path.join(STATE, "made-by-cleanslate-lxc.json")
LOCK = "/run/cleanslate-lxc.lock"
# In the environment of every process that the harness starts, so that `down` finds those of an interrupted run.
MARK = "CLEANSLATE_LXC"

NODE = os.path.join(STATE, "node")  # the simulated node; the same path on the host and in both containers
SOURCES = os.path.join(STATE, "sim")  # copies of tests/simulator, tests/recordings and tests/lxc, seen by all three
LXC_PATH = os.path.join(STATE, "lxc")
SSH = os.path.join(STATE, "ssh")
LOGS = os.path.join(STATE, "log")
PCT = os.path.join(STATE, "bin", "pct")
INVENTORY = os.path.join(STATE, "inventory", "hosts.yml")

BRIDGE = "cslxc0"
HOST_ADDRESS = "10.231.77.1/24"
GPUS = 8
PYTHON = "/usr/bin/python3"
PORT = 30000

# Virtual consoles that nobody uses, by the name of the GPU node that each plays. They open, and hold no data.
TTY_MAJOR = 4
CONSOLES: dict[str, int] = {
    **{f"nvidia{n}": 20 + n for n in range(GPUS)},
    "nvidiactl": 28,
    "nvidia-uvm": 29,
    "nvidia-uvm-tools": 30,
    "nvidia-caps/nvidia-cap1": 31,
    "nvidia-caps/nvidia-cap2": 32,
}


class Container(t.NamedTuple):
    vmid: int
    style: str  # how it gets the GPUs: "bind" (same inode as on the host) or "devn" (nodes made anew)

    @property
    def name(self) -> str:
        return f"ct{self.vmid}"

    @property
    def address(self) -> str:
        return f"10.231.77.{self.vmid}"

    @property
    def folder(self) -> str:
        return os.path.join(LXC_PATH, str(self.vmid))

    @property
    def root(self) -> str:
        return os.path.join(self.folder, "rootfs")

    @property
    def passthrough(self) -> str:
        """Where the nodes lie on the host that are mounted into the container."""
        return os.path.join(NODE, "dev") if self.style == "bind" else os.path.join(STATE, f"passthrough-{self.vmid}")

    @property
    def cgroups(self) -> tuple[str, str]:
        return f"lxc/{self.vmid}", f"lxc.monitor/{self.vmid}"


CONTAINERS = (Container(101, "bind"), Container(102, "devn"))


def container(vmid: int) -> Container:
    for one in CONTAINERS:
        if one.vmid == vmid:
            return one
    raise HarnessError(
        "there is no container {} here (only {})".format(vmid, ", ".join(str(c.vmid) for c in CONTAINERS))
    )


class HarnessError(Exception):
    """Something that a person must know; the message says what to do."""


def read_marker() -> dict[str, t.Any] | None:
    try:
        with open(MARKER, encoding="utf-8") as handle:
            return t.cast("dict[str, t.Any]", json.load(handle))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}  # cut off while it was being written: nothing else was made yet


def write(path: str, text: str, mode: int = 0o644) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(path, mode)
