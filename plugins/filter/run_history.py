# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The line that a relaunch leaves in the record, and the lines of many runs as a table for people."""

from __future__ import annotations

import re
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

_GPU = ("index", "uuid", "used_mib")


def _gpus(rows: t.Any) -> list[dict[str, t.Any]]:
    return [{key: gpu.get(key) for key in _GPU} for gpu in rows or []]


def _rehearsal(host: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """The one under the lease; where a run did not come so far, that of the preflight."""
    return mapping(host.get("gpu_idle_rehearsal")) or mapping(mapping(host.get("sglang_server_preflight")).get("gate"))


def run_record_entry(host: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What a run left in the variables of a host, as options of the module run_record. What is not there is left out,
    so that a caller can tell it from what is."""
    ready = mapping(host.get("sglang_server_ready"))
    seconds = {
        "stop": stop(host).get("stopped_after_s"),
        "release": release(host).get("elapsed_s"),
        "gate": gate(host).get("waited_s"),
        "stop_to_start": seconds_between(host.get("__relaunch_start_at"), host.get("__relaunch_stop_at")),
        "start_to_ready": seconds_between(host.get("__relaunch_ended"), host.get("__relaunch_start_at")),
        **{f"stage_{name}": value for name, value in mapping(ready.get("stages")).items()},
    }
    rollback = None
    if host.get("__relaunch_rolled_back"):
        rollback = {"outcome": "ready", "profile": host["__relaunch_rolled_back"]}
    elif host.get("__relaunch_rollback_reason"):
        rollback = {"outcome": "failed", "reason": host["__relaunch_rollback_reason"]}
    entry = {
        "verdict": verdict(host),
        "failed_step": host.get("__relaunch_failed_step"),
        "reason": host.get("__relaunch_failed_reason"),
        "gpus_before": _gpus(_rehearsal(host).get("gpus")),
        "gpus_after": _gpus(gate(host).get("gpus")),
        "holders": of_every_release(host, "holders"),
        "signals": of_every_release(host, "signalled"),
        "seconds": {name: value for name, value in seconds.items() if value is not None},
        "rollback": rollback,
        "evidence": mapping(host.get("run_record_evidence")).get("path"),
    }
    return {name: value for name, value in entry.items() if value not in (None, [], {})}


def _cell(value: t.Any) -> str:
    """One line without control characters: what a run recorded must not move the cursor of who reads it."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", str(value)) if value not in (None, "") else "-"


def _took(seconds: t.Any) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def _began(run: t.Mapping[str, t.Any]) -> str:
    text = run.get("began_at") or run.get("ended_at") or ""
    return f"{text[:10]} {text[11:16]}" if text else "-"


def _row(host: str, run: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    verdict = "INTERRUPTED" if run.get("interrupted") else _cell(run.get("verdict"))
    what = f"{_cell(run.get('playbook'))} (look)" if run.get("event") == "drift" else _cell(run.get("playbook"))
    profile, who = _cell(run.get("profile")), _cell(run.get("who"))
    return (
        host,
        _began(run),
        what,
        profile,
        who,
        _took(run.get("duration_s")),
        str(len(run.get("signals") or [])),
        verdict,
    )


def history_table(hosts: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """Aligned text: the last runs of each host, the newest last, then in words what went wrong."""
    header = ("node", "began (UTC)", "playbook", "profile", "who", "took", "signals", "verdict")
    rows = []
    told = []
    for host in hosts:
        name, runs = str(host["host"]), host.get("runs") or []
        rows += [_row(name, run) for run in runs] or [(name, *["-"] * 6, "no run is recorded")]
        if host.get("problem"):
            told.append(f"{name}: {_cell(host['problem'])}")
        for run in runs:
            if run.get("interrupted"):
                told.append(
                    f"{name}: {_began(run)}: run {_cell(run.get('run_id'))} began and has no end: it was interrupted."
                )
            elif run.get("failed_step") or (run.get("reason") and run.get("verdict") not in ("ready", "running")):
                step = f"{_cell(run['failed_step'])}: " if run.get("failed_step") else ""
                told.append(f"{name}: {_began(run)}: {step}{_cell(run.get('reason'))}")
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in (header, *rows)]
    return "\n".join([*lines, *([""] if told else []), *told])


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"run_record_entry": run_record_entry, "history_table": history_table}
