# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Who may be signalled: the rules, as a function of what was seen. Nothing is read here."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container, Disposition, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._ownership import Ownership
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import RawHolder
from ansible_collections.cleanslate.gpu.plugins.module_utils._trusted_program import program_path

PROTECTED_EXECUTABLES = frozenset(
    {
        "nvidia-persistenced",
        "nv-hostengine",
        "dcgm-exporter",
        "nv-fabricmanager",
        "nvidia-imex",
        "nvidia-cuda-mps-control",
        "nvidia-cuda-mps-server",
        "nvidia-vgpu-mgr",
        "nvidia-vgpud",
        "X",
        "Xorg",
        "Xorg.bin",
        "Xwayland",
        "gnome-shell",
        "kwin_x11",
        "kwin_wayland",
        "mutter",
        "sway",
        "weston",
        "gdm-x-session",
        "sddm",
        "lightdm",
    }
)
PROTECTED_UNITS = frozenset(
    {
        "nvidia-persistenced.service",
        "nvidia-dcgm.service",
        "dcgm.service",
        "nv-hostengine.service",
        "dcgm-exporter.service",
        "nvidia-dcgm-exporter.service",
        "nvidia-fabricmanager.service",
        "nvidia-imex.service",
        "nvidia-mps.service",
        "nvidia-cuda-mps.service",
        "nvidia-cuda-mps-control.service",
        "nvidia-vgpu-mgr.service",
        "nvidia-vgpud.service",
        "display-manager.service",
        "gdm.service",
        "gdm3.service",
        "lightdm.service",
        "sddm.service",
        "xdm.service",
    }
)
_LXC_MONITOR_EXECUTABLES = frozenset({"lxc-start", "lxc-execute", "lxc-monitord", "lxcfs"})
KNOWN_PROGRAMS = PROTECTED_EXECUTABLES | _LXC_MONITOR_EXECUTABLES
_SHORT_ID = 12
_COMM = 15


