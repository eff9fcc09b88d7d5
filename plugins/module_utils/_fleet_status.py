# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What the looks at a fleet's nodes say, as one document that has the same keys for every node.

The looks come in as the modules returned them. The document is what status.yml writes as JSON, and what its table and
its page are made of. What could not be told is None, never 0.
"""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._status_findings import Finding, findings, notes

VERSION = 1
LEVELS = ("well", "in_hand", "attention", "not_known")
Look = t.Mapping[str, t.Any]
_HOLDER_KEYS = ("pid", "ns_pid", "comm", "cmdline", "user", "unit", "container", "gpus", "computes", "dying", "age_s")
_SERVER_KEYS = ("verdict", "reason", "stage", "since", "restarts")
_GPU_KEYS = ("index", "uuid", "name", "used_mib", "total_mib", "utilization_pct")


def mapping(value: t.Any) -> t.Mapping[str, t.Any]:
    return value if isinstance(value, t.Mapping) else {}


def entries(value: t.Any) -> list[t.Mapping[str, t.Any]]:
    """The dictionaries in a list that came from a node."""
    return [entry for entry in value if isinstance(entry, t.Mapping)] if isinstance(value, (list, tuple)) else []


def _unanswered(look: t.Mapping[str, t.Any], key: str) -> str | None:
    """Why a look has no result; None where it has one."""
    if key in look:
        return None
    return str(look.get("msg") or "it was not looked at")


def _server(look: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    problem = _unanswered(look, "verdict")
    server = {key: look.get(key) for key in _SERVER_KEYS}
    started = mapping(look.get("started_with"))
    if look.get("main_pid") and started.get("told") is False:
        server["reason"] = f"{server['reason']}. With what it was started is not known: {started.get('why')}"
    requests = mapping(look.get("requests"))
    server["requests"] = {key: requests.get(key) for key in ("running", "queued", "progress")}
    server["log_tail"] = [str(line) for line in look.get("log_tail") or []][-5:]
    if problem is not None:
        server |= {"verdict": "unknown", "reason": f"The server could not be looked at: {problem}"}
    return server


def _mib(process: t.Mapping[str, t.Any] | None) -> t.Any:
    return None if process is None else process.get("used_mib")


def _on_gpu(uuid: t.Any, listed: t.Sequence[Look], holders: t.Sequence[Look]) -> list[dict[str, t.Any]]:
    """Who computes on a GPU: what nvidia-smi lists there, joined with what the scan saw, by the PID of either side."""
    rows: list[dict[str, t.Any]] = []
    here = [process for process in listed if process.get("gpu_uuid") == uuid]
    seen = [holder for holder in holders if uuid in (holder.get("gpus") or [])]
    for process in here:
        pid = process.get("pid")
        # A scan on the GPU host counts PIDs as the host does, and nvidia-smi in a container as the container does.
        holder = next((h for h in holders if pid is not None and pid in (h.get("pid"), h.get("ns_pid"))), None)
        rows.append(
            {
                "pid": pid,
                "name": mapping(holder).get("comm") or process.get("name"),
                "used_mib": _mib(process),
                "disposition": mapping(holder).get("disposition"),
            }
        )
        seen = [other for other in seen if other is not holder]
    rows += [
        {"pid": h.get("pid"), "name": h.get("comm"), "used_mib": None, "disposition": h.get("disposition")}
        for h in seen
    ]
    return rows


def _gpu(look: t.Mapping[str, t.Any], holders: t.Sequence[Look]) -> dict[str, t.Any]:
    fact = mapping(mapping(look.get("ansible_facts")).get("nvidia_gpu"))
    gpus = entries(fact.get("gpus"))
    listed = entries(fact.get("processes"))
    totals = [gpu.get("total_mib") for gpu in gpus]
    problem = None if fact else _unanswered(look, "ansible_facts") or "no answer"
    return {
        "verdict": fact.get("verdict", "unknown"),
        "reason": fact.get("reason") if problem is None else f"The GPUs could not be looked at: {problem}",
        "driver_version": fact.get("driver_version"),
        "used_mib_total": fact.get("used_mib_total"),
        "total_mib_total": sum(totals) if totals and None not in totals else None,
        "gpus": [
            {key: gpu.get(key) for key in _GPU_KEYS}
            | {
                "problems": [str(text) for text in gpu.get("problems") or []],
                "processes": _on_gpu(gpu.get("uuid"), listed, holders),
            }
            for gpu in gpus
        ],
    }


def _holders(look: t.Mapping[str, t.Any], where: str) -> dict[str, t.Any]:
    problem = _unanswered(look, "verdict")
    return {
        "verdict": look.get("verdict", "unknown"),
        "incomplete_reason": look.get("incomplete_reason") or problem or "",
        "seen_on": where,
        "processes": [
            {key: holder.get(key) for key in (*_HOLDER_KEYS, "disposition", "reason")}
            for holder in entries(look.get("holders"))
            if holder.get("disposition") != "self"
        ],
    }


def _kept(look: t.Any, key: str) -> dict[str, t.Any]:
    """What a node keeps on its disk. known is False where it was not asked."""
    look = mapping(look)
    problem = look.get("problem") or (_unanswered(look, key) if look else None)
    return {"known": bool(look) and problem is None, "value": look.get(key), "problem": problem}


def host_status(look: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """One node of the document."""
    where = str(look.get("gpu_host") or look.get("host"))
    holders = _holders(mapping(look.get("holders")), where)
    lock = mapping(look.get("lock"))
    wanted, drift, runs = (
        _kept(look.get(name), key) for name, key in (("wanted", "wanted"), ("memory", "memory"), ("runs", "runs"))
    )
    status: dict[str, t.Any] = {
        "host": str(look.get("host")),
        "gpu_host": where,
        "unit": look.get("unit"),
        "reached": bool(look.get("reached")),
        "unreached_reason": look.get("unreached_reason"),
        "profile": mapping(wanted["value"]).get("profile") or look.get("profile"),
        "profile_from": "wanted" if mapping(wanted["value"]).get("profile") else "inventory",
        "server": _server(mapping(look.get("health"))),
        "gpu": _gpu(mapping(look.get("gpu")), holders["processes"]),
        "expected_uuids": [str(uuid) for uuid in look.get("expected_uuids") or []],
        "holders": holders,
        "lock": {
            "known": "verdict" in lock,
            "reason": lock.get("reason") or lock.get("msg"),
            "unreadable": lock.get("unreadable"),
            "leases": [str(entry.get("text")) for entry in entries(lock.get("leases"))],
            "starting": [str(entry.get("text")) for entry in entries(lock.get("starting"))],
        },
        "wanted": wanted,
        "drift": drift,
        "runs": {**runs, "value": entries(runs["value"])},
    }
    problems, said = findings(status), notes(status)
    return {
        **status,
        "level": _level(status, problems, said),
        "problems": [problem.as_dict() for problem in problems],
        "notes": said,
    }


def _level(status: t.Mapping[str, t.Any], problems: t.Sequence[Finding], said: t.Sequence[str]) -> str:
    if not status["reached"]:
        return "not_known"
    if problems:
        return "attention"
    return "in_hand" if said else "well"


def fleet_status(looks: t.Iterable[t.Mapping[str, t.Any]], generated_at: str) -> dict[str, t.Any]:
    """The document: the nodes in the order of the inventory, and how many stand how."""
    hosts = [host_status(look) for look in looks]
    return {
        "version": VERSION,
        "generated_at": generated_at,
        "summary": {level: sum(host["level"] == level for host in hosts) for level in LEVELS},
        "hosts": hosts,
    }
