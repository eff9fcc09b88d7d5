# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Reading what nvidia-smi printed: rows, error markers, and every line that is neither.

Nothing is skipped in silence. A line that is no row becomes a problem; a marker such as [GPU is lost] in any column
taints its row, because the other columns of such a row can still read a plain 0.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Gpu, GpuProcess

_HEX_GROUPS = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_BUS_ID = "[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-9a-f]"
_GPU_UUID = re.compile(f"GPU-{_HEX_GROUPS}", re.IGNORECASE)
_PROCESS_UUID = re.compile(f"(?:GPU-{_HEX_GROUPS}|MIG-[0-9a-z/-]+)", re.IGNORECASE)
_WHOLE_BUS_ID = re.compile(_BUS_ID, re.IGNORECASE)
_NUMBER = re.compile("[0-9]{1,15}")
_MARKER = re.compile(r"\[.*\]")
_REFUSED = re.compile('Field "([^"]*)" is not a valid field to query')
# "GPU3: 0000:61:00.0:", "GPU0000:61:00.0:", "GPU 0000:61:00.0:", "gpu 3:": the bus id must be tried first.
_HANDLE = re.compile(
    f"Unable to determine the device handle for GPU ?(?:(?P<index>[0-9]{{1,3}})(?::|$) ?)?(?P<bus>{_BUS_ID})?",
    re.IGNORECASE,
)
_LIKE_A_ROW = re.compile(f"[0-9, ]*GPU-{_HEX_GROUPS}", re.IGNORECASE)
_NAMES_A_GPU = re.compile(f"gpu ?(?P<bus>{_BUS_ID})", re.IGNORECASE)

_HARMLESS = ("[n/a]", "n/a", "[not supported]", "[requested functionality has been deprecated]")
_NUMERIC = ("count", "memory.total", "memory.used", "memory.free", "memory.reserved", "utilization.gpu")

SHOWN_CHARACTERS = 200


