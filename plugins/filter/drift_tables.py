# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

_WELL = "nothing"


def _mapping(value: t.Any) -> t.Mapping[str, t.Any]:
    return value if isinstance(value, t.Mapping) else {}


def drift_rows(hosts: t.Any, breaker: t.Any = None) -> list[dict[str, t.Any]]:
    """One row for each host that was to be looked at, from the hosts' variables.

    :param breaker: the result of drift_breaker; where it tripped, nobody was acted on.
    """
    if isinstance(hosts, (str, bytes)) or not isinstance(hosts, t.Iterable):
        raise AnsibleFilterError("drift_rows: a list of the hosts' variables is needed")
    tripped = bool(_mapping(breaker).get("tripped"))
    rows = []
    for host in hosts:
        decision, evidence = _mapping(host.get("gpu_drift_decision")), _mapping(host.get("gpu_drift_evidence"))
        wanted = _mapping(_mapping(evidence.get("node")).get("wanted"))
        action = str(decision.get("action") or "report")
        outcome = host.get("__drift_outcome")
        held_back = decision.get("held_back")
        if tripped and outcome is None and action in ("release", "relaunch"):
            held_back = "breaker"
        rows.append(
            {
                "host": host["inventory_hostname"],
                "action": action if outcome is not None or held_back != "breaker" else "report",
                "would": decision.get("would"),
                "held_back": held_back,
                "outcome": outcome,
                "failed": host.get("__drift_said") if outcome in ("failed", "stood_down") else None,
                "server": _mapping(evidence.get("health")).get("verdict"),
                "gpus": _mapping(evidence.get("gate")).get("verdict"),
                "config": _mapping(_mapping(evidence.get("node")).get("config")).get("verdict"),
                "wanted": wanted.get("state"),
                "profile": wanted.get("profile"),
                "drifted": action != _WELL,
                "reasons": list(decision.get("reasons") or ["It was not looked at."]),
                "evidence_path": _mapping(host.get("run_record_evidence")).get("path"),
            }
        )
    return rows


def _did(row: t.Mapping[str, t.Any]) -> str:
    if row["outcome"]:
        return f"{row['action']}: {row['outcome']}"
    if row["held_back"]:
        return f"would {row['would']}, but {row['held_back']}"
    return str(row["action"])


def drift_table(rows: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """The rows as aligned text, with the reasons of whatever is not well below."""
    header = ("node", "wanted", "server", "GPUs", "files", "done")
    cells = [header]
    for row in rows:
        wanted = " ".join(str(part) for part in (row["wanted"], row["profile"]) if part) or "-"
        cells.append((row["host"], wanted, *(str(row[key] or "?") for key in ("server", "gpus", "config")), _did(row)))
    widths = [max(len(str(line[column])) for line in cells) for column in range(len(header))]
    lines = ["  ".join(str(cell).ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    for row in rows:
        if row["action"] == _WELL:
            continue
        said = [*row["reasons"], *([f"Failed: {row['failed']}"] if row["failed"] else [])]
        if row["evidence_path"]:
            said.append(f"Stacks and logs from before: {row['evidence_path']} on {row['host']}.")
        lines += ["", f"{row['host']}:", *(f"  {line}" for line in said)]
    return "\n".join(lines)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"drift_rows": drift_rows, "drift_table": drift_table}
