# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Numbers about runs for the textfile collector of Prometheus' node_exporter.

They are kept as a small state beside the file of runs: counters must not fall when old lines are rotated away. The
text is made from the state alone.
"""

from __future__ import annotations

import copy
import errno
import os
import stat
import tempfile
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._run_record_file import failure
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_records import ACTIONS, Record, seconds_of

STATE_NAME = "metrics.json"
FILE_NAME = "cleanslate.prom"
VERSION = 1
SUCCESSES = ("ready", "released", "started", "stopped", "done")
LONGEST_LABEL = 200

State = dict[str, t.Any]
Labels = dict[str, str]

# Name, type, help. The order is that of the file.
_METRICS = (
    ("last_run_timestamp_seconds", "gauge", "When the last run of a playbook ended, in seconds since the epoch."),
    ("last_run_success", "gauge", "Whether the last run of a playbook that ended came through, 1 or 0."),
    ("last_success_timestamp_seconds", "gauge", "When a run of a playbook last came through, since the epoch."),
    ("run_begun_timestamp_seconds", "gauge", "When the last run of a playbook began, in seconds since the epoch."),
    ("run_duration_seconds", "gauge", "How long the last run of a playbook took."),
    ("run_step_duration_seconds", "gauge", "How long each step of the last run of a playbook took."),
    ("runs_total", "counter", "Runs that have ended, by their verdict."),
    ("signals_total", "counter", "Signals sent to processes that held a GPU."),
    ("drift_look_timestamp_seconds", "gauge", "When drift last recorded a decision, in seconds since the epoch."),
    ("drift_decision", "gauge", "What drift last decided: 1 for that decision, 0 for the others."),
    ("drift_decisions_total", "counter", "Decisions that drift recorded."),
)  # fmt: skip


def new_state() -> State:
    return {"version": VERSION, "samples": []}


def is_state(document: t.Any) -> bool:
    """Whether this is a state that was written here."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return False
    samples = document.get("samples")
    names = {name for name, _kind, _help in _METRICS}
    return isinstance(samples, list) and all(
        isinstance(one, list)
        and len(one) == 3
        and one[0] in names
        and isinstance(one[1], dict)
        and all(isinstance(label, str) for label in one[1].values())
        and isinstance(one[2], (int, float))
        and not isinstance(one[2], bool)
        for one in samples
    )


def advance(state: State, record: Record) -> State:
    """The state after one more record."""
    samples = _Samples(copy.deepcopy(state["samples"]))
    place = {"node": _label(record.get("node")), "unit": _label(record.get("unit"))}
    at = seconds_of(record.get("at")) or 0.0
    if record["event"] == "drift":
        action = _label((record.get("decision") or {}).get("action"))
        for one in ACTIONS:
            samples.put("drift_decision", {**place, "decision": one}, int(one == action))
        samples.put("drift_look_timestamp_seconds", place, at)
        samples.add("drift_decisions_total", {**place, "decision": action}, 1)
        return {**state, "samples": samples.rows}
    run = {**place, "playbook": _label(record.get("playbook"))}
    if record["event"] == "begun":
        samples.put("run_begun_timestamp_seconds", run, at)
        return {**state, "samples": samples.rows}
    verdict = _label(record.get("verdict"))
    begun = samples.get("run_begun_timestamp_seconds", run)
    duration = record.get("duration_s")
    if duration is None and begun is not None and at >= begun:
        duration = round(at - begun, 3)
    samples.put("last_run_timestamp_seconds", run, at)
    samples.put("last_run_success", run, int(verdict in SUCCESSES))
    if verdict in SUCCESSES:
        samples.put("last_success_timestamp_seconds", run, at)
    # Of the last run, or absent: an older one's number would be taken for its own.
    samples.drop("run_duration_seconds", run)
    samples.drop("run_step_duration_seconds", run)
    if duration is not None:
        samples.put("run_duration_seconds", run, duration)
    for step, seconds in (record.get("seconds") or {}).items():
        samples.put("run_step_duration_seconds", {**run, "step": _label(step)}, seconds)
    samples.add("runs_total", {**run, "verdict": verdict}, 1)
    for signal in record.get("signals") or ():
        samples.add("signals_total", {**place, "signal": _label(signal.get("signal"))}, 1)
    return {**state, "samples": samples.rows}


class _Samples:
    def __init__(self, rows: list[list[t.Any]]) -> None:
        self.rows = rows

    def _find(self, name: str, labels: Labels) -> list[t.Any] | None:
        return next((row for row in self.rows if row[0] == name and row[1] == labels), None)

    def get(self, name: str, labels: Labels) -> float | None:
        row = self._find(name, labels)
        return None if row is None else row[2]

    def put(self, name: str, labels: Labels, value: float) -> None:
        row = self._find(name, labels)
        if row is None:
            self.rows.append([name, labels, value])
        else:
            row[2] = value

    def add(self, name: str, labels: Labels, more: int) -> None:
        self.put(name, labels, (self.get(name, labels) or 0) + more)

    def drop(self, name: str, labels: Labels) -> None:
        """Every sample of this name that has these labels, whatever else it has."""
        self.rows = [row for row in self.rows if row[0] != name or not labels.items() <= row[1].items()]


def _label(value: t.Any) -> str:
    return "" if value is None else str(value)[:LONGEST_LABEL]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def render(state: State) -> str:
    """The text exposition format, each metric with its samples together and in a fixed order."""
    lines = []
    for name, kind, told in _METRICS:
        rows = [row for row in state["samples"] if row[0] == name]
        if not rows:
            continue
        lines += [f"# HELP cleanslate_{name} {told}", f"# TYPE cleanslate_{name} {kind}"]
        texts = []
        for _name, labels, value in rows:
            inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in sorted(labels.items()))
            texts.append(f"cleanslate_{name}{{{inside}}} {_shown(value)}")
        lines += sorted(texts)
    return "".join(f"{line}\n" for line in lines)


def publish(folder: str, text: str) -> str:
    """Replace the file as a whole, readable by the collector. Raises RecordError. Returns its path."""
    path = os.path.join(folder, FILE_NAME)
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        # The collector takes *.prom only, so it never sees the half of it.
        handle, temporary = tempfile.mkstemp(prefix=f".{FILE_NAME}.", dir=folder)
    except OSError as error:
        raise failure("write the metrics into the folder", folder, error) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o644)
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # what could not be written is told, not what could not be tidied
        raise failure("write the metrics", path, error) from error
    return path
