# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many cheap processes: crowd.py SHAPE COUNT. Prints a line when they stand, ends them all when its input ends.

sleepers COUNT    forks that sleep, with 20 open files each
schedulers COUNT  each 150 threads, 150 files and 2,500 mappings, as a tensor-parallel server's ranks have
storm COUNT       so many processes a second that live for 50 ms
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import select
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
FILES, THREADS, SCHEDULER_FILES, SCHEDULER_MAPS = 20, 150, 150, 2500
LIFE_S = 0.05


def rest() -> None:
    while True:
        signal.pause()


def open_files(count: int) -> list[int]:
    return [os.open("/dev/null", os.O_RDONLY) for dummy in range(count)]


def become_scheduler(tell: int) -> None:
    files = open_files(SCHEDULER_FILES)
    # Shared mappings never merge into one line.
    maps = [mmap.mmap(-1, mmap.PAGESIZE) for dummy in range(SCHEDULER_MAPS)]
    threading.stack_size(65536)
    for dummy in range(THREADS - 1):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    os.write(tell, b".")
    rest()
    del files, maps


def fork(libc: ctypes.CDLL) -> int:
    pid = os.fork()
    if pid == 0:
        # Whatever ends this program ends its children.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return pid


def storm(rate: int) -> None:
    """Until the input ends: closed by whoever started this."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while not select.select([0], [], [], 1 / rate)[0]:
        if os.fork() == 0:
            time.sleep(LIFE_S)
            os._exit(0)


def main() -> None:
    shape, count = sys.argv[1], int(sys.argv[2])
    if shape == "storm":
        storm(count)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    files = open_files(FILES)
    gc.freeze()
    reader, writer = os.pipe()
    children = []
    for dummy in range(count):
        pid = fork(libc)
        if pid == 0:
            become_scheduler(writer) if shape == "schedulers" else rest()
        children.append(pid)
    for dummy in range(count if shape == "schedulers" else 0):
        os.read(reader, 1)
    print("ready", flush=True)
    sys.stdin.read()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    del files


if __name__ == "__main__":
    main()
