# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel driver's memory of a simulated node: notes the moment at which a context lost its last holder.

Runs only while there is a context, holds no device node, ends by itself. Without it the fake nvidia-smi counts the
release delay from the first call that sees the context free.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

import contexts

TICK_S = 0.02  # seconds; another one in scenario.json as `driver_tick_s`, for many nodes on one machine


def scenario_of(node: str) -> dict:
    try:
        with open(os.path.join(node, "scenario.json"), encoding="utf-8") as handle:
            return json.load(handle)
    except (OSError, ValueError):
        return {}


def main(node: str, lock: int) -> None:
    folder = os.path.join(node, "contexts")
    while True:
        time.sleep(scenario_of(node).get("driver_tick_s", TICK_S))
        try:
            if settle(folder, scenario_of(node)):
                continue
            registry = os.open(os.path.join(folder, ".registry"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return  # the node's folder is gone
        # Under the lock that a new allocation takes before it asks whether a driver runs.
        fcntl.flock(registry, fcntl.LOCK_EX)
        if not settle(folder, scenario_of(node)):
            os.close(lock)
            return
        os.close(registry)


def settle(folder: str, scenario: dict) -> bool:
    """Drop what is given back; say whether there is anything left to watch."""
    more = False
    moment = contexts.now()
    for context in contexts.contexts(folder):
        if context.held:
            more = True
        elif not contexts.still_used(context, scenario, moment):
            os.unlink(context.path)
            os.unlink(context.path[:-4] + ".freed")
        elif context.gpu not in contexts.never_clears(scenario):
            more = True
    return more


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
