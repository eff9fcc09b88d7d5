# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The lease on a host's GPUs: who may work on them now, between the tasks of a run.

No process stays behind. A lease stands in a file, is compared and set under a momentary lock, and runs out by itself:
its time is counted from the boot, so that neither a changed date nor a dead controller can keep or lose it.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease_folder
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import (
    ID,
    Book,
    Gpus,
    Lease,
    Marker,
    age_words,
    clean,
    gpu_words,
    lease_view,
    lease_words,
    marker_view,
    marker_words,
    overlap,
    owner_words,
    parse,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import LockBusy
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import is_gpu_uuid
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import path_fault
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import FolderRefused, Unreadable

State = t.Literal["held", "released", "shown"]
LeaseVerdict = t.Literal["acquired", "renewed", "busy", "released", "not_held", "expired", "refused"]

CORRUPT = "corrupt"  # as takeover: the file that nobody can read may be thrown away
LONGEST = 86400.0  # seconds, for every time that is asked for
POLL_FIRST, POLL_MOST = 0.1, 1.0


@dataclasses.dataclass(frozen=True)
class LeaseRequest:
    """run_id and node together are the owner. gpus: UUIDs, none for all of the host. Times in seconds."""

    state: State
    run_id: str = ""
    node: str = ""
    gpus: Gpus = ()
    ttl: float = 900.0
    wait: float = 0.0
    wait_for_others: bool = False
    takeover: str = ""
    marker_ttl: float = 0.0
    withdraw_marker: bool = False
    purpose: str = ""
    who: str = ""

    def is_owner_of(self, lease: Lease) -> bool:
        return (lease.run_id, lease.node) == (self.run_id, self.node)


@dataclasses.dataclass(frozen=True)
class LeaseResult:
    """verdict, with one sentence for people; leases and markers as a module returns them. before, after: for a diff."""

    verdict: LeaseVerdict
    reason: str
    failed: bool = False
    changed: bool = False
    unreadable: bool = False
    lease: dict[str, t.Any] | None = None
    leases: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    starting: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    displaced: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    before: list[str] = dataclasses.field(default_factory=list)
    after: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Decision:
    """What is to be told and how the book looks after it. wait: it is worth while to ask again."""

    verdict: LeaseVerdict
    reason: str
    book: Book
    failed: bool = False
    wait: bool = False
    displaced: tuple[Lease, ...] = ()


def refusal(request: LeaseRequest) -> str | None:
    """What is wrong with the options, as a sentence."""
    ids = {"takeover": request.takeover} if request.takeover else {}
    if request.state != "shown":
        ids.update(run_id=request.run_id, node=request.node)
    for name, value in ids.items():
        if not ID.fullmatch(value):
            what = f"{value[:40]!r} ({len(value)} characters)" if value else "empty"
            return f"{name} is {what}; allowed are 1 to 128 letters, digits and _ . : @ + -"
    if request.run_id == CORRUPT:
        return f"run_id is {CORRUPT!r}, which as takeover means a lease file that cannot be read; choose another one"
    wrong = [uuid for uuid in request.gpus if not is_gpu_uuid(uuid)]
    if wrong:
        return f"gpus has {wrong[0][:80]!r}, which is no UUID of a GPU (nvidia-smi -L shows them); an index can change"
    times = {"ttl": (request.ttl, 1), "wait": (request.wait, 0), "marker_ttl": (request.marker_ttl, 0)}
    for option, (seconds, least) in times.items():
        if not math.isfinite(seconds) or not least <= seconds <= LONGEST:
            return f"{option} is {seconds} seconds; it must be between {least} and {LONGEST:.0f}"
    return None


def _cure(run_ids: t.Iterable[str]) -> str:
    runs = sorted(set(run_ids))
    return f"unlock.yml shows it; if that run is known to be dead, unlock.yml -e unlock_run_id={runs[0]} takes it over"


def _past(former: Lease, now: float) -> str:
    how = f"was taken over by {former.taken_by}" if former.taken_by else "had run out"
    return f"The lease of run {former.run_id}, node {former.node} {how} {age_words(now - former.expires)} ago."


def _hold(book: Book, request: LeaseRequest, now: float, wall: float) -> _Decision:
    standing = book.standing(now)
    former = next((lease for lease in book.leases if request.is_owner_of(lease)), None)
    own = former if former is not None and former.expires > now else None
    others = [lease for lease in standing if not request.is_owner_of(lease) and overlap(lease.gpus, request.gpus)]
    displaced = [lease for lease in others if lease.run_id == request.takeover]
    in_the_way = [lease for lease in others if lease.run_id != request.takeover]

    past = f" {_past(former, now)}" if former is not None and own is None else ""
    if in_the_way:
        told = "; ".join(lease_words(lease, now) for lease in in_the_way) + "." + past
        if request.takeover and not displaced:
            told += f" takeover names {request.takeover}, which holds none of these GPUs."
        reason = f"{told} {_cure(lease.run_id for lease in in_the_way)}."
        if past:
            return _Decision("expired", reason, book, failed=True)
        same_run = all(lease.run_id == request.run_id for lease in in_the_way)
        wait = request.wait > 0 and (same_run or request.wait_for_others)
        return _Decision("busy", reason, book, failed=True, wait=wait)

    new = Lease(
        request.run_id,
        request.node,
        request.gpus,
        clean(request.who),
        clean(request.purpose),
        own.since_wall if own else wall,
        own.since if own else now,
        now + request.ttl,
    )
    kept = [lease for lease in book.leases if not request.is_owner_of(lease) and lease not in displaced]
    after = Book((*kept, *_ended(displaced, request, now), new), book.markers)
    verb = "renewed" if own else "acquired"
    reason = f"{gpu_words(new.gpus)}: {verb} by {owner_words(new)} for {request.ttl:.0f} s.{past}"
    if displaced:
        reason += " Taken over: " + "; ".join(lease_words(lease, now) for lease in displaced) + "."
    return _Decision("renewed" if own else "acquired", reason, after, displaced=tuple(displaced))


def _ended(leases: t.Iterable[Lease], request: LeaseRequest, now: float) -> list[Lease]:
    """They are remembered for a while, so that their owner can be told what became of them."""
    by = f"run {request.run_id}, node {request.node}" + (f" ({clean(request.who)})" if request.who else "")
    return [dataclasses.replace(lease, expires=now, taken_by=by) for lease in leases]


def _give_back(book: Book, request: LeaseRequest, now: float) -> _Decision:
    standing = book.standing(now)
    if request.takeover:
        displaced = [lease for lease in standing if lease.run_id == request.takeover]
        if not displaced:
            found = "; ".join(lease_words(lease, now) for lease in standing) or "no lease stands at all"
            return _Decision("not_held", f"run {request.takeover} holds no lease on this host: {found}.", book)
        kept = [lease for lease in book.leases if lease not in displaced]
        after = Book((*kept, *_ended(displaced, request, now)), book.markers)
        reason = "Taken over and given back: " + "; ".join(lease_words(lease, now) for lease in displaced) + "."
        return _Decision("released", reason, after, displaced=tuple(displaced))

    marked = ""
    markers = book.markers
    if request.withdraw_marker:
        markers = tuple(marker for marker in markers if marker.node != request.node)
        marked = f" Node {request.node} is no longer marked as starting." if markers != book.markers else ""
    former = next((lease for lease in book.leases if request.is_owner_of(lease)), None)
    if former is None:
        reason = f"run {request.run_id}, node {request.node} holds no lease on this host.{marked}"
        return _Decision("not_held", reason, Book(book.leases, markers))
    if request.marker_ttl > 0:
        marker = Marker(former.run_id, former.node, former.gpus, former.who, now + request.marker_ttl)
        markers = (*(other for other in markers if not overlap(other.gpus, marker.gpus)), marker)
        marked = f" Marked: {marker_words(marker, now)}."
    after = Book(tuple(lease for lease in book.leases if lease is not former), markers)
    if former.expires > now:
        return _Decision("released", f"{gpu_words(former.gpus)}: given back by {owner_words(former)}.{marked}", after)
    reason = f"{gpu_words(former.gpus)}: {_past(former, now)}"
    since = [lease for lease in standing if overlap(lease.gpus, former.gpus)]
    if since:
        reason += " Meanwhile: " + "; ".join(lease_words(lease, now) for lease in since) + "."
    return _Decision("expired", reason + marked, after)


def _show(book: Book, request: LeaseRequest, now: float) -> _Decision:
    found = [lease for lease in book.standing(now) if overlap(lease.gpus, request.gpus)]
    told = [lease_words(lease, now) for lease in found]
    told += [marker_words(marker, now) for marker in book.starting(request.gpus, now)]
    reason = "; ".join(told) or f"{gpu_words(request.gpus)}: no lease"
    return _Decision("busy" if found else "not_held", f"{reason}.", book)


def decide(book: Book, request: LeaseRequest, now: float, wall: float) -> _Decision:
    """The rules, without the world."""
    if request.state == "held":
        return _hold(book, request, now, wall)
    return _give_back(book, request, now) if request.state == "released" else _show(book, request, now)


def _unreadable(path: str, why: str, request: LeaseRequest) -> LeaseResult:
    reason = (
        f"unreadable lease: {path}: {why}. Somebody may hold these GPUs, so they do not count as free."
        f" Look at the file; if no run is at work on this host, unlock.yml -e unlock_run_id={CORRUPT} (option takeover)"
        " throws it away"
    )
    return LeaseResult("busy", reason, failed=request.state != "shown", unreadable=True)


def _once(
    folder: _lease_folder.LeaseFolder | None, request: LeaseRequest, clock: Clock, write: bool
) -> tuple[LeaseResult, bool]:
    """One look and, where write is set, one change. Also whether it is worth while to ask again."""
    thrown_away = ""
    try:
        book = parse(folder.read() if folder else None)
    except Unreadable as error:
        path = f"{folder.path}/{folder.name}" if folder else ""
        if request.takeover != CORRUPT or request.state == "shown":
            return _unreadable(path, str(error), request), False
        thrown_away, book = f"{path} could not be read ({error}) and was thrown away.", Book()
    now = clock.monotonic()
    if thrown_away and request.state == "released":
        decision = _Decision("released", thrown_away, book)
    else:
        decision = decide(book, request, now, clock.wall())
    if write and folder and (decision.book is not book or thrown_away):
        folder.write(decision.book.pruned(now).document())
    reason = decision.reason
    if thrown_away and request.state == "held":
        reason = f"{reason} {thrown_away}"
    before, after = book.lines(now), decision.book.lines(now)
    if thrown_away:
        before = [f"unreadable lease: {thrown_away.partition(' could')[0]}"]
    mine = [lease for lease in decision.book.standing(now) if request.is_owner_of(lease)]
    result = LeaseResult(
        decision.verdict,
        reason,
        decision.failed,
        before != after,
        False,
        lease_view(mine[0], now) if mine else None,
        [lease_view(lease, now) for lease in decision.book.standing(now)],
        [marker_view(marker, now) for marker in decision.book.starting(request.gpus, now)],
        [lease_view(lease, now) for lease in decision.displaced],
        before,
        after,
    )
    return result, decision.wait


def _attempt(request: LeaseRequest, path: str, boot_id: str, clock: Clock, write: bool) -> tuple[LeaseResult, bool]:
    # The folder is opened anew each time: whoever waits should not wait in one that was removed.
    try:
        with _lease_folder.opened(path, boot_id, create=write) as folder:
            if folder is None or not write:
                return _once(folder, request, clock, write=False)
            with folder.locked(clock):
                return _once(folder, request, clock, write=True)
    except LockBusy as error:
        return LeaseResult("busy", str(error), failed=True), False
    except FolderRefused as error:
        return LeaseResult("refused", str(error), failed=True), False
    except OSError as error:
        reason = f"cannot read or write the leases in {path}: {error.strerror or error}; no lease was changed"
        return LeaseResult("refused", reason, failed=True), False


def lease(request: LeaseRequest, path: str, boot_id: str | None, clock: Clock, *, check: bool = False) -> LeaseResult:
    """Take, renew, give back or show. clock.monotonic must be the same for all processes (BootClock). Never raises."""
    wrong = refusal(request)
    if wrong is None:
        wrong = path_fault("path", path)
    if wrong is None and (boot_id is None or not re.fullmatch(r"[0-9A-Za-z-]{1,64}", boot_id)):
        wrong = "cannot tell which boot this is (/proc/sys/kernel/random/boot_id), so no lease can be dated"
    if wrong is not None or boot_id is None:
        return LeaseResult("refused", f"{wrong}. Nothing was changed.", failed=True)
    started, pause = clock.monotonic(), POLL_FIRST
    while True:
        result, worth_waiting = _attempt(request, path, boot_id, clock, write=not check and request.state != "shown")
        waited = clock.monotonic() - started
        if check:
            told = f"Check mode, nothing was written. {result.reason}"
            if worth_waiting:
                told = f"Check mode: this would be waited for, up to {request.wait:.0f} s. {result.reason}"
            return dataclasses.replace(result, reason=told, failed=result.failed and not worth_waiting)
        if not worth_waiting or waited >= request.wait:
            if worth_waiting:
                result = dataclasses.replace(result, reason=f"Waited {waited:.0f} s in vain. {result.reason}")
            return result
        clock.sleep(min(pause, request.wait - waited))
        pause = min(POLL_MOST, pause * 1.5)
