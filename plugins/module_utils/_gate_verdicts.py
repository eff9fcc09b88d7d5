# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What one sample (a look at the GPUs, a scan of the holders, and what time has shown) means for the gate."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Gpu, GpuLook, Judgement
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import unreadable_message, uses_gpus
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_rulings import describe_owner, strangers

GateVerdict = t.Literal[
    "idle",
    "settled",
    "busy",
    "foreign",
    "dying",
    "draining",
    "orphaned",
    "missing",
    "faulty",
    "fabric_not_ready",
    "unknown",
]
# What follows: the gate may open; it fails at once; it fails once nothing has changed for as long as patience lasts,
# since nothing will change by itself; it waits until the timeout.
Then = t.Literal["opens", "at_once", "patience", "timeout"]

SETTLED_CEILING = 64  # MiB per GPU: what stands still above that is somebody's memory, not a floor
_FABRIC_READY = ("completed", "n/a", "not supported")


@dataclasses.dataclass(frozen=True)
class Sample:
    """scan is None where holders are not looked for, or could not be yet. still_for: seconds since the memory of the
    expected GPUs last changed (None: there was one look only). dead_pids: those that nvidia-smi lists and that do not
    exist here."""

    look: GpuLook
    judgement: Judgement
    scan: HolderScan | None
    by_uuid: bool = False
    falling: bool = False
    killed_recently: bool = False
    still_for: float | None = None
    settle_time: float = 10.0
    settled_mib: int = 0
    dead_pids: tuple[int, ...] = ()
    in_container: bool = False
    describe: t.Callable[[Holder], str] = str


@dataclasses.dataclass(frozen=True)
class Finding:
    """passes: the gate may be told open by this (idle counts samples first). releasable: a release would change it."""

    verdict: GateVerdict
    reason: str
    then: Then
    passes: bool = False
    releasable: bool = False
    pids: tuple[int, ...] = ()


def assess(sample: Sample) -> Finding:
    """The verdict of one sample. What a release cannot mend comes first, so that a rehearsal sees it."""
    return (
        _unanswered(sample)
        or _incomplete_hardware(sample)
        or _others(sample)
        or _port(sample)
        or _unsure(sample)
        or _kept(sample)
        or _ours(sample)
        or (_empty(sample) if sample.judgement.verdict == "idle" else _unexplained(sample))
    )


def _unanswered(sample: Sample) -> Finding | None:
    """nvidia-smi did not give an answer as a whole."""
    state, reason = sample.look.state, sample.judgement.reason
    if state == "ok":
        return None
    if state == "hung":
        return _silent(sample)
    if state == "no_devices":
        return Finding("missing", reason, "patience")
    if state == "error" and sample.look.faulty:
        named = ", ".join(str(one) for one in sample.look.faulty)
        return Finding("faulty", f"nvidia-smi names as faulty: GPU {named}. {reason}", "patience")
    return Finding("unknown", reason, "timeout")


def _silent(sample: Sample) -> Finding:
    """nvidia-smi hangs. As long as somebody gives pinned host memory back the driver answers nobody; one look cannot
    tell that from a driver that is stuck, and only time can."""
    left_behind, dying = sample.look.hung_pid, [holder for holder in _holders(sample) if holder.dying]
    passes = left_behind is not None or bool(dying) or sample.killed_recently
    if sample.still_for is None or not passes:
        reason = f"{sample.judgement.reason} No second one is started while one is stuck."
        return Finding("unknown", reason, "at_once")
    stuck = f"nvidia-smi did not answer within {sample.look.query_seconds:.0f} s and was killed."
    if left_behind is not None:
        stuck = f"nvidia-smi does not answer: pid {left_behind} was killed but cannot end (state D). It is left behind,"
        stuck += " and no other one is started while it is there."
    who = "whoever was stopped or killed on the GPU host of late, in another container too"
    if dying:
        who = f"at the last look at the processes these were ending: {_list(dying, sample)}"
    return Finding(
        "unknown",
        f"{stuck} The driver answers nobody while somebody gives pinned host memory back, which takes over a minute "
        f"for some hundred GiB and ends by itself ({who}). Where nobody is ending on the GPU host any more (states Z "
        "and D), the driver itself is stuck: look for Xid lines in the kernel log; rebooting the GPU host comes last.",
        "timeout",
        pids=_pids(dying),
    )


