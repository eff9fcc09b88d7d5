# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What the processes of a server are doing, read from /proc in a child that may be left behind.

Reading some of it can block for ever on a process that is stuck in the kernel. The cheap and telling parts come first;
where a read does not answer, the next process is looked at.
"""

from __future__ import annotations

import collections
import os
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact_argv
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Progress, collect

STALL = 3.0  # seconds for one read
MOST_PROCESSES = 128
MOST_THREADS = 2048
MOST_STACKS = 16  # threads in state D of one process whose kernel stack is read
MOST_TARGETS = 60

Section = tuple[int, str, str]  # pid, name, text


class ProcessReader:
    """Sections about one process. Each may raise OSError as the kernel gives it, or not come back."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self.steps: tuple[tuple[str, t.Callable[[int], str]], ...] = (
            ("state", self._state),
            ("kernel wait", self._wchan),
            ("system call", lambda pid: self._plain(pid, "syscall")),
            ("kernel stack", lambda pid: self._plain(pid, "stack")),
            ("threads", self._threads),
            ("status", lambda pid: self._plain(pid, "status")),
            ("limits", lambda pid: self._plain(pid, "limits")),
            ("open files", self._files),
            ("command line", lambda pid: redact_argv(self._proc.argv(pid))),
        )

    def read(self, pids: t.Sequence[int], progress: Progress) -> t.Iterator[Section]:
        for pid in pids:
            for number, (name, step) in enumerate(self.steps):
                progress.at(pid, number)
                try:
                    text = step(pid).rstrip()
                except (OSError, ValueError, LookupError) as error:
                    text = f"[could not be read: {getattr(error, 'strerror', None) or error}]"
                yield pid, name, text

    def _plain(self, pid: int, name: str) -> str:
        return self._proc.read(self._proc.path(pid, name)).decode("utf-8", "replace")

    def _state(self, pid: int) -> str:
        found = self._proc.stat(pid)
        return f"{found.comm}, state {found.state}, parent {found.ppid}, started at tick {found.start_time}"

    def _wchan(self, pid: int) -> str:
        return self._proc.wchan(pid) or "-"

    def _threads(self, pid: int) -> str:
        """How many threads wait where, and the kernel stack of those that cannot be interrupted."""
        waits: collections.Counter[str] = collections.Counter()
        stacks: list[str] = []
        tids = self._proc.tids(pid)
        for tid in tids[:MOST_THREADS]:
            try:
                state, where = self._proc.stat(pid, tid).state, self._proc.wchan(pid, tid) or "-"
                waits[f"{state} {where}"] += 1
                if state == "D" and len(stacks) < MOST_STACKS:
                    stack = self._proc.read(self._proc.path(pid, "stack", tid=tid)).decode("utf-8", "replace")
                    stacks.append(f"thread {tid} ({where}):\n{stack.rstrip()}")
            except OSError:
                continue  # it has ended, or its stack is for root only
        counted = [f"{count:5d} x {what}" for what, count in waits.most_common()]
        return "\n".join([f"{len(tids)} threads", *counted, *stacks])

    def _files(self, pid: int) -> str:
        folder = self._proc.path(pid, "fd")
        targets: collections.Counter[str] = collections.Counter()
        names = os.listdir(folder)
        for name in names:
            try:
                targets[_kind(os.readlink(f"{folder}/{name}"))] += 1
            except OSError:
                continue  # closed meanwhile
        counted = [f"{count:5d} x {what}" for what, count in targets.most_common(MOST_TARGETS)]
        return "\n".join([f"{len(names)} open files", *counted])


def _kind(target: str) -> str:
    """What a descriptor leads to, so that alike ones can be counted together."""
    if target.startswith(("socket:", "pipe:")):
        return target.split(":", 1)[0]
    if target.startswith("anon_inode:"):
        return target
    if target.startswith(("/dev/nvidia", "/dev/infiniband")):
        return target
    return f"{os.path.dirname(target)}/*" if re.search(r"\d", os.path.basename(target)) else target


def read_processes(pids: t.Sequence[int], seconds: float, clock: Clock, proc_root: str = "/proc") -> tuple[str, str]:
    """All that could be read as one text, and what is missing as a sentence."""
    reader = ProcessReader(Proc(proc_root))
    deadline = clock.monotonic() + seconds
    left = list(pids)[:MOST_PROCESSES]
    blocks: list[str] = []
    missing = [f"{len(pids) - len(left)} more processes were left out"] if len(pids) > len(left) else []
    last = 0
    while left and clock.monotonic() < deadline:
        wanted = tuple(left)

        def produce(progress: Progress, wanted: tuple[int, ...] = wanted) -> t.Iterator[Section]:
            return reader.read(wanted, progress)

        found = collect(produce, deadline=deadline, stall=STALL, clock=clock)
        for pid, name, text in found.items:
            if pid != last:
                blocks.append(f"\n===== process {pid} =====")
                last = pid
            blocks.append(f"--- {name}\n{text}")
        if found.finished:
            left = []
        elif found.blocked_at is not None and found.blocked_at[0] in left:
            pid, step = found.blocked_at
            missing.append(f"{reader.steps[step][0]} of process {pid} did not answer")
            blocks.append(f"--- {reader.steps[step][0]}\n[did not answer: the read blocks in the kernel]")
            left = left[left.index(pid) + 1 :]
        else:
            missing.append(found.error or "the reading child process did not begin")
            break
    if left:
        missing.append(f"{len(left)} processes were not looked at in {seconds:.0f} s")
    return "\n".join(blocks).lstrip("\n") + "\n", "; ".join(missing)
