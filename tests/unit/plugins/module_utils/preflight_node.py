# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node in memory: what stands at each path, what the driver says in a folder like /proc, and who the users are."""

from __future__ import annotations

import os
import pathlib
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Context
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account

DEVICES = """Character devices:
  1 mem
195 nvidia
195 nvidiactl
509 nvidia-uvm
241 nvidia-caps

Block devices:
 99 nvidia-uvm
"""
UUIDS = tuple(f"GPU-061bfd71-05da-2c88-8018-a460eaf5d6e{number}" for number in range(8))
SGLANG = Account("sglang", 990, frozenset({990, 44}), 990)


def result(kind: int, mode: int, number: tuple[int, int] = (0, 0), uid: int = 0, gid: int = 0) -> os.stat_result:
    """os.stat_result takes the fields with names beyond the tenth from a dict."""
    return os.stat_result((kind | mode, 7, 7, 1, uid, gid, 0, 0, 0, 0), {"st_rdev": os.makedev(*number)})


def device(major: int, minor: int, mode: int = 0o666, uid: int = 0, gid: int = 0) -> os.stat_result:
    return result(stat.S_IFCHR, mode, (major, minor), uid, gid)


class PreflightNode:
    """Eight GPUs and a healthy driver, until a test changes something."""

    def __init__(self, folder: pathlib.Path, gpus: int = 8) -> None:
        self.proc = folder / "proc"
        self.paths: dict[str, os.stat_result] = {
            "/": result(stat.S_IFDIR, 0o755),
            "/dev": result(stat.S_IFDIR, 0o755),
            "/dev/nvidiactl": device(195, 255),
            "/dev/nvidia-uvm": device(509, 0),
            "/dev/nvidia-uvm-tools": device(509, 1),
            **{f"/dev/nvidia{number}": device(195, number) for number in range(gpus)},
        }
        self.loader = ""  # what ldconfig -p prints
        self.write("devices", DEVICES)

    def write(self, name: str, content: str) -> None:
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def driver_has(self, minors: t.Sequence[int]) -> None:
        for minor in minors:
            text = f"Model: \t\t NVIDIA H200\nGPU UUID: \t {UUIDS[minor]}\nDevice Minor: \t {minor}\n"
            self.write(f"driver/nvidia/gpus/0000:{minor:02x}:00.0/information", text)

    def stat(self, path: str) -> os.stat_result:
        if path not in self.paths:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.paths[path]

    def run(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        if argv[0] == "/usr/sbin/ldconfig" and self.loader:
            return CommandResult(tuple(argv), 0, self.loader, "", 0.0)
        return CommandResult(tuple(argv), None, "", "", 0.0, error="not_found")

    def account(self, user: str, group: str) -> Account:
        if user == "root":
            return Account("root", 0, frozenset({0}), 0)
        if user != "sglang":
            raise LookupError(f"the user {user} does not exist")
        return SGLANG

    def context(self, **changes: t.Any) -> Context:
        values: dict[str, t.Any] = {
            "devices": ("/dev/nvidia*",),
            "expectation": Expectation(count=8),
            "runner": self.run,
            "clock": SystemClock(),
            "service_user": "sglang",
            "timeout": 60.0,
            "proc": Proc(str(self.proc)),
            "own_uid": 0,
            "stat": self.stat,
            "account": self.account,
        }
        return Context(**{**values, **changes})
