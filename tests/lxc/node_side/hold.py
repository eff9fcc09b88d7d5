# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulator's holder, for GPUs that are virtual consoles. Found before the simulator's own hold.py on sys.path.

Three things differ. A console is opened without becoming the controlling terminal (else the death of its first opener
would hang up the others). It cannot be mapped, so nothing is. And a context is there once the driver on the host knows
whose it is.

As a program: hold.py NODE READY-FD OPTIONS, as the simulator's, but that options left out have their usual values.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import typing as t

HERE = os.path.dirname(os.path.realpath(__file__))
SIMULATOR = os.path.join(os.path.dirname(os.path.dirname(HERE)), "simulator")
if SIMULATOR not in sys.path:
    sys.path.append(SIMULATOR)

import contexts  # noqa: E402

_spec = importlib.util.spec_from_file_location("simulator_hold", os.path.join(SIMULATOR, "hold.py"))
assert _spec is not None
assert _spec.loader is not None
_plain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_plain)

USUAL = {"mib": 1000, "name": None, "map_only": False, "no_map": False, "ignore_term": False, "second_node": None,
         "shape": [], "release_delay": None}  # fmt: skip


def open_all(node: str, but: str = "") -> dict[str, int]:
    fds = {}
    for folder, prefix in (("dev", ""), ("dev/nvidia-caps", "nvidia-caps/")):
        for name in sorted(os.listdir(os.path.join(node, folder))):
            path = os.path.join(node, folder, name)
            if name != but and not os.path.isdir(path):
                fds[prefix + name] = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    return fds


def map_gpu(fds: dict[str, int], gpu: int) -> None:
    """Nothing: a console cannot be mapped."""


class Allocation(contexts.Allocation):
    """Memory whose owner the driver on the host has noted."""

    def __init__(self, node: str, gpu: int, *rest: t.Any, **named: t.Any) -> None:
        super().__init__(node, gpu, *rest, **named)
        # A driver knows its contexts' owners at once; ours looks 20 times a second, and this one may die before that.
        end = time.monotonic() + 5
        while not os.path.exists(self.path[:-4] + ".owner") and time.monotonic() < end:
            time.sleep(0.01)


contexts.Allocation = Allocation  # type: ignore[misc]
_plain.open_all = open_all  # type: ignore[attr-defined]
_plain.map_gpu = map_gpu  # type: ignore[attr-defined]

if __name__ == "__main__":
    sys.argv[3] = json.dumps({**USUAL, **json.loads(sys.argv[3])})
    _plain.main()
