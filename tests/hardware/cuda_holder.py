# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that really holds GPU memory, through the CUDA driver API alone (no torch: it starts in a second).

cuda_holder.py READY_FILE GIB: allocates GIB on each of --gpus (0), writes its pid and those of its children into
READY_FILE, and sleeps. What else it can be:

--fork=N          children that inherited the context and do nothing
--close-nodes     the children close what they have open of /dev/nvidia*, so that only mappings are left
--zombie-leader   the main thread ends and another one lives on: state Z, and /proc/PID/fd is empty
--pinned=GIB      host memory that the driver must unpin when it dies
--ignore-term     ignores SIGTERM
--orphan          its parent is PID 1
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import pathlib
import signal
import sys
import threading
import time
import typing as t
import warnings

LIFE = 600  # seconds


def _check(name: str, code: int) -> None:
    if code != 0:
        sys.exit(f"{name} returned CUDA error {code}")


def allocate(gpus: t.Sequence[int], gib: float, pinned: float) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    _check("cuInit", cuda.cuInit(0))
    for gpu in gpus:
        device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        _check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), gpu))
        _check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        _check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
        size = ctypes.c_size_t(int(gib * 1024**3))
        _check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(pointer), size))
        _check("cuMemsetD8", cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(1), size))
        _check("cuCtxSynchronize", cuda.cuCtxSynchronize())
    if pinned:
        host = ctypes.c_void_p()
        _check("cuMemHostAlloc", cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(int(pinned * 1024**3)), 0))


def close_nodes() -> None:
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith("/dev/nvidia"):
                os.close(int(fd))


def say_ready(path: str, pids: t.Sequence[int]) -> None:
    with open(path + ".new", "w", encoding="ascii") as handle:
        handle.write(" ".join(map(str, pids)))
    os.rename(path + ".new", path)


def live_without_a_leader(path: str) -> None:
    """exit(2) ends the calling thread alone, unlike the exit_group of a normal end."""

    def live_on() -> None:
        stat = pathlib.Path("/proc/self/stat")
        while stat.read_text(errors="replace").rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        say_ready(path, [os.getpid()])
        time.sleep(LIFE)
        os._exit(0)

    threading.Thread(target=live_on).start()
    ctypes.CDLL(None).syscall(60, 0)  # ctypes lets the other thread run meanwhile


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ready_file")
    parser.add_argument("gib", type=float)
    parser.add_argument("--gpus", default="0", help="numbers, with commas")
    parser.add_argument("--fork", type=int, default=0)
    parser.add_argument("--pinned", type=float, default=0.0)
    for flag in ("--close-nodes", "--zombie-leader", "--ignore-term", "--orphan"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    if options.orphan and os.fork():
        return
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    allocate([int(gpu) for gpu in options.gpus.split(",")], options.gib, options.pinned)
    pids = [os.getpid()]
    for dummy in range(options.fork):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # CUDA has threads; that is what servers do too
            child = os.fork()
        if child == 0:
            if options.close_nodes:
                close_nodes()
            time.sleep(LIFE)
            os._exit(0)
        pids.append(child)
    if options.zombie_leader:
        live_without_a_leader(options.ready_file)
    say_ready(options.ready_file, pids)
    time.sleep(LIFE)


if __name__ == "__main__":
    main()
