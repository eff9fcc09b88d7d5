# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What is wrong with one node of the fleet's status, in words, each with the next step; and what is only said.

A finding calls for a person. A note explains what looks unusual and is in hand: a load, a stop on purpose, a run.
"""

from __future__ import annotations

import dataclasses
import typing as t

Status = t.Mapping[str, t.Any]
_DOWN = ("absent", "stopped", "failed")
_READ_LOG = "Read its log, cure what it names, then relaunch.yml"
# What a person does about a server, by its verdict. Verdicts that are not here need nobody.
_SERVER_STEPS = {
    "absent": "relaunch.yml installs the unit and starts it",
    "stopped": "start.yml starts it behind the gate, if it shall serve",
    "hung": "relaunch.yml -e relaunch_when_busy=force stops it, releases its GPUs and starts it anew",
    "unauthorized": "Correct api_key in its profile, or install the one that stands there with relaunch.yml",
    "wrong_model": "relaunch.yml starts the wanted profile; or name the one that serves as sglang_server_profile",
    "port_taken": "End the process that is named, or give the profile another port",
    "crash_looping": _READ_LOG,
    "failed": _READ_LOG,
    "unknown": "Ask the node's systemd by hand: systemctl status, journalctl -u, with the unit's name",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and what to do next."""

    what: str
    step: str

    def as_dict(self) -> dict[str, str]:
        return {"what": self.what, "next": self.step}


def _mapping(value: t.Any) -> t.Mapping[str, t.Any]:
    return value if isinstance(value, t.Mapping) else {}


def _sentence(text: t.Any) -> str:
    said = " ".join(str(text or "").split())
    return said if not said or said[-1] in ".!?" else f"{said}."


def _for(status: Status, step: str) -> str:
    """A step whose playbooks are narrowed down to the node."""
    return _sentence(step.replace(".yml", f".yml -l {status['host']}", 1) if ".yml" in step else step)


def _asked_to_stop(status: Status) -> t.Mapping[str, t.Any]:
    """The wanted state, where a person wants this server stopped."""
    wanted = _mapping(status["wanted"]["value"])
    return wanted if wanted.get("state") == "stopped" else {}


def _server(status: Status) -> t.Iterator[Finding]:
    verdict = status["server"]["verdict"]
    if verdict in ("stopped", "absent") and _asked_to_stop(status):
        return
    if verdict in _SERVER_STEPS:
        what = f"The server is {verdict}: {_sentence(status['server']['reason'])}"
        yield Finding(what, _for(status, _SERVER_STEPS[verdict]))


def _gpus(status: Status) -> t.Iterator[Finding]:
    gpu = status["gpu"]
    if gpu["verdict"] == "unknown":
        yield Finding(
            f"How its GPUs are is not known: {_sentence(gpu['reason'])}",
            "Run nvidia-smi there by hand and read the kernel log of the GPU host for Xid. Nothing starts before that.",
        )
    elif any(one["problems"] for one in gpu["gpus"]):
        named = "; ".join(f"GPU {one['index']} {problem}" for one in gpu["gpus"] for problem in one["problems"])
        yield Finding(
            f"Not every GPU is sound: {_sentence(named)}",
            "Read the kernel log of the GPU host for Xid and do what the driver asks for.",
        )


def _uses_expected(status: Status, process: t.Mapping[str, t.Any]) -> bool:
    """Whether a holder computes on GPUs of this node. One whose GPUs cannot be told may."""
    used = set(process.get("gpus") or [])
    own = set(status["expected_uuids"]) or {one["uuid"] for one in status["gpu"]["gpus"]}
    return bool(process.get("computes")) and (not used or not own or bool(used & own))


def _named(process: t.Mapping[str, t.Any]) -> str:
    container = _mapping(process.get("container"))
    parts = [f"pid {process.get('pid')} ({process.get('comm')})"]
    parts += [f"user {process['user']}"] if process.get("user") else []
    parts += [f"{container.get('kind')} container {container.get('id')}"] if container else []
    parts += [f"unit {process['unit']}"] if process.get("unit") else []
    return ", ".join(parts)


