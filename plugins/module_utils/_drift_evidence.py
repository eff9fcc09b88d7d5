# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""From the results of a look's modules to the words that the decision table knows, each with its sentence.

Every part may be missing or failed: what is not there is unknown, and unknown never leads to an action.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory, _wanted_state
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_decision import COLUMNS, Situation, Told
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import Memory
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import age_words, overlap
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import Moment, read_iso, read_moment

Parts = t.Mapping[str, t.Any]
_GPUS = {
    "idle": "idle",
    "settled": "idle",
    "busy": "own",
    "dying": "own",
    "foreign": "others",
    "orphaned": "orphaned",
    "missing": "missing",
    "faulty": "faulty",
    "fabric_not_ready": "faulty",
    # Somebody was killed lately and the driver is not done: what comes of it is not known yet.
    "draining": "unknown",
}
# One of the two views is enough for these.
_OUTRANKS = ("unknown", "missing", "faulty", "others")
# What systemd says of the last command before the server's, where a stop ended it: the guard says so by its status.
_GUARD_STOPPED = re.compile(r"; code=(?:exited ; status=5|killed ; status=15/TERM) \}\s*$")
_MOST = 5  # sentences about one thing


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The situation, a sentence for each column that has one, and whom it is about.

    subject: names the processes that an action would end, so that two looks can be of the same ones. age: seconds for
    which its main process has been running, None where there is none or it cannot be told.
    """

    situation: Situation
    said: t.Mapping[str, str]
    memory: Memory
    now: Moment | None
    subject: str
    age: float | None
    profile: str | None


def _part(parts: t.Any, name: str) -> Parts:
    value = parts.get(name) if isinstance(parts, t.Mapping) else None
    return value if isinstance(value, t.Mapping) else {}


def _sentences(value: t.Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value.strip() else []
    return [str(one) for one in value] if isinstance(value, t.Sequence) else []


def _told(value: t.Any) -> Told:
    return "unknown" if not isinstance(value, bool) else "yes" if value else "no"


def _first(*texts: t.Any) -> str:
    return next((str(text).strip() for text in texts if text and str(text).strip()), "")


def gather(
    parts: t.Any,
    *,
    unit: str,
    config: t.Literal["report", "apply"],
    gpus: tuple[str, ...],
    load_budget: float,
    run_id: str = "",
) -> Evidence:
    """Never raises: a part in an unknown shape is a part that is missing."""
    health, node = _part(parts, "health"), _part(parts, "node")
    service = _part(node, "service")
    said: dict[str, str] = {}
    now = _moment(node)
    unreachable = _first(*_sentences(parts.get("unreachable"))) if isinstance(parts, t.Mapping) else "no look was made"

    server = health.get("verdict")
    server = server if server in COLUMNS["server"][1] else "unknown"
    said["server"] = _first(health.get("reason"), health.get("msg"), unreachable, "the server was not looked at")
    state, said["gpus"] = _gpu_state(parts, unit, gpus)
    wanted, said["wanted"] = _wanted(node, now, unreachable)
    lease, said["lease"] = _lease(parts, node, gpus, run_id)
    memory, said["memory"] = _memory(node, unreachable)
    drifted, said["drifted"] = _drifted(node, parts)
    frozen, said["frozen"] = _frozen(service, parts, unit)
    alive, main_pid = _alive(health, service)
    if alive == "yes" and _part(health, "started_with").get("told") is False:
        said["server"] += f" With what it was started is not known: {_part(health, 'started_with').get('why')}."
    age = _age(health, now)
    if server == "starting" and age is not None:
        said["server"] += f" It has been starting for {age_words(age)}; {age_words(load_budget)} are allowed."
    requests = _part(health, "requests")
    situation = Situation(
        server=server,
        gpus=state,
        wanted=wanted,
        frozen=frozen,
        lease=lease,
        memory="unreadable" if memory is None else "readable",
        alive=alive,
        comes_back=_comes_back(service),
        ended=_ended(service),
        load=_load(age, load_budget),
        moves=_moves(health, parts, gpus),
        drifted=drifted,
        requests=_requests(requests.get("running"), requests.get("queued")),
        config=config,
    )
    profile = _part(node, "wanted").get("profile")
    subject = f"process {main_pid}" if alive == "yes" else _leftovers(parts, unit)
    return Evidence(
        situation,
        said,
        memory or Memory(),
        now,
        subject,
        age if alive == "yes" else None,
        profile if isinstance(profile, str) else None,
    )


def _moment(node: Parts) -> Moment | None:
    try:
        return read_moment(node, "looked_at", "boottime_s")
    except (KeyError, ValueError, TypeError):
        return None


def _age(health: Parts, now: Moment | None) -> float | None:
    try:
        age = now.wall - read_iso(health["since"]) if now is not None else None
    except (KeyError, ValueError):
        return None
    # Both were read within the same look: a start that is yet to come means that a clock was set in between.
    return None if age is None or age < -60 else max(0.0, age)


def _load(age: float | None, budget: float) -> t.Literal["within", "overdue", "unknown"]:
    return "unknown" if age is None else "within" if age <= budget else "overdue"


def _view(gate: Parts, strangers: list[Parts], unit: str, gpus: tuple[str, ...]) -> tuple[str, str]:
    """What one gate saw, where strangers are those of its targets that are not the unit's."""
    state = _GPUS.get(str(gate.get("verdict")), "unknown")
    said = _first(gate.get("msg"), "the GPUs were not looked at")
    used = [one for one in strangers if one.get("computes") and overlap(_uuids(one.get("gpus")), gpus)]
    if state != "own" or not used:
        return state, said
    names = "; ".join(f"{one.get('pid')} ({str(one.get('cmdline') or one.get('comm'))[:80]})" for one in used[:_MOST])
    return "others", f"processes that do not belong to {unit} compute on these GPUs: {names}"


