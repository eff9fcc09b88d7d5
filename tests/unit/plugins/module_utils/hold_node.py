# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that holds a device node in one of the ways that matter: python hold_node.py WAY NODE.

It prints "ready PID" once it holds: for `inherit` the PID of the child, whose parent then kills itself.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import sys
import threading
import time

SYS_EXIT = {"x86_64": 60, "aarch64": 93}[platform.machine()]
LONG = 300


def map_without_fd(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    handle = os.open(path, os.O_RDONLY)
    address = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    os.close(handle)


def ready(pid: int) -> None:
    print("ready", pid, flush=True)


def main() -> None:
    way, path = sys.argv[1:]
    if way == "open":
        os.open(path, os.O_RDONLY)
    elif way == "map":
        map_without_fd(path)
    elif way == "both":
        os.open(path, os.O_RDONLY)
        map_without_fd(path)
    elif way in ("zombie-leader", "mapping-zombie-leader"):
        os.open(path, os.O_RDONLY)
        if way.startswith("mapping"):
            map_without_fd(path)
        threading.Thread(target=time.sleep, args=(LONG,)).start()
        ready(os.getpid())
        ctypes.CDLL(None).syscall(SYS_EXIT, 0)
    elif way == "inherit":
        os.open(path, os.O_RDONLY)
        map_without_fd(path)
        child = os.fork()
        if child:
            ready(child)
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)
        return
    ready(os.getpid())
    time.sleep(LONG)


if __name__ == "__main__":
    main()
