# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Asking nvidia-smi: one GPU query and one process query for each look.

state is about nvidia-smi, not about the GPUs: it is "ok" when the command ended with 0 and printed at least one row,
also when a GPU is missing or faulty. What is wrong with the GPUs stands in problems and faulty.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult, Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import (
    Gpu,
    GpuLook,
    GpuProcess,
    LookState,
    ProcessesVerdict,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import (
    GpuRows,
    ProcessRows,
    bus_key,
    first_line,
    parse_gpus,
    parse_processes,
    refused_field,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact

# Ordered by the driver series that brought them, oldest first: nvidia-smi names only the first field it refuses, and
# with it everything that came later can be dropped, so an old driver costs one more call and not one for each field.
_KNOWN_TO_ALL = (
    "count",
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "memory.total",
    "memory.used",
    "memory.free",
    "utilization.gpu",
    "compute_mode",
    "persistence_mode",
    "driver_version",
)
_SINCE = {"mig.mode.current": 445, "memory.reserved": 510, "fabric.state": 530, "gpu_recovery_action": 570}
FULL_QUERY = (*_KNOWN_TO_ALL, *_SINCE)
MINIMAL_QUERY = ("count", "index", "uuid", "pci.bus_id", "name", "memory.total", "memory.used")
ESSENTIAL_QUERY = ("index", "uuid", "memory.used")
PROCESS_QUERY = ("gpu_uuid", "gpu_bus_id", "pid", "process_name", "used_memory")
MOST_GPU_QUERIES = 6

_STATES_BY_TEXT: tuple[tuple[str, LookState], ...] = (
    ("driver/library version mismatch", "library_mismatch"),
    ("couldn't communicate with the nvidia driver", "no_driver"),
    ("couldn't find libnvidia-ml", "no_driver"),
    ("no devices were found", "no_devices"),
    ("insufficient permissions", "blocked"),
    ("blocked by the operating system", "blocked"),
    ("failed to initialize nvml: unknown error", "blocked"),
)
_STATES_BY_CODE: dict[int, LookState] = {
    4: "blocked",
    6: "no_devices",
    9: "no_driver",
    12: "no_driver",
    17: "blocked",
    18: "library_mismatch",
    126: "blocked",
    127: "no_tool",
}
_MINOR = re.compile(r"^Device Minor:\s*([0-9]+)\s*$", re.MULTILINE)
_BUS_LOCATION = re.compile(r"^Bus Location:\s*(\S+)\s*$", re.MULTILINE)


class FieldMemo:
    """Remembers within one process which fields the driver accepts, so that only the first look pays for asking."""

    def __init__(self) -> None:
        self.accepted: tuple[str, ...] = FULL_QUERY


def look(
    runner: Runner,
    *,
    nvidia_smi: str = "nvidia-smi",
    timeout: float = 60.0,
    processes: bool = True,
    proc_root: str = "/proc",
    memo: FieldMemo | None = None,
) -> GpuLook:
    """Look once. timeout is for each call of nvidia-smi. Never raises for what the machine looks like."""
    answer, fields, seconds = _ask_gpus(runner, nvidia_smi, timeout, FieldMemo() if memo is None else memo)
    rows = parse_gpus(answer.stdout, answer.stderr, fields, finished=not answer.timed_out)
    state = _state(answer, rows)
    minors = _minors(proc_root)
    result = GpuLook(
        state=state,
        exit_code=answer.exit_code,
        gpus=tuple(dataclasses.replace(gpu, minor=minors.get(bus_key(gpu.bus_id))) for gpu in rows.gpus),
        driver_version=rows.driver_version,
        count=rows.count,
        problems=rows.problems,
        elsewhere=rows.elsewhere,
        faulty=rows.faulty,
        first_line="" if rows.gpus else _first_line(answer),
        query_seconds=seconds,
        hung_pid=answer.hung_pid,
    )
    # A second call is worth nothing after one that failed, and it would hang beside one that hung.
    return _with_processes(result, runner, nvidia_smi, timeout) if processes and state == "ok" else result


def fewer_fields(fields: t.Sequence[str], refused: str | None) -> tuple[str, ...] | None:
    """The next query to try after this field was refused (None: it was not named), or None for giving up."""
    candidates: list[tuple[str, ...]] = []
    if refused in fields and refused in _SINCE:
        since = _SINCE[refused]
        candidates.append(tuple(field for field in fields if _SINCE.get(field, 0) < since))
    elif refused in fields and refused == "count":
        candidates.append(tuple(field for field in fields if field != "count"))
    candidates.append(tuple(field for field in fields if field in MINIMAL_QUERY))
    candidates.append(tuple(field for field in fields if field == "count" or field in ESSENTIAL_QUERY))
    candidates.append(ESSENTIAL_QUERY)
    for candidate in candidates:
        if len(candidate) < len(fields) and refused not in candidate:
            return candidate
    return None


def _ask_gpus(
    runner: Runner, nvidia_smi: str, timeout: float, memo: FieldMemo
) -> tuple[CommandResult, tuple[str, ...], float]:
    fields = memo.accepted
    seconds = 0.0
    for _attempt in range(MOST_GPU_QUERIES):
        answer = runner(_argv(nvidia_smi, "gpu", fields), timeout)
        seconds += answer.seconds
        if answer.exit_code != 2:
            break
        fewer = fewer_fields(fields, refused_field(f"{answer.stdout}\n{answer.stderr}"))
        if fewer is None:
            break
        fields = fewer
    if answer.exit_code == 0:
        memo.accepted = fields
    return answer, fields, seconds


def _argv(nvidia_smi: str, kind: t.Literal["gpu", "compute-apps"], fields: t.Sequence[str]) -> tuple[str, ...]:
    return (nvidia_smi, f"--query-{kind}={','.join(fields)}", "--format=csv,noheader,nounits")


def _state(answer: CommandResult, rows: GpuRows) -> LookState:
    if answer.timed_out:
        return "hung"
    if answer.error is not None:
        by_error: dict[str, LookState] = {"not_found": "no_tool", "not_permitted": "blocked"}
        return by_error.get(answer.error, "error")
    if answer.exit_code == 0 and rows.gpus:
        return "ok"
    printed = f"{answer.stdout}\n{answer.stderr}".lower()
    for text, state in _STATES_BY_TEXT:
        if text in printed and not rows.gpus:
            return state
    return _STATES_BY_CODE.get(answer.exit_code or 0, "error")


def _first_line(answer: CommandResult) -> str:
    if answer.error is not None:
        return f"{answer.argv[0]}: {answer.error.replace('_', ' ')}"
    return first_line(answer.stdout, answer.stderr)


def _with_processes(result: GpuLook, runner: Runner, nvidia_smi: str, timeout: float) -> GpuLook:
    answer = runner(_argv(nvidia_smi, "compute-apps", PROCESS_QUERY), timeout)
    result = dataclasses.replace(result, query_seconds=result.query_seconds + answer.seconds)
    if answer.timed_out or answer.error is not None or answer.exit_code != 0:
        if answer.timed_out:
            what = f"did not answer within {timeout:g} s"
        elif answer.error is not None:
            what = f"could not be started ({answer.error})"
        else:
            what = f'ended with {answer.exit_code} ("{first_line(answer.stdout, answer.stderr)}")'
        return dataclasses.replace(
            result,
            problems=(*result.problems, f"the process query {what}"),
            hung_pid=answer.hung_pid,
        )
    return _merge_processes(result, parse_processes(answer.stdout, answer.stderr))


def _merge_processes(result: GpuLook, listed: ProcessRows) -> GpuLook:
    """Processes only ever add suspicion: a row for a GPU that reads 0 MiB makes that 0 doubtful."""
    by_uuid = {gpu.uuid.lower(): gpu for gpu in result.gpus}
    by_bus = {bus_key(gpu.bus_id): gpu for gpu in result.gpus if gpu.bus_id}
    suspicions: dict[int, list[str]] = {}
    problems, elsewhere, faulty = list(result.problems), list(result.elsewhere), list(result.faulty)
    processes: list[GpuProcess] = []
    unknown = bool(listed.problems)
    for row in listed.rows:
        gpu: Gpu | None = by_uuid.get(row.gpu_uuid.lower()) or by_bus.get(bus_key(row.bus_id))
        if row.process is None:
            unknown = True
            sentence = f'the list of processes reads "{row.marker}"'
        else:
            processes.append(
                dataclasses.replace(
                    row.process,
                    # A process in a MIG instance is one of the GPU that the instance is a part of.
                    gpu_uuid=gpu.uuid if gpu else row.gpu_uuid,
                    # Some drivers print the whole command line.
                    name=None if row.process.name is None else redact(row.process.name),
                )
            )
            sentence = f"0 MiB, but nvidia-smi lists process {row.process.pid}"
        if gpu is None:
            problems.append(f"the process query names {row.gpu_uuid}, which the GPU query did not list")
            elsewhere.append(problems[-1])
        elif row.process is None or gpu.used_mib == 0:
            suspicions.setdefault(gpu.index, []).append(sentence)
            if row.process is None and gpu.index not in faulty:
                faulty.append(gpu.index)
    verdict: ProcessesVerdict = "some" if processes else "unknown" if unknown else "none"
    return dataclasses.replace(
        result,
        gpus=tuple(
            dataclasses.replace(gpu, problems=(*gpu.problems, *suspicions.get(gpu.index, ()))) for gpu in result.gpus
        ),
        processes=tuple(processes),
        processes_verdict=verdict,
        problems=tuple(dict.fromkeys((*problems, *listed.problems))),
        elsewhere=tuple(dict.fromkeys(elsewhere)),
        faulty=tuple(sorted(faulty, key=lambda one: (isinstance(one, str), one))),
    )


def _minors(proc_root: str) -> dict[str, int]:
    """Device minor by bus id, as the kernel module says it: /dev/nvidiaN is not the N of nvidia-smi."""
    folder = os.path.join(proc_root, "driver/nvidia/gpus")
    found: dict[str, int] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        try:
            with open(os.path.join(folder, name, "information"), encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        minor, location = _MINOR.search(text), _BUS_LOCATION.search(text)
        if minor:
            found[bus_key(location.group(1) if location else name)] = int(minor.group(1))
    return found
