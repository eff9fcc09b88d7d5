# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nvidia-smi of a simulated node, in the words of driver 580.

Memory follows the processes that really hold the node's contexts (contexts.py); a GPU whose device node is missing or
may not be opened is left out and the rest renumbered, as measured; faults come from NODE/scenario.json (faults.py).

Not imitated: the plain table, -q, XML, dmon, every setting (-pm, -r, …), MIG instances, graphics processes, clocks,
power and temperature. utilization.gpu is 0 unless a fault sets it. Whether a GPU that is giving its memory back still
lists the dead process is not measured; here it does ([Not Found]), as for a dead process whose fork holds on.
"""

from __future__ import annotations

import json
import os
import sys
import time
import typing as t

import contexts as ctx

MIB_FIELDS = ("memory.total", "memory.used", "memory.free", "memory.reserved", "used_memory", "used_gpu_memory")
APP_FIELDS = ("gpu_uuid", "gpu_bus_id", "gpu_name", "pid", "process_name", "name", "used_memory", "used_gpu_memory",
              "timestamp")  # fmt: skip
RESERVED_MIB = 616
# What the sum of compute-apps falls short of memory.used by (9 to 15 measured).
APPS_SHORT_MIB = 12


class Answer(Exception):
    """Ends the call with this output."""

    def __init__(self, stdout: str = "", code: int = 0, stderr: str = "") -> None:
        super().__init__(stdout)
        self.stdout, self.code, self.stderr = stdout, code, stderr


def read_json(path: str) -> dict[str, t.Any]:
    try:
        with open(path, encoding="utf-8") as handle:
            return t.cast("dict[str, t.Any]", json.load(handle))
    except FileNotFoundError:
        return {}


def append_line(path: str, record: t.Mapping[str, t.Any]) -> None:
    """One write in append mode: lines of concurrent calls cannot mix."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.write(fd, (json.dumps(record) + "\n").encode())
        os.close(fd)
    except OSError as error:
        sys.stderr.write(f"simulated node: cannot append to {path}: {error}\n")


