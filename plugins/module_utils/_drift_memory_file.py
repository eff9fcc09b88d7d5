# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The file in which drift's memory stands on the node: compared and set under a lock, kept across boots.

What cannot be read is never written over by a scheduled run: a budget that is not known is spent.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory, _state_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import Limits, Memory
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import ID, clean
from ansible_collections.cleanslate.gpu.plugins.module_utils._momentary_lock import LockBusy
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import Moment, moment
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import MOST, path_fault
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import shown as words_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._wanted_state import UNIT
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import FolderRefused, Unreadable

MemoryState = t.Literal["noted", "cleared", "begun", "ended", "reset"]
MemoryVerdict = t.Literal["written", "unchanged", "moved", "held_back", "unreadable", "refused"]

VERSION = 1
COMPARED = ("noted", "cleared", "begun")
_KEY = re.compile(r"[ -~]{1,400}")


@dataclasses.dataclass(frozen=True)
class MemoryRequest:
    """revision: of the entry that the decision was made on."""

    state: MemoryState
    unit: str
    revision: int | None = None
    key: str = ""
    run_id: str = ""
    action: str = ""
    outcome: str = ""
    reason: str = ""
    limits: Limits = dataclasses.field(default_factory=Limits)


@dataclasses.dataclass(frozen=True)
class MemoryResult:
    verdict: MemoryVerdict
    reason: str
    failed: bool = False
    changed: bool = False
    before: Memory | None = None
    after: Memory | None = None


def parse(document: t.Any) -> dict[str, Memory]:
    """Every unit's entry. Raises Unreadable."""
    return _state_file.units(document, VERSION, _drift_memory.parse_entry)


def unreadable(path: str, why: object) -> str:
    return (
        f"What drift did before cannot be told: {path}: {why}. A budget that is not known is spent, so drift only"
        f" reports until a person's relaunch.yml, or the module sglang_drift_memory, state: reset, replaces the file;"
        f" what is there now is kept as {os.path.basename(path)}{_state_file.UNREADABLE_SUFFIX}"
    )


def shown(path: str, unit: str) -> tuple[Memory | None, str | None]:
    """The unit's entry, and what is wrong with the file, as a sentence."""
    try:
        return parse(_state_file.read(path)).get(unit), None
    except Unreadable as error:
        return None, unreadable(path, error) + "."


def refusal(request: MemoryRequest) -> str | None:
    """What is wrong with the options, as a sentence."""
    if not UNIT.fullmatch(request.unit):
        return f"unit is {request.unit[:80]!r}: give its name with the suffix, as in sglang.service"
    if request.state in COMPARED and request.revision is None:
        return f"revision is missing: state {request.state} takes that of the memory on which was decided (0: none yet)"
    if request.revision is not None and not 0 <= request.revision <= MOST:
        return f"revision is {words_of(request.revision)}: it must be between 0 and {MOST}"
    if request.state == "noted" and not _KEY.fullmatch(request.key):
        return f"key is {request.key[:80]!r}: 1 to 400 printable characters are needed, the key of the decision"
    if request.state in ("begun", "ended") and not ID.fullmatch(request.run_id):
        return f"run_id is {request.run_id[:40]!r}; allowed are 1 to 128 letters, digits and _ . : @ + -"
    if request.state == "begun" and request.action not in _drift_memory.ACTIONS:
        return f"action is {request.action[:40]!r}; it must be one of {', '.join(_drift_memory.ACTIONS)}"
    if request.state == "ended" and request.outcome not in _drift_memory.OUTCOMES:
        return f"outcome is {request.outcome[:40]!r}; it must be one of {', '.join(_drift_memory.OUTCOMES)}"
    return request.limits.fault()


