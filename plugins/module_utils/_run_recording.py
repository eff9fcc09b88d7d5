# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Recording a run: the line first, then the numbers about it; and reading the last runs back."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _metrics_text
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_number, check_path
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_record_file import (
    NAME,
    RecordError,
    RecordFolder,
    opened,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_records import (
    Event,
    Origin,
    Record,
    RecordRefused,
    as_line,
    make_record,
    read_lines,
    runs_of,
)

LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 40  # of one file; less holds too few runs
MOST_READ = 64 << 20  # bytes of all files together; with the defaults of the role everything
Verdict = t.Literal["recorded", "would_record", "shown", "not_recorded", "not_counted", "refused"]


@dataclasses.dataclass(frozen=True)
class Keeping:
    """Where the record is kept, and how much of it. metrics_dir: empty for no metrics."""

    folder: str
    max_bytes: int
    keep: int
    metrics_dir: str = ""

    def check(self) -> None:
        """RecordRefused with a sentence where an option cannot be meant."""
        try:
            check_path("dir", self.folder)
            check_path("metrics_dir", self.metrics_dir or "/")
            check_number("max_bytes", self.max_bytes, LEAST_BYTES, MOST_BYTES)
            check_number("keep", self.keep, 1, 1000)
        except ValueError as error:
            raise RecordRefused(str(error)) from error


@dataclasses.dataclass(frozen=True)
class Recorded:
    """The outcome. problem is a sentence about what is wrong with the files, where something is."""

    verdict: Verdict
    reason: str
    path: str
    record: Record | None = None
    runs: tuple[Record, ...] = ()
    problem: str | None = None
    healed: bool = False
    rotated: bool = False
    metrics_path: str | None = None

    @property
    def failed(self) -> bool:
        return self.verdict in ("not_recorded", "not_counted", "refused")


def append_run(
    event: Event,
    fields: t.Mapping[str, t.Any],
    keeping: Keeping,
    origin: Origin,
    clock: Clock,
    *,
    check: bool = False,
) -> Recorded:
    """Append one line and bring the metrics up to date. Never raises for what the machine looks like."""
    path = f"{keeping.folder.rstrip('/')}/{NAME}"
    try:
        keeping.check()
        record = make_record(event, fields, origin)
    except RecordRefused as error:
        return Recorded("refused", f"{error} Nothing was recorded.", path)
    if check:
        return Recorded("would_record", f"would append a line to {path}.", path, record)
    told = f"run {record['run_id']} of {record['playbook']} for {record['node']} ({event})"
    done = None
    try:
        with opened(keeping.folder, create=True) as folder:
            if folder is None:
                raise RecordError(f"the folder {keeping.folder} was removed while it was being opened; try again")
            with folder.locked(clock):
                # Before the line is there: a state that has to be made anew then does not count it twice.
                state = _state(folder) if keeping.metrics_dir else None
                done = folder.append(as_line(record), keeping.max_bytes, keeping.keep)
                problem = (
                    f"the last line of {path} was cut short (a power loss or a kill while it was written). It was"
                    " closed and left where it is; that line cannot be read."
                    if done.healed
                    else None
                )
                metrics_path = None
                if state is not None:
                    state = _metrics_text.advance(state, record)
                    folder.replace(_metrics_text.STATE_NAME, json.dumps(state, indent=0).encode("ascii") + b"\n")
                    metrics_path = _metrics_text.publish(keeping.metrics_dir, _metrics_text.render(state))
    except RecordError as error:
        if done is None:
            return Recorded("not_recorded", f"{told} was not recorded on {origin.recorded_on}: {error}.", path, record)
        reason = f"{told} was recorded in {path} on {origin.recorded_on}, but the metrics were not: {error}."
        return Recorded("not_counted", reason, path, record, healed=done.healed, rotated=done.rotated)
    return Recorded(
        "recorded",
        f"{told} was recorded in {path}." + (f" But {problem}" if problem else ""),
        path,
        record,
        problem=problem,
        healed=done.healed,
        rotated=done.rotated,
        metrics_path=metrics_path,
    )


def _state(folder: RecordFolder) -> _metrics_text.State:
    """The state of the metrics; made anew from the lines where there is none that can be used."""
    data = folder.read(_metrics_text.STATE_NAME, 16 << 20)
    try:
        document = json.loads(data) if data else None
    except (ValueError, RecursionError):
        document = None
    if _metrics_text.is_state(document):
        return t.cast(_metrics_text.State, document)
    state = _metrics_text.new_state()
    for record in _read(folder)[0]:
        state = _metrics_text.advance(state, record)
    return state


def _read(folder: RecordFolder) -> tuple[list[Record], int, int]:
    """Every record, oldest first, with the numbers of lines that are damaged and of another version."""
    records: list[Record] = []
    damaged = foreign = 0
    left = MOST_READ
    for name in folder.newest_first():
        data = folder.read(name, left)
        if data is None:
            continue
        if len(data) == left:
            data = data.partition(b"\n")[2]  # from the middle of a line on
        left -= len(data)
        lines = read_lines(data)
        records[:0] = lines.records
        damaged += lines.damaged
        foreign += lines.foreign
        if left <= 0:
            break
    return records, damaged, foreign


def last_runs(path: str, limit: int, clock: Clock, recorded_on: str, *, node: str = "", unit: str = "") -> Recorded:
    """The last runs, oldest first. Never raises for what the machine looks like; changes nothing."""
    file = f"{path.rstrip('/')}/{NAME}"
    try:
        with opened(path, create=False) as folder:
            if folder is None:
                return Recorded("shown", f"no run is recorded on {recorded_on}: there is no folder {path}.", file)
            records, damaged, foreign = _read(folder)
    except (RecordError, OSError) as error:
        unreadable = f"the record on {recorded_on} could not be read: {error}."
        return Recorded("shown", unreadable, file, problem=unreadable)
    problems = []
    if damaged:
        problems.append(f"{damaged} lines are cut short or damaged")
    if foreign:
        problems.append(f"{foreign} lines are of another version and were left out")
    problem = f"{file} on {recorded_on}: {' and '.join(problems)}." if problems else None
    wanted = [
        record
        for record in records
        if (not node or record["node"] == node) and (not unit or record.get("unit") == unit)
    ]
    runs = runs_of(wanted, clock.wall())[-limit:] if limit > 0 else []
    reason = f"{len(runs)} runs of {file} on {recorded_on}." + (f" {problem}" if problem else "")
    return Recorded("shown", reason, file, runs=tuple(runs), problem=problem)
