# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The memory of commands that were killed at their deadline and did not go away.

A process in state D cannot be killed. It is left behind, and remembered across module executions, so that nobody
starts a second one beside it: a stuck nvidia-smi for every look would bring the machine down.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
import tempfile
import typing as t


@dataclasses.dataclass(frozen=True)
class ProcessStat:
    """The fields of /proc/PID/stat that are needed here. start_time is in clock ticks since boot."""

    pid: int
    state: str
    group: int
    start_time: int


def read_stat(pid: int, proc_root: str = "/proc") -> ProcessStat | None:
    """None where the process is gone (or cannot be read, which for one of our own children is the same)."""
    try:
        with open(os.path.join(proc_root, str(pid), "stat"), "rb") as handle:
            text = handle.read()
        # The name may contain spaces and brackets: everything is counted from the last closing one.
        rest = text[text.rindex(b")") + 1 :].split()
        return ProcessStat(pid, rest[0].decode("ascii"), int(rest[2]), int(rest[19]))
    except (OSError, ValueError, IndexError):
        return None


def boot_id(proc_root: str = "/proc") -> str | None:
    """Which boot this is: pids and start times mean nothing in another one."""
    try:
        with open(os.path.join(proc_root, "sys/kernel/random/boot_id"), encoding="ascii") as handle:
            return handle.read().strip() or None
    except (OSError, ValueError):
        return None


def is_there(process: ProcessStat | None, proc_root: str = "/proc") -> bool:
    """A zombie has ended, unless a thread of it lives on: that is how a thread in state D looks after a SIGKILL."""
    if process is None:
        return False
    if process.state not in ("Z", "X"):
        return True
    try:
        return len(os.listdir(os.path.join(proc_root, str(process.pid), "task"))) > 1
    except OSError:
        return False


def group_survivor(group: int, proc_root: str = "/proc") -> int | None:
    """A process of this process group that is still there (the leader first), or None."""
    try:
        pids = sorted(int(name) for name in os.listdir(proc_root) if name.isdigit())
    except OSError:
        return None
    if group in pids:
        pids.remove(group)
        pids.insert(0, group)
    for pid in pids:
        process = read_stat(pid, proc_root)
        if process is not None and process.group == group and is_there(process, proc_root):
            return pid
    return None


def default_folder() -> str:
    """A folder for the memory that outlives this process but not the boot."""
    if os.geteuid() == 0:
        return "/run/cleanslate"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime):
        return os.path.join(runtime, "cleanslate")
    return os.path.join(tempfile.gettempdir(), f"cleanslate-{os.geteuid()}")


class LeftBehind:
    """Remembers, for each tool, the one process of it that could not be ended.

    A record counts only while a process with its pid and start time exists in the same boot; any other record is
    removed. Records of another PID namespace have another name and are left alone: the folder may be shared with
    containers. Where the folder cannot be used safely, the memory lasts as long as this object.
    """

    def __init__(self, folder: str | None = None, proc_root: str = "/proc") -> None:
        self._folder = default_folder() if folder is None else folder
        self._proc_root = proc_root
        self._own: dict[str, tuple[int, int]] = {}

    def recall(self, tool: str) -> int | None:
        """The pid of a process of this tool that was left behind and is still there."""
        if tool in self._own:
            if self._same(*self._own[tool]):
                return self._own[tool][0]
            del self._own[tool]
        path = self._path(tool)
        record = self._read(path)
        if record is None:
            return None
        if record.get("boot_id") == boot_id(self._proc_root) and record.get("tool") == tool:
            pid, start_time = record.get("pid"), record.get("start_time")
            if isinstance(pid, int) and isinstance(start_time, int) and self._same(pid, start_time):
                return pid
        with contextlib.suppress(OSError):  # somebody else may be faster, and the next record replaces it anyway
            os.unlink(path)
        return None

    def remember(self, tool: str, pid: int) -> None:
        process = read_stat(pid, self._proc_root)
        if process is None:
            return
        self._own[tool] = (pid, process.start_time)
        record = {"tool": tool, "pid": pid, "start_time": process.start_time, "boot_id": boot_id(self._proc_root)}
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            if not self._folder_is_ours():
                return
            handle, temporary = tempfile.mkstemp(prefix=".left-behind-", dir=self._folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(record, file)
            os.replace(temporary, self._path(tool))
        except OSError:
            return  # this object still remembers

    def _same(self, pid: int, start_time: int) -> bool:
        process = read_stat(pid, self._proc_root)
        return process is not None and process.start_time == start_time and is_there(process, self._proc_root)

    def _path(self, tool: str) -> str:
        try:
            namespace = os.readlink(os.path.join(self._proc_root, "self/ns/pid"))
        except OSError:
            namespace = ""
        name = hashlib.sha256(f"{tool}\0{namespace}".encode("utf-8", "surrogateescape")).hexdigest()[:24]
        return os.path.join(self._folder, f"left-behind-{name}.json")

    def _read(self, path: str) -> dict[str, t.Any] | None:
        if not self._folder_is_ours():
            return None
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), encoding="utf-8") as file:
                record = json.load(file)
        except OSError:
            return None
        except ValueError:
            return {}
        return record if isinstance(record, dict) else {}

    def _folder_is_ours(self) -> bool:
        """Nobody else may have written the record: it decides whether a command is started at all."""
        try:
            found = os.lstat(self._folder)
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
