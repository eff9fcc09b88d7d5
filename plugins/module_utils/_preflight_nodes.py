# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Which device nodes a server needs on this node, and what stands at their paths."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import (
    CONTROL_MINOR,
    LAST_GPU_MINOR,
    NVIDIA_MAJOR,
    plays_nodes,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Context, Fault
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import text

CONTROL, UVM, UVM_TOOLS = "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"
DRIVER_ENTRIES = ("nvidia", "nvidia-frontend", "nvidiactl")  # what /proc/devices calls 195, by driver version
UVM_ENTRY = "nvidia-uvm"
LOAD_UVM = "On the host load the uvm module and make its nodes (`nvidia-modprobe -u -c=0`)"
START_AGAIN = "start the container again"
_NO_NODE_CURE = (
    f"Stop the container. {LOAD_UVM}, and {START_AGAIN}; what is left at the path inside the container then has to go,"
    " if it is still there."
)
_MAJOR_CURE = (
    f"The number of nvidia-uvm changes with driver and kernel: {START_AGAIN}, so that the node is made anew, and on the"
    " host give the device to it as devN instead of lxc.mount.entry and lxc.cgroup2.devices.allow lines, which carry a"
    " fixed number."
)
_OPTION_CURE = (
    "Give the option majors the numbers that these nodes have, or leave it out for those of the NVIDIA driver."
)
_NOT_LOADED_CURE = f"{LOAD_UVM}, and {START_AGAIN}."
_NO_DRIVER_CURE = (
    "On the host load the NVIDIA driver (`modprobe nvidia`, `nvidia-smi`), then start the container again."
)
_MINOR_CURE = "Make the node anew with the number that belongs to its name: start the container again, or use devN."
_GPU_NAME = re.compile(r"nvidia(\d+)\Z")


@dataclasses.dataclass(frozen=True)
class NeededNode:
    """A node the server needs. found is None where nothing is at its path."""

    name: str
    path: str
    found: os.stat_result | None

    @property
    def gpu_minor(self) -> int | None:
        match = _GPU_NAME.match(self.name)
        return int(match.group(1)) if match else None


@dataclasses.dataclass(frozen=True)
class Needed:
    """All of them. gpus_wanted is how many GPU nodes there must be where it cannot be told which."""

    nodes: tuple[NeededNode, ...]
    gpus_wanted: int

    @property
    def present(self) -> tuple[NeededNode, ...]:
        return tuple(node for node in self.nodes if node.found is not None)

    @property
    def missing(self) -> tuple[NeededNode, ...]:
        return tuple(node for node in self.nodes if node.found is None)

    @property
    def gpus_present(self) -> tuple[NeededNode, ...]:
        return tuple(node for node in self.present if node.gpu_minor is not None)


def of_the_driver(context: Context) -> bool:
    """Whether the nodes are those of the NVIDIA driver, so that what it says in /proc is about them."""
    if plays_nodes(context.devices):
        return False
    return context.majors is None or NVIDIA_MAJOR in context.majors


def needed_nodes(context: Context) -> Needed:
    folders = _folders(context)
    names, wanted = _gpu_names(context)
    if len(names) < wanted:  # which ones is not known: those that are there count
        there = (f"nvidia{minor}" for minor in range(LAST_GPU_MINOR + 1))
        names = [*names, *(name for name in there if name not in names and _at(context, folders, name).found)]
    nodes = [_at(context, folders, name) for name in (*names, CONTROL, UVM, UVM_TOOLS)]
    return Needed(tuple(nodes), wanted)


def fault_of(node: NeededNode, context: Context) -> Fault | None:
    """Why what stands at the path is not the node, None where it is or where nothing is there."""
    if node.found is None:
        return None
    mode = node.found.st_mode
    if stat.S_ISREG(mode):
        if plays_nodes(context.devices):
            return None
        return Fault("is a plain file: the container was started before the host had the node", _NO_NODE_CURE)
    if stat.S_ISDIR(mode):
        return Fault("is a folder: something was mounted there before the host had the node", _NO_NODE_CURE)
    if not stat.S_ISCHR(mode):
        return Fault(f"is no character device (mode {mode:o})", _NO_NODE_CURE)
    return _number_fault(node, os.major(node.found.st_rdev), os.minor(node.found.st_rdev), context)


def sound_nodes(context: Context) -> tuple[tuple[NeededNode, ...], tuple[NeededNode, ...]]:
    """Those that may be opened, and those of which it cannot be told: opening another device could do anything."""
    sound = [node for node in needed_nodes(context).present if fault_of(node, context) is None]
    unsure = [node for node in sound if _number_unknown(node, context)]
    return tuple(node for node in sound if node not in unsure), tuple(unsure)