def _targets(parts: t.Any, unit: str) -> tuple[list[Parts], list[Parts]]:
    """Of the view that sees everybody, the unit's processes on the GPUs, and the other targets.

    On the node only the unit is in scope. On the GPU host it is the whole container.
    """
    if not _has_host(parts):
        return [one for one in _holders(_part(parts, "gate")) if one.get("disposition") == "target"], []
    targets = [one for one in _holders(_part(parts, "host_gate")) if one.get("disposition") == "target"]
    return [one for one in targets if one.get("unit") == unit], [one for one in targets if one.get("unit") != unit]


def _holders(gate: Parts) -> list[Parts]:
    holders = gate.get("holders")
    return [one for one in holders if isinstance(one, t.Mapping)] if isinstance(holders, list) else []


def _uuids(value: t.Any) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _has_host(parts: t.Any) -> bool:
    # Older Ansible makes an empty text of the none of a template.
    return isinstance(parts, t.Mapping) and any(
        parts.get(name) not in (None, "") for name in ("host_gate", "host_lock")
    )


def _gpu_state(parts: t.Any, unit: str, gpus: tuple[str, ...]) -> tuple[str, str]:
    """The node sees whose processes these are, the GPU host sees all of them."""
    views = [_view(_part(parts, "gate"), [], unit, gpus)]
    if _has_host(parts):
        views.append(_view(_part(parts, "host_gate"), _targets(parts, unit)[1], unit, gpus))
    for word in _OUTRANKS:
        for state, said in views:
            if state == word:
                return state, said
    return views[-1]


def _leftovers(parts: t.Any, unit: str) -> str:
    """The unit's processes on the GPUs, by what identifies them."""
    named = sorted(f"{one.get('pid')}@{one.get('start_time')}" for one in _targets(parts, unit)[0])
    return f"left over {', '.join(named[:16])}" if named else "nobody"


def _wanted(node: Parts, now: Moment | None, unreachable: str) -> tuple[str, str]:
    if not node or now is None:
        return "unreadable", _first(unreachable, node.get("msg"), "the node's files were not looked at")
    if node.get("wanted_problem"):
        return "unreadable", str(node["wanted_problem"])
    if node.get("wanted") is None:
        return "none", ""
    try:
        entry = _wanted_state.parse_entry(node["wanted"])
    except (KeyError, TypeError, ValueError) as error:
        return "unreadable", f"what is wanted has an unknown shape ({str(error)[:100]})"
    pause = entry.pause
    if pause is not None and read_iso(pause.until) > now.wall:
        return "paused", f"paused until {pause.until} by {pause.who or 'somebody'}: {pause.reason}"
    if entry.state is None:
        return "none", ""
    asked = f"{entry.who or 'somebody'} with {entry.by or 'a run'} at {entry.at}"
    if entry.outcome == "failed":
        return "failed", f"{entry.state} was asked for by {asked}, which failed"
    named = f" profile {entry.profile}" if entry.profile else ""
    return entry.state, f"{entry.state}{named} was asked for by {asked}"


def _lease(parts: t.Any, node: Parts, gpus: tuple[str, ...], run_id: str) -> tuple[Told, str]:
    book: Parts = _part(parts, "host_lock") if _has_host(parts) else node
    leases, starting = book.get("leases"), book.get("starting")
    problem = _first(book.get("leases_problem"), book.get("reason") if book.get("unreadable") else "")
    if problem or not isinstance(leases, list) or not isinstance(starting, list):
        return "unknown", _first(problem, book.get("msg"), "the leases on these GPUs were not looked at")
    if not all(isinstance(one, t.Mapping) for one in (*leases, *starting)):
        return "unknown", "the leases on these GPUs have an unknown shape"
    standing = [one for one in (*leases, *starting) if one.get("run_id") != run_id]
    told = [str(one.get("text")) for one in standing if overlap(_uuids(one.get("gpus")), gpus)]
    return ("yes", "; ".join(told[:_MOST])) if told else ("no", "")