@dataclasses.dataclass(frozen=True)
class Claim:
    """One holder as the rules see it. computes is None where its mappings could not be read; gpus are the UUIDs on
    which compute-apps lists it."""

    raw: RawHolder
    owner: Ownership
    same_namespace: bool
    computes: bool | None
    gpus: tuple[str, ...]
    started_from: str | None = None  # the unit in scope in whose cgroup an ancestor lives


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the rules need to know besides the holder. unit_active: None or missing counts as active."""

    scope: Scope
    own_pids: t.Collection[int] = ()
    unit_active: t.Mapping[str, bool | None] = dataclasses.field(default_factory=dict)
    gpu_of_relatives: t.Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    dead_on: t.Collection[str] = ()  # GPUs for which compute-apps names a process that does not exist
    kin: t.Collection[int] = ()  # listeners on the server's port that are relatives of a target


Ruling = tuple[Disposition, str]


def executable_name(exe: str | None) -> str | None:
    """What the process itself says it runs: for people, and for names that a person listed."""
    return None if exe is None else os.path.basename(program_path(exe))


def rule(claim: Claim, setting: Setting) -> Ruling:
    """Disposition and the reason for it, in words."""
    raw = claim.raw
    if raw.stat.pid in setting.own_pids:
        return "self", "this module or one of its ancestors"
    never = _never(claim)
    if never:
        return "never", never
    protected = _protected(claim, setting.scope)
    if protected:
        return "protected", protected
    member = _member(claim, setting.scope)
    in_the_way = bool(raw.listens) and (bool(member) or raw.gpu_open or raw.stat.pid in setting.kin)
    counts = in_the_way or bool(member and raw.gpu_open)
    if raw.listens and not raw.holds and not counts:
        return "foreign", "has no GPU device open and is no relative of what would be released"
    if claim.computes is None and not counts:
        return "foreign", "its mappings could not be read, so it is not known whether it computes"
    if not claim.computes and not counts:
        return "monitor", "has device nodes open but maps no GPU and is not in nvidia-smi's compute-apps list"
    inside, reason = _in_scope(claim, setting, member)
    if not inside:
        return "foreign", reason
    if setting.scope.gpus:
        inside, reason = _on_gpus(claim, setting, reason)
        if not inside:
            return "foreign", reason
    return "target", reason


def _never(claim: Claim) -> str:
    raw, owner = claim.raw, claim.owner
    if raw.stat.pid == 1:
        return "PID 1"
    if raw.stat.kernel_thread:
        return "a kernel thread"
    if owner.lxc_monitor or raw.program in _LXC_MONITOR_EXECUTABLES:
        return "the monitor of an LXC container"
    if len(raw.status.ns_pids) > 1 and raw.status.ns_pids[-1] == 1:
        return f"PID 1 of {_place(owner)}: only whatever manages that may stop it"
    return ""


def _protected(claim: Claim, scope: Scope) -> str:
    raw, owner = claim.raw, claim.owner
    name = executable_name(raw.exe)
    names = PROTECTED_EXECUTABLES | frozenset(scope.protect)
    if name is None:  # not readable: its own name for itself is all there is, and that is believed only here
        for candidate in names:
            if raw.stat.comm == candidate[:_COMM] and candidate not in scope.allow_protected:
                return f"calls itself {raw.stat.comm} and its executable cannot be read"
    identities = {name, raw.exe} - {None}
    unit = owner.unit
    if unit is not None:
        identities.add(unit)
    if identities & frozenset(scope.allow_protected):
        return ""
    if raw.program in PROTECTED_EXECUTABLES or {name, raw.exe} & frozenset(scope.protect):
        return f"{name} is a protected executable"
    if (unit in PROTECTED_UNITS and not owner.user_service) or unit in scope.protect:
        return f"{unit} is a protected unit"
    return ""


def _member(claim: Claim, scope: Scope) -> str:
    """How it belongs to what is being stopped: a named unit or a named container. Empty where it does not."""
    owner = claim.owner
    container = owner.container
    if scope.name == "lxc":
        if _listed_lxc(container, scope) and not owner.user_service and owner.unit in scope.units:
            return f"belongs to {owner.unit} in {_place(owner)}"
        return ""
    if scope.name in ("unit", "own"):
        if owner.node_unit is not None and owner.node_unit in scope.units:
            return f"belongs to {owner.node_unit}"
        if claim.started_from is not None and container is None:
            return f"was started from {claim.started_from}"
    if scope.name in ("own", "unit") and container is not None:
        for wanted in scope.containers:
            if wanted == container.id or (len(wanted) >= _SHORT_ID and container.id.startswith(wanted)):
                return f"belongs to {_place(owner)}, which is listed"
    return ""


def _listed_lxc(container: Container | None, scope: Scope) -> bool:
    return container is not None and container.kind == "lxc" and container.id in scope.lxc


def _in_scope(claim: Claim, setting: Setting, member: str) -> tuple[bool, str]:
    owner, scope = claim.owner, setting.scope
    if member:
        return True, member
    if scope.name == "all":
        return True, f"everything is in scope, this in {_place(owner)}"
    if scope.name == "unit":
        return False, f"belongs to {_place(owner)}, not to {', '.join(scope.units)}"
    if scope.name == "lxc":
        if _listed_lxc(owner.container, scope):
            return True, f"runs in {_place(owner)}"
        return False, f"belongs to {_place(owner)}, not to LXC container {', '.join(scope.lxc)}"
    if owner.container is not None:
        return False, f"belongs to {_place(owner)}"
    if not claim.same_namespace:
        return False, "lives in another PID namespace"
    unit = owner.unit
    does = "listens on the server's port" if claim.raw.listens and not claim.computes else "computes on this node"
    if owner.own_group:
        return True, f"{does}, in the same group of processes as this module"
    if unit is None:
        kind = "a login session" if owner.session else "no unit"
        return True, f"{does} and belongs to {kind} and no container"
    if owner.user_service:
        return False, f"belongs to {unit}, a service of user {claim.raw.user or owner.user_uid}"
    if setting.unit_active.get(unit) is False:
        return True, f"was left behind by {unit}, which is not active"
    if setting.unit_active.get(unit) is None:
        return False, f"belongs to {unit}, and whether that is active cannot be told"
    return False, f"belongs to {unit}, another active service"


def _on_gpus(claim: Claim, setting: Setting, reason: str) -> tuple[bool, str]:
    """GPU subsets. compute-apps tells which GPU a process uses; open nodes never do."""
    wanted = _uuids(setting.scope.gpus)
    if claim.gpus:
        if wanted & _uuids(claim.gpus):
            return True, reason
        return False, f"{reason}, but computes on {', '.join(claim.gpus)}, which is not asked for"
    relatives = setting.gpu_of_relatives.get(claim.raw.stat.pid, ())
    if relatives:
        if wanted & _uuids(relatives):
            return True, reason
        return False, f"{reason}, but its kin computes on {', '.join(relatives)}, which is not asked for"
    if _member(claim, setting.scope):
        return True, f"{reason} and is listed on no GPU"
    dead = _uuids(setting.dead_on)
    if dead and dead <= wanted:
        return True, f"{reason}; is listed on no GPU, and only on GPUs asked for a dead process is still listed"
    return False, f"{reason}, but is listed on no GPU, so it cannot be told whether it uses those asked for"


def _uuids(values: t.Iterable[str]) -> frozenset[str]:
    """People write them in either case."""
    return frozenset(value.lower() for value in values)


def _place(owner: Ownership) -> str:
    """Unit and container in words."""
    words = []
    if owner.nested is not None:
        words.append(f"{owner.nested.kind} container {owner.nested.id[:_SHORT_ID]} in")
    if owner.container is not None:
        container = owner.container
        if container.kind == "unknown":
            words.append(f"a container of unknown kind ({container.id})")
        elif container.kind == "lxc":
            words.append(f"LXC container {container.id}")
        else:
            words.append(f"{container.kind} container {container.id[:_SHORT_ID]}")
    elif owner.unit is not None:
        words.append(owner.unit)
    else:
        words.append("a login session" if owner.session else "no unit")
    return " ".join(words)
