# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What a person last asked for on this node: a profile serving, or stopped; and until when drift is to keep still.

People's runs write it, drift only reads it. Where nothing stands, or nothing that can be read, nothing is wanted, and
drift does no more than report.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _state_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import clean
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import LockBusy
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import iso, read_iso
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import path_fault
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import FolderRefused, Unreadable

Asked = t.Literal["serving", "stopped", "paused", "resumed"]
Outcome = t.Literal["ready", "failed", "rolled_back", "done"]
WantedVerdict = t.Literal["written", "unchanged", "refused"]

VERSION = 1
STATES = ("serving", "stopped")
OUTCOMES = ("ready", "failed", "rolled_back", "done")
UNIT = re.compile(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]{0,249}\.service")
PROFILE = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,127}")
LONGEST_PAUSE = 366 * 86400.0


@dataclasses.dataclass(frozen=True)
class Pause:
    until: str
    reason: str
    who: str


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The entry of one unit. state is None where nobody asked for anything but a pause."""

    state: str | None = None
    profile: str | None = None
    by: str = ""
    who: str = ""
    at: str = ""
    run_id: str = ""
    outcome: str | None = None
    pause: Pause | None = None

    def document(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class WantedRequest:
    """What is to be written, and in whose name."""

    state: Asked
    unit: str
    profile: str | None = None
    who: str = ""
    by: str = ""
    run_id: str = ""
    outcome: Outcome = "done"
    until: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class WantedResult:
    verdict: WantedVerdict
    reason: str
    failed: bool = False
    changed: bool = False
    before: Wanted | None = None
    after: Wanted | None = None


def _text(item: t.Mapping[str, t.Any], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}")
    return value


def _choice(item: t.Mapping[str, t.Any], key: str, allowed: t.Sequence[str]) -> str | None:
    value = item[key]
    if value is not None and value not in allowed:
        raise ValueError(f"{key} is {value!r}")
    return t.cast("str | None", value)


def parse_entry(item: t.Mapping[str, t.Any]) -> Wanted:
    """One unit's entry as it stands in the file. Raises KeyError, TypeError, ValueError."""
    state, pause = _choice(item, "state", STATES), item["pause"]
    profile = item["profile"]
    if profile is not None and (not isinstance(profile, str) or not PROFILE.fullmatch(profile)):
        raise ValueError(f"profile is {profile!r}")
    if state is not None:
        read_iso(item["at"])
    if pause is not None:
        read_iso(pause["until"])
        pause = Pause(*(_text(pause, key) for key in ("until", "reason", "who")))
    by, who, at, run_id = (_text(item, key) for key in ("by", "who", "at", "run_id"))
    outcome = _choice(item, "outcome", OUTCOMES)
    if state is not None and outcome is None:
        raise ValueError("outcome is missing")
    return Wanted(state, profile, by, who, at, run_id, outcome, pause)


def parse(document: t.Any) -> dict[str, Wanted]:
    """Every unit's entry. Raises Unreadable."""
    return _state_file.units(document, VERSION, parse_entry)


def unreadable(path: str, why: object) -> str:
    return (
        f"What is wanted on this node cannot be told: {path}: {why}. Drift only reports until a person's run"
        f" (relaunch.yml, stop.yml, pause.yml) writes it anew; what is there now is kept as"
        f" {os.path.basename(path)}{_state_file.UNREADABLE_SUFFIX}."
    )


def shown(path: str, unit: str) -> tuple[Wanted | None, str | None]:
    """The unit's entry, and what is wrong with the file, as a sentence."""
    try:
        return parse(_state_file.read(path)).get(unit), None
    except Unreadable as error:
        return None, unreadable(path, error)


