# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""One run as lines of JSON: what a line holds, and what the lines of a run amount to together.

The shape is version 1 of docs/run-record.schema.json. A reader skips what it does not understand and counts it, so that
an older reader survives a newer writer.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK, names_a_secret, redact

VERSION = 1
EVENTS = ("begun", "ended", "drift")
ACTIONS = ("nothing", "report", "release", "relaunch")  # what drift can decide
LONGEST_TEXT = 4000  # characters of one value; a command line of SGLang has a few hundred
MOST_ENTRIES = 256  # holders, signals, GPUs, steps
LONGEST_LINE = 1 << 20  # bytes; what a reader takes
# Seconds after which a run without an end is called interrupted: longer than drain, release, gate and load together.
INTERRUPTED_AFTER = 7200.0

_TEXTS = ("run_id", "who", "playbook", "node", "unit", "profile", "mode")
_OUTCOMES = ("verdict", "failed_step", "reason", "evidence")
_GPU_KEYS = ("index", "uuid", "used_mib")
_HOLDER_KEYS = (
    "pid", "start_time", "comm", "cmdline", "user", "unit", "container", "gpus", "disposition", "reason",
)  # fmt: skip
_SIGNAL_KEYS = ("pid", "signal", "after_s")
_NAMED = ("run_id", "node", "playbook")

Record = dict[str, t.Any]
Event = t.Literal["begun", "ended", "drift"]


class RecordRefused(ValueError):
    """What was given makes no record. The text says which option and why."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where and when a line is written: the wall clock, the name of this machine, and its boot."""

    at: float
    recorded_on: str
    boot_id: str | None = None


def moment(seconds: float) -> str:
    """A date and time in UTC, with milliseconds."""
    at = datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def seconds_of(text: t.Any) -> float | None:
    """The moment that a line names, None where it names none."""
    try:
        at = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    except (TypeError, ValueError):
        return None
    return at.replace(tzinfo=datetime.timezone.utc).timestamp()


def make_record(event: Event, fields: t.Mapping[str, t.Any], origin: Origin) -> Record:
    """One line as a dictionary, complete, bounded and redacted. Raises RecordRefused."""
    if event not in EVENTS:
        raise RecordRefused(f"event is {event!r}: it must be one of {', '.join(EVENTS)}.")
    missing = [name for name in _NAMED if not str(fields.get(name) or "").strip()]
    if missing:
        raise RecordRefused(f"{' and '.join(missing)} must be given: without it nobody finds this run again.")
    if event == "ended" and not fields.get("verdict"):
        raise RecordRefused("verdict must be given with event=ended: a run that has ended ends in a word.")
    if event == "drift" and (fields.get("decision") or {}).get("action") not in ACTIONS:
        raise RecordRefused(f"decision must be given with event=drift, with an action of {', '.join(ACTIONS)}.")
    if event == "begun":
        fields = {name: value for name, value in fields.items() if name in _TEXTS}
    holders = list(fields.get("holders") or ())
    record: Record = {
        "version": VERSION,
        "event": event,
        "at": moment(origin.at),
        "recorded_on": _text(origin.recorded_on),
        "boot_id": _text(origin.boot_id),
        **{name: _text(fields.get(name)) for name in (*_TEXTS, *_OUTCOMES)},
        "duration_s": _number(fields.get("duration_s")),
        "gpus_before": _rows(fields.get("gpus_before"), _GPU_KEYS),
        "gpus_after": _rows(fields.get("gpus_after"), _GPU_KEYS),
        "holders": _rows(holders, _HOLDER_KEYS),
        "holders_left_out": max(0, len(holders) - MOST_ENTRIES),
        "signals": _rows(fields.get("signals"), _SIGNAL_KEYS),
        "seconds": _steps(fields.get("seconds") or {}),
        "rollback": _clean(fields.get("rollback")),
        "decision": _clean(fields.get("decision")),
    }
    if len(as_line(record)) > LONGEST_LINE:
        # Holders are by far the longest part; who was signalled stands in the signals as well.
        record.update(holders=[], holders_left_out=len(holders))
    if len(as_line(record)) > LONGEST_LINE:
        raise RecordRefused(f"the record is longer than {LONGEST_LINE} bytes even without its holders.")
    return record


