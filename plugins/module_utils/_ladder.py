# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Making targets let go of the GPUs: managers first, then TERM to the top of each tree, then KILL to what is left."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _ladder_rules as rules
from ansible_collections.cleanslate.gpu.plugins.module_utils._aims import Aims
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._kinship import Kinship, ancestors
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import (
    Identity,
    ReleaseResult,
    ReleaseVerdict,
    Rung,
    Signalled,
    identity,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._managers import Managers, Order
from ansible_collections.cleanslate.gpu.plugins.module_utils._respawning import Respawning
from ansible_collections.cleanslate.gpu.plugins.module_utils._shrinking import SHRINK_WINDOW, Shrinking, UsedMib
from ansible_collections.cleanslate.gpu.plugins.module_utils._signalling import Signaller

FIRST_INTERVAL = 0.02  # seconds between two scans: at first, after each death ...
LONGEST_INTERVAL = 0.5  # ... and at most
# After KILL nobody can refuse, and the driver needs a tenth of a second for each, over one where host memory is pinned.
# A look tells nothing then, and takes as long: it reads what the kernel is tearing down.
KILL_INTERVAL = 2.0
# How many are looked at together before they are signalled: a look takes a process of its own, and must not be old.
AT_ONCE = 16
# After the top of every tree has gone, the rest may be in the midst of their own clean exit: as long as one of them
# ends in each such interval they are left to it, since a KILL in mid-release is how GPU memory survives (SGLang's own
# remark). After that nobody is coming who would end them.
ORPHAN_GRACE = 0.5


class _Ended(Exception):
    """The release ends here, with this verdict."""

    def __init__(self, verdict: ReleaseVerdict, message: str, respawned_by: str | None = None) -> None:
        super().__init__(message)
        self.verdict: ReleaseVerdict = verdict
        self.message = message
        self.respawned_by = respawned_by


@dataclasses.dataclass(frozen=True)
class ReleaseOptions:
    """respawn_watch: seconds to stay watching where a living parent may start a killed target again. gate_follows: who
    has ended and is only listed by nvidia-smi is the gate's to wait for, since no signal is left to send."""

    ladder: tuple[Rung, ...] = rules.DEFAULT_LADDER
    respawn_watch: float = 10.0
    check_mode: bool = False
    gate_follows: bool = False


def release(
    scan: t.Callable[[], HolderScan],
    options: ReleaseOptions,
    *,
    hold_again: t.Callable[[t.Sequence[Holder]], t.Sequence[Holder | None]],
    describe: t.Callable[[Holder], str],
    clock: Clock,
    signaller: Signaller,
    kinship: Kinship,
    managers: Managers,
    used_mib: UsedMib | None = None,
) -> ReleaseResult:
    """Scan, and make every target let go. used_mib tells the memory of all GPUs, for judging whether the dying still
    shrink; it is asked rarely."""
    run = _Run(scan, options, hold_again, describe, clock, signaller, kinship, managers, used_mib)
    try:
        return run.result()
    finally:
        run.close()


class _Run:
    def __init__(
        self,
        scan: t.Callable[[], HolderScan],
        options: ReleaseOptions,
        hold_again: t.Callable[[t.Sequence[Holder]], t.Sequence[Holder | None]],
        describe: t.Callable[[Holder], str],
        clock: Clock,
        signaller: Signaller,
        kinship: Kinship,
        managers: Managers,
        used_mib: UsedMib | None,
    ) -> None:
        self._scan, self._options, self._hold_again, self._describe = scan, options, hold_again, describe
        self._clock, self._kinship, self._managers = clock, kinship, managers
        self._shrinking = Shrinking(used_mib)
        self._own = kinship.own()
        self._began = clock.monotonic()
        self._now: HolderScan = HolderScan()
        self._seen: dict[Identity, Holder] = {}
        self._aims = Aims(signaller, clock)
        self._unseen: tuple[Holder, ...] = ()  # killed, not ended, and missed by the last look
        self._sent: dict[Identity, set[str]] = {}
        self._refused: dict[Identity, str] = {}
        self._dying_since: dict[Identity, float] = {}
        self._signalled: list[Signalled] = []
        self._stopped: list[str] = []
        self._notes: list[str] = []
        self._last_signal_at: float | None = None
        self._last_change = self._began
        self._respawning: Respawning | None = None

    # -- the whole ---------------------------------------------------------------------------------------------

    def result(self) -> ReleaseResult:
        before = self._look()
        would_signal: tuple[tuple[int, str], ...] = ()
        would_stop: tuple[str, ...] = ()
        orders: tuple[Order, ...] = ()
        survivors: tuple[Holder, ...] = ()
        try:
            if not before.complete:
                raise _Ended("incomplete", rules.unreadable_message(before, nothing_done=True))
            orders = self._managers.plan(before, self._own)
            if not self._targets() and not orders:
                raise _Ended(*rules.quiet_verdict(before))
            if self._options.check_mode:
                would_signal = self._rehearse(orders)
                would_stop = tuple(order.describe() for order in orders)
                raise _Ended("would_release", rules.rehearsal_message(would_signal, would_stop))
            self._stop_through_managers(orders)
            self._climb()
            end = _Ended("survivors", self._survivor_message())
        except _Ended as ended:
            end = ended
        verdict, message, respawned_by = end.verdict, end.message, end.respawned_by
        if verdict in ("survivors", "dying"):
            survivors = self._targets()
        return ReleaseResult(
            verdict=verdict,
            message=" ".join(f"{part.rstrip('.')}." for part in (message, *self._notes)) + rules.port_remark(self._now),
            holders=before.holders,
            left=self._now.holders,
            signalled=tuple(self._signalled),
            would_signal=would_signal,
            stopped=tuple(self._stopped),
            would_stop=would_stop,
            survivors=survivors,
            respawned_by=respawned_by,
            stale_nodes=before.stale_nodes,
            port_owners=before.port_owners,
            notes=tuple(self._notes),
            elapsed_s=self._since_begin(),
            last_signal_at=self._last_signal_at,
        )

    def close(self) -> None:
        self._aims.close()

    # -- looking -----------------------------------------------------------------------------------------------

    def _look(self) -> HolderScan:
        """Scan, and take note of who came, who went and who is dying."""
        began = self._clock.monotonic()
        self._aims.note_ended()
        self._now = self._scan() if self._respawning else rules.look_until_complete(self._scan, self._clock)
        now = self._clock.monotonic()
        shown = {identity(holder) for holder in rules.targets_of(self._now, self._own)}
        self._unseen = tuple(rules.torn_down(self._seen[key]) for key in self._aims.unended() if key not in shown)
        targets = self._targets()
        present = {identity(holder) for holder in targets}
        for holder in targets:
            key = identity(holder)
            if holder.dying:
                self._dying_since.setdefault(key, now)
            if key not in self._seen:
                self._last_change = now
                if self._respawning is not None:
                    self._meet(self._respawning, holder)
            self._seen[key] = holder
        if self._respawning is not None:
            if self._now.complete and self._respawning.note_gone(set(self._seen) - present, now):
                self._last_change = now
            if self._now.complete and not present:
                self._respawning.note_empty(began)
        return self._now

    def _meet(self, respawning: Respawning, holder: Holder) -> None:
        """A target that was not there before: late, or started again."""
        culprit = respawning.meet(holder, self._targets(), self._above, self._clock.monotonic())
        if culprit is not None:
            raise _Ended(
                "respawned",
                f"{self._describe(holder)} appeared after its predecessor was killed: it is started again by "
                f"{culprit}. "
                "Stop that through what runs it (its unit in units, its container in containers, or by hand), "
                "then release again",
                respawned_by=culprit,
            )

    def _targets(self) -> tuple[Holder, ...]:
        """Who is to let go yet. Where a gate follows, who only waits to be reaped is the gate's."""
        found = rules.targets_of(self._now, self._own)
        if self._options.gate_follows:
            found = tuple(one for one in found if not one.dying or one.devices or not self._aims.ended(one))
        return (*found, *self._unseen)

    def _above(self, pid: int) -> tuple[int, ...]:
        return ancestors(self._kinship, pid, {holder.pid: holder.ppid for holder in self._now.holders})

    def _since_begin(self) -> float:
        return round(self._clock.monotonic() - self._began, 3)

    # -- before the first signal -------------------------------------------------------------------------------

    def _rehearse(self, orders: t.Sequence[Order]) -> tuple[tuple[int, str], ...]:
        covered = {pid for order in orders for pid in order.pids}
        living = [holder for holder in self._targets() if not holder.dying and not self._managers.spares(holder)]
        first = self._options.ladder[0]
        top = {holder.pid for holder in (living if first.kills else rules.topmost(living, self._above))}
        return tuple(
            (holder.pid, first.signal if holder.pid in top else "KILL")
            for holder in rules.parents_first(living, self._above)
            if holder.pid not in covered
        )

    def _stop_through_managers(self, orders: t.Sequence[Order]) -> None:
        if not orders:
            return
        for order in orders:
            outcome = self._managers.carry_out(order)
            if outcome.ok:
                self._stopped.append(order.describe())
                self._last_signal_at = self._clock.monotonic()
                continue
            said = f"{order.name} could not be stopped through its manager: {outcome.message}"
            if order.restarts or (order.spared and not outcome.later):
                self._look()
                why = "it would be started again" if order.restarts else "others depend on it"
                raise _Ended(
                    "survivors",
                    f"{said}. Nothing was signalled, since {why}: stop it by hand, then release again",
                )
            instead = "" if order.spared else "; nothing starts it again, so it was signalled instead"
            self._notes.append(said + instead)
        self._look()
        if not self._now.complete:
            raise _Ended("incomplete", rules.unreadable_message(self._now, nothing_done=True))
        # Whoever ended through its manager is not watched for: the manager was told.
        self._seen = {identity(holder): holder for holder in self._targets()}

    # -- the ladder --------------------------------------------------------------------------------------------

    def _climb(self) -> None:
        self._respawning = Respawning(self._kinship, self._seen.values())
        for rung in self._options.ladder:
            self._stand_on(rung, last=rung is self._options.ladder[-1])

    def _stand_on(self, rung: Rung, last: bool) -> None:
        """One rung. Comes back when it is time for the next one; a release that is complete ends by _Ended."""
        began = self._clock.monotonic()
        deadline = began + rung.wait
        known = frozenset(self._seen)
        eligible = {identity(holder) for holder in rules.topmost(self._targets(), self._above)}
        interval = FIRST_INTERVAL
        self._last_change = began
        looked = False
        while True:
            if self._now.complete and not self._targets():
                self._prove()
            self._signal(rung, known, eligible)
            now = self._clock.monotonic()
            if last and looked:
                deadline = self._prolonged(began, deadline, rung)
            if looked and (now >= deadline or self._hopeless() or (not last and self._orphaned(rung))):
                return
            killed = rung.kills and not looked and any(rung.signal in sent for sent in self._sent.values())
            interval = max(interval, KILL_INTERVAL) if killed else interval
            seconds = min(interval, max(deadline - now, 0.0))
            # A look at one who unpins memory takes until he has ended: then there is nobody left to wait for.
            ended = not killed and self._aims.news()
            if not ended:
                ended = self._aims.wait(seconds, together=killed)
            # At most about half of the time goes into scanning, however many processes there are.
            interval = max(FIRST_INTERVAL if ended else min(interval * 1.5, LONGEST_INTERVAL), self._now.seconds)
            self._look()
            looked = True

    def _signal(self, rung: Rung, known: t.AbstractSet[Identity], eligible: t.AbstractSet[Identity]) -> None:
        targets = self._targets()
        top = {identity(holder) for holder in rules.topmost(targets, self._above)}
        wanted = []
        for holder in rules.parents_first(targets, self._above):
            key = identity(holder)
            if holder.dying or self._managers.spares(holder) or key in self._refused:
                continue
            if rung.signal in self._sent.get(key, ()):
                continue
            # Below KILL only the top of each tree is asked; one born meanwhile only if nobody is above it any more.
            if rung.kills or key in (eligible if key in known else top):
                wanted.append(holder)
        for first in range(0, len(wanted), AT_ONCE):
            self._send(rung, [holder for holder in wanted[first : first + AT_ONCE] if self._aims.take(holder)])

    def _send(self, rung: Rung, holders: t.Sequence[Holder]) -> None:
        for holder, again in zip(holders, self._hold_again(holders)):
            key = identity(holder)
            if again is None or again.dying or identity(again) != key or rules.stopped_computing(holder, again):
                continue
            if holder.pid <= 1 or holder.pid in self._own or holder.disposition != "target":
                raise AssertionError(f"Contract violation: about to signal {holder}")
            outcome = self._aims.send(holder, rung)
            if outcome == "refused":
                self._refused[key] = "could not be signalled (operation not permitted): run this as root (become: true)"
            elif outcome == "sent":
                now = self._clock.monotonic()
                self._sent.setdefault(key, set()).add(rung.signal)
                self._signalled.append(Signalled(holder.pid, rung.signal, round(now - self._began, 3)))
                self._last_signal_at = now
                if rung.kills:
                    self._dying_since.setdefault(key, now)

    def _hopeless(self) -> bool:
        """Whether waiting changes nothing: all that is left refused our signals."""
        targets = self._targets()
        return bool(targets) and all(identity(holder) in self._refused for holder in targets)

    def _orphaned(self, rung: Rung) -> bool:
        """Whether everyone who was asked has gone, and what is left shows no sign of ending by itself."""
        targets = self._targets()
        living = [identity(holder) for holder in targets if not holder.dying]
        asked = any(rung.signal in self._sent.get(key, ()) for key in living)
        return bool(living) and not asked and self._clock.monotonic() - self._last_change >= ORPHAN_GRACE

    def _prolonged(self, began: float, deadline: float, rung: Rung) -> float:
        """The deadline of the last rung: later while the dying still shrink."""
        targets = self._targets()
        if not targets or not all(holder.dying for holder in targets):
            return deadline
        shrunk_at = self._shrinking.look(began, self._clock.monotonic())
        if shrunk_at is None:
            return deadline
        longest = began + max(rung.wait, rules.PROLONGED_TO)
        return max(deadline, min(shrunk_at + SHRINK_WINDOW, longest))

    # -- the end -----------------------------------------------------------------------------------------------

    def _prove(self) -> None:
        """No target was seen: look once more, and stay where somebody may start one again. Returns if one came."""
        self._look()
        if not self._now.complete or self._targets():
            return
        watched = self._respawning.parents_to_watch() if self._respawning is not None else ()
        # Counted from the last end: a look that missed something leads here again.
        until = (self._respawning.last_end if self._respawning is not None else 0.0) + self._options.respawn_watch
        if watched and self._options.respawn_watch > 0:
            names = ", ".join(self._kinship.describe(parent) for parent in watched)
            note = f"Watched up to {self._options.respawn_watch:g} s for a restart by {names}"
            self._notes += [note] if note not in self._notes else []
        while self._respawning is not None and self._respawning.parents_to_watch() and self._clock.monotonic() < until:
            self._clock.sleep(min(LONGEST_INTERVAL, max(until - self._clock.monotonic(), 0.001)))
            self._look()
            if not self._now.complete or self._targets():
                return
        if self._signalled or self._stopped:
            raise _Ended("released", rules.released_message(self._stopped, self._signalled))
        raise _Ended(*rules.quiet_verdict(self._now))

    def _survivor_message(self) -> str:
        """Called when the last rung is over. Raises where survivors is not the right word."""
        targets = self._targets()
        now = self._clock.monotonic()
        if not targets:
            raise _Ended("incomplete", rules.unreadable_message(self._now, nothing_done=not self._signalled))
        lines = []
        for holder in targets:
            key = identity(holder)
            since = self._dying_since.get(key)
            why = self._refused.get(key)
            if self._managers.spares(holder) and why is None and not holder.dying:
                why = "is protected and is only stopped through its manager, which did not end it"
            dying_for = None if since is None else now - since
            line = rules.survivor_line(holder, why, dying_for, silent=self._shrinking.silent)
            lines.append(f"{self._describe(holder)} {line}")
        youngest = max(self._dying_since.get(identity(holder), now) for holder in targets)
        if all(holder.dying for holder in targets) and self._shrinking.still(youngest, now):
            raise _Ended("dying", rules.dying_message(lines, silent=self._shrinking.silent))
        return f"Still holding the GPUs after {self._since_begin():.1f} s: {'; '.join(lines)}"
