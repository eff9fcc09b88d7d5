# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The rules of the signal ladder that need nothing but their arguments, and the records of a release."""

from __future__ import annotations

import dataclasses
import signal
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import (
    Holder,
    HolderScan,
    PortOwner,
    StaleNode,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import shown
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_rulings import describe_owner, strangers

ReleaseVerdict = t.Literal[
    "free", "released", "would_release", "dying", "survivors", "respawned", "incomplete", "foreign", "refused"
]

# Signals that ask or make a process end. Others (STOP, USR1, …) would leave a holder in a state nobody expects.
SIGNALS = ("TERM", "INT", "QUIT", "HUP", "ABRT", "KILL")

LONGEST_RUNG = 600.0  # seconds
MOST_RUNGS = 5
PROLONGED_TO = 300.0  # seconds: how long the last rung may become while the dying still shrink

# How often an incomplete look is repeated, and the seconds in between and beyond which it is called blocked.
LOOKS_AGAIN = 4
PAUSE_BETWEEN_LOOKS = 0.25
BLOCKED = 2.0

# (pid, start time): what a process is known by.
Identity = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Rung:
    """One signal, and how many seconds it is given to work."""

    signal: str
    wait: float

    @property
    def number(self) -> int:
        return int(getattr(signal, f"SIG{self.signal}"))

    @property
    def kills(self) -> bool:
        return self.signal == "KILL"


DEFAULT_LADDER = (Rung("TERM", 15.0), Rung("KILL", 180.0))


@dataclasses.dataclass(frozen=True)
class Signalled:
    """A signal that was sent: seconds after the release began."""

    pid: int
    signal: str
    after_s: float

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class ReleaseResult:
    """What became of a release. holders are those of the first look, left those of the last one."""

    verdict: ReleaseVerdict
    message: str
    holders: tuple[Holder, ...] = ()
    left: tuple[Holder, ...] = ()
    signalled: tuple[Signalled, ...] = ()
    would_signal: tuple[tuple[int, str], ...] = ()
    stopped: tuple[str, ...] = ()
    would_stop: tuple[str, ...] = ()
    survivors: tuple[Holder, ...] = ()
    respawned_by: str | None = None
    stale_nodes: tuple[StaleNode, ...] = ()
    port_owners: tuple[PortOwner, ...] = ()
    notes: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    last_signal_at: float | None = None  # or manager asked; on the clock that was passed in

    @property
    def changed(self) -> bool:
        return bool(self.signalled or self.stopped)

    @property
    def failed(self) -> bool:
        return self.verdict in ("survivors", "respawned", "incomplete", "refused")


def read_ladder(rungs: t.Sequence[t.Mapping[str, t.Any]]) -> tuple[Rung, ...]:
    """The ladder as the options give it. ValueError: a sentence that names the option and what is wrong with it."""
    if not rungs:
        raise ValueError("ladder is empty: give at least one rung, the last of which is {signal: KILL}.")
    if len(rungs) > MOST_RUNGS:
        raise ValueError(f"ladder has {len(rungs)} rungs: at most {MOST_RUNGS} make sense.")
    ladder = []
    for number, rung in enumerate(rungs, start=1):
        name = str(rung.get("signal") or "").upper()
        name = name[3:] if name.startswith("SIG") else name
        if name not in SIGNALS:
            raise ValueError(
                f"ladder rung {number}: signal {shown(rung.get('signal'))} is none of {', '.join(SIGNALS)} (by name)."
            )
        wait = float(rung.get("wait") or 0)
        if not 0 <= wait <= LONGEST_RUNG:
            raise ValueError(f"ladder rung {number}: wait {wait:g} s is not between 0 and {LONGEST_RUNG:g} s.")
        ladder.append(Rung(name, wait))
    if not ladder[-1].kills:
        raise ValueError(
            f"ladder ends with {ladder[-1].signal}: the last rung has to be KILL, since any other signal can be "
            "ignored "
            "and nothing would be released."
        )
    if any(rung.kills for rung in ladder[:-1]):
        raise ValueError("ladder has KILL before its last rung: nothing can follow KILL.")
    return tuple(ladder)


def look_until_complete(scan: t.Callable[[], HolderScan], clock: Clock) -> HolderScan:
    """Scan, and again where the look was not complete: a process that is starting or ending just then is unreadable
    for a moment. A look that took long was blocked, which does not pass."""
    found = scan()
    for dummy in range(LOOKS_AGAIN):
        if found.complete or found.seconds > BLOCKED:
            break
        clock.sleep(PAUSE_BETWEEN_LOOKS)
        found = scan()
    return found


def identity(holder: Holder) -> Identity:
    return (holder.pid, holder.start_time)


def stopped_computing(before: Holder, now: Holder) -> bool:
    """Whether it has let go of the mapping by which it was found to compute, by exec for one. What it is now the next
    look says: it may be a daemon that is protected."""
    return "map" in before.via and "map" not in now.via


def targets_of(scan: HolderScan, own: t.AbstractSet[int]) -> tuple[Holder, ...]:
    """Who may be signalled. PID 1 and our own ancestors never are, whatever a scan says of them."""
    return tuple(holder for holder in scan.targets() if holder.pid > 1 and holder.pid not in own)


def torn_down(holder: Holder) -> Holder:
    """One that got KILL and has not ended, although no scan shows it any more: its tables are detached, and what was in
    them is still being given back."""
    return dataclasses.replace(holder, dying=True, state="?", wchan=None, devices=(), via=())


def topmost(targets: t.Sequence[Holder], above: t.Callable[[int], t.Sequence[int]]) -> tuple[Holder, ...]:
    """Of each tree of targets the one at the top. A dying one is no longer above anybody: it passes nothing on."""
    living = {holder.pid for holder in targets if not holder.dying}
    return tuple(holder for holder in targets if not holder.dying and not living.intersection(above(holder.pid)))


def parents_first(targets: t.Sequence[Holder], above: t.Callable[[int], t.Sequence[int]]) -> tuple[Holder, ...]:
    """Whoever may start others again goes before them."""
    return tuple(sorted(targets, key=lambda holder: (len(above(holder.pid)), holder.start_time, holder.pid)))


def uses_gpus(holder: Holder) -> bool:
    """Whether it computes, or may, and is none of ours. The init of a container that was not named is no different."""
    return holder.disposition in ("foreign", "never") and holder.computes is not False


def released_message(stopped: t.Sequence[str], signalled: t.Iterable[Signalled]) -> str:
    parts = [f"{len(stopped)} stopped through a manager"] if stopped else []
    pids = {one.pid for one in signalled}
    if pids:
        parts.append(f"{len(pids)} {'process' if len(pids) == 1 else 'processes'} signalled")
    return f"Released: {', '.join(parts)}; a complete second look found no target left"


def quiet_verdict(scan: HolderScan) -> tuple[ReleaseVerdict, str]:
    """What to say where there is no target and nothing was done."""
    foreign = [holder for holder in scan.holders if uses_gpus(holder)]
    if foreign:
        return "foreign", "No target holds a GPU device, but others compute on these GPUs and were left alone"
    if any(holder.disposition == "protected" and holder.computes for holder in scan.holders):
        return "free", "No target holds a GPU device, but protected processes compute and were left alone"
    return "free", "No target holds a GPU device"


def port_remark(scan: HolderScan) -> str:
    """Who keeps the server's port whatever is released, as a sentence to follow another one."""
    left = strangers(scan.port_owners)
    if not left:
        return ""
    return f" The server's port is taken by others, who were left alone: {'; '.join(map(describe_owner, left))}."


def unreadable_message(scan: HolderScan, nothing_done: bool) -> str:
    """Why a scan proves nothing, and what to do about it."""
    matter = [entry for entry in scan.unreadable if entry.matters]
    named = "; ".join(
        f"PID {entry.pid} ({entry.comm}): {entry.what}: {entry.error} ({entry.reason})" for entry in matter[:5]
    )
    more = f"; and {len(matter) - 5} more" if len(matter) > 5 else ""
    reason = scan.incomplete_reason or (f"{len(matter)} processes could not be looked at" if matter else "no reason")
    return (
        "The look at every process was not complete: "
        + reason.rstrip(".")
        + (f": {named}{more}" if named else "")
        + ". "
        + ("Nothing was signalled. " if nothing_done else "")
        + "Run this as root (become: true) in the PID namespace that owns the processes (on a Proxmox host: the host); "
        "where a read blocked, the process named is stuck in the kernel, and rebooting the GPU host is the likely cure."
    )


def survivor_line(holder: Holder, refusal: str | None, dying_for: float | None, *, silent: bool = False) -> str:
    """Why a process is still there. silent: the driver did not answer when it was last asked."""
    if refusal is not None:
        return refusal
    if holder.dying:
        since = f" {dying_for:.0f} s ago" if dying_for is not None else ""
        if silent:
            return (
                f"was killed{since} and has not ended{_where(holder)}, and the driver has not answered nvidia-smi since"
            )
        return f"was killed{since} and does not end{_where(holder)}: rebooting the GPU host is the likely next step"
    if holder.ns_pid == 1:
        return "is PID 1 of its PID namespace and ignores signals from inside: stop its container"
    if holder.state == "D":
        return f"sleeps uninterruptibly{_where(holder)}: rebooting the GPU host is the likely next step"
    return f"outlived KILL in state {holder.state}{_where(holder)}: rebooting the GPU host is the likely next step"


def dying_message(lines: t.Sequence[str], *, silent: bool) -> str:
    """For those who were killed and get no second KILL: lines says who and why."""
    who = "; ".join(lines)
    if not silent:
        return f"Killed, and still giving memory back when the time was over: {who}"
    return (
        f"Killed, and most likely still giving pinned host memory back when the time was over: {who}. That takes over "
        "a minute for some hundred GiB, and ends by itself: look again before anything else. Where it does not end, "
        "look for Xid lines in the kernel log; rebooting the GPU host comes last"
    )


def _where(holder: Holder) -> str:
    return f" (in {holder.wchan})" if holder.wchan else ""


def rehearsal_message(would_signal: t.Sequence[tuple[int, str]], would_stop: t.Sequence[str]) -> str:
    parts = []
    if would_stop:
        parts.append("stop " + "; ".join(would_stop))
    if would_signal:
        parts.append("signal " + ", ".join(f"PID {pid} with {name}" for pid, name in would_signal))
    return "Would " + (", then ".join(parts) or "only wait for the dying, and signal nobody")
