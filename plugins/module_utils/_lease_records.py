# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What a lease on GPUs is, in the file and in words."""

from __future__ import annotations

import dataclasses
import math
import re
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import is_gpu_uuid
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import Unreadable

VERSION = 1
KEPT = 86400.0  # seconds for which a lease that has ended is remembered, so that its owner can be told
LONGEST_TEXT = 200
ID = re.compile(r"[A-Za-z0-9_.:@+][A-Za-z0-9_.:@+-]{0,127}")
Gpus = tuple[str, ...]


class BootClock:
    """A Clock whose seconds count from the boot, through suspension, and never jump: the same for every process."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


@dataclasses.dataclass(frozen=True)
class Lease:
    """since, expires: seconds since the boot. since_wall is for people. taken_by: the run that took it over, if any."""

    run_id: str
    node: str
    gpus: Gpus
    who: str
    purpose: str
    since_wall: float
    since: float
    expires: float
    taken_by: str = ""


@dataclasses.dataclass(frozen=True)
class Marker:
    """A server that was started on these GPUs and may be loading until then (seconds since the boot)."""

    run_id: str
    node: str
    gpus: Gpus
    who: str
    until: float


@dataclasses.dataclass(frozen=True)
class Book:
    """All that is in the file, ended leases included."""

    leases: tuple[Lease, ...] = ()
    markers: tuple[Marker, ...] = ()

    def standing(self, now: float) -> list[Lease]:
        return [lease for lease in self.leases if lease.expires > now]

    def starting(self, gpus: Gpus, now: float) -> list[Marker]:
        return [marker for marker in self.markers if marker.until > now and overlap(marker.gpus, gpus)]

    def pruned(self, now: float) -> Book:
        return Book(
            tuple(lease for lease in self.leases if lease.expires > now - KEPT),
            tuple(marker for marker in self.markers if marker.until > now),
        )

    def document(self) -> dict[str, t.Any]:
        leases, markers = map(dataclasses.asdict, self.leases), map(dataclasses.asdict, self.markers)
        return {"version": VERSION, "leases": list(leases), "starting": list(markers)}

    def lines(self, now: float) -> list[str]:
        """What a diff shows: who has what, without times."""
        held = [
            f"held by run {lease.run_id}, node {lease.node}: {gpu_words(lease.gpus)}" for lease in self.standing(now)
        ]
        starts = self.starting((), now)
        return held + [f"starting for run {m.run_id}, node {m.node}: {gpu_words(m.gpus)}" for m in starts]


def overlap(one: Gpus, other: Gpus) -> bool:
    """No GPU named means all of the host."""
    if not one or not other:
        return True
    return bool({uuid.lower() for uuid in one} & {uuid.lower() for uuid in other})


def _text(item: t.Mapping[str, t.Any], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}")
    return value


def _id(item: t.Mapping[str, t.Any], key: str) -> str:
    value = _text(item, key)
    if not ID.fullmatch(value):
        raise ValueError(f"{key} is {value[:40]!r}")
    return value


def _seconds(item: t.Mapping[str, t.Any], key: str) -> float:
    value = item[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{key} is {value!r}")
    return float(value)


def _gpus(item: t.Mapping[str, t.Any]) -> Gpus:
    value = item["gpus"]
    if not isinstance(value, list) or not all(isinstance(uuid, str) and is_gpu_uuid(uuid) for uuid in value):
        raise ValueError(f"gpus is {value!r}")
    return tuple(value)


def _lease(item: t.Mapping[str, t.Any]) -> Lease:
    return Lease(
        _id(item, "run_id"),
        _id(item, "node"),
        _gpus(item),
        _text(item, "who"),
        _text(item, "purpose"),
        _seconds(item, "since_wall"),
        _seconds(item, "since"),
        _seconds(item, "expires"),
        _text(item, "taken_by"),
    )


def _marker(item: t.Mapping[str, t.Any]) -> Marker:
    return Marker(_id(item, "run_id"), _id(item, "node"), _gpus(item), _text(item, "who"), _seconds(item, "until"))


def parse(document: t.Any) -> Book:
    """One record that cannot be understood makes the whole unreadable: it may be anybody's lease. Raises Unreadable."""
    if document is None:
        return Book()
    try:
        if document["version"] != VERSION:
            raise ValueError(f"its version is {document['version']!r}, and {VERSION} is known here")
        return Book(tuple(map(_lease, document["leases"])), tuple(map(_marker, document["starting"])))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unreadable(f"it is not what was written here ({str(error)[:120]})") from error


def clean(text: str) -> str:
    """Free text that goes to other people's terminals: one line, nothing that is no letter, and not endless."""
    return "".join(character if character.isprintable() else "?" for character in text.strip())[:LONGEST_TEXT]


def age_words(seconds: float) -> str:
    """A time span as people say it."""
    whole = max(0, int(seconds))
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if whole >= 2 * size or size == 1:
            number = whole // size
            return f"{number} {word}{'' if number == 1 else 's'}"
    raise AssertionError("Contract violation: the last size always fits")


def gpu_words(gpus: Gpus) -> str:
    if not gpus:
        return "all GPUs of the host"
    return f"GPU{'' if len(gpus) == 1 else 's'} {', '.join(gpus)}"


def owner_words(owner: Lease | Marker) -> str:
    told = [owner.who] if owner.who else []
    if isinstance(owner, Lease) and owner.purpose:
        told.append(owner.purpose)
    return f"run {owner.run_id}, node {owner.node}{' (' + ', '.join(told) + ')' if told else ''}"


def lease_words(lease: Lease, now: float) -> str:
    return (
        f"{gpu_words(lease.gpus)}: held by {owner_words(lease)} for {age_words(now - lease.since)};"
        f" expires in {max(0.0, lease.expires - now):.0f} s unless it is renewed"
    )


def marker_words(marker: Marker, now: float) -> str:
    left = f"{marker.until - now:.0f} s at most"
    return f"{gpu_words(marker.gpus)}: a server of {owner_words(marker)} is starting, for {left}"


def lease_view(lease: Lease, now: float) -> dict[str, t.Any]:
    """What a module returns of a lease: differences to now instead of seconds since the boot."""
    return {
        "run_id": lease.run_id,
        "node": lease.node,
        "gpus": list(lease.gpus),
        "who": lease.who,
        "purpose": lease.purpose,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(max(lease.since_wall, 0.0), 4102444800.0))),
        "age_s": round(now - lease.since, 3),
        "expires_in_s": round(lease.expires - now, 3),
        "text": lease_words(lease, now),
    }


def marker_view(marker: Marker, now: float) -> dict[str, t.Any]:
    return {
        "run_id": marker.run_id,
        "node": marker.node,
        "gpus": list(marker.gpus),
        "who": marker.who,
        "until_s": round(marker.until - now, 3),
        "text": marker_words(marker, now),
    }