def open_nodes(node: str, minors: t.Iterable[int]) -> list[int]:
    """Open the nodes as the real tool does (so a scan sees it as a monitor); the minors that can be opened."""
    dev = os.path.join(node, "dev")
    try:
        os.open(os.path.join(dev, "nvidiactl"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        raise Answer("Failed to initialize NVML: GPU access blocked by the operating system\n", 17) from None
    there = []
    for minor in minors:
        try:
            os.open(os.path.join(dev, f"nvidia{minor}"), os.O_RDWR | os.O_CLOEXEC)
            there.append(minor)
        except OSError:
            pass
    return there


def gpu_rows(node: str, about: t.Mapping[str, t.Any], scenario: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    moment = ctx.now()
    used: dict[int, int] = {}
    for context in ctx.contexts(os.path.join(node, "contexts")):
        used[context.gpu] = used.get(context.gpu, 0) + ctx.still_used(context, scenario, moment)
    floor = ctx.never_clears(scenario)
    rows = []
    there = open_nodes(node, range(len(about["gpus"])))
    for index, minor in enumerate(there):
        gpu = about["gpus"][minor]
        mib = max(used.get(minor, 0), floor.get(minor, 0))
        rows.append({
            "minor": minor, "index": index, "count": len(there), "uuid": gpu["uuid"], "gpu_uuid": gpu["uuid"],
            "pci.bus_id": gpu["bus_id"], "gpu_bus_id": gpu["bus_id"], "name": about["name"], "gpu_name": about["name"],
            "memory.total": about["memory_mib"], "memory.used": mib,
            # Each figure is rounded on its own: they add up to one more than the total.
            "memory.free": about["memory_mib"] - mib - RESERVED_MIB + 1, "memory.reserved": RESERVED_MIB,
            "utilization.gpu": 0, "mig.mode.current": "Disabled", "compute_mode": "Default",
            "persistence_mode": "Enabled", "driver_version": about["driver_version"],
            "gpu_recovery_action": "None", "fabric.state": about["fabric_state"],
            "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
        })  # fmt: skip
    if not rows:
        raise Answer("No devices were found\n", 6)
    return rows


def app_rows(
    node: str, scenario: t.Mapping[str, t.Any], gpus: t.Sequence[t.Mapping[str, t.Any]]
) -> list[dict[str, t.Any]]:
    by_minor = {gpu["minor"]: gpu for gpu in gpus}
    rows = []
    moment = ctx.now()
    for context in ctx.contexts(os.path.join(node, "contexts")):
        mib = ctx.still_used(context, scenario, moment)
        if mib <= ctx.CONTEXT_ONLY_MIB or context.gpu not in by_minor:
            continue
        name = process_name(context.pid, context.start_time)
        mib = max(mib - APPS_SHORT_MIB, 1)
        gpu = by_minor[context.gpu]
        rows.append(dict(gpu, pid=context.pid, process_name=name, name=name, used_memory=mib, used_gpu_memory=mib))
    return sorted(rows, key=lambda row: (row["index"], row["pid"]))


def process_name(pid: int, start_time: int) -> str:
    stat = ctx.process_stat(pid)
    if stat is None or stat[2] != start_time:
        return "[Not Found]"
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as handle:
            first = handle.read().split(b"\0")[0]
    except OSError:
        return "[Not Found]"
    # A zombie's command line is empty.
    return first.decode("utf-8", "replace").replace(",", "?") or "[Not Found]"


def selected(rows: list[dict[str, t.Any]], wanted: str | None) -> list[dict[str, t.Any]]:
    if wanted is None:
        return rows
    ids = wanted.split(",")
    rows = [r for r in rows if {str(r["index"]), r["uuid"], r["pci.bus_id"]} & set(ids)]
    if not rows:
        raise Answer("No devices were found\n", 6)
    return rows


def table(rows: t.Sequence[t.Mapping[str, t.Any]], fields: t.Sequence[str], style: t.Sequence[str]) -> str:
    def unit(field: str) -> str:
        return "MiB" if field in MIB_FIELDS else "%" if field == "utilization.gpu" else ""

    lines = []
    if "noheader" not in style:
        lines.append(", ".join(f"{field} [{unit(field)}]" if unit(field) else field for field in fields))
    for row in rows:
        cells = [str(row[field]) for field in fields]
        if "nounits" not in style:
            cells = [c + " " + unit(f) if unit(f) and c[:1] != "[" else c for c, f in zip(cells, fields)]
        lines.append(", ".join(cells))
    return "".join(line + "\n" for line in lines)


def parse(argv: t.Sequence[str]) -> dict[str, t.Any]:
    """What was asked for: kind (gpu, apps, list), fields, style, id."""
    request: dict[str, t.Any] = {"kind": None, "fields": [], "style": None, "id": None}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if option in ("-i", "--id"):
            request["id"] = value if equals else rest.pop(0) if rest else ""
        elif option in ("--query-gpu", "--query-compute-apps") and equals:
            request["kind"] = "gpu" if option == "--query-gpu" else "apps"
            request["fields"] = value.split(",")
        elif option == "--format" and equals:
            request["style"] = value.split(",")
        elif word in ("-L", "--list-gpus"):
            request["kind"] = "list"
        else:
            raise Answer(code=2, stderr=f"nvidia-smi of the simulated node: {word} is not imitated "
                         "(only --query-gpu, --query-compute-apps, --format=csv, -i and -L are)\n")  # fmt: skip
    if request["kind"] is None:
        raise Answer(code=2, stderr="nvidia-smi of the simulated node: the plain table is not imitated\n")
    if request["kind"] != "list" and (request["style"] or [""])[0] != "csv":
        raise Answer(code=2, stderr="nvidia-smi of the simulated node: --format=csv[,noheader][,nounits] is needed\n")
    return request


def answer(node: str, argv: t.Sequence[str]) -> Answer:
    scenario = read_json(os.path.join(node, "scenario.json"))
    record: dict[str, t.Any] = {"time": time.time(), "tool": "nvidia-smi", "argv": list(argv), "pid": os.getpid()}
    faults: list[dict[str, t.Any]] = []
    try:
        request = parse(argv)
        if scenario.get("faults"):
            import faults as scripted

            faults = scripted.matching(node, scenario["faults"], request["kind"])
            record["faults"] = [fault.get("effect") for fault in faults]
    finally:
        append_line(os.path.join(node, "calls.jsonl"), record)
    for fault in faults:
        scripted.before(node, fault, request)
    about = read_json(os.path.join(node, "node.json"))
    every = gpu_rows(node, about, scenario)
    known = APP_FIELDS if request["kind"] == "apps" else [f for f in every[0] if f not in ("minor", "gpu_uuid")]
    for field in request["fields"]:
        if field not in known:
            raise Answer(f'Field "{field}" is not a valid field to query.\n\n', 2)
    said = ""
    for fault in faults:
        every, said = scripted.bend(every, fault, said)
    gpus = selected(every, request["id"])
    if request["kind"] == "list":
        return Answer(
            "".join("GPU {}: {} (UUID: {})\n".format(g["index"], g["name"], g["uuid"]) for g in gpus), 0, said
        )
    rows = gpus if request["kind"] == "gpu" else app_rows(node, scenario, gpus)
    if request["kind"] == "apps" and any(fault["effect"] == "pid_namespace" for fault in faults):
        rows = []
    # With no process there is no header either.
    text = table(rows, request["fields"], request["style"]) if rows else ""
    for fault in faults:
        if fault["effect"] == "hang":
            scripted.hang(node, "".join(text.splitlines(True)[: fault["rows"]]).encode())
    return Answer(text, 0, said)


def main(node: str, argv: t.Sequence[str]) -> None:
    with open("/proc/self/comm", "w", encoding="ascii") as handle:
        handle.write("nvidia-smi")
    try:
        result = answer(node, argv)
    except Answer as early:
        result = early
    sys.stdout.write(result.stdout)
    sys.stdout.flush()
    sys.stderr.write(result.stderr)
    sys.stderr.flush()
    os._exit(result.code)
