# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Room on the file systems that a server writes into, and in the memory that its ranks share."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import NO_PROFILE
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Progress, collect

_MIN_INODES = 1000  # far more than one start makes
_MIB = 1 << 20
SHARED = "/dev/shm"
_DISK_CURE = "Make room there (old logs and caches first), or move the folder to another file system."
_INODES_CURE = "Remove files there: the file system has room, but no entry left for a new file."
_READ_ONLY_CURE = "See why it is mounted read-only (`dmesg`, `mount`), and mount it read-write."
_SHARED_CURE = (
    "Remove what earlier servers left in /dev/shm (nccl-*, sgl_shm_*, with nobody holding them), or enlarge it: size="
    " in its fstab line, `--shm-size` or `--ipc host` of a container, lxc.mount.entry of an LXC."
)
_BLOCKED_CURE = "See whether its mount answers (`stat` and `df` on it, `dmesg`)."


@dataclasses.dataclass(frozen=True)
class Room:
    """One file system, as the folder that was asked for sees it."""

    folder: str
    free_mib: int
    free_inodes: int | None  # None where the file system does not count them
    read_only: bool


def room_of(folder: str) -> Room:
    """Of the folder, or of the nearest one above it: the folder itself may be made by the launch."""
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    found = os.statvfs(folder)
    inodes = found.f_favail if found.f_files else None
    return Room(folder, found.f_bavail * found.f_frsize // _MIB, inodes, bool(found.f_flag & os.ST_RDONLY))


def disk_space(context: Context, *, look: t.Callable[[str], Room] = room_of) -> Check:
    """Log, configuration and caches can be written."""
    name = "disk_space"
    launch = context.launch
    if launch is None:
        return not_checked(name, NO_PROFILE)
    folders = list(dict.fromkeys(folder for folder in launch.folders if folder))
    if not folders:
        return not_checked(name, "no folder was given")
    rooms, trouble = _look(context, folders, look)
    faults = list(trouble)
    for folder, room in rooms.items():
        where = folder if folder == room.folder else f"{folder} (on {room.folder})"
        if room.read_only:
            faults.append(Fault(f"{where} is on a read-only file system", _READ_ONLY_CURE))
        elif room.free_mib < launch.min_free_mib:
            what = f"{where} has {room.free_mib} MiB left, at least {launch.min_free_mib} are wanted"
            faults.append(Fault(what, _DISK_CURE))
        elif room.free_inodes is not None and room.free_inodes < _MIN_INODES:
            faults.append(Fault(f"{where} has {room.free_inodes} inodes left, at least {_MIN_INODES}", _INODES_CURE))
    if faults:
        return failed(name, faults)
    least = min(room.free_mib for room in rooms.values())
    return passed(name, f"at least {least} MiB free in {', '.join(rooms)}")


def shared_memory(context: Context, *, look: t.Callable[[str], Room] = room_of, folder: str = SHARED) -> Check:
    """The ranks can share what they share."""
    name = "shared_memory"
    launch = context.launch
    if launch is None:
        return not_checked(name, NO_PROFILE)
    rooms, trouble = _look(context, [folder], look)
    if trouble:
        return failed(name, trouble)
    room = rooms[folder]
    if room.folder != folder:
        return failed(name, [Fault(f"{folder} is not there", "Mount a tmpfs there.")])
    if room.read_only or room.free_mib < launch.min_shm_mib:
        left = "is read-only" if room.read_only else f"has {room.free_mib} MiB left"
        return failed(name, [Fault(f"{folder} {left}, at least {launch.min_shm_mib} MiB are wanted", _SHARED_CURE)])
    return passed(name, f"{folder} has {room.free_mib} MiB free")


def _look(
    context: Context, folders: t.Sequence[str], look: t.Callable[[str], Room]
) -> tuple[dict[str, Room], list[Fault]]:
    """In a child: a network mount may never answer."""

    def produce(progress: Progress) -> t.Iterator[tuple[str, Room | None, str]]:
        for number, folder in enumerate(folders):
            progress.at(os.getpid(), number)
            try:
                yield folder, look(folder), ""
            except OSError as error:
                yield folder, None, error.strerror or str(error)

    until = context.clock.monotonic() + context.timeout * len(folders)
    got = collect(produce, deadline=until, stall=context.timeout, clock=context.clock)
    rooms = {folder: room for folder, room, _said in got.items if room is not None}
    faults = [
        Fault(f"{folder} cannot be looked at ({said})", _BLOCKED_CURE)
        for folder, room, said in got.items
        if room is None
    ]
    if not got.finished:
        at = folders[len(got.items)] if len(got.items) < len(folders) else folders[-1]
        said = got.error or f"did not answer within {context.timeout:g} s"
        faults.append(Fault(f"{at} {said}", _BLOCKED_CURE))
    return rooms, faults
