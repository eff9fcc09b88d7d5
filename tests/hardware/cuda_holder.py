# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that really holds GPU memory, through the CUDA driver API alone (no torch: it starts in a second).

cuda_holder.py READY_FILE GIB [--fork[=N]]: allocates GIB on GPU 0, writes its pid (and, with --fork or --fork=N, those
of children that inherited the context and do nothing) into READY_FILE, and sleeps. With --ignore-term it ignores
SIGTERM, with --orphan its parent is PID 1.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time


def _check(name: str, code: int) -> None:
    if code != 0:
        sys.exit(f"{name} returned CUDA error {code}")


def allocate(gib: float) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    _check("cuInit", cuda.cuInit(0))
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    _check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0))
    _check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    size = ctypes.c_size_t(int(gib * 1024**3))
    _check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(pointer), size))
    _check("cuMemsetD8", cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(1), size))
    _check("cuCtxSynchronize", cuda.cuCtxSynchronize())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ready_file")
    parser.add_argument("gib", type=float)
    parser.add_argument("--fork", nargs="?", type=int, const=1, default=0)
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--orphan", action="store_true")
    options = parser.parse_args()
    if options.orphan and os.fork():
        return
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    allocate(options.gib)
    pids = [os.getpid()]
    for dummy in range(options.fork):
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        pids.append(child)
    with open(options.ready_file + ".new", "w", encoding="ascii") as handle:
        handle.write(" ".join(map(str, pids)))
    os.rename(options.ready_file + ".new", options.ready_file)
    time.sleep(600)


if __name__ == "__main__":
    main()