def _frozen(service: Parts, parts: t.Any, unit: str) -> tuple[Told, str]:
    """The kernel's word about the unit, and Proxmox's about its container, which only the GPU host has."""
    told = _told(service.get("frozen"))
    if told == "yes":
        return told, f"{unit} or its container is frozen"
    if not _has_host(parts):
        return told, ""
    book = _part(parts, "host_lock")
    locks = book.get("container_locks")
    if not isinstance(locks, list) or not locks or not all(isinstance(one, t.Mapping) for one in locks):
        return "unknown", _first(book.get("msg"), "whether Proxmox has locked its container was not looked at")
    held = [str(one.get("text")) for one in locks if one.get("lock")]
    unclear = [str(one.get("text")) for one in locks if one.get("problem")]
    return ("yes", "; ".join(held)) if held else ("unknown", "; ".join(unclear)) if unclear else (told, "")


def _memory(node: Parts, unreachable: str) -> tuple[Memory | None, str]:
    if not node:
        return None, _first(unreachable, "the node's files were not looked at")
    if node.get("memory_problem"):
        return None, str(node["memory_problem"])
    try:
        return _drift_memory.parse_entry(node.get("memory")), ""
    except ValueError as error:
        return None, f"drift's memory has an unknown shape ({error})"


def _drifted(node: Parts, parts: t.Any) -> tuple[Told, str]:
    config = _part(node, "config")
    found = []
    differences = config.get("differences")
    for one in differences if isinstance(differences, list) else ():
        if isinstance(one, t.Mapping):
            found.append(
                f"{one.get('where')}: {one.get('item')} is {one.get('found')!r}, wanted is {one.get('wanted')!r}"
            )
    found += _sentences(parts.get("unmet")) if isinstance(parts, t.Mapping) else []
    if found:
        more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
        return "yes", "; ".join(found[:_MOST]) + more
    if config.get("verdict") == "same":
        return "no", ""
    return "unknown", _first("; ".join(_sentences(config.get("not_compared"))[:_MOST]), "nothing was compared")


def _alive(health: Parts, service: Parts) -> tuple[Told, int | None]:
    pid, active = health.get("main_pid"), service.get("active_state")
    if isinstance(pid, int) and not isinstance(pid, bool):
        return "yes", pid
    waiting = str(service.get("sub_state") or "").startswith("auto-restart")
    return ("no", None) if active in ("inactive", "failed") or waiting else ("unknown", None)


def _comes_back(service: Parts) -> Told:
    active = service.get("active_state")
    if not active:
        return "unknown"
    return "yes" if active == "activating" else "no"


def _ended(service: Parts) -> t.Literal["alone", "on_request", "unknown"]:
    """systemctl stop takes a unit out of active before its process ends; when the process dies, active ends after it.

    Result does not tell: a stop that needs SIGKILL ends as failed, and a start limit often leaves it as it was.
    """
    active, left, ended = (service.get(name) for name in ("active_state", "left_active_us", "main_ended_us"))
    if active not in ("inactive", "failed"):
        return "unknown"
    asked = isinstance(left, int) and isinstance(ended, int) and 0 < left < ended
    if asked or _GUARD_STOPPED.search(str(service.get("start_pre") or "")):
        return "on_request"
    if active == "failed":
        return "alone"
    if left == 0:
        return "unknown"  # it has not run since the boot
    # With Restart=always only a request leaves a unit inactive; without, so does a good end, and nothing else.
    alone = service.get("restart") not in (None, "", "always") and service.get("exit_status") in (None, 0)
    return "alone" if alone else "on_request"


def _moves(health: Parts, parts: t.Any, gpus: tuple[str, ...]) -> Told:
    """A worker that is missing is no sign of a standstill: the others may wait for it at full speed, or serve."""
    witnesses, started = _part(health, "witnesses"), _part(health, "started_with")
    if _part(health, "requests").get("progress") is True or _part(witnesses, "generation").get("ok") is True:
        return "yes"
    use = _use(_part(parts, "gate"), gpus) or _use(_part(parts, "host_gate"), gpus)
    if use == "some":
        return "yes"
    if started.get("told") is False and _part(witnesses, "port").get("ok") is not True:
        return "unknown"  # it may have been asked at a port that is not its own
    return "no" if use == "none" or _part(health, "requests").get("progress") is False else "unknown"


def _use(gate: Parts, gpus: tuple[str, ...]) -> str | None:
    rows = gate.get("gpus")
    if not isinstance(rows, list):
        return None
    shares = [
        row.get("utilization_pct")
        for row in rows
        if isinstance(row, t.Mapping) and overlap((str(row.get("uuid")),), gpus)
    ]
    if any(isinstance(share, (int, float)) and share > 0 for share in shares):
        return "some"
    return "none" if shares and all(share == 0 for share in shares) else None


def _requests(running: t.Any, queued: t.Any) -> t.Literal["none", "some", "unknown"]:
    if (isinstance(running, int) and running > 0) or (isinstance(queued, int) and queued > 0):
        return "some"
    return "none" if running == 0 and queued == 0 else "unknown"
