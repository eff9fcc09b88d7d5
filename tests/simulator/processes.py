# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which processes belong to a node, found by its own means (not by the modules under test), and how they are ended.

A process belongs to a node when NODE/processes/PID-STARTTIME names it, when the node stands in its environment
(CLEANSLATE_SIMULATED_NODE, which forks and children inherit), or when it has a file of NODE/dev or NODE/contexts open.
We ourselves and our ancestors never do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import typing as t

from contexts import process_stat

VARIABLE = "CLEANSLATE_SIMULATED_NODE"
KEEPER = ".keeper"


class Process(t.NamedTuple):
    pid: int
    start_time: int
    parent: int
    state: str
    comm: str
    cmdline: str
    role: str
    fds: frozenset[str]
    maps: frozenset[str]
    why: str

    def held(self) -> list[str]:
        return sorted(self.fds | self.maps)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except OSError:
        return b""


def register(node: str, role: str, pid: int | None = None) -> None:
    """Note a process of the node, before anything can go wrong with it."""
    pid = os.getpid() if pid is None else pid
    stat = process_stat(pid)
    if stat is not None:
        with open(os.path.join(node, "processes", f"{pid}-{stat[2]}"), "w", encoding="utf-8") as handle:
            handle.write(role)


def node_is_there(node: str) -> bool:
    return os.path.exists(os.path.join(node, ".simulated-node"))


def keep(node: str, keeper: int | None) -> None:
    """Note for whom the node is there. Without a keeper it stays until somebody destroys it."""
    path = os.path.join(node, KEEPER)
    stat = None if keeper is None else process_stat(keeper)
    if stat is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    with open(path, "w", encoding="ascii") as handle:
        handle.write(f"{keeper} {stat[2]}")


def is_wanted(node: str) -> bool:
    """Whether the node's folder is there, and its keeper, if it has one, still lives."""
    words = _read(os.path.join(node, KEEPER)).split()
    if not node_is_there(node) or len(words) != 2:
        return node_is_there(node)
    stat = process_stat(int(words[0]))
    return stat is not None and stat[2] == int(words[1])


def rest(node: str) -> t.NoReturn:
    """Do nothing while the node is wanted: even a run that was killed leaves nobody behind."""
    while is_wanted(node):
        time.sleep(2)
    os._exit(0)


def _live_tasks(pid: int) -> list[str]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    live = []
    for task in tasks:
        state = _read(f"/proc/{pid}/task/{task}/stat").rpartition(b")")[2].split()
        if state and state[0] not in (b"Z", b"X"):
            live.append(task)
    return live


def _prefixes(node: str) -> tuple[str, str]:
    return os.path.join(node, "dev") + os.sep, os.path.join(node, "contexts") + os.sep


def open_files(pid: int, task: str, node: str) -> frozenset[str]:
    """The node's files that a living thread has open."""
    prefixes = _prefixes(node)
    folder = f"/proc/{pid}/task/{task}/fd"
    found: set[str] = set()
    try:
        numbers = os.listdir(folder)
    except OSError:
        numbers = []  # ended meanwhile, or not ours to look at
    for number in numbers:
        try:
            target = os.readlink(folder + "/" + number)
        except OSError:
            continue  # closed meanwhile
        if target.startswith(prefixes):
            found.add(target[len(node) + 1 :])
    return frozenset(found)


def mapped_files(pid: int, task: str, node: str) -> frozenset[str]:
    prefixes = _prefixes(node)
    lines = _read(f"/proc/{pid}/task/{task}/maps").decode("utf-8", "replace").splitlines()
    paths = [line.split(None, 5)[5] for line in lines if node in line]
    return frozenset(path[len(node) + 1 :] for path in paths if path.startswith(prefixes))


def ours() -> set[int]:
    """This process and its ancestors."""
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        stat = process_stat(pid)
        if stat is None:
            break
        pid = stat[1]
    return found


def belonging(node: str) -> list[Process]:
    recorded: dict[tuple[int, int], str] = {}
    try:
        for name in os.listdir(os.path.join(node, "processes")):
            pid_text, dummy, start = name.partition("-")
            if pid_text.isdigit() and start.isdigit():
                recorded[int(pid_text), int(start)] = _read(os.path.join(node, "processes", name)).decode()
    except OSError:
        pass
    present = node_is_there(node)
    marker = (f"{VARIABLE}={node}").encode()
    excluded = ours()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in excluded:
            continue
        pid = int(entry)
        stat = process_stat(pid)
        tasks = _live_tasks(pid) if stat is not None else []
        if stat is None or not tasks:
            continue  # gone, or a corpse that waits for its parent
        why = ""
        role = recorded.get((pid, stat[2]), "")
        fds = open_files(pid, tasks[0], node) if present else frozenset()
        if role:
            why = "recorded"
        elif marker in _read(f"/proc/{pid}/environ").split(b"\0"):
            why = "environment"
        elif fds:
            why = "holds"
        if not why:
            continue
        maps = mapped_files(pid, tasks[0], node)
        comm = _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
        cmdline = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
        if not role:
            role = "driver" if "driver.py" in cmdline else comm
        found.append(Process(pid, stat[2], stat[1], stat[0], comm, cmdline, role, fds, maps, why))
    return found


def end_one(pid: int, start_time: int, number: int) -> None:
    """Signal exactly this process: through a pidfd where the kernel has it, the start time checked behind it."""
    opener = getattr(os, "pidfd_open", None)
    fd = None
    try:
        if opener is not None:
            try:
                fd = opener(pid)
            except ProcessLookupError:
                return
            except OSError:
                fd = None
        stat = process_stat(pid)
        if stat is None or stat[2] != start_time:
            return
        if fd is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(fd, number)  # type: ignore[attr-defined]
    except ProcessLookupError:
        pass
    finally:
        if fd is not None:
            os.close(fd)


def stop(node: str, timeout: float = 20.0) -> list[Process]:
    """SIGKILL whatever belongs to the node until nothing is left; those that would not end are returned."""
    deadline = time.monotonic() + timeout
    quiet = 0
    while True:
        left = belonging(node)
        for process in left:
            end_one(process.pid, process.start_time, signal.SIGKILL)
        # Twice nothing: a process that was just being forked is seen the second time.
        quiet = 0 if left else quiet + 1
        if quiet == 2:
            return []
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