def _incomplete_hardware(sample: Sample) -> Finding | None:
    """A GPU that is not there, not sound, divided, or not connected to the others yet."""
    judgement = sample.judgement
    if judgement.missing:
        return Finding("missing", judgement.reason, "patience")
    faulty = [gpu for gpu in judgement.expected if gpu.index in sample.look.faulty or gpu.bus_id in sample.look.faulty]
    if faulty:
        problems = "; ".join(f"{_name(gpu)}: {', '.join(gpu.problems) or 'named as faulty'}" for gpu in faulty)
        return Finding(
            "faulty",
            f"{problems}. It will not mend itself: look for Xid lines in the kernel log of the GPU host, then "
            "reset the GPU "
            "or reboot the host.",
            "patience",
        )
    mig = [gpu for gpu in judgement.expected if gpu.mig]
    if mig:
        return Finding(
            "faulty",
            f"MIG is on for {_names(mig)}: a divided GPU cannot serve tensor parallelism. Switch it off on the GPU "
            "host "
            f"(nvidia-smi -i {','.join(str(gpu.index) for gpu in mig)} -mig 0).",
            "patience",
        )
    apart = [gpu for gpu in judgement.expected if not _fabric_ready(gpu)]
    if apart:
        return Finding(
            "fabric_not_ready",
            f"The NVLink fabric is not ready: {', '.join(f'{_name(gpu)} says {gpu.fabric_state!r}' for gpu in apart)}. "
            "CUDA would fail with error 802. Look at nvidia-fabricmanager on the GPU host (systemctl status).",
            "timeout",
        )
    return None


def _fabric_ready(gpu: Gpu) -> bool:
    return gpu.fabric_state is None or gpu.fabric_state.strip("[]").lower() in _FABRIC_READY


def _others(sample: Sample) -> Finding | None:
    """Somebody else computes on these GPUs."""
    foreign = [
        holder for holder in _holders(sample) if uses_gpus(holder) and not holder.dying and _uses(holder, sample)
    ]
    if not foreign:
        return None
    return Finding(
        "foreign",
        f"{_amounts(sample)}Others compute on these GPUs and are not in scope, so they are left alone: "
        f"{_list(foreign, sample)}. Stop them where they belong, or name their unit, container or LXC in the scope "
        "if they "
        "are yours.",
        "patience",
        pids=_pids(foreign),
    )


def _port(sample: Sample) -> Finding | None:
    """Somebody who is not released listens where the server is to listen: it would load for minutes and then fail."""
    left = strangers(sample.scan.port_owners) if sample.scan is not None else ()
    if not left:
        return None
    return Finding(
        "foreign",
        "The server's port is taken by others, who are not in scope and are left alone: "
        f"{'; '.join(map(describe_owner, left))}. Stop them where they belong, or give the server another port (where "
        "none is to be started: gpu_release_port 0).",
        "patience",
        pids=tuple(sorted(owner.pid for owner in left if owner.pid is not None)),
    )


def _unsure(sample: Sample) -> Finding | None:
    """Something could not be read that could matter."""
    judgement = sample.judgement
    if sample.scan is not None and not sample.scan.complete:
        return Finding("unknown", unreadable_message(sample.scan, nothing_done=False), "timeout")
    ours = [holder for holder in _holders(sample) if holder.disposition == "target"]
    if judgement.verdict == "unknown" and not ours:
        # As many GPUs too many as there may be, they will not go away.
        final = not judgement.unreadable and not sample.look.problems
        return Finding("unknown", judgement.reason, "patience" if final else "timeout")
    if any(gpu.used_mib is None for gpu in judgement.unreadable):
        return Finding("unknown", judgement.reason, "timeout")
    return None


