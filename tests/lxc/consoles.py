# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fake GPUs: character devices with the numbers of unused virtual consoles."""

from __future__ import annotations

import fcntl
import os
import stat
import typing as t

import commands
from layout import CONSOLES, CONTAINERS, NODE, TTY_MAJOR, HarnessError

VT_DISALLOCATE = 0x5608


def holders() -> dict[int, list[str]]:
    """Who has one of our consoles open: minor → "pid command"; by number, through whatever path."""
    wanted = {os.makedev(TTY_MAJOR, minor): minor for minor in CONSOLES.values()}
    found: dict[int, list[str]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fds = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for fd in fds:
            try:
                about = os.stat(f"/proc/{pid}/fd/{fd}")
                if stat.S_ISCHR(about.st_mode) and about.st_rdev in wanted:
                    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as handle:
                        found.setdefault(wanted[about.st_rdev], []).append(f"{pid} {handle.read().strip()}")
            except OSError:
                continue
    return found


def check_free() -> None:
    held = holders()
    if held:
        raise HarnessError(
            "these virtual consoles are in use, and the fake GPUs need their numbers: {}".format(
                "; ".join("tty{} by {}".format(minor, ", ".join(who)) for minor, who in sorted(held.items()))
            )
        )


def make_nodes(folder: str) -> None:
    os.makedirs(os.path.join(folder, "nvidia-caps"), exist_ok=True)
    for name, minor in CONSOLES.items():
        path = os.path.join(folder, name)
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(TTY_MAJOR, minor))
        os.chmod(path, 0o666)


def make_all() -> None:
    """The host's nodes, and for each devN container a second set on a tmpfs of its own, as Proxmox does it."""
    make_nodes(os.path.join(NODE, "dev"))
    for one in CONTAINERS:
        if one.style == "devn":
            os.makedirs(one.passthrough)
            commands.run(["mount", "-t", "tmpfs", "-o", "mode=0755,size=64k", "cleanslate-lxc", one.passthrough])
            make_nodes(one.passthrough)


def allocated() -> list[int]:
    """Which of our consoles the kernel has set up (opening one does that)."""
    return [minor for minor in CONSOLES.values() if os.path.exists(f"/sys/class/vc/vcs{minor}")
            or os.path.exists(f"/dev/vcs{minor}")]  # fmt: skip


def give_back(before: t.Collection[int]) -> None:
    """Let the kernel forget the consoles that only our use has set up."""
    try:
        tty = os.open("/dev/tty0", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for minor in allocated():
            if minor not in before:
                try:
                    fcntl.ioctl(tty, VT_DISALLOCATE, minor)
                except OSError:
                    pass  # still open somewhere; it does no harm
    finally:
        os.close(tty)


def mounts_below(*folders: str) -> list[str]:
    """Mount points in these folders, the innermost first."""
    with open("/proc/self/mountinfo", encoding="utf-8") as handle:
        points = [line.split()[4].encode().decode("unicode_escape") for line in handle]
    return [point for point in reversed(points) if any(f"{point}/".startswith(f"{folder}/") for folder in folders)]
