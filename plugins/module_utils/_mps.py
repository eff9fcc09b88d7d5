# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""NVIDIA's Multi-Process Service: who belongs to it, and how it is told to quit.

Its control daemon is reached through pipes in a folder that only its environment names (CUDA_MPS_PIPE_DIRECTORY). That
folder is believed where root's own process names it: a word written through a folder of somebody else's may end up in
any file. Servers run as the user of their clients, so for one of those its parent, the daemon, is asked.
"""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder

CONTROL = "nvidia-cuda-mps-control"
QUIT_TIMEOUT = 15.0  # seconds: with clients left it ends after them, so there is no point in waiting for it here

_FOLDER = b"CUDA_MPS_PIPE_DIRECTORY="


@dataclasses.dataclass(frozen=True)
class Quitting:
    """How some processes of one service are told to quit. problem: why they cannot be told from here."""

    argv: tuple[str, ...]
    pids: tuple[int, ...]
    problem: str | None = None


def is_mps(holder: Holder) -> bool:
    """MPS control or server: killing the server can take its other clients with it."""
    name = holder.comm if holder.exe is None else holder.program or ""
    return name.startswith("nvidia-cuda-mps")


def ways_to_quit(holders: t.Sequence[Holder], proc_root: str = "/proc") -> list[Quitting]:
    """One for each service that these belong to."""
    found: dict[tuple[tuple[str, ...], str | None], list[int]] = {}
    for holder in holders:
        found.setdefault(_way(holder, proc_root), []).append(holder.pid)
    return [Quitting(argv, tuple(pids), problem) for (argv, problem), pids in found.items()]


def _way(holder: Holder, proc_root: str) -> tuple[tuple[str, ...], str | None]:
    who = f"{holder.comm} (PID {holder.pid})"
    if holder.container is not None:
        return (CONTROL,), f"{who} runs in a container: tell it to quit there (`echo quit | {CONTROL}`)"
    daemon = next((pid for pid in (holder.pid, holder.ppid) if pid > 1 and _is_roots(pid, proc_root)), None)
    if daemon is None:
        return (CONTROL,), f"{who} is not root's: tell it to quit as its own user (`echo quit | {CONTROL}`)"
    folder = _folder(daemon, proc_root)
    if folder is None:
        return ("sh", "-c", f"echo quit | {CONTROL}"), None
    return ("sh", "-c", f'echo quit | env "CUDA_MPS_PIPE_DIRECTORY=$1" {CONTROL}', "sh", folder), None


def _is_roots(pid: int, proc_root: str) -> bool:
    try:
        return os.stat(os.path.join(proc_root, str(pid))).st_uid == 0
    except OSError:
        return False


def _folder(pid: int, proc_root: str) -> str | None:
    """None where the process has the default, or its environment cannot be read."""
    try:
        with open(os.path.join(proc_root, str(pid), "environ"), "rb") as stream:
            lines = stream.read().split(b"\0")
    except OSError:
        return None
    named = [line[len(_FOLDER) :] for line in lines if line.startswith(_FOLDER)]
    return os.fsdecode(named[0]) if named and named[0].startswith(b"/") else None
