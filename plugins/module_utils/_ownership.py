# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""From a cgroup path to the unit and the container a process belongs to. What is not understood is a container."""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import SystemdScope

_HEX = r"[0-9a-f]{12,64}"
_LXC_MONITOR = re.compile(r"^(lxc|incus)\.monitor([./]|$)")
_LXC_ATTACHED = re.compile(r"^\.lxc(-\d+)?$")


@dataclasses.dataclass(frozen=True)
class _Marker:
    """A path segment that names a container. previous is what the segment before it must match, if anything."""

    pattern: re.Pattern[str]
    kind: str
    previous: re.Pattern[str] | None = None


def _marker(pattern: str, kind: str, previous: str | None = None) -> _Marker:
    return _Marker(re.compile(pattern + r"\Z"), kind, None if previous is None else re.compile(previous + r"\Z"))


# A plain LXC (or LXD) container is not a Proxmox one, even if somebody called it 101.
_MARKERS = (
    _marker(rf"docker-({_HEX})\.scope", "docker"),
    _marker(rf"({_HEX})", "docker", r"docker"),
    _marker(r"(.+)", "docker", r"buildkit|buildx"),
    _marker(rf"libpod-(?:conmon-|payload-)?({_HEX})(?:\.scope)?", "podman"),
    _marker(rf"(?:cri-containerd|nerdctl)[-:]({_HEX})(?:\.scope)?", "containerd"),
    _marker(rf"crio-(?:conmon-)?({_HEX})(?:\.scope)?", "crio"),
    _marker(rf"[^/]*:cri-containerd:({_HEX})", "containerd"),
    _marker(r"lxc\.payload\.(.+)", "plain-lxc"),
    _marker(r"(.+)", "plain-lxc", r"lxc\.payload"),
    _marker(r"incus\.payload\.(.+)", "incus"),
    _marker(r"(?:machine-qemu|qemu)[-\\x2d\d]*(.+)\.scope", "vm", r"machine\.slice"),
    _marker(r"(.+)\.scope", "vm", r"qemu\.slice"),
    _marker(r"systemd-nspawn@(.+)\.service", "nspawn"),
    _marker(r"(.+)\.(?:scope|service)", "machine", r"machine\.slice"),
    _marker(r"(?:apptainer|singularity)-(.+)\.scope", "apptainer"),
)
_INNER = ("ns", "payload", "supervisor", "container")  # Proxmox, nspawn and podman put the payload one level down
_KUBEPODS = re.compile(r"^kubepods(\.slice|-.*\.slice)?$")
# systemd's own characters (systemd.unit(5)): whoever may make groups could make one that systemctl takes for a glob.
_UNIT = re.compile(r"^[A-Za-z0-9:_.\\@-]+\.(service|scope|socket|mount|swap)\Z")
_USER_MANAGER = re.compile(r"^user@(\d+)\.service\Z")


@dataclasses.dataclass(frozen=True)
class Ownership:
    """unit: the innermost unit that tells who a process is (inside its container, if it has one). node_unit: the unit
    of this node, by its own systemd, that it belongs to, also where that unit runs a container. session: it belongs to
    a login session. user_service: unit is one of a user's own systemd, that of user_uid. nested: a container inside
    `container`.
    own_group: the group of the module itself."""

    unit: str | None = None
    node_unit: str | None = None
    container: Container | None = None
    nested: Container | None = None
    session: bool = False
    user_service: bool = False
    user_uid: int | None = None
    lxc_monitor: bool = False
    own_group: bool = False
    path: str = "/"


def hierarchies(cgroup: str) -> tuple[str | None, str | None]:
    """The paths in the name=systemd hierarchy and in the unified one. All others say nothing about ownership."""
    named = unified = None
    for line in cgroup.splitlines():
        number, _colon, rest = line.partition(":")
        controllers, _colon, path = rest.partition(":")
        if path.endswith(" (deleted)"):
            path = path[: -len(" (deleted)")]
        if number == "0" and not controllers:
            unified = path
        elif controllers == "name=systemd":
            named = path
    return named, unified


def _base(path: str | None) -> str:
    """The root of the node: where PID 1 lives, without its own /init.scope."""
    if path is None:
        return ""
    if path.endswith("/init.scope"):
        path = path[: -len("/init.scope")]
    return path.rstrip("/")


def _relative(path: str, base: str) -> str | None:
    if path == base:
        return "/"
    if path.startswith(base + "/"):
        return path[len(base) :]
    return None


