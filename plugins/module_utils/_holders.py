# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Who holds the GPUs and what may be done about it: one look, from /proc to dispositions."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock, SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._dispositions import (
    Claim,
    Ruling,
    Setting,
    rule,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import (
    Container,
    Holder,
    HolderScan,
    Scope,
    Unreadable,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_scan import STEP_NAMES, HolderReader
from ansible_collections.cleanslate.gpu.plugins.module_utils._ownership import Ownership, as_asked, owner_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import ListeningOn, Port
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_rulings import (
    address_of,
    listening_relatives,
    port_owners,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import (
    Item,
    RawHolder,
    RawPort,
    RawUnreadable,
    Surroundings,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact, redact_argv
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Progress
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_shares import WHOLE, Share, read_shares, shares_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import SystemdScope

UnitStates = t.Callable[[t.Sequence[str]], t.Mapping[str, t.Optional[bool]]]


@dataclasses.dataclass(frozen=True)
class ScanRequest:
    """What to look for and who may be signalled. timeout is in seconds, for all of the reading. port: where the server
    is to listen; whoever is in its way there is looked for as well."""

    scope: Scope
    devices: tuple[str, ...] = ("/dev/nvidia*",)
    majors: tuple[int, ...] | None = None
    timeout: float = 30.0
    proc_root: str = "/proc"
    systemd_scope: SystemdScope = "system"  # whose systemd knows the units
    port: Port | None = None


def look_for_holders(
    request: ScanRequest,
    processes: t.Sequence[GpuProcess] = (),
    *,
    unit_states: UnitStates,
    clock: Clock,
    relatives: t.Collection[tuple[int, int]] = (),
    unit_mains: t.Mapping[int, str] | None = None,
) -> HolderScan:
    """Every process that has a GPU device node open or mapped, and who listens on the port. Never raises for what /proc
    looks like. relatives: (pid, start time) of listeners that an earlier look found to be relatives of a target.
    unit_mains: main process → its unit, where units have no cgroups of their own to tell what was started from them."""
    began = clock.monotonic()
    proc = Proc(request.proc_root)
    listed: dict[int, list[GpuProcess]] = {}
    for process in processes:
        listed.setdefault(process.pid, []).append(process)
    own_pid = proc.own_pid()
    items, problems = _read(
        request,
        lambda reader, share: reader.read_all(listed.keys(), own_pid, share),
        shares_of(request.proc_root),
        deadline=began + request.timeout,
        clock=clock,
    )
    surroundings = next((item for item in items if isinstance(item, Surroundings)), None)
    if surroundings is None:
        return HolderScan(
            complete=False,
            incomplete_reason="; ".join(problems) or f"{request.proc_root} could not be read",
            seconds=clock.monotonic() - began,
        )
    raws = [item for item in items if isinstance(item, RawHolder)]
    unreadable = tuple(_unreadable(item, surroundings) for item in items if isinstance(item, RawUnreadable))
    problems.extend(_doubts(request, surroundings, unreadable))
    left = next((item for item in items if isinstance(item, RawPort)), RawPort())
    problems.extend([left.problem] if left.problem else [])
    claims = [_claim(raw, surroundings, request, listed, unit_mains or {}) for raw in raws]
    judged = _judge(claims, surroundings, request.scope, processes, unit_states, relatives)
    return HolderScan(
        holders=tuple(
            _holder(claim, ruling, request.port)
            for claim, ruling in judged
            if claim.raw.holds or claim.raw.dying or ruling[0] == "target"
        ),
        unreadable=unreadable,
        complete=not problems,
        incomplete_reason="; ".join(problems),
        stale_nodes=surroundings.nodes.stale,
        port_owners=port_owners(request.port, judged, left),
        seconds=clock.monotonic() - began,
    )


def hold_again(holders: t.Sequence[Holder], request: ScanRequest) -> tuple[Holder | None, ...]:
    """Right before they are signalled, for each: the same process, still holding a node or the port (or dying), in its
    present state; else None."""
    clock = SystemClock()
    computing = {holder.pid for holder in holders if holder.computes}
    items, problems = _read(
        request,
        lambda reader, _share: reader.read_again([holder.pid for holder in holders], computing),
        (WHOLE,),
        deadline=clock.monotonic() + request.timeout,
        clock=clock,
    )
    if problems and len(holders) > 1:
        # Whoever blocks has held the others up, and what was read of them is old by now.
        return tuple(again for holder in holders for again in hold_again((holder,), request))
    found = {item.stat.pid: item for item in items if isinstance(item, RawHolder)}
    return tuple(_as_it_is_now(holder, found.get(holder.pid), bool(problems)) for holder in holders)


def _as_it_is_now(holder: Holder, raw: RawHolder | None, doubted: bool) -> Holder | None:
    if raw is None or raw.stat.start_time != holder.start_time or (doubted and not raw.holds):
        return None
    return dataclasses.replace(
        holder,
        comm=raw.stat.comm,
        ppid=raw.stat.ppid,
        state=raw.stat.state,
        dying=raw.dying,
        devices=tuple(dict.fromkeys(hold.path for hold in raw.holds)),
        via=tuple(dict.fromkeys(hold.via for hold in raw.holds)),
        age_s=raw.age_s,
        wchan=raw.wchan,
    )


def _read(
    request: ScanRequest,
    ask: t.Callable[[HolderReader, Share], t.Iterator[Item]],
    shares: t.Sequence[Share],
    *,
    deadline: float,
    clock: Clock,
) -> tuple[list[Item], list[str]]:
    def read(share: Share, skip: t.Collection[tuple[int, int]], progress: Progress) -> t.Iterator[Item]:
        proc = Proc(request.proc_root)
        lxc = request.scope.lxc if request.scope.name == "lxc" else ()
        port = None if request.port is None else ListeningOn(request.port, proc, lxc)
        reader = HolderReader(proc, request.devices, request.majors, progress=progress, skip=skip, port=port)
        return ask(reader, share)

    items, errors, blocked = read_shares(read, shares, timeout=request.timeout, deadline=deadline, clock=clock)
    return items, [*errors, *(_blocked(request, pair) for pair in blocked)]


def _blocked(request: ScanRequest, blocked_at: tuple[int, int]) -> str:
    pid, step = blocked_at
    where = f"{request.proc_root}/{pid}/{STEP_NAMES[step]}" if pid else request.proc_root
    return f"reading {where} did not come back within the scan's {request.timeout:g} s"


def _unreadable(item: RawUnreadable, surroundings: Surroundings) -> Unreadable:
    matters, reason = item.matters, item.reason
    if item.pid in surroundings.own_pids:
        matters, reason = False, "it is an ancestor of this module"
    return Unreadable(item.pid, item.comm, item.what, item.error, matters, reason)


def _doubts(request: ScanRequest, surroundings: Surroundings, unreadable: t.Sequence[Unreadable]) -> list[str]:
    """Why this look may have missed a holder."""
    doubts = []
    nodes = surroundings.nodes
    globs = ", ".join(request.devices)
    if not nodes.nodes and not nodes.by_number:
        stale = f" ({nodes.stale[0].path} {nodes.stale[0].reason})" if nodes.stale else ""
        doubts.append(f"no GPU device node was found under {globs}{stale}, so there was nothing to look for")
    elif not nodes.by_number and not any(node.kind == "gpu" for node in nodes.nodes):
        doubts.append(f"{globs} leads to no node of a GPU (nvidia0 and so on), so who computes could not be seen")
    if surroundings.hidepid and surroundings.hidden_matter:
        doubts.append(
            f"{request.proc_root} is mounted with {surroundings.hidepid}, which hides the processes of other users: "
            "run as root"
        )
    that_matter = [entry for entry in unreadable if entry.matters]
    if that_matter:
        first = that_matter[0]
        more = f" and {len(that_matter) - 1} more" if len(that_matter) > 1 else ""
        doubts.append(
            f"{first.what} of pid {first.pid} ({first.comm}){more} could not be read ({first.error}; {first.reason})"
            + ("" if os.geteuid() == 0 else ": run as root")
        )
    return doubts


def _judge(
    claims: t.Sequence[Claim],
    surroundings: Surroundings,
    scope: Scope,
    processes: t.Sequence[GpuProcess],
    unit_states: UnitStates,
    relatives: t.Collection[tuple[int, int]],
) -> tuple[tuple[Claim, Ruling], ...]:
    others = sorted(
        {
            claim.owner.unit
            for claim in claims
            if scope.name == "own"
            and (claim.computes or claim.raw.listens)
            and claim.owner.unit is not None
            and claim.owner.container is None
            and not claim.owner.user_service
            and claim.owner.unit not in scope.units
        }
    )
    setting = Setting(
        scope=scope,
        own_pids=surroundings.own_pids,
        unit_active=unit_states(others) if others else {},
        gpu_of_relatives=_gpus_of_relatives(claims) if scope.gpus else {},
        dead_on=_dead_on(processes, claims) if scope.gpus else (),
    )
    rulings = [rule(claim, setting) for claim in claims]
    kin = listening_relatives(claims, [disposition for disposition, _reason in rulings], relatives)
    if kin:
        setting = dataclasses.replace(setting, kin=kin)
        rulings = [rule(claim, setting) for claim in claims]
    return tuple(zip(claims, rulings))


def _claim(
    raw: RawHolder,
    surroundings: Surroundings,
    request: ScanRequest,
    listed: t.Mapping[int, t.Sequence[GpuProcess]],
    unit_mains: t.Mapping[int, str],
) -> Claim:
    def owner_at(cgroup: str | None) -> Ownership:
        owner = owner_of(cgroup, surroundings.init_cgroup, surroundings.own_cgroup)
        return as_asked(owner, request.systemd_scope, os.geteuid())

    scope = request.scope
    owner = owner_at(raw.cgroup)
    if owner.own_group and owner.node_unit not in scope.units:
        # An SSH service whose sessions have no scope of their own, say: it did not start what runs beside this module.
        owner = dataclasses.replace(owner, unit=None, node_unit=None)
    same = _same_namespace(raw, surroundings)
    if not same and owner.container is None:
        owner = dataclasses.replace(owner, container=Container("unknown", raw.pid_namespace or "another PID namespace"))
    # Without a name the number is a dead process's, or one of another PID namespace: who lives here has it by chance.
    rows = (row for row in listed.get(raw.stat.pid, ()) if row.name is not None or raw.dying)
    gpus = tuple(dict.fromkeys(row.gpu_uuid for row in rows))
    computes: bool | None = raw.maps_gpu or bool(gpus and (raw.gpu_open or raw.dying))
    if not computes and not raw.maps_read:
        computes = None
    started_from = unit_mains.get(raw.stat.pid)
    for pid, cgroup in () if started_from else raw.lineage:
        unit = unit_mains.get(pid) or (owner_at(cgroup).node_unit if cgroup else None)
        if unit is not None and unit in scope.units:
            started_from = unit
            break
    return Claim(raw, owner, same, computes, gpus if raw.holds or raw.dying else (), started_from)


def _same_namespace(raw: RawHolder, surroundings: Surroundings) -> bool:
    """By the namespaces' own names where they can be read, else by depth, which tells only at the top."""
    if raw.pid_namespace is not None and surroundings.own_pid_namespace is not None:
        return raw.pid_namespace == surroundings.own_pid_namespace
    return len(raw.status.ns_pids) == 1 and surroundings.own_ns_depth == 1


def _gpus_of_relatives(claims: t.Sequence[Claim]) -> dict[int, tuple[str, ...]]:
    """For holders that compute-apps does not list: the GPUs of the nearest listed ancestor, else of descendants."""
    by_pid = {claim.raw.stat.pid: claim for claim in claims}
    result: dict[int, tuple[str, ...]] = {}
    for claim in claims:
        for pid, _cgroup in claim.raw.lineage:
            if pid in by_pid and by_pid[pid].gpus:
                result[claim.raw.stat.pid] = by_pid[pid].gpus
                break
    for claim in claims:
        pid = claim.raw.stat.pid
        if pid in result:
            continue
        below = [
            uuid for other in claims if pid in (ancestor for ancestor, _c in other.raw.lineage) for uuid in other.gpus
        ]
        if below:
            result[pid] = tuple(dict.fromkeys(below))
    return result


def _dead_on(processes: t.Sequence[GpuProcess], claims: t.Sequence[Claim]) -> tuple[str, ...]:
    """GPUs on which compute-apps names a process that holds nothing here: dead, and its context lives on in a fork."""
    held = {claim.raw.stat.pid for claim in claims if claim.raw.holds or claim.raw.dying}
    return tuple(dict.fromkeys(process.gpu_uuid for process in processes if process.pid not in held))


def _holder(claim: Claim, ruling: Ruling, port: Port | None) -> Holder:
    raw, owner = claim.raw, claim.owner
    disposition, reason = ruling
    return Holder(
        pid=raw.stat.pid,
        start_time=raw.stat.start_time,
        comm=raw.stat.comm,
        ppid=raw.stat.ppid,
        ns_pid=raw.status.ns_pids[-1] if raw.status.ns_pids else None,
        cmdline=redact_argv(raw.argv),
        exe=raw.exe,
        program=raw.program,
        uid=raw.status.uids[1] if len(raw.status.uids) > 1 else None,
        user=raw.user,
        state=raw.stat.state,
        dying=raw.dying,
        unit=owner.unit,
        node_unit=owner.node_unit,
        container=owner.container,
        devices=tuple(dict.fromkeys(hold.path for hold in raw.holds)),
        via=tuple(dict.fromkeys(hold.via for hold in raw.holds)),
        computes=claim.computes,
        listens=tuple(dict.fromkeys(address_of(address, port) for _inode, address in raw.listens)),
        gpus=claim.gpus,
        age_s=raw.age_s,
        wchan=raw.wchan,
        disposition=disposition,
        reason=redact(reason),
    )


def describe(holder: Holder, index_of: t.Mapping[str, int] | None = None) -> str:
    """One line for people: who it is, where it belongs, what it holds, how old it is, what the rules make of it.
    index_of tells the index of a GPU by its UUID, where that is known."""
    title = holder.cmdline.split(" ", 1)[0]
    who = f"pid {holder.pid} ({title if '::' in title else holder.comm})"
    if holder.ns_pid is not None and holder.ns_pid != holder.pid:
        who += f", pid {holder.ns_pid} inside"
    parts = [who]
    parts.append(f"user {holder.user}" if holder.user else f"uid {'unknown' if holder.uid is None else holder.uid}")
    if holder.container is not None:
        parts.append(f"container {holder.container.kind} {holder.container.id}")
    if holder.unit is not None:
        parts.append(f"unit {holder.unit}")
    known = index_of or {}
    gpus = [f"GPU {known[uuid]}" if uuid in known else uuid for uuid in holder.gpus]
    holds = " ".join([*gpus, *_node_names(holder.devices)])
    parts.append(holds or ("no GPU device open" if holder.listens else "no node left"))
    if holder.listens:
        parts.append(f"listens on {', '.join(holder.listens)}")
    if holder.age_s is not None:
        parts.append(f"{age_in_words(holder.age_s)} old")
    state = f"state {holder.state}" + (f" in {holder.wchan}" if holder.wchan else "")
    parts.append(state + (", dying" if holder.dying else ""))
    return f"{', '.join(parts)}: {holder.disposition} ({holder.reason})"


def _node_names(paths: t.Sequence[str]) -> list[str]:
    """The names of nodes, a row of GPUs as one word: a CUDA process opens every one."""
    numbers, names = [], []
    for name in (os.path.basename(path) for path in paths):
        if name.startswith("nvidia") and name[6:].isdigit():
            numbers.append(int(name[6:]))
        else:
            names.append(name)
    rows: list[list[int]] = []
    for number in sorted(set(numbers)):
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    gpus = [f"nvidia{row[0]}" + (f"-{row[-1]}" if len(row) > 1 else "") for row in rows]
    return [*gpus, *dict.fromkeys(names)]


def age_in_words(seconds: float) -> str:
    """Two units at most."""
    whole = int(seconds)
    for size, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = (whole % size) // below
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
