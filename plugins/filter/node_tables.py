# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables that people read at the end of a playbook, and the rows behind them as data."""

from __future__ import annotations

import typing as t

_BAR = 20


def _table(header: t.Sequence[str], rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in (header, *rows)]


def _seconds(later: t.Any, earlier: t.Any) -> float | None:
    try:
        return round(float(later) - float(earlier), 1)
    except (TypeError, ValueError):
        return None


def _mapping(value: t.Any) -> t.Mapping[str, t.Any]:
    return value if isinstance(value, t.Mapping) else {}


def relaunch_rows(hosts: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """One row for each host that a relaunch was meant for, from the host's variables."""
    rows = []
    for host in hosts:
        release = _mapping(host.get("gpu_release_result"))
        gate = _mapping(release.get("gate")) or _mapping(host.get("gpu_idle_result"))
        ready = _mapping(host.get("sglang_server_ready"))
        begun = "__relaunch_begun" in host
        rows.append(
            {
                "host": host["inventory_hostname"],
                "profile": host.get("sglang_server_profile", ""),
                "verdict": host.get("__relaunch_verdict", "failed" if begun else "not_touched"),
                "failed_step": host.get("__relaunch_failed_step"),
                "reason": host.get("__relaunch_failed_reason"),
                "stop": _mapping(host.get("sglang_stop_result")).get("verdict"),
                "released": release.get("verdict"),
                "signalled": len(release.get("signalled") or []),
                "gate": gate.get("verdict"),
                "gate_used_mib": [gpu.get("used_mib") for gpu in gate.get("gpus") or []],
                "stop_to_start_s": _seconds(host.get("__relaunch_start_at"), host.get("__relaunch_stop_at")),
                "start_to_ready_s": _seconds(host.get("__relaunch_ended"), host.get("__relaunch_start_at")),
                "stages": dict(_mapping(ready.get("stages"))),
            }
        )
    return rows


def _gate_cell(row: t.Mapping[str, t.Any]) -> str:
    used = row["gate_used_mib"]
    if not used:
        return row["gate"] or "-"
    if len(set(used)) == 1:
        return f"{len(used)} x {'?' if used[0] is None else used[0]} MiB"
    return " ".join("?" if mib is None else str(mib) for mib in used) + " MiB"


def relaunch_table(rows: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """The rows as aligned text, with what failed written out below."""

    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f} s"

    header = ("node", "profile", "stopped", "released", "signals", "gate", "stop to start", "start to ready", "verdict")
    lines = _table(
        header,
        [
            (
                str(row["host"]),
                str(row["profile"]),
                row["stop"] or "-",
                row["released"] or "-",
                str(row["signalled"]),
                _gate_cell(row),
                seconds(row["stop_to_start_s"]),
                seconds(row["start_to_ready_s"]),
                str(row["verdict"]),
            )
            for row in rows
        ],
    )
    for row in rows:
        if row["failed_step"]:
            lines += ["", f"{row['host']}: {row['failed_step']}:", f"  {row['reason']}"]
    return "\n".join(lines)


def _bar(gpu: t.Mapping[str, t.Any]) -> str:
    used, total = gpu.get("used_mib"), gpu.get("total_mib")
    if used is None or not total:
        return "?" * _BAR
    filled = min(_BAR, -(-_BAR * used // total))
    return "#" * filled + "." * (_BAR - filled)


def _holder_cell(uuid: str, processes: t.Sequence[t.Mapping[str, t.Any]], holders: t.Mapping[int, str]) -> str:
    here = [process for process in processes if process.get("gpu_uuid") == uuid]
    cells = []
    for process in here:
        who = holders.get(process["pid"]) or process.get("name") or "not visible here"
        mib = "? MiB" if process.get("used_mib") is None else f"{process['used_mib']} MiB"
        cells.append(f"{process['pid']} {who} ({mib})")
    return ", ".join(cells) or "-"


def status_table(node: t.Mapping[str, t.Any]) -> str:
    """One node: its server, its GPUs and who holds them."""
    gpu_fact = _mapping(node.get("nvidia_gpu"))
    holders = _mapping(node.get("holders"))
    health = _mapping(node.get("health"))
    by_pid = {holder["pid"]: holder["comm"] for holder in holders.get("holders") or []}
    lines = [
        f"{node['host']}: server {health.get('verdict', 'unknown')}, GPUs {gpu_fact.get('verdict', 'unknown')}",
        f"  server  {health.get('reason') or '-'}",
        f"  GPUs    {gpu_fact.get('reason') or '-'}",
    ]
    rows = [
        (
            f"  {gpu.get('index')}",
            str(gpu.get("name")),
            f"{'?' if gpu.get('used_mib') is None else gpu['used_mib']} / {gpu.get('total_mib') or '?'}",
            _bar(gpu),
            _holder_cell(gpu.get("uuid", ""), gpu_fact.get("processes") or [], by_pid)
            + ("; " + "; ".join(gpu["problems"]) if gpu.get("problems") else ""),
        )
        for gpu in gpu_fact.get("gpus") or []
    ]
    if rows:
        lines += ["", *_table(("  GPU", "name", "used / total MiB", "", "processes that compute"), rows)]
    if holders.get("lines"):
        lines += ["", f"  holders ({holders.get('verdict')}):", *(f"    {line}" for line in holders["lines"])]
    return "\n".join(lines)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"relaunch_rows": relaunch_rows, "relaunch_table": relaunch_table, "status_table": status_table}