def as_line(record: Record) -> bytes:
    """ASCII, so that no byte in it can be half of a character."""
    return json.dumps(record, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _text(value: t.Any) -> str | None:
    if value is None or value == "":
        return None
    # Names in Linux are bytes; a lone surrogate is no text for other readers of JSON.
    text = str(value)[: LONGEST_TEXT * 4].encode("utf-8", "backslashreplace").decode("utf-8")
    # Redacted before it is cut: a secret at the border would lose what gives it away.
    text = redact(text)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"


def _number(value: t.Any) -> float | int | None:
    """Unknown is not zero: what is no number is None."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return round(number, 3) if math.isfinite(number) else None


def _clean(value: t.Any, depth: int = 0) -> t.Any:
    """Any JSON value, bounded, with its secrets masked."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, t.Mapping) and depth < 4:
        return {
            str(name)[:100]: MASK if names_a_secret(str(name)) and inner else _clean(inner, depth + 1)
            for name, inner in list(value.items())[:MOST_ENTRIES]
        }
    if isinstance(value, (list, tuple)) and depth < 4:
        return [_clean(inner, depth + 1) for inner in value[:MOST_ENTRIES]]
    return _text(value)


def _rows(rows: t.Any, keys: t.Sequence[str]) -> list[dict[str, t.Any]]:
    known = [row for row in rows or () if isinstance(row, t.Mapping)][:MOST_ENTRIES]
    return [{key: _clean(row.get(key)) for key in keys} for row in known]


def _steps(seconds: t.Mapping[str, t.Any]) -> dict[str, float | int]:
    numbers = {str(name)[:64]: _number(value) for name, value in list(seconds.items())[:MOST_ENTRIES]}
    return {name: number for name, number in numbers.items() if number is not None}


@dataclasses.dataclass(frozen=True)
class Lines:
    """What was read of a file. damaged counts lines that are not JSON, foreign those of another version or shape."""

    records: tuple[Record, ...] = ()
    damaged: int = 0
    foreign: int = 0


def read_lines(data: bytes) -> Lines:
    """The records of a file's text, in its order. A torn line costs that line only."""
    records: list[Record] = []
    damaged = foreign = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            entry = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            damaged += 1
            continue
        if _is_ours(entry):
            records.append(entry)
        else:
            foreign += 1
    return Lines(tuple(records), damaged, foreign)


def _is_ours(entry: t.Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("version") == VERSION
        and entry.get("event") in EVENTS
        and seconds_of(entry.get("at")) is not None
        and all(isinstance(entry.get(name), str) for name in _NAMED)
        and isinstance(entry.get("unit", ""), (str, type(None)))
        and isinstance(entry.get("decision", {}), (dict, type(None)))
    )


def runs_of(records: t.Sequence[Record], now: float, interrupted_after: float = INTERRUPTED_AFTER) -> list[Record]:
    """One entry for each run, in the order in which they began: its `ended` line where there is one, with the moment
    of its `begun` line.

    A run without an end is `interrupted` where a later run of the same unit began, or it is older than
    interrupted_after seconds; until then it may be `running`.
    """
    runs: list[Record] = []
    open_runs: dict[tuple[t.Any, ...], Record] = {}
    for record in records:
        entry = {**record, "began_at": record["at"], "ended_at": record["at"], "interrupted": False}
        key = (record["run_id"], record["playbook"], record["node"], record.get("unit"))
        place = (record["node"], record.get("unit"))
        if record["event"] == "drift":
            runs.append({**entry, "verdict": record.get("verdict") or (record.get("decision") or {}).get("action")})
            continue
        begun = open_runs.pop(key, None)
        if record["event"] == "ended":
            if begun is None:  # its beginning was rotated away or never written
                runs.append({**entry, "began_at": None})
            else:
                began_at = begun["began_at"]
                begun.update(entry, began_at=began_at)
            continue
        # Should their end come after all, it takes this back.
        for other in (begun, *(run for one, run in open_runs.items() if one[2:] == place)):
            if other is not None:
                other["interrupted"] = True
        entry["ended_at"] = None
        open_runs[key] = entry
        runs.append(entry)
    for entry in open_runs.values():
        entry["interrupted"] |= now - (seconds_of(entry["at"]) or 0.0) > interrupted_after
    for entry in runs:
        if entry["event"] == "begun":
            entry["verdict"] = "interrupted" if entry["interrupted"] else "running"
        if entry.get("duration_s") is None and entry["began_at"] and entry["event"] == "ended":
            # By two readings of one wall clock; where it was set back in between, unknown.
            between = (seconds_of(entry["ended_at"]) or 0.0) - (seconds_of(entry["began_at"]) or 0.0)
            entry["duration_s"] = round(between, 3) if between >= 0 else None
    return runs