def change(
    request: MemoryRequest, path: str, boot_id: str | None, clock: Clock, *, check: bool = False
) -> MemoryResult:
    """One change of one unit's entry. clock.monotonic must count from the boot (BootClock). Never raises."""
    wrong = refusal(request)
    if wrong is None:
        wrong = path_fault("path", path)
    if wrong is None and boot_id is None:
        wrong = "cannot tell which boot this is (/proc/sys/kernel/random/boot_id), so nothing can be dated"
    if wrong is not None or boot_id is None:
        return MemoryResult("refused", f"{wrong}. Nothing was written.", failed=True)
    try:
        first = _changed(None, request, path, moment(clock, boot_id))
        # A healthy look at a node without suspicions leaves it as it is: not even a lock file is made.
        if check or (request.state == "cleared" and not first.changed):
            return first
        with _state_file.locked(path, clock) as file:
            return _changed(file, request, path, moment(clock, boot_id))
    except (FolderRefused, LockBusy) as error:
        return MemoryResult("refused", f"Drift's memory was not written to {path}: {error}.", failed=True)
    except OSError as error:
        reason = f"Drift's memory was not written to {path}: {error.strerror or error}. Without it nothing is remedied."
        return MemoryResult("refused", reason, failed=True)


def _changed(file: _state_file.LockedFile | None, request: MemoryRequest, path: str, now: Moment) -> MemoryResult:
    """One change, by whoever has the lock; without a file only told."""
    aside = ""
    try:
        units = parse(_state_file.read(path))
    except Unreadable as error:
        if request.state != "reset":
            return MemoryResult("unreadable", f"{unreadable(path, error)}. Nothing was written.", failed=True)
        units, aside = {}, f" {path} could not be read ({error}) and was set aside."
        if file is not None:
            file.set_aside()
    former = units.get(request.unit, Memory())
    if request.state in COMPARED and former.revision != request.revision:
        reason = (
            f"{request.unit}: drift's memory is at revision {former.revision}, and the decision was made on"
            f" {request.revision}: another run has been here since. Nothing was written; look and decide again."
        )
        return MemoryResult("moved", reason, failed=True, before=former, after=former)
    held = None
    try:
        if request.state == "begun":
            held = _drift_memory.hold_back(former, request.limits, now)
        entry = _latched(former, held, now) if held is not None else _after(former, request, now)
    except ValueError as error:
        return MemoryResult("refused", f"{request.unit}: {error}. Nothing was written.", True, False, former, former)
    changed = entry != former or bool(aside)
    if changed:
        entry = dataclasses.replace(entry, revision=former.revision + 1)
        units[request.unit] = entry
        if file is not None:
            file.replace({"version": VERSION, "units": {unit: one.document() for unit, one in units.items()}})
    if held is not None:
        reason = f"{request.unit}: no {request.action} is begun: {held[1]}."
        return MemoryResult("held_back", reason, True, changed, former, entry)
    told = f"{request.unit}: {words(entry)}.{aside}"
    return MemoryResult("written" if changed else "unchanged", told, False, changed, former, entry)


def _latched(memory: Memory, held: tuple[str, str], now: Moment) -> Memory:
    """Runs that never came back have failed too: what they add up to is kept as the verdict that it is."""
    if held[0] != "gave_up" or memory.gave_up is not None:
        return memory
    told = f"the last {memory.failures()} remediations brought no serving server"
    return dataclasses.replace(memory, gave_up=_drift_memory.GaveUp(now.date, told))


def _after(memory: Memory, request: MemoryRequest, now: Moment) -> Memory:
    if request.state == "noted":
        return _drift_memory.noted(memory, request.key, request.limits, now)
    if request.state == "cleared":
        return _drift_memory.cleared(memory)
    if request.state == "begun":
        return _drift_memory.begun(memory, request.run_id, request.action, request.limits, now)
    if request.state == "ended":
        reason = clean(redact(request.reason))
        return _drift_memory.ended(memory, request.run_id, request.outcome, reason, request.limits, now)
    return _drift_memory.reset(memory)


def words(memory: Memory | None) -> str:
    if memory is None:
        return "nothing is remembered"
    told = [f"suspected for {one.looks} looks: {one.key}" for one in memory.suspicions]
    if memory.remediations:
        last = memory.remediations[-1]
        told.append(
            f"{len(memory.remediations)} begun so far, the last at {last.began.date}: {last.outcome or 'begun'}"
        )
    if memory.gave_up is not None:
        told.append(f"gave up at {memory.gave_up.at}: {memory.gave_up.reason}")
    return "; ".join(told) or "nothing is remembered"


def lines(memory: Memory | None) -> list[str]:
    """What a diff shows."""
    return [words(memory)] if memory not in (None, Memory()) else []
