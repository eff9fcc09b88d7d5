# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table that people read at the end of a relaunch, and the rows behind it as data."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._relaunch_outcome import (
    gate,
    mapping,
    of_every_release,
    release,
    seconds_between,
    stop,
    verdict,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._text_table import aligned


def relaunch_rows(hosts: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """One row for each host that a relaunch was meant for, from the host's variables."""
    rows = []
    for host in hosts:
        ready = mapping(host.get("sglang_server_ready"))
        rows.append(
            {
                "host": host["inventory_hostname"],
                "profile": host.get("sglang_server_profile", ""),
                "verdict": verdict(host) or "not_touched",
                "failed_step": host.get("__relaunch_failed_step"),
                "reason": host.get("__relaunch_failed_reason"),
                "stop": stop(host).get("verdict"),
                "released": release(host).get("verdict"),
                "signalled": len(of_every_release(host, "signalled")),
                "gate": gate(host).get("verdict"),
                "gate_used_mib": [gpu.get("used_mib") for gpu in gate(host).get("gpus") or []],
                "stop_to_start_s": seconds_between(host.get("__relaunch_start_at"), host.get("__relaunch_stop_at")),
                "start_to_ready_s": seconds_between(host.get("__relaunch_ended"), host.get("__relaunch_start_at")),
                "stages": dict(mapping(ready.get("stages"))),
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
    lines = aligned(
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


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"relaunch_rows": relaunch_rows, "relaunch_table": relaunch_table}