def driver_majors(context: Context) -> dict[str, int] | None:
    """Name to number of the character devices of /proc/devices, None where that cannot be read."""
    try:
        lines = text(context.proc.read(os.path.join(context.proc.root, "devices"))).splitlines()
    except OSError:
        return None
    majors: dict[str, int] = {}
    for line in lines:
        if line.startswith("Block"):
            break
        fields = line.split()
        if len(fields) == 2 and fields[0].isdigit():
            majors[fields[1]] = int(fields[0])
    return majors


def _number_unknown(node: NeededNode, context: Context) -> bool:
    """The number of uvm is nowhere but in /proc/devices."""
    device = node.found is not None and stat.S_ISCHR(node.found.st_mode)
    return device and node.name in (UVM, UVM_TOOLS) and context.majors is None and driver_majors(context) is None


def _number_fault(node: NeededNode, major: int, minor: int, context: Context) -> Fault | None:
    if context.majors is not None:
        if major in context.majors:
            return None
        listed = ", ".join(str(number) for number in context.majors)
        return Fault(f"has the major {major}, but the option majors lists {listed}", _OPTION_CURE)
    majors = driver_majors(context)
    entries = (UVM_ENTRY,) if node.name in (UVM, UVM_TOOLS) else DRIVER_ENTRIES
    if majors is None:
        if _number_unknown(node, context):
            return None
        majors = {entries[0]: NVIDIA_MAJOR}
    registered = next((majors[entry] for entry in entries if entry in majors), None)
    if registered is None:
        if entries == (UVM_ENTRY,):
            return Fault(f"has no driver behind it: /proc/devices has no {UVM_ENTRY}", _NOT_LOADED_CURE)
        return Fault("has no driver behind it: /proc/devices has no nvidia", _NO_DRIVER_CURE)
    if major != registered:
        return Fault(
            f"has the stale major {major}, but /proc/devices gives {entries[0]} {registered}",
            _MAJOR_CURE,
        )
    right = {CONTROL: CONTROL_MINOR, UVM: 0, UVM_TOOLS: 1}.get(node.name, node.gpu_minor)
    if minor != right:
        return Fault(f"has the minor {minor}, but a node of that name has {right}", _MINOR_CURE)
    return None


def _gpu_names(context: Context) -> tuple[list[str], int]:
    """The GPU nodes that must be there by name, and how many there must be at least. The driver numbers them in the
    order in which it found the GPUs: a container that got the last four of eight has nvidia4 to nvidia7."""
    gpus = _gpus_of_driver(context) if of_the_driver(context) else {}
    wanted = context.expectation
    if wanted.uuids:
        known = {uuid.lower(): minor for minor, uuid in gpus.items()}
        minors = [known[uuid.lower()] for uuid in wanted.uuids if uuid.lower() in known]
        return [f"nvidia{minor}" for minor in sorted(minors)], len(wanted.uuids)
    count = wanted.count or len(gpus) or 1
    if len(gpus) > count:
        return [], count
    minors = sorted(gpus) if len(gpus) == count else list(range(count))
    return [f"nvidia{minor}" for minor in minors], count


def _gpus_of_driver(context: Context) -> dict[int, str]:
    """Minor to UUID of the GPUs that the kernel module has bound."""
    gpus: dict[int, str] = {}
    root = os.path.join(context.proc.root, "driver/nvidia/gpus")
    try:
        entries = sorted(os.listdir(root))
    except OSError:
        return gpus
    for entry in entries:
        try:
            lines = text(context.proc.read(os.path.join(root, entry, "information"))).splitlines()
        except OSError:
            continue
        fields = {name.strip(): value.strip() for name, _colon, value in (line.partition(":") for line in lines)}
        if fields.get("Device Minor", "").isdigit():
            gpus[int(fields["Device Minor"])] = fields.get("GPU UUID", "")
    return gpus


def _folders(context: Context) -> list[str]:
    """Where nodes are looked for: the folders of the globs, and a folder that is itself named."""
    folders: list[str] = []
    for pattern in context.devices:
        parent = os.path.dirname(pattern)
        folders.extend(sorted(glob.glob(parent)) if glob.has_magic(parent) else [parent])
        if not glob.has_magic(pattern) and os.path.isdir(pattern):
            folders.append(pattern)
    return list(dict.fromkeys(folders)) or [os.path.dirname(context.devices[0])]


def _at(context: Context, folders: t.Sequence[str], name: str) -> NeededNode:
    for folder in folders:
        path = os.path.join(folder, name)
        try:
            return NeededNode(name, path, context.stat(path))
        except OSError:
            continue
    return NeededNode(name, os.path.join(folders[0], name), None)