@dataclasses.dataclass(frozen=True)
class GpuRows:
    """What a GPU query printed. elsewhere are those of problems that are only about GPUs without a row."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    count: int | None = None
    problems: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    faulty: tuple[int | str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ProcessRow:
    """One believed row of the process query. process is None where a marker stands instead of a pid."""

    gpu_uuid: str
    bus_id: str
    process: GpuProcess | None
    marker: str = ""


@dataclasses.dataclass(frozen=True)
class ProcessRows:
    rows: tuple[ProcessRow, ...] = ()
    problems: tuple[str, ...] = ()


def is_gpu_uuid(text: str) -> bool:
    return _GPU_UUID.fullmatch(text) is not None


def bus_key(bus_id: str) -> str:
    """One spelling for a bus id: nvidia-smi writes 00000000:1B:00.0, the kernel 0000:1b:00.0."""
    domain, dummy, rest = bus_id.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def refused_field(output: str) -> str | None:
    """The field that nvidia-smi names when it exits with 2; it names only the first one."""
    found = _REFUSED.search(output)
    return found.group(1) if found else None


def first_line(*streams: str) -> str:
    for stream in streams:
        for line in _lines(stream):
            return _shown(line)
    return ""


def parse_gpus(stdout: str, stderr: str, fields: t.Sequence[str], finished: bool = True) -> GpuRows:
    """Read the answer to a query for these fields. finished is False when the command was cut off."""
    found: list[_Row] = []
    odd: list[str] = []
    for line in _lines(stdout if finished else stdout[: stdout.rfind("\n") + 1]):
        row = _row(line, fields)
        if row is None:
            odd.append(line)
        else:
            found.append(row)
    problems, elsewhere, faulty = _Ordered[str](), _Ordered[str](), _Ordered[t.Union[int, str]]()
    on_row: dict[int, list[str]] = {}
    garbled = [line for line in odd if _LIKE_A_ROW.match(line)]
    if garbled:
        what = f"{len(garbled)} rows do not have the {len(fields)} fields that were asked for"
        problems.add(f'{what}, or no index: "{_shown(garbled[0])}"')
    for line in [*(line for line in odd if line not in garbled), *_lines(stderr)]:
        _judge_odd_line(line, found, problems, elsewhere, faulty, on_row)
    counts = {row.count for row in found if row.count is not None}
    if found and finished:
        _judge_numbering(found, counts, problems, elsewhere, faulty)
    gpus = []
    for row in found:
        gpus.append(dataclasses.replace(row.gpu, problems=(*row.gpu.problems, *on_row.get(row.gpu.index, ()))))
        if row.faulty:
            faulty.add(row.gpu.index)
    return GpuRows(
        gpus=tuple(gpus),
        driver_version=next((row.driver_version for row in found if row.driver_version), None),
        count=min(counts) if len(counts) == 1 else None,
        problems=problems.all(),
        elsewhere=elsewhere.all(),
        faulty=tuple(sorted(faulty.all(), key=lambda one: (isinstance(one, str), one))),
    )


def parse_processes(stdout: str, stderr: str) -> ProcessRows:
    """Read the answer to gpu_uuid,gpu_bus_id,pid,process_name,used_memory. Names are not quoted: three fields are
    taken from the left, one from the right, and the name is what is left."""
    rows: list[ProcessRow] = []
    problems = _Ordered[str]()
    for line in _lines(stdout):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 5 or not _PROCESS_UUID.fullmatch(cells[0]):
            problems.add(f'the process query printed a line that is no process row: "{_shown(line)}"')
            continue
        uuid, bus_id, pid, used = cells[0], cells[1], cells[2], cells[-1]
        name = ",".join(line.split(",")[3:-1]).strip()
        if _NUMBER.fullmatch(pid):
            process = GpuProcess(
                gpu_uuid=uuid,
                pid=int(pid),
                name=None if not name or _MARKER.fullmatch(name) else name,
                used_mib=_number(used),
            )
            rows.append(ProcessRow(uuid, bus_id, process))
        else:
            rows.append(ProcessRow(uuid, bus_id, None, marker=_shown(pid)))
    for line in _lines(stderr):
        problems.add(f'the process query wrote on stderr: "{_shown(line)}"')
    return ProcessRows(tuple(rows), problems.all())


@dataclasses.dataclass(frozen=True)
class _Row:
    gpu: Gpu
    count: int | None
    driver_version: str | None
    faulty: bool


def _row(line: str, fields: t.Sequence[str]) -> _Row | None:
    """The row, or None where this line is none: the number of fields, the index and the UUID must be right."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(fields):
        return None
    cell = dict(zip(fields, cells))
    if not _NUMBER.fullmatch(cell["index"]) or not is_gpu_uuid(cell["uuid"]):
        return None
    problems, faulty = _row_problems(cell)
    gpu = Gpu(
        index=int(cell["index"]),
        uuid=cell["uuid"],
        bus_id=_text(cell.get("pci.bus_id")) or "",
        name=_text(cell.get("name")) or "",
        total_mib=_number(cell.get("memory.total")),
        used_mib=_number(cell.get("memory.used")),
        reserved_mib=_number(cell.get("memory.reserved")),
        utilization_pct=_number(cell.get("utilization.gpu")),
        mig=_mig(cell.get("mig.mode.current")),
        persistence=_text(cell.get("persistence_mode")),
        compute_mode=_text(cell.get("compute_mode")),
        recovery_action=_text(cell.get("gpu_recovery_action")),
        fabric_state=_text(cell.get("fabric.state")),
        problems=problems,
    )
    return _Row(gpu, _number(cell.get("count")), _text(cell.get("driver_version")), faulty)


