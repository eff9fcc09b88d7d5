# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process on a node that does what a case wants: python player.py LOG OPTIONS (JSON).

It writes every signal that it gets into LOG, prints the PIDs of itself and its children once all is in place, and then
does what lines on its stdin say, one answer each. Options: open and map (paths), close (the files once they are
mapped), inherit (files survive exec), comm, children, on_term (end, ignore, fork), zombie (the leader ends, a thread
lives), own_table (a thread has its own table of open files, with these paths in it), vfork (waits for a child in
state D), undumpable.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import signal
import sys
import threading
import time
import typing as t

HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1)
SYS_EXIT = {"x86_64": 60, "aarch64": 93}
CLONE_FILES = 0x400
libc = ctypes.CDLL(None, use_errno=True)
areas: list[t.Any] = []
files: list[int] = []


def opened(path: str, inherit: bool) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_inheritable(handle, inherit)
    return handle


def map_without_file(path: str) -> None:
    """By hand: the mmap module keeps a file of its own."""
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    handle = os.open(path, os.O_RDONLY)
    address = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    os.close(handle)
    areas.append(address)


def take(paths: t.Sequence[str], mapped: t.Sequence[str], close: bool, inherit: bool) -> None:
    files.extend(opened(path, inherit) for path in paths)
    for path in mapped:
        if not close:
            files.append(opened(path, inherit))
        map_without_file(path)


def hear(log: str, on_term: str) -> None:
    def note(number: int, frame: t.Any) -> None:
        with open(log, "a", encoding="ascii") as out:
            out.write(f"{os.getpid()} {signal.Signals(number).name}\n")
        if number == signal.SIGTERM and on_term == "fork":
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(300)
            os._exit(0)
        if number == signal.SIGTERM and on_term == "end":
            os._exit(0)

    for number in HEARD:
        signal.signal(number, note)


def obey() -> None:
    """Lines: map PATH, unmap, close, fork N, exec PROGRAM ARGUMENTS."""
    while True:
        line = sys.stdin.readline()
        word, *rest = line.split() or ["rest"]
        said: list[int] = []
        if word == "map":
            map_without_file(rest[0])
        elif word == "unmap":
            while areas:
                libc.munmap(ctypes.c_void_p(areas.pop()), ctypes.c_size_t(4096))
        elif word == "close":
            while files:
                os.close(files.pop())
        elif word == "fork":
            said = children(int(rest[0]))
        elif word == "exec":
            os.execv(rest[0], rest)
        else:
            while True:
                time.sleep(300)
        os.write(1, (json.dumps(said) + "\n").encode())


def children(count: int) -> list[int]:
    born = []
    for _number in range(count):
        child = os.fork()
        if child == 0:
            while True:
                time.sleep(300)
        born.append(child)
    return born


def main() -> None:
    log, text = sys.argv[1:3]
    options: dict[str, t.Any] = {
        "open": [], "map": [], "close": False, "inherit": False, "comm": "", "children": 0, "on_term": "end",
        "zombie": False, "own_table": [], "vfork": False, "undumpable": False, **json.loads(text),
    }  # fmt: skip
    hear(log, options["on_term"])
    take(options["open"], options["map"], options["close"], options["inherit"])
    if options["comm"]:
        libc.prctl(15, options["comm"].encode("utf-8", "surrogateescape"), 0, 0, 0)
    if options["undumpable"]:
        libc.prctl(4, 0, 0, 0, 0)
    if options["own_table"]:
        there = threading.Event()

        def apart() -> None:
            libc.unshare(CLONE_FILES)
            for path in options["own_table"]:
                map_without_file(path)
                opened(path, False)
            there.set()
            time.sleep(300)

        threading.Thread(target=apart, daemon=True).start()
        there.wait(10)
    born = children(options["children"])
    os.write(1, (json.dumps([os.getpid(), *born]) + "\n").encode())
    if options["zombie"]:
        threading.Thread(target=time.sleep, args=(300,)).start()
        libc.syscall(SYS_EXIT[platform.machine()], 0)
    # The child of a vfork shares everything; the parent sleeps uninterruptibly until it ends.
    if options["vfork"] and libc.vfork() == 0:
        libc.pause()
        libc._exit(0)
    obey()


if __name__ == "__main__":
    main()