def refusal(request: WantedRequest, now: float) -> str | None:
    """What is wrong with the options, as a sentence."""
    if not UNIT.fullmatch(request.unit):
        return f"unit is {request.unit[:80]!r}: give its name with the suffix, as in sglang.service"
    if request.profile is not None and not PROFILE.fullmatch(request.profile):
        return f"profile is {request.profile[:80]!r}: letters, digits and . _ - are allowed"
    if request.state != "paused":
        return None
    if not request.reason.strip():
        return "reason is empty: say why drift is to keep still, so that the next person knows"
    try:
        left = read_iso(request.until) - now
    except ValueError as error:
        return f"until: {error}"
    if left <= 0:
        return f"until is {request.until}, which has passed: it is {iso(now)} on this node now"
    if left > LONGEST_PAUSE:
        return f"until is {request.until}, {left / 86400:.0f} days from now; at most 366 are allowed"
    return None


def asked(former: Wanted | None, request: WantedRequest, now: float) -> Wanted | None:
    """The entry after the request. A relaunch in a pause does not end the pause: work on a node takes several runs."""
    kept = former or Wanted()
    who = clean(redact(request.who))
    if request.state == "paused":
        return dataclasses.replace(kept, pause=Pause(request.until, clean(redact(request.reason)), who))
    if request.state == "resumed":
        resumed = dataclasses.replace(kept, pause=None)
        return None if resumed == Wanted() else resumed
    pause = kept.pause if kept.pause is not None and read_iso(kept.pause.until) > now else None
    by, run_id = clean(redact(request.by)), clean(request.run_id)
    return Wanted(request.state, request.profile, by, who, iso(now), run_id, request.outcome, pause)


def write(request: WantedRequest, path: str, clock: Clock, *, check: bool = False) -> WantedResult:
    """Write what a person asked for. Never raises."""
    now = clock.wall()
    wrong = refusal(request, now)
    if wrong is None:
        wrong = path_fault("path", path)
    if wrong is not None:
        return WantedResult("refused", f"{wrong}. Nothing was written.", failed=True)
    try:
        if check:
            return _written(None, request, path, now)
        with _state_file.locked(path, clock) as file:
            return _written(file, request, path, now)
    except (FolderRefused, LockBusy) as error:
        return WantedResult("refused", f"What is wanted was not written to {path}: {error}.", failed=True)
    except OSError as error:
        reason = (
            f"What is wanted was not written to {path}: {error.strerror or error}. Drift follows what stands there."
        )
        return WantedResult("refused", reason, failed=True)


def _written(file: _state_file.LockedFile | None, request: WantedRequest, path: str, now: float) -> WantedResult:
    """One change, by whoever has the lock; without a file only told."""
    aside = ""
    try:
        units = parse(_state_file.read(path))
    except Unreadable as error:
        # A person knows what is wanted now: that replaces what nobody can read.
        units, aside = {}, f" {path} could not be read ({error}) and was set aside."
        if file is not None:
            file.set_aside()
    former = units.get(request.unit)
    entry = asked(former, request, now)
    if entry is None:
        units.pop(request.unit, None)
    else:
        units[request.unit] = entry
    same = entry if former is None or entry is None else dataclasses.replace(entry, at=former.at)
    if same == former and not aside:
        return WantedResult("unchanged", f"{request.unit}: {words(entry)}.", before=former, after=entry)
    if file is not None:
        file.replace({"version": VERSION, "units": {unit: one.document() for unit, one in units.items()}})
    return WantedResult("written", f"{request.unit}: {words(entry)}.{aside}", False, True, former, entry)


def lines(wanted: Wanted | None) -> list[str]:
    """What a diff shows."""
    if wanted is None:
        return []
    said = (
        [] if wanted.state is None else [f"{wanted.state}: {wanted.profile or 'what is installed'}, {wanted.outcome}"]
    )
    if wanted.pause is not None:
        said.append(f"paused until {wanted.pause.until} by {wanted.pause.who}: {wanted.pause.reason}")
    return said


def words(entry: Wanted | None) -> str:
    return "; ".join(lines(entry)) or "nothing is wanted"
