# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel driver's memory, on the played host: it notes who holds each context and when its last holder ended.

The simulator starts such a process where a context is made, which here would be inside a container, in the unit that is
stopped a moment later. Here it runs on the host as long as the harness is up; its lock keeps others from starting one.
Usage: gpu_driver.py NODE
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(HERE)), "simulator"))

import driver  # noqa: E402
import shared_smi  # noqa: E402

TICK_S = 0.05


def note_owners(folder: str, known: set[str]) -> None:
    """Which host PID holds each context: asked once, while its lock can still tell."""
    names = {name for name in os.listdir(folder) if name.endswith(".ctx")}
    for gone in known - names:
        known.discard(gone)
        try:
            os.unlink(os.path.join(folder, gone[:-4] + ".owner"))
        except FileNotFoundError:
            pass
    if not names - known:
        return
    owners = shared_smi.lock_owners()
    for name in names - known:
        try:
            about = os.stat(os.path.join(folder, name))
        except FileNotFoundError:
            continue
        pid = owners.get((about.st_dev, about.st_ino))
        if pid is not None:
            note = {"pid": pid, "namespace": os.readlink("/proc/self/ns/pid")}
            new = os.path.join(folder, "." + name + ".owner")
            with open(new, "w", encoding="ascii") as handle:
                json.dump(note, handle)
            os.replace(new, os.path.join(folder, name[:-4] + ".owner"))
            known.add(name)


def main(node: str) -> None:
    os.umask(0)
    folder = os.path.join(node, "contexts")
    lock = os.open(os.path.join(folder, ".driver"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Every user's process takes this one.
    os.close(os.open(os.path.join(folder, ".registry"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))
    print("ready", flush=True)
    known: set[str] = set()
    while True:
        try:
            note_owners(folder, known)
            driver.settle(folder, shared_smi.read_json(os.path.join(node, "scenario.json")))
        except FileNotFoundError:
            if not os.path.isdir(folder):
                return
        time.sleep(TICK_S)


if __name__ == "__main__":
    main(sys.argv[1])
