# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The waiting of SGLang's own clean-up command, written anew from what it does: killall_waits.py PATTERN.

Processes found by name get SIGKILL, then 1 s; another second before those that nvidia-smi lists; these get SIGKILL up
to twice, with 3 s after each; then memory is looked at every 10 s, for 100 s at most, until each GPU is below 10 %.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

THRESHOLD, LONGEST_S, POLL_S = 0.10, 100, 10


def ask(what: str, fields: str) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-{what}={fields}", "--format=csv,noheader,nounits"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]


def named(pattern: str) -> set[int]:
    found = set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (1, os.getpid()):
            try:
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            except OSError:
                continue
            if re.search(pattern, text):
                found.add(int(entry.name))
    return found


def listed() -> set[int]:
    return {int(pid) for dummy, pid in ask("compute-apps", "gpu_uuid,pid") if pid.isdigit()}


def kill(pids: set[int]) -> None:
    for pid in pids - {os.getpid(), 1}:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def dirty() -> bool:
    return any(int(used) >= THRESHOLD * int(total) for used, total in ask("gpu", "memory.used,memory.total"))


def main(pattern: str) -> int:
    before = listed()
    only_named = named(pattern) - before
    if only_named:
        kill(only_named)
        time.sleep(1)
    if before:
        time.sleep(1)
        for dummy in range(2):
            now = listed()
            if not now:
                break
            kill(now)
            time.sleep(3)
    waited = 0
    while dirty():
        if waited >= LONGEST_S:
            return 1
        kill(listed())
        time.sleep(POLL_S)
        waited += POLL_S
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