def _list(processes: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    more = f"; and {len(processes) - 4} more" if len(processes) > 4 else ""
    return "; ".join(_named(process) for process in processes[:4]) + more


def _holders(status: Status) -> t.Iterator[Finding]:
    holders, where = status["holders"], status["holders"]["seen_on"]
    computing = [process for process in holders["processes"] if _uses_expected(status, process)]
    foreign = [process for process in computing if process.get("disposition") == "foreign"]
    left = [process for process in computing if process.get("disposition") == "target"]
    if holders["verdict"] == "unknown":
        yield Finding(
            f"Who holds its GPUs was not seen on {where}: {_sentence(holders['incomplete_reason'])}",
            f"See whether {where} answers: ansible -m ping {where}.",
        )
    if holders["verdict"] == "incomplete":
        yield Finding(
            f"Who holds the GPUs could not be told on {where}: {_sentence(holders['incomplete_reason'])}",
            "Become root there (ansible_become); nothing is released until the scan is complete.",
        )
    if foreign:
        yield Finding(
            f"Somebody else uses its GPUs, seen on {where}: {_list(foreign)}.",
            "No playbook ends it. End it by hand, or name it in gpu_release_units or gpu_release_containers.",
        )
    down = status["server"]["verdict"] in _DOWN
    if left and down:
        yield Finding(
            f"The server is down and its GPUs are still held, seen on {where}: {_list(left)}.",
            _for(status, "release.yml ends what was left behind; relaunch.yml starts the server too"),
        )
    if down and status["gpu"]["verdict"] == "busy" and holders["verdict"] in ("none", "some") and not (left or foreign):
        host = (
            ""
            if where != status["host"]
            else " Where this node is a container, set gpu_release_host and gpu_release_lxc: its holder may be outside."
        )
        yield Finding(
            f"Memory is in use and no holder is to be seen on {where}: {_sentence(status['gpu']['reason'])}",
            _for(
                status,
                "Look again in a minute: a process that ends may still unpin memory. Then release.yml says whose it is",
            )
            + host,
        )


def _kept_state(status: Status) -> t.Iterator[Finding]:
    for name, key, cure in (
        ("What is wanted there", "wanted", "relaunch.yml or stop.yml by hand writes it anew"),
        ("What drift remembers there", "drift", "Until a relaunch.yml by hand replaces it drift does nothing"),
        ("The record of its runs", "runs", "Look at the file that is named; no run depends on it"),
    ):
        if status[key]["problem"]:
            yield Finding(f"{name} could not be read: {_sentence(status[key]['problem'])}", _for(status, cure))
    lock = status["lock"]
    if not lock["known"] and lock["reason"]:
        yield Finding(
            f"Whether a run is at work could not be told on {status['gpu_host']}: {_sentence(lock['reason'])}",
            _for(status, "Before any other run: unlock.yml shows who holds them"),
        )
    if lock["unreadable"]:
        yield Finding(
            f"The lease on the GPUs cannot be read: {_sentence(lock['reason'])}",
            _for(status, "unlock.yml -e unlock_run_id=corrupt throws it away, once no run is at work"),
        )


def _drift(status: Status) -> t.Iterator[Finding]:
    gave_up = _mapping(_mapping(status["drift"]["value"]).get("gave_up"))
    if gave_up:
        yield Finding(
            f"Scheduled remediation gave up at {gave_up.get('at')}: {_sentence(gave_up.get('reason'))}",
            _for(status, "Cure the cause; a relaunch.yml by hand lets it act again"),
        )


def _runs(status: Status) -> t.Iterator[Finding]:
    wanted = _mapping(status["wanted"]["value"])
    if wanted.get("outcome") == "failed":
        yield Finding(
            f"The last launch by hand failed ({wanted.get('who')}, {wanted.get('by')}, {wanted.get('at')}), "
            "and drift only reports until one succeeds.",
            _for(status, "Cure what that run named, then relaunch.yml"),
        )
    last = status["runs"]["value"][-1] if status["runs"]["value"] else {}
    # A load has given back its lease and may take longer than a record waits for its end; its marker stands.
    if last.get("interrupted") and not status["lock"]["leases"] and not status["lock"]["starting"]:
        yield Finding(
            f"The run {last.get('run_id')} ({last.get('playbook')}, {last.get('who')}) began at {last.get('began_at')} "
            "and never ended.",
            _for(status, "If the node is not as it should be: relaunch.yml"),
        )


def findings(status: Status) -> list[Finding]:
    """All that is wrong with one node, the most urgent first."""
    if not status["reached"] and not status["unreached_reason"]:
        what = "It was not looked at: its variables were refused."
        return [Finding(what, "Correct what the run has named, then look again.")]
    if not status["reached"]:
        return [
            Finding(
                f"It could not be reached: {_sentence(status['unreached_reason'])}",
                f"See whether the node is up and takes connections: ansible -m ping {status['host']}.",
            )
        ]
    return [finding for rule in (_server, _gpus, _holders, _kept_state, _drift, _runs) for finding in rule(status)]


def notes(status: Status) -> list[str]:
    """What is unusual and in hand, as sentences."""
    if not status["reached"]:
        return []
    said = []
    server, stopped = status["server"], _asked_to_stop(status)
    if server["verdict"] == "starting":
        stage = f" ({server['stage']})" if server["stage"] else ""
        said.append(f"The server is starting{stage}: {_sentence(server['reason'])}")
    if server["verdict"] == "busy":
        said.append(f"The server is busy: {_sentence(server['reason'])}")
    if stopped and server["verdict"] in ("stopped", "absent"):
        said.append(
            f"The server was stopped on purpose by {stopped.get('who')} at {stopped.get('at')} ({stopped.get('by')})."
        )
    said += [f"A run is at work on its GPUs: {_sentence(text)}" for text in status["lock"]["leases"]]
    said += [
        f"A server was started on its GPUs and may still load: {_sentence(text)}" for text in status["lock"]["starting"]
    ]
    pause = _mapping(_mapping(status["wanted"]["value"]).get("pause"))
    if pause:
        said.append(
            f"Remediation is paused until {pause.get('until')} by {pause.get('who')}: {_sentence(pause.get('reason'))}"
        )
    drift = _mapping(status["drift"]["value"])
    if drift.get("backoff_until") and not drift.get("gave_up"):
        said.append(f"After its last attempt remediation waits until {drift['backoff_until']}.")
    said += [
        f"Drift suspects {_sentence(entry.get('key'))[:-1]} since {entry.get('first_at')} and waits for a second look."
        for entry in drift.get("suspicions") or []
        if isinstance(entry, t.Mapping)
    ]
    return said
