# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Taking everything down again, whatever state it is in: a finished host, a half-made one, or one already half removed.

Only what the marker file speaks of is touched: it is written before anything is made, and removed last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
import typing as t

import commands
import consoles
from layout import BRIDGE, CONTAINERS, LOCK, LXC_PATH, MARK, MARKER, STATE, HarnessError, read_marker

ALLOW_LIST_IS_OURS = os.path.join(STATE, "wrote-allow-list")
PARENTS = ("lxc", "lxc.monitor")


def cgroup_roots() -> list[str]:
    """Mount points of every cgroup hierarchy."""
    roots = []
    with open("/proc/self/mountinfo", encoding="utf-8") as handle:
        for line in handle:
            left, dummy, right = line.partition(" - ")
            if right.split()[0] in ("cgroup", "cgroup2"):
                roots.append(left.split()[4])
    return roots


def cgroups_of_ours() -> list[str]:
    """The containers' own cgroups that exist now."""
    paths = [os.path.join(root, path) for root in cgroup_roots() for one in CONTAINERS for path in one.cgroups]
    return [path for path in paths if os.path.isdir(path)]


def strangers() -> list[str]:
    """What has our names but was there before us."""
    found = cgroups_of_ours()
    if os.path.exists("/sys/class/net/" + BRIDGE):
        found.append("network interface " + BRIDGE)
    return found


def start_time(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            return handle.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return None


def ancestors() -> set[int]:
    found = set()
    pid = os.getpid()
    while pid > 0:
        found.add(pid)
        try:
            with open(f"/proc/{pid}/stat", "rb") as handle:
                pid = int(handle.read().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return found


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except OSError:
        return b""


def alive(pid: int) -> bool:
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(fields) and fields[0] not in (b"Z", b"X")


def our_processes(unfinished: str = "") -> dict[int, str]:
    """PID → start time of what the harness or its containers run: by mark, by root folder, by cgroup."""
    mark = f"{MARK}={STATE}".encode()
    places = tuple(folder + os.sep for folder in (STATE, unfinished) if folder)
    found = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            root = os.readlink(f"/proc/{pid}/root")
        except OSError:
            root = ""
        if f"{root}/".startswith(places) or mark in read(f"/proc/{pid}/environ").split(b"\0"):
            found.add(pid)
    for top in cgroups_of_ours():
        for folder, _folders, files in os.walk(top):
            if "cgroup.procs" in files:
                found.update(int(word) for word in read(os.path.join(folder, "cgroup.procs")).split() if int(word))
    spared = ancestors()
    return {pid: start for pid in found - spared if alive(pid) and (start := start_time(pid)) is not None}


def end(pid: int, start: str) -> None:
    """SIGKILL to exactly this process."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if start_time(pid) == start:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


def thaw() -> None:
    """A frozen process of the old hierarchy does not die."""
    for path in cgroups_of_ours():
        for folder, _folders, files in os.walk(path):
            if "freezer.state" in files:
                try:
                    with open(os.path.join(folder, "freezer.state"), "w", encoding="ascii") as handle:
                        handle.write("THAWED")
                except OSError:
                    pass


def end_processes(unfinished: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    quiet = 0
    while quiet < 2:  # twice nothing: one that was just being forked is seen the second time
        thaw()
        left = our_processes(unfinished)
        for pid, start in left.items():
            end(pid, start)
        quiet = 0 if left else quiet + 1
        if time.monotonic() > deadline:
            raise HarnessError("still there {} s after SIGKILL: {}".format(timeout, ", ".join(map(str, sorted(left)))))
        time.sleep(0.1)


def remove_cgroups(parents_before: t.Collection[str]) -> None:
    """Leaves first. Of the two parents only those that were not there before us."""

    def ours() -> list[str]:
        return [folder for top in cgroups_of_ours() for folder, _folders, _files in os.walk(top, topdown=False)]

    def gone() -> bool:
        for folder in ours():
            try:
                os.rmdir(folder)
            except OSError:
                pass  # the kernel is not done with its last process
        return not ours()

    commands.wait_for("the containers' cgroups are removed", gone, 30)
    for path in (os.path.join(root, parent) for root in cgroup_roots() for parent in PARENTS):
        if path not in parents_before and os.path.isdir(path):
            try:
                os.rmdir(path)
            except OSError:
                pass  # somebody else put a cgroup into it


def remove_bridge() -> None:
    if os.path.exists("/sys/class/net/" + BRIDGE):
        commands.run(["ip", "link", "delete", BRIDGE])
    commands.wait_for(
        "the containers' network interfaces are gone",
        lambda: not any(os.path.exists(f"/sys/class/net/veth{one.vmid}i0") for one in CONTAINERS), 20,
    )  # fmt: skip


def remove_allow_list() -> None:
    """The only file that a test puts outside STATE; removed if a test says that it wrote it."""
    path = read(ALLOW_LIST_IS_OURS).decode()
    if path:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.unlink(ALLOW_LIST_IS_OURS)


def remove_files(unfinished: str) -> None:
    """Everything below STATE, and a root file system whose build was interrupted. Never through a mount."""
    folders = [STATE, unfinished] if unfinished else [STATE]
    try:
        os.rmdir(os.path.join(STATE, "tracing", "instances", "cleanslate-lxc"))  # the tests' record of signals
    except OSError:
        pass
    for point in consoles.mounts_below(*folders):
        commands.run(["umount", point], check=False)
    left = consoles.mounts_below(*folders)
    if left:
        raise HarnessError(f"cannot unmount {', '.join(left)}: who uses it? (fuser -m {left[0]})")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.rmtree("/run/lxc/lock" + LXC_PATH, ignore_errors=True)
    for name in os.listdir(STATE):
        path = os.path.join(STATE, name)
        if path == MARKER:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    os.unlink(MARKER)
    os.rmdir(STATE)


def down() -> bool:
    """True if there was something to take down."""
    marker = read_marker()
    if marker is None:
        if os.path.isdir(STATE) and not os.listdir(STATE):
            os.rmdir(STATE)
        return False
    unfinished = marker.get("unfinished", "")
    end_processes(unfinished)
    remove_allow_list()
    remove_bridge()
    remove_cgroups(marker.get("cgroup_parents", ()))
    consoles.give_back(marker.get("consoles", ()))
    remove_files(unfinished)
    return True


def remains() -> list[str]:
    """Whatever is left of us anywhere; empty after `down`. Looks by itself, not at the marker."""
    left = [f"process {pid}" for pid in our_processes()]
    left += ["cgroup " + path for path in cgroups_of_ours()]
    left += ["mount " + point for point in consoles.mounts_below(STATE)]
    names = [BRIDGE] + [f"veth{one.vmid}i0" for one in CONTAINERS]
    left += ["network interface " + name for name in names if os.path.exists("/sys/class/net/" + name)]
    left += [path for path in (STATE, "/run/lxc/lock" + LXC_PATH) if os.path.exists(path)]
    held = consoles.holders()
    left += [f"tty{minor} held by {who}" for minor, who in held.items()]
    return left


def remove_lock() -> None:
    try:
        os.unlink(LOCK)
    except FileNotFoundError:
        pass