def _kept(sample: Sample) -> Finding | None:
    """A protected process that computes: no release ends it, and what it holds stays when everything else has gone."""
    holders = _holders(sample)
    kept = [
        holder
        for holder in holders
        if holder.disposition == "protected" and holder.computes and not holder.dying and _uses(holder, sample)
    ]
    living = any(holder.disposition == "target" and not holder.dying for holder in holders)
    going = any(holder.disposition in ("target", "foreign") and holder.dying for holder in holders)
    if not kept or not sample.judgement.busy or (going and not living):
        return None
    expected = {gpu.uuid for gpu in sample.judgement.expected}
    pids = {holder.pid for holder in kept}
    rows = [one for one in sample.look.processes if one.pid in pids and one.gpu_uuid in expected]
    amounts: dict[str, int] = dict.fromkeys(expected, 0)
    for row in rows:
        amounts[row.gpu_uuid] += row.used_mib or 0
    # compute-apps does not list who only draws, and lists some without their amount.
    told = pids <= {row.pid for row in rows} and all(row.used_mib is not None for row in rows)
    most = max(amounts.values())
    if most <= sample.settled_mib and (told or sample.settled_mib > 0):
        return None
    floor = _most_held(sample)
    if not living and floor <= SETTLED_CEILING:
        return None  # told as a floor
    amount = f"{most} MiB on a GPU" if told else "an amount that nvidia-smi does not tell"
    return Finding(
        "foreign",
        f"{_amounts(sample)}Protected processes compute on these GPUs and hold {amount}, which no release gives back: "
        f"{_list(kept, sample)}. Stop them where they belong, or let them be stopped through their manager by name "
        "(gpu_release_allow_protected). If these GPUs always hold as much when idle, accept it with "
        "gpu_idle_settled_mib.",
        "patience",
        pids=_pids(kept),
    )


def _ours(sample: Sample) -> Finding | None:
    """Targets, and whoever is on the way out."""
    holders = _holders(sample)
    living = [holder for holder in holders if holder.disposition == "target" and not holder.dying]
    if living:
        return Finding(
            "busy",
            f"{_amounts(sample)}Held by {_list(living, sample)}. gpu_force_release would end "
            f"{'it' if len(living) == 1 else 'them'}.",
            "patience",
            releasable=True,
            pids=_pids(living),
        )
    zero = sample.judgement.verdict == "idle"
    dying = [
        holder
        for holder in holders
        if holder.dying
        and (holder.disposition in ("target", "foreign") or not zero)
        and holder.disposition != "protected"
    ]
    if dying:
        return Finding(
            "dying",
            f"{_amounts(sample)}Killed, and still giving memory back: {_list(dying, sample)}. No further signal "
            "helps; if it "
            "does not end, rebooting the GPU host is the likely next step.",
            "timeout",
            releasable=True,
            pids=_pids(dying),
        )
    return None


def _empty(sample: Sample) -> Finding:
    return Finding("idle", sample.judgement.reason, "opens", passes=True)


def _unexplained(sample: Sample) -> Finding:
    """Memory, and nobody to be seen who computes."""
    if sample.scan is None:
        text = f"{_amounts(sample)}{sample.judgement.reason} Holders were not looked for (holders: false)."
        return Finding("busy", text, "patience")
    if sample.by_uuid:
        suspects = [holder for holder in _holders(sample) if uses_gpus(holder) and not holder.gpus]
        if suspects and not sample.killed_recently and not sample.falling:
            who = _list(suspects, sample)
            text = f"{_amounts(sample)}It may belong to {who}, of which nothing says on which GPU they are."
            return Finding("foreign", text, "patience", pids=_pids(suspects))
    floor = _most_held(sample)
    nobody = all(holder.disposition in ("monitor", "protected", "self") for holder in _holders(sample))
    small = floor <= SETTLED_CEILING and nobody
    if small and (sample.still_for is None or sample.still_for >= sample.settle_time):
        return _settled(sample, floor)
    if small or sample.killed_recently or sample.falling:
        why = "a process was killed" if sample.killed_recently else "it changed"
        seconds = "a moment ago" if sample.still_for is None else f"unchanged for {sample.still_for:.0f} s"
        text = f"{_amounts(sample)}Nobody holds it, and {why} of late: the driver is still giving it back ({seconds})."
        return Finding("draining", text, "timeout")
    return Finding("orphaned", _orphaned(sample), "patience")


