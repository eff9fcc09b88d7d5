# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Telling whether an open file or a mapping is a GPU device node: by number, or for plain files by inode."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import NodeSet, kind_by_number
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import DeviceNode, Via
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc, text
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import Hold

# A line of maps that maps a file: the file system's number, the inode and the path; with its addresses before them.
# A third of the time that \S and \d take.
_FILE = re.compile(rb"^[^ ]+ .... [^ ]+ ([^ ]+ [1-9].*)", re.MULTILINE)
_MAPPING = re.compile(rb"^([^ ]+) .... [^ ]+ ([^ ]+ [1-9].*)", re.MULTILINE)
_DELETED = b" (deleted)"
_NEVER_NODES = (b"/dev/zero", b"/dev/shm/", b"/dev/mqueue/", b"/dev/hugepages/")
_SHARED = b"/dev/zero (deleted)"
_SHARED_MEMORY = re.compile(rb"^\S+ \S+ \S+ (\S+ )\d+ +/dev/zero \(deleted\)$", re.MULTILINE)
_NETWORK = re.compile(r"^(nfs|cifs|smb|ceph|lustre|9p|glusterfs|beegfs|gpfs|wekafs|afs|fuse)")


class MappingUnknown(Exception):
    """A mapping that could be one of a node, and whose number could not be had."""