def owner_of(cgroup: str | None, init_cgroup: str, own_cgroup: str) -> Ownership:
    """Unit and container of a process, relative to PID 1's group; the module's own group is the node."""
    if cgroup is None:
        return Ownership(container=Container("unknown", "its cgroup cannot be read"))
    found: list[Ownership] = []
    own = hierarchies(own_cgroup)
    for path, init_path, own_path in zip(hierarchies(cgroup), hierarchies(init_cgroup), own):
        if path is None:
            continue
        relative = _relative(path, _base(init_path))
        if relative == "/":
            continue  # on a hybrid machine the other hierarchy may say more
        if own_path is not None and path == own_path:
            mine = parse_path(relative or path)
            found.append(dataclasses.replace(mine, unit=mine.node_unit, container=None, nested=None, own_group=True))
        elif relative is None:
            found.append(_outside(path))
        else:
            found.append(parse_path(relative))
    for owner in found:  # where the two disagree, the one that names a container is believed
        if owner.container is not None or owner.lxc_monitor:
            return owner
    return found[0] if found else Ownership()


def _outside(path: str) -> Ownership:
    """A path that does not lie below PID 1's group."""
    owner = parse_path(path)
    if owner.container is not None or owner.lxc_monitor:
        return owner
    return Ownership(container=Container("unknown", path), path=path)


def parse_path(path: str) -> Ownership:
    """Read a path from the root of the node downwards, one layer per container."""
    segments = [segment for segment in path.split("/") if segment not in ("", "..")]
    if segments and _LXC_MONITOR.match(segments[0]):
        return Ownership(lxc_monitor=True, path=path)
    layers: list[tuple[Container | None, list[str]]] = [(None, [])]
    in_pods = False
    index = 0
    while index < len(segments):
        segment = segments[index]
        previous = segments[index - 1] if index else ""
        container = _container(segment, previous)
        following = segments[index + 1] if index + 1 < len(segments) else ""
        if segment == "lxc" and not layers[-1][1] and following and not _LXC_ATTACHED.match(following):
            index += 1
            container = Container("lxc" if following.isdigit() else "plain-lxc", following)
        if container is None and _KUBEPODS.match(segment):
            in_pods = True
        elif in_pods and (container is not None or re.match(rf"{_HEX}\Z", segment)):
            container = Container("kubernetes", container.id if container is not None else segment)
        if container is None:
            layers[-1][1].append(segment)
        else:
            layers.append((container, []))
            if index + 1 < len(segments) and segments[index + 1] in _INNER:
                index += 1
        index += 1
    return _owner(path, layers, in_pods)


def _container(segment: str, previous: str) -> Container | None:
    for marker in _MARKERS:
        match = marker.pattern.match(segment)
        if match and (marker.previous is None or marker.previous.match(previous)):
            return Container(marker.kind, match.group(1))
    return None


def _owner(path: str, layers: list[tuple[Container | None, list[str]]], in_pods: bool) -> Ownership:
    node = _unit_of(layers[0][1])
    if len(layers) == 1:
        if in_pods:
            return Ownership(container=Container("kubernetes", path), path=path)
        if node is None:
            return Ownership(container=Container("unknown", path), path=path)
        unit, session, uid = node
        return Ownership(unit, unit, session=session, user_service=uid is not None, user_uid=uid, path=path)
    node_unit = node[0] if node is not None and not node[1] else None
    inside = _unit_of(layers[1][1])
    told_by = node if node_unit else inside
    uid = told_by[2] if told_by is not None else None
    return Ownership(
        unit=told_by[0] if told_by is not None else None,
        node_unit=node_unit,
        container=layers[1][0],
        nested=layers[2][0] if len(layers) > 2 else None,
        user_service=uid is not None,
        user_uid=uid,
        path=path,
    )


def _unit_of(segments: list[str]) -> tuple[str | None, bool, int | None] | None:
    """(unit, login session, the user whose systemd has the unit), or None where the path is none that systemd makes."""
    if not segments or segments == ["init.scope"]:
        return None, False, None
    if _LXC_ATTACHED.match(segments[-1]):
        return None, False, None  # pct exec, lxc-attach: outside every unit
    in_user_slice = segments[0] == "user.slice"
    for index, segment in enumerate(segments):
        if segment.endswith(".slice"):
            continue
        if not _UNIT.match(segment):
            return None
        if not in_user_slice:
            return segment, False, None
        manager = _USER_MANAGER.match(segment)
        if manager:
            return _user_unit_of(segments[index + 1 :], int(manager.group(1)))
        return None, True, None  # session-N.scope and its like
    return None, in_user_slice, None  # a slice itself


def _user_unit_of(segments: list[str], uid: int) -> tuple[str | None, bool, int | None] | None:
    for segment in segments:
        if segment.endswith(".service"):
            return (segment, False, uid) if _UNIT.match(segment) else None
        if segment.endswith(".scope"):
            break
    return None, True, None  # the user's systemd itself, a terminal, tmux


def as_asked(owner: Ownership, systemd_scope: SystemdScope, uid: int) -> Ownership:
    """node_unit only where it is a unit of the systemd that is asked: users may give theirs any name.

    :param uid: whose systemd is asked where systemd_scope is user.
    """
    theirs = owner.user_uid == uid if systemd_scope == "user" else not owner.user_service
    return owner if theirs else dataclasses.replace(owner, node_unit=None)
