# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The few kernel calls that Python lacks: death signal, title, raw thread exit, a mapping without a descriptor."""

from __future__ import annotations

import ctypes
import os
import platform
import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MADV_DONTFORK = 10
_PROT_READ_WRITE = 3
_MAP_SHARED = 1
# The number of the exit system call (one thread, not the process).
_EXIT = {"x86_64": 60, "aarch64": 93, "riscv64": 93, "ppc64le": 1, "s390x": 1, "armv7l": 1, "i686": 1}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def die_with_parent(parent: int) -> None:
    """SIGKILL when the thread that forked us ends. Unlike SGLang we also look whether it is dead already."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def outlive_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)


def adopt_orphans() -> None:
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def map_shared(fd: int, *, inherit: bool = True, size: int = 4096) -> int:
    """Map a file. Python's mmap keeps a duplicate of the descriptor, so that closing fd would not close the file."""
    address = _libc.mmap(None, size, _PROT_READ_WRITE, _MAP_SHARED, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    if not inherit:
        _libc.madvise(address, size, MADV_DONTFORK)
    return int(address or 0)


def set_title(title: str, comm: str | None = None) -> None:
    """What setproctitle does: the title over argv's memory (never past its end), its first 15 bytes into comm."""
    with open("/proc/self/stat", "rb") as handle:
        fields = handle.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    room = end - start
    text = title.encode()[: room - 1]
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(memory, text.ljust(room, b"\0"), start)
    finally:
        os.close(memory)
    with open("/proc/self/comm", "wb", buffering=0) as handle:
        handle.write((comm or title).encode()[:15])


def exit_this_thread() -> None:
    """End the calling thread only. Called by the main thread it leaves a zombie leader whose other threads live on."""
    _libc.syscall(ctypes.c_long(_EXIT[platform.machine()]), ctypes.c_long(0))