class NodeMatcher:
    """Knows the nodes of one scan, and the inodes of sockets that are looked for as well. Files met once are
    remembered: most mappings are the same few libraries."""

    def __init__(self, nodes: NodeSet, proc: Proc, sockets: t.Collection[int] = ()) -> None:
        self._sockets = sockets
        self._nodes = nodes
        self._proc = proc
        self._by_number: dict[int, DeviceNode | None] = {}  # None: known to be no node
        self._by_inode: dict[tuple[int, int], DeviceNode] = {}
        self._mapped: dict[bytes, DeviceNode] = {}
        self._no_nodes: set[bytes] = set()  # mapped too
        self._memory: bytes | None = None
        self._memory_asked = proc.root != "/proc"
        self._names = frozenset(os.fsencode(os.path.basename(node.path)) for node in nodes.nodes)
        for node in nodes.nodes:
            kind, first, second = node.key
            if kind == "chr":
                self._by_number.setdefault(os.makedev(first, second), node)
            else:
                self._by_inode.setdefault((first, second), node)

    def node_of(self, found: os.stat_result) -> DeviceNode | None:
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFCHR:
            number = found.st_rdev
            if number not in self._by_number:
                self._by_number[number] = self._learn(os.major(number), os.minor(number))
            return self._by_number[number]
        if self._by_inode and kind == stat.S_IFREG:
            return self._by_inode.get((found.st_dev, found.st_ino))
        return None

    def _learn(self, major: int, minor: int) -> DeviceNode | None:
        """A device of the NVIDIA driver of which there is no node here, as a container may have one."""
        if not self._nodes.by_number or major not in self._nodes.real_majors:
            return None
        kind, gpu_minor = kind_by_number(major, minor, self._nodes.real_majors)
        path = {"gpu": f"/dev/nvidia{gpu_minor}", "control": "/dev/nvidiactl"}.get(kind, f"/dev/char/{major}:{minor}")
        return DeviceNode(path, kind, ("chr", major, minor), gpu_minor)

    def open_files(self, folder: int, names: t.Iterable[str], via: Via, avoid: t.Sequence[str]) -> list[Hold | int]:
        """Holds among the open files of a task, and as numbers the sockets. folder: its table, as a descriptor, from
        which each file is found in half the time that its path takes. avoid: mount points of servers that may not
        answer."""
        sockets, node_of = self._sockets, self.node_of
        held: list[Hold | int] = []
        for name in names:
            try:
                if avoid and _below(os.readlink(name, dir_fd=folder), avoid):
                    continue
                found = os.stat(name, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM):
                    raise
                continue  # closed meanwhile, or a file whose server is gone: a device node answers
            if sockets and stat.S_ISSOCK(found.st_mode) and found.st_ino in sockets:
                held.append(found.st_ino)
            node = node_of(found)
            if node is not None:
                held.append(Hold(node.path, node.kind, node.minor, via))
        return held

    def mappings(self, maps: bytes, pid: int, tid: int | None, avoid: t.Sequence[str]) -> t.Iterator[Hold | str]:
        """Holds among the mappings of a task; as text the paths that could not be looked up and might be nodes."""
        left = self._not_ruled_out(maps)
        for area, what in _MAPPING.findall(maps) if left else ():
            if what not in left or what in self._no_nodes:
                continue
            node = self._mapped.get(what)
            if node is None:
                _number, inode, path = what.split(None, 2)
                if avoid and _below(os.fsdecode(path), avoid):
                    continue
                try:
                    node = self._mapped_node(pid, tid, area, int(inode), path)
                except MappingUnknown:
                    yield os.fsdecode(path)
                    continue
                if node is None:
                    self._no_nodes.add(what)
                    continue
                self._mapped[what] = node
            yield Hold(node.path, node.kind, node.minor, "map")

    def _not_ruled_out(self, maps: bytes) -> set[bytes]:
        """The mapped files that are, or may be, nodes. Nearly every process maps a few libraries and nothing else."""
        left = set(_FILE.findall(maps)).difference(self._no_nodes)
        if not self._memory_asked and any(what.endswith(_SHARED) for what in left):
            self._memory, self._memory_asked = memory_number(), True
        memory = self._memory
        return {what for what in left if what.find(b" /") > 0 and not (memory and what.startswith(memory))}

    def _mapped_node(self, pid: int, tid: int | None, area: bytes, inode: int, path: bytes) -> DeviceNode | None:
        """maps shows the file system's number of a node, not the device's own: that comes from map_files, or where
        that is refused from the path, looked up as the task sees it."""
        suspect = self._could_be_node(path)
        try:
            found = os.stat(self._proc.path(tid or pid, "map_files", os.fsdecode(area)))
        except OSError:
            pass
        else:
            node = self.node_of(found)
            # On an overlay the mapped file is the one below, with another inode than the path.
            if node is not None or not (suspect and stat.S_ISREG(found.st_mode)):
                return node
            suspect = False
        if not path.endswith(_DELETED):
            try:
                found = os.stat(self._proc.path(pid, "root", tid=tid) + os.fsdecode(path))
            except OSError:
                pass
            else:
                if found.st_ino == inode:
                    return self.node_of(found)
        if suspect:
            raise MappingUnknown
        return None

    def _could_be_node(self, path: bytes) -> bool:
        plain = path[: -len(_DELETED)] if path.endswith(_DELETED) else path
        if plain.startswith(_NEVER_NODES):
            return False
        return plain.startswith(b"/dev/") or os.path.basename(plain) in self._names


def memory_number() -> bytes | None:
    """What maps shows as the file system of memory that is shared without a file, each piece as a file of its own: a
    server has hundreds. It is the kernel's, and mounted nowhere, so nobody can make a node there."""
    with mmap.mmap(-1, mmap.PAGESIZE):
        try:
            numbers = set(_SHARED_MEMORY.findall(Proc().read("/proc/self/maps")))
        except OSError:
            return None
    return numbers.pop() if len(numbers) == 1 else None


def network_mounts(proc: Proc, pid: int) -> tuple[str, ...]:
    """Where a process sees file systems whose server may be gone. No device node of ours lies there."""
    places = []
    for line in text(proc.read(proc.path(pid, "mountinfo"))).splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if dash and len(fields) > 4 and _NETWORK.match(right):
            places.append(fields[4].replace("\\040", " "))
    return tuple(places) or ("/\0",)


def _below(path: str, places: t.Sequence[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
