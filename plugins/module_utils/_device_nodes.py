# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Which paths are GPU device nodes, and of which kind."""

from __future__ import annotations

import dataclasses
import errno
import glob
import os
import re
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import (
    DeviceNode,
    NodeKey,
    NodeKind,
    StaleNode,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc, text

NVIDIA_MAJOR = 195
NVIDIA_GLOB = "/dev/nvidia*"
CONTROL_MINOR = 255
MODESET_MINOR = 254
LAST_GPU_MINOR = 247
_LONGEST_STAND_IN = 4096  # bytes: one page, so that it can be mapped
_GPU_NAME = re.compile(r"nvidia(\d+)$")
_ACL = "system.posix_acl_access"

# Names of /proc/devices entries, longest prefix first.
_KIND_OF_ENTRY: tuple[tuple[str, NodeKind], ...] = (
    ("nvidia-uvm", "uvm"),
    ("nvidia-caps", "caps"),
    ("nvidia-nvswitch", "nvswitch"),
    ("nvidia-modeset", "modeset"),
)


@dataclasses.dataclass(frozen=True)
class Access:
    """Owner and mode of a node or of a folder above it; open_to_all where a POSIX ACL makes the mode meaningless."""

    mode: int
    uid: int
    gid: int
    open_to_all: bool = False

    def allows(self, uids: t.Collection[int], gids: t.Collection[int], bits: int) -> bool:
        """Whether a process with one of these ids gets one of these permission bits (4 read, 2 write, 1 search)."""
        if self.open_to_all or self.mode & bits:
            return True
        if self.uid in uids and (self.mode >> 6) & bits:
            return True
        return self.gid in gids and bool((self.mode >> 3) & bits)


@dataclasses.dataclass(frozen=True)
class NodeSet:
    """The nodes of one scan. real_majors maps NVIDIA's majors to the names that /proc/devices gives them; by_number
    says that every character device of such a major counts, whether a node of it was found here or not."""

    nodes: tuple[DeviceNode, ...] = ()
    stale: tuple[StaleNode, ...] = ()
    real_majors: t.Mapping[int, str] = dataclasses.field(default_factory=dict)
    by_number: bool = False
    ways: tuple[tuple[Access, ...], ...] = ()  # per node: the folders above it, then the node

    @property
    def only_files(self) -> bool:
        return bool(self.nodes) and all(node.key[0] == "file" for node in self.nodes)

    def may_open(self, uids: t.Collection[int], gids: t.Collection[int]) -> bool:
        """Whether a process with these ids could have opened a node. Capabilities count only for real nodes: a plain
        file of a simulated node has one user."""
        if 0 in uids and not self.only_files:
            return True
        if self.by_number and not self.ways:
            return True
        for way in self.ways:
            if all(folder.allows(uids, gids, 1) for folder in way[:-1]) and way[-1].allows(uids, gids, 6):
                return True
        return False

    def may_be_opened_by_others(self, uid: int) -> bool:
        """Whether anybody but this user could have opened a node."""
        if not self.only_files:
            return True
        for way in self.ways:
            if not any(step.uid == uid and not step.open_to_all and not step.mode & 0o077 for step in way):
                return True
        return False


def registered_majors(proc: Proc) -> dict[int, str]:
    """Character-device majors of /proc/devices whose name starts with nvidia."""
    majors: dict[int, str] = {}
    try:
        lines = text(proc.read(os.path.join(proc.root, "devices"))).splitlines()
    except OSError:
        return majors
    for line in lines:
        if line.startswith("Block"):
            break
        fields = line.split()
        if len(fields) == 2 and fields[0].isdigit() and fields[1].startswith("nvidia"):
            majors.setdefault(int(fields[0]), fields[1])
    return majors


def kind_by_number(major: int, minor: int, real_majors: t.Mapping[int, str]) -> tuple[NodeKind, int | None]:
    """Kind and GPU minor of a device of one of NVIDIA's own majors."""
    if major == NVIDIA_MAJOR:
        if minor <= LAST_GPU_MINOR:
            return "gpu", minor
        if minor == CONTROL_MINOR:
            return "control", None
        return ("modeset" if minor == MODESET_MINOR else "other"), None
    name = real_majors.get(major, "")
    for prefix, kind in _KIND_OF_ENTRY:
        if name.startswith(prefix):
            return kind, None
    return "other", None


def kind_by_name(path: str) -> tuple[NodeKind, int | None]:
    """Kind and GPU minor of a node whose number is not NVIDIA's: its name says what it plays."""
    name, folder = os.path.basename(path), os.path.basename(os.path.dirname(path))
    match = _GPU_NAME.match(name)
    if match:
        return "gpu", int(match.group(1))
    if name == "nvidiactl":
        return "control", None
    if folder.startswith("nvidia-caps") or name.startswith("nvidia-cap"):
        return "caps", None
    for prefix, kind in _KIND_OF_ENTRY:
        if name.startswith(prefix):
            return kind, None
    return "other", None


def plays_nodes(devices: t.Sequence[str]) -> bool:
    """Whether plain files may stand in for nodes: every glob lies outside /dev."""
    return all(os.path.normpath(pattern).split("/")[1:2] != ["dev"] for pattern in map(_one_slash, devices))


def find_nodes(devices: t.Sequence[str], majors: t.Sequence[int] | None, proc: Proc) -> NodeSet:
    """Expand the globs. A folder stands for what lies in it; a path that is no GPU device is a stale node."""
    real = registered_majors(proc)
    wanted = frozenset(real if majors is None else majors)
    simulated = plays_nodes(devices)
    nodes: list[DeviceNode] = []
    stale: list[StaleNode] = []
    for path in _expand(devices):
        try:
            found = os.stat(path)
        except OSError as error:
            if error.errno != errno.ENOENT or os.path.lexists(path):
                stale.append(StaleNode(path, f"cannot be looked at: {error.strerror}"))
            continue
        key: NodeKey
        if stat.S_ISCHR(found.st_mode):
            major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
            if major not in wanted:
                stale.append(StaleNode(path, _wrong_major(major, minor, wanted, majors)))
                continue
            key = ("chr", major, minor)
            kind, gpu_minor = kind_by_number(major, minor, real) if major in real else kind_by_name(path)
        elif stat.S_ISREG(found.st_mode):
            doubt = _why_no_stand_in(path) if simulated else "is a plain file, not a device node"
            if doubt:
                stale.append(StaleNode(path, doubt))
                continue
            key = ("file", found.st_dev, found.st_ino)
            kind, gpu_minor = kind_by_name(path)
        else:
            stale.append(StaleNode(path, f"is neither a character device nor a plain file (mode {found.st_mode:o})"))
            continue
        nodes.append(DeviceNode(path, kind, key, gpu_minor, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid))
    by_number = NVIDIA_GLOB in devices and majors is None and bool(real)
    ways = _ways([node.path for node in nodes])
    return NodeSet(tuple(nodes), tuple(stale), real, by_number, ways)


def _why_no_stand_in(path: str) -> str:
    """Why a plain file cannot stand for a node, empty where it can. Whoever may write to its folder could put a link to
    a library there, which every process has mapped. It is told by size: opening it would make this scan a holder."""
    folder = os.path.dirname(path)
    try:
        about, found = os.stat(folder), os.lstat(path)
    except OSError as error:
        return f"is a plain file that cannot be looked at: {error.strerror}"
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & stat.S_IWOTH:
        return f"is a plain file in {folder}, where others than root and this user may put one"
    if stat.S_ISLNK(found.st_mode):
        return "is a link to a plain file, not a device node"
    if found.st_size > _LONGEST_STAND_IN or found.st_mode & 0o111:
        return f"is a plain file with something in it ({found.st_size} bytes), not a device node"
    return ""


def _one_slash(path: str) -> str:
    """normpath leaves two leading slashes alone."""
    return "/" + path.lstrip("/")


def _expand(devices: t.Sequence[str]) -> list[str]:
    paths: list[str] = []
    for pattern in devices:
        for path in sorted(glob.glob(pattern)):
            if os.path.isdir(path):
                paths.extend(sorted(entry for entry in glob.glob(os.path.join(glob.escape(path), "*"))))
            else:
                paths.append(path)
    return [path for path in dict.fromkeys(paths) if not os.path.isdir(path)]


def _wrong_major(major: int, minor: int, wanted: t.Collection[int], majors: t.Sequence[int] | None) -> str:
    source = "the option majors lists" if majors is not None else "/proc/devices gives the NVIDIA driver"
    numbers = ", ".join(str(number) for number in sorted(wanted)) or "no major"
    return f"has the number {major}:{minor}, but {source} {numbers}"


def _ways(paths: t.Iterable[str]) -> tuple[tuple[Access, ...], ...]:
    """For each node: owner and mode of every folder down to it, and its own. Nodes of one folder share the look at what
    is above them."""
    above: dict[str, tuple[Access, ...]] = {}
    ways = []
    for path in paths:
        real = os.path.realpath(path) if os.path.islink(path) else path
        folder = os.path.dirname(real)
        if folder not in above:
            above[folder] = tuple(_access(step) for step in _down_to(os.path.realpath(folder)))
        ways.append((*above[folder], _access(real)))
    return tuple(ways)


def _down_to(folder: str) -> list[str]:
    steps = [folder]
    while os.path.dirname(steps[0]) != steps[0]:
        steps.insert(0, os.path.dirname(steps[0]))
    return steps


def _access(step: str) -> Access:
    try:
        found = os.stat(step)
    except OSError:
        return Access(0, 0, 0, open_to_all=True)  # not seen: nothing can be concluded from it
    try:
        acl = _ACL in os.listxattr(step)
    except OSError:
        acl = False
    return Access(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, acl)
