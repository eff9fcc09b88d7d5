# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What one look at the GPUs says, as plain records. A number that could not be read is None, never 0."""

from __future__ import annotations

import dataclasses
import typing as t

LookState = t.Literal["ok", "no_tool", "no_driver", "no_devices", "library_mismatch", "blocked", "hung", "error"]
ProcessesVerdict = t.Literal["none", "some", "unknown"]
GpuVerdict = t.Literal["idle", "busy", "unknown"]


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One row of the GPU query. Memory is in MiB as nvidia-smi prints it."""

    index: int
    uuid: str
    bus_id: str
    name: str
    minor: int | None = None
    total_mib: int | None = None
    used_mib: int | None = None
    reserved_mib: int | None = None
    utilization_pct: int | None = None
    mig: bool | None = None
    persistence: str | None = None
    compute_mode: str | None = None
    recovery_action: str | None = None
    fabric_state: str | None = None
    problems: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, t.Any]:
        """The public shape (RETURN of nvidia_gpu_facts)."""
        return {**dataclasses.asdict(self), "problems": list(self.problems)}


@dataclasses.dataclass(frozen=True)
class GpuProcess:
    """One row of the compute-apps query. name is None where the driver could not tell ([Not Found])."""

    gpu_uuid: str
    pid: int
    name: str | None
    used_mib: int | None

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class GpuLook:
    """One GPU query and one process query, taken together.

    state and exit_code are those of the GPU query. problems are sentences about the output as a whole (an unknown
    line, text on stderr, a gap in the indexes); problems of one GPU stand in that Gpu. elsewhere are those of problems
    that are only about GPUs without a row: they say nothing against the GPUs that have one. faulty lists GPUs by
    index, or by bus id where that is all there is. first_line is the first line nvidia-smi printed when it printed no
    row.
    """

    state: LookState
    exit_code: int | None
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    processes_verdict: ProcessesVerdict = "unknown"
    driver_version: str | None = None
    count: int | None = None
    problems: tuple[str, ...] = ()
    faulty: tuple[int | str, ...] = ()
    first_line: str = ""
    query_seconds: float = 0.0
    hung_pid: int | None = None
    elsewhere: tuple[str, ...] = ()

    def by_uuid(self) -> dict[str, Gpu]:
        return {gpu.uuid: gpu for gpu in self.gpus}


@dataclasses.dataclass(frozen=True)
class Expectation:
    """Which GPUs must be there: exactly `count` of them, or (at least) those of `uuids`, to which judging is then
    restricted. Neither known: nothing can ever be called idle."""

    count: int | None = None
    uuids: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A look held against an expectation: verdict and one sentence that says why, naming GPUs and MiB.

    expected are the rows of the GPUs that matter, busy those of them above the tolerance; missing says in words which
    expected GPUs were not seen; unreadable are those with a problem or without a number.
    """

    verdict: GpuVerdict
    reason: str
    expected: tuple[Gpu, ...] = ()
    busy: tuple[Gpu, ...] = ()
    missing: tuple[str, ...] = ()
    unreadable: tuple[Gpu, ...] = ()
