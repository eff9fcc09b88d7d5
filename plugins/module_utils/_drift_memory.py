# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What drift remembers of a unit between its runs, and what follows: confirmation, budget, back-off, latch.

Pure: an entry, a moment, and the entry after it. Where two readings of time are possible, the careful one counts.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import age_words
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import (
    Moment,
    clock_changed,
    elapsed,
    iso,
    read_iso,
    read_moment,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import shown

HeldBackBy = t.Literal["gave_up", "backoff", "budget"]
OUTCOMES = ("ready", "failed")
ACTIONS = ("release", "relaunch")
LONGEST = 366 * 86400.0  # seconds
KEPT = 50  # remediations that are remembered


@dataclasses.dataclass(frozen=True)
class Limits:
    """How often drift may act, and how sure it must be. Times in seconds."""

    confirm_after: float = 180.0
    confirm_within: float = 3600.0
    max_remediations: int = 2
    window: float = 86400.0
    backoff: float = 900.0
    backoff_most: float = 14400.0

    def fault(self) -> str | None:
        """What is wrong with them, as a sentence."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 <= value <= LONGEST:
                return f"{field.name} is {shown(value)}: it must be a number from 0 to {LONGEST:.0f}"
        if self.max_remediations != int(self.max_remediations) or self.max_remediations > KEPT // 2:
            return (
                f"max_remediations is {shown(self.max_remediations)}: it must be a whole number from 0 to {KEPT // 2}"
            )
        if self.confirm_within < 2 * self.confirm_after:
            return (
                f"confirm_within is {self.confirm_within:g} s and confirm_after {self.confirm_after:g} s: two looks"
                " would hardly ever confirm each other; the first must be at least twice the second"
            )
        if self.backoff > self.backoff_most:
            return f"backoff is {self.backoff:g} s, above backoff_most, {self.backoff_most:g} s"
        return None


@dataclasses.dataclass(frozen=True)
class Suspicion:
    """What earlier looks saw, key says of whom, without a break from first to last, in one boot."""

    key: str
    looks: int
    first: Moment
    last: Moment


@dataclasses.dataclass(frozen=True)
class Remediation:
    """outcome None: it was begun, and nobody came back to say how it ended."""

    run_id: str
    action: str
    began: Moment
    ended: Moment | None = None
    outcome: str | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Backoff:
    since: Moment
    seconds: float


@dataclasses.dataclass(frozen=True)
class GaveUp:
    at: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Memory:
    """The entry of one unit. revision counts its changes, so that nobody writes over what he has not seen."""

    revision: int = 0
    suspicions: tuple[Suspicion, ...] = ()
    remediations: tuple[Remediation, ...] = ()
    backoff: Backoff | None = None
    gave_up: GaveUp | None = None

    def suspicion(self, key: str) -> Suspicion | None:
        return next((one for one in self.suspicions if one.key == key), None)

    def failures(self) -> int:
        """How many remediations in a row have not brought a serving server, up to now."""
        count = 0
        for one in reversed(self.remediations):
            if one.outcome == "ready":
                break
            count += 1
        return count

    def spent(self, limits: Limits, now: Moment) -> int:
        """How many remediations began inside the window."""
        return sum(elapsed(one.began, now) < limits.window for one in self.remediations)

    def document(self) -> dict[str, t.Any]:
        """As it stands in the file."""
        return {
            "revision": self.revision,
            "suspicions": [
                {
                    "key": one.key,
                    "looks": one.looks,
                    "boot_id": one.last.boot_id,
                    "first_at": one.first.date,
                    "first_boot_s": round(one.first.boot_s, 3),
                    "last_at": one.last.date,
                    "last_boot_s": round(one.last.boot_s, 3),
                }
                for one in self.suspicions
            ],
            "remediations": [
                {
                    **one.began.document(),
                    "action": one.action,
                    "run_id": one.run_id,
                    "outcome": one.outcome,
                    "ended": one.ended.document() if one.ended else None,
                    "reason": one.reason,
                }
                for one in self.remediations
            ],
            "backoff": {**self.backoff.since.document(), "seconds": self.backoff.seconds} if self.backoff else None,
            "gave_up": dataclasses.asdict(self.gave_up) if self.gave_up else None,
        }

    def view(self) -> dict[str, t.Any]:
        """As it is shown to people and to the decision: backoff_until is the date at which it ends."""
        backoff = self.backoff
        return {**self.document(), "backoff_until": iso(backoff.since.wall + backoff.seconds) if backoff else None}


def _suspicion(item: t.Mapping[str, t.Any]) -> Suspicion:
    first, last = read_moment(item, "first_at", "first_boot_s"), read_moment(item, "last_at", "last_boot_s")
    return Suspicion(_text(item, "key"), _count(item, "looks"), first, last)


def _remediation(item: t.Mapping[str, t.Any]) -> Remediation:
    ended = read_moment(item["ended"]) if item["ended"] is not None else None
    outcome = item["outcome"]
    if item["action"] not in ACTIONS or outcome not in (None, *OUTCOMES):
        raise ValueError(f"action is {item['action']!r}, outcome {outcome!r}")
    return Remediation(_text(item, "run_id"), item["action"], read_moment(item), ended, outcome, _text(item, "reason"))


def _text(item: t.Mapping[str, t.Any], key: str) -> str:
    if not isinstance(item[key], str):
        raise ValueError(f"{key} is {item[key]!r}")
    return str(item[key])


def _count(item: t.Mapping[str, t.Any], key: str) -> int:
    value = item[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{key} is {value!r}")
    return value


def parse_entry(item: t.Any) -> Memory:
    """One unit's entry, from the file or as it was shown. Raises ValueError."""
    if item is None:
        return Memory()
    try:
        backoff, gave_up = item["backoff"], item["gave_up"]
        if backoff is not None:
            seconds = backoff["seconds"]
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= LONGEST:
                raise ValueError(f"backoff is {seconds!r} seconds")
            backoff = Backoff(read_moment(backoff), float(seconds))
        if gave_up is not None:
            read_iso(gave_up["at"])
            gave_up = GaveUp(gave_up["at"], _text(gave_up, "reason"))
        return Memory(
            _count(item, "revision"),
            tuple(map(_suspicion, item["suspicions"])),
            tuple(map(_remediation, item["remediations"])),
            backoff,
            gave_up,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def is_confirmed(found: Suspicion | None, limits: Limits, now: Moment) -> bool:
    """Whether this look, now, confirms an earlier one: long enough after it, without a break, a boot or a set clock."""
    return found is not None and _continues(found, limits, now) and elapsed(found.first, now) >= limits.confirm_after


def _continues(found: Suspicion, limits: Limits, now: Moment) -> bool:
    return (
        found.last.boot_id == now.boot_id
        and now.boot_s >= found.last.boot_s
        and elapsed(found.last, now) <= limits.confirm_within
        and not clock_changed(found.last, now)
    )


def noted(memory: Memory, key: str, limits: Limits, now: Moment) -> Memory:
    """After a look that suspects key. Every other suspicion is gone: this look did not see it."""
    found = memory.suspicion(key)
    if found is not None and _continues(found, limits, now):
        one = dataclasses.replace(found, looks=found.looks + 1, last=now)
    else:
        one = Suspicion(key, 1, now, now)
    return dataclasses.replace(memory, suspicions=(one,))


def cleared(memory: Memory) -> Memory:
    """After a look that suspects nothing."""
    return dataclasses.replace(memory, suspicions=())


def hold_back(memory: Memory, limits: Limits, now: Moment) -> tuple[HeldBackBy, str] | None:
    """What speaks against one more remediation, with a sentence; None where nothing does."""
    if memory.gave_up is not None:
        return "gave_up", f"gave up at {memory.gave_up.at}: {memory.gave_up.reason}. {RESET}"
    failures = memory.failures()
    if failures and failures >= limits.max_remediations:
        return "gave_up", f"{_row(failures)}. {RESET}"
    backoff = memory.backoff
    if backoff is not None:
        left = backoff.seconds - elapsed(backoff.since, now)
        if left > 0:
            return "backoff", f"the last remediation failed; the next one may begin in {age_words(left)}"
    spent = memory.spent(limits, now)
    if spent >= limits.max_remediations:
        most = f"{limits.max_remediations} in {age_words(limits.window)}"
        return "budget", f"{spent} remediations began in the last {age_words(limits.window)}, and {most} are allowed"
    return None


RESET = (
    "Only a person ends this: with relaunch.yml, or, once the cause is known, with the module sglang_drift_memory,"
    " state: reset"
)


def _row(failures: int) -> str:
    return f"the last {failures} remediations brought no serving server" if failures > 1 else "the remediation failed"


def begun(memory: Memory, run_id: str, action: str, limits: Limits, now: Moment) -> Memory:
    """Before the first step: the budget is spent, and the back-off runs, whatever becomes of the run."""
    latest = Remediation(run_id, action, now)
    kept = (*memory.remediations, latest)[-KEPT:]
    after = dataclasses.replace(memory, remediations=kept)
    return dataclasses.replace(after, backoff=Backoff(now, wait_after(after.failures(), limits)))


def wait_after(failures: int, limits: Limits) -> float:
    """Doubled with each failure in a row, up to the most."""
    return min(limits.backoff_most, limits.backoff * 2.0 ** min(max(failures - 1, 0), 60))


def ended(memory: Memory, run_id: str, outcome: str, reason: str, limits: Limits, now: Moment) -> Memory:
    """After the last step. Raises ValueError where this run began nothing."""
    if not any(one.run_id == run_id and one.outcome is None for one in memory.remediations):
        raise ValueError(f"run {run_id} has begun no remediation of this unit that is still open")
    after = dataclasses.replace(
        memory,
        suspicions=(),
        remediations=tuple(
            dataclasses.replace(one, ended=now, outcome=outcome, reason=reason)
            if one.run_id == run_id and one.outcome is None
            else one
            for one in memory.remediations
        ),
    )
    if outcome == "ready":
        return dataclasses.replace(after, backoff=None)
    failures = after.failures()
    after = dataclasses.replace(after, backoff=Backoff(now, wait_after(failures, limits)))
    if failures < limits.max_remediations:
        return after
    told = f"{_row(failures)}, the last one: {reason}" if reason else _row(failures)
    return dataclasses.replace(after, gave_up=GaveUp(now.date, told))


def reset(memory: Memory) -> Memory:
    """A person has taken over: nothing that was counts any more. What drift did stands in the record of runs."""
    return Memory(memory.revision)