def _row_problems(cell: t.Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """What is wrong with the cells of a row, and whether it means a fault of the GPU.

    A text in brackets that is not known to be harmless taints the row, and so does anything but a number where a
    number belongs. [N/A] is harmless except where the memory in use should stand.
    """
    wrong: dict[str, list[str]] = {}
    problems: list[str] = []
    for field, value in cell.items():
        harmless = not value or value.lower() in _HARMLESS
        number = _NUMBER.fullmatch(value) is not None
        if field == "memory.used" and harmless:
            problems.append(f'memory.used reads "{value}": this GPU does not report its memory')
        elif harmless:
            continue
        elif (
            _MARKER.fullmatch(value)
            or (field in _NUMERIC and not number)
            or (field == "gpu_recovery_action" and value.lower() != "none")
        ):
            wrong.setdefault(_shown(value), []).append(field)
    for value, where in wrong.items():
        where.sort(key=lambda field: field != "memory.used")
        more = f" (and {len(where) - 1} more fields)" if len(where) > 2 else f" and {where[-1]}" * (len(where) - 1)
        problems.append(f'{where[0]}{more} {"read" if len(where) > 1 else "reads"} "{value}"')
    return tuple(problems), bool(wrong)


def _judge_odd_line(
    line: str,
    found: t.Sequence[_Row],
    problems: _Ordered[str],
    elsewhere: _Ordered[str],
    faulty: _Ordered[int | str],
    on_row: dict[int, list[str]],
) -> None:
    handle = _HANDLE.search(line)
    named = handle or _NAMES_A_GPU.search(line)
    bus_id = named.group("bus") if named else None
    index = int(handle.group("index")) if handle and handle.group("index") else None
    sentence = f'nvidia-smi printed "{_shown(line)}"'
    problems.add(sentence)
    if index is not None:
        faulty.add(index)
    elif bus_id:
        faulty.add(bus_id)
    for row in found:
        if bus_key(row.gpu.bus_id) == bus_key(bus_id) if bus_id else row.gpu.index == index:
            on_row.setdefault(row.gpu.index, []).append(sentence)
            return
    if handle and (bus_id or index is not None):
        elsewhere.add(sentence)


def _judge_numbering(
    found: t.Sequence[_Row],
    counts: set[int],
    problems: _Ordered[str],
    elsewhere: _Ordered[str],
    faulty: _Ordered[int | str],
) -> None:
    """Indexes 0 to n-1, each once, and as many as the driver counts. A GPU that refuses the caller leaves no other
    trace than a gap, or, when it is the last one, the count."""
    indexes = [row.gpu.index for row in found]
    names = [f"index {index}" for index in indexes] + [f"UUID {row.gpu.uuid.lower()}" for row in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(f"{name} stands on more than one row")
    if len(counts) > 1:
        problems.add(f"the rows do not agree on the number of GPUs: {sorted(counts)}")
    if counts and min(counts) < len(found):
        problems.add(f"the driver counts {min(counts)} GPUs, but {len(found)} rows came")
    # A garbled index must not make a list of a billion missing GPUs.
    top = min(max([*counts, max(indexes) + 1]), 1024)
    for missing in sorted(set(range(top)) - set(indexes)):
        sentence = f"GPU {missing} has no row: it is lost, or hidden from this user or container"
        problems.add(sentence)
        elsewhere.add(sentence)
        faulty.add(missing)


def _lines(text: str) -> list[str]:
    """Lines that are not blank. Only newlines end a line: names may contain what splitlines() takes for one."""
    return [line.strip() for line in text.split("\n") if line.strip()]


def _shown(text: str) -> str:
    """Foreign text, made safe to stand in a sentence."""
    clean = "".join(character if character.isprintable() else "?" for character in text.strip())
    return clean if len(clean) <= SHOWN_CHARACTERS else clean[:SHOWN_CHARACTERS] + "…"


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and _NUMBER.fullmatch(value) else None


def _text(value: str | None) -> str | None:
    if not value or value.lower() in _HARMLESS or _MARKER.fullmatch(value):
        return None
    return value


def _mig(value: str | None) -> bool | None:
    """A GPU that knows no MIG reads [N/A]: that is off. Not asked for, or a marker: not known."""
    if value is None:
        return None
    if value.lower() in _HARMLESS:
        return False
    return {"enabled": True, "disabled": False}.get(value.lower())


_Value = t.TypeVar("_Value")


class _Ordered(t.Generic[_Value]):
    """A set that keeps the order in which things were added."""

    def __init__(self) -> None:
        self._values: dict[_Value, None] = {}

    def add(self, value: _Value) -> None:
        self._values[value] = None

    def all(self) -> tuple[_Value, ...]:
        return tuple(self._values)