def _settled(sample: Sample, floor: int) -> Finding:
    stood = "in this one look" if sample.still_for is None else f"and has not changed for {sample.still_for:.0f} s"
    text = f"{_amounts(sample)}Nobody holds a GPU device but monitors and system daemons, {stood}"
    if floor <= sample.settled_mib:
        text = f"{text}: within the accepted floor of {sample.settled_mib} MiB (gpu_idle_settled_mib)."
        return Finding("settled", text, "opens", passes=True)
    text = (
        f"{text}. If that is what these GPUs show when idle, accept it with gpu_idle_settled_mib: {floor} (option "
        f"settled_mib, now {sample.settled_mib})."
    )
    return Finding("settled", text, "at_once")


def _orphaned(sample: Sample) -> str:
    parts = [
        f"{_amounts(sample)}No computing holder can be seen, nothing is dying and nothing was killed here of late."
    ]
    if sample.dead_pids:
        pids = ", ".join(str(pid) for pid in sample.dead_pids)
        parts.append(
            f"nvidia-smi lists PID {pids}, which is not alive here: a child that inherited its GPU context is "
            "keeping the "
            "memory, or it runs in another PID namespace."
        )
    monitors = [holder for holder in _holders(sample) if holder.disposition in ("monitor", "protected")]
    if monitors:
        parts.append(f"Suspects, since they have the devices open: {_list(monitors, sample)}.")
    if sample.in_container:
        parts.append(
            "This is a container, which does not see the processes of others: look on the GPU host (the Proxmox "
            "host), with "
            "gpu_holders_info and scope lxc, or release from there (gpu_release_host, gpu_release_lxc)."
        )
    else:
        parts.append(
            "Look with gpu_holders_info and scope all, as root; where that shows nobody, look for Xid lines in the "
            "kernel "
            "log, then reset the GPUs or reboot."
        )
    return " ".join(parts)


def _uses(holder: Holder, sample: Sample) -> bool:
    """Whether it uses an expected GPU. Open devices do not tell on which GPU a process is, the driver's list does."""
    if holder.gpus:
        return any(gpu.uuid in holder.gpus for gpu in sample.judgement.expected)
    return not sample.by_uuid


def _holders(sample: Sample) -> tuple[Holder, ...]:
    return sample.scan.holders if sample.scan is not None else ()


def _amounts(sample: Sample) -> str:
    busy = sample.judgement.busy
    return "" if not busy else ", ".join(f"{_name(gpu)} holds {gpu.used_mib} MiB" for gpu in busy) + ". "


def _most_held(sample: Sample) -> int:
    """MiB on the fullest of the busy GPUs; asked only where one is busy."""
    return max(gpu.used_mib for gpu in sample.judgement.busy if gpu.used_mib is not None)


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


def _names(gpus: t.Sequence[Gpu]) -> str:
    return ", ".join(_name(gpu) for gpu in gpus)


def _pids(holders: t.Iterable[Holder]) -> tuple[int, ...]:
    return tuple(sorted(holder.pid for holder in holders))


def _list(holders: t.Sequence[Holder], sample: Sample, most: int = 8) -> str:
    text = "; ".join(sample.describe(holder) for holder in holders[:most])
    return text + (f"; and {len(holders) - most} more" if len(holders) > most else "")
