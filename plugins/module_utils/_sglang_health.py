# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""One look at an SGLang server: unit, port, processes, log and what it answers, and the one word that it comes to."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer, Opener
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState, Redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import (
    ServerProcesses,
    look_at_processes,
    seconds_since_boot,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_questions import (
    Generation,
    Models,
    Requests,
    ask_generation,
    ask_lasting_load,
    ask_load,
    ask_models,
    compare_loads,
    refused_key,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState, read_unit
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

Verdict = t.Literal[
    "absent",
    "stopped",
    "starting",
    "ready",
    "busy",
    "hung",
    "unauthorized",
    "wrong_model",
    "port_taken",
    "crash_looping",
    "failed",
    "unknown",
]
# SGLang itself waits 20 s for a sign of life before it answers /health with 503; at once it does so while it starts.
REQUEST_TIMEOUT = 25.0
SLOW_REFUSAL = 10.0
_ANSWER_WIDTH = 200  # of an answer that is quoted
LOAD_INTERVAL = 5.0  # between two readings of the load, where it matters whether the model moves


_NO_REQUESTS = Requests()


@dataclasses.dataclass(frozen=True)
class Target:
    """Which server, and what it must be. unit is empty for a server without one."""

    unit: str
    host: str
    port: int
    served_model_name: str | None = None
    expected_workers: int | None = None
    request_timeout: float = REQUEST_TIMEOUT

    @property
    def name(self) -> str:
        return f"{self.unit or 'the server'} on {self.host}:{self.port}"


@dataclasses.dataclass(frozen=True)
class Observation:
    """Everything that was seen, before it is judged. What was not asked is None."""

    unit: UnitState | None
    processes: ServerProcesses
    log: LogState | None = None
    health: Answer | None = None
    models: Models | None = None
    generation: Generation | None = None
    requests: Requests = _NO_REQUESTS


@dataclasses.dataclass(frozen=True)
class Witness:
    """One independent sign. ok is None where it was not asked or could not be told."""

    ok: bool | None
    detail: str


@dataclasses.dataclass(frozen=True)
class HealthLook:
    """A verdict with its sentence and everything it rests on."""

    name: str
    verdict: Verdict
    reason: str
    seen: Observation
    witnesses: t.Mapping[str, Witness]
    since: float | None = None

    @property
    def stage(self) -> str | None:
        """How far a start has come; None where nothing runs or nothing tells."""
        unit = self.seen.unit
        if unit is not None and unit.phase == "guard":
            return "guard"
        if self.verdict in ("ready", "busy"):
            return "ready"
        return self.seen.log.stage if self.seen.log is not None and self.verdict not in ("absent", "stopped") else None

    @property
    def was_ready(self) -> bool:
        """Whether this run has come to serve, by its answer or by its own log."""
        return self.verdict in ("ready", "busy") or (self.seen.log is not None and self.seen.log.ready)


def _workers(target: Target, processes: ServerProcesses) -> Witness:
    count, expected = len(processes.workers), target.expected_workers
    if expected is None:
        return Witness(None, f"{count} workers, none were asked for")
    if processes.outside and not count:
        return Witness(None, "the unit runs a container whose processes cannot be seen from here")
    if count >= expected:
        return Witness(True, f"{count} of {expected} workers are alive")
    names = {f"TP{number}" for number in range(expected)}
    alive = set(processes.worker_ranks())
    missing = f", without {', '.join(sorted(names - alive))}" if count and alive <= names else ""
    return Witness(False, f"only {count} of {expected} workers are alive{missing}")


def _port(target: Target, processes: ServerProcesses, redact: Redact) -> Witness:
    if processes.foreign is not None:
        who = processes.foreign
        named = f"process {who.pid} ({redact(who.cmdline)[:80]})"
        owner = named if who.pid is not None else "a process that cannot be seen from here"
        return Witness(False, f"{who.address}:{target.port} belongs to {owner}, which is not part of {target.unit}")
    if processes.listeners is None:
        return Witness(None, "the kernel's table of sockets could not be read")
    if not processes.listeners:
        return Witness(None, f"nobody listens on port {target.port}")
    if processes.ours is None:
        return Witness(None, f"who listens on port {target.port} cannot be told from here")
    return Witness(processes.ours, f"port {target.port} belongs to the server")


def _unit(unit: UnitState | None) -> Witness:
    if unit is None:
        return Witness(None, "no unit was given")
    if unit.phase == "unknown":
        return Witness(None, f"systemd could not be asked about {unit.name}")
    return Witness(unit.phase == "running", unit.describe())


def _model(target: Target, models: Models | None, redact: Redact) -> Witness:
    if models is None:
        return Witness(None, "not asked")
    if models.ids is None:
        return Witness(False, f"/v1/models {_said(models.answer, redact)}")
    serves = f"serves {', '.join(models.ids) or 'nothing'}"
    if target.served_model_name is None:
        return Witness(bool(models.ids), serves)
    if target.served_model_name in models.ids:
        return Witness(True, f"serves {target.served_model_name}")
    return Witness(False, f"{serves}; wanted is {target.served_model_name}")


def _said(answer: Answer, redact: Redact) -> str:
    if answer.failure is not None:
        return f"gave no answer ({answer.failure}: {redact(answer.error)})"
    text = redact(answer.text())[:_ANSWER_WIDTH]  # masked before it is cut: half a key is still a secret
    return f"answered {answer.status}" + (f" ({text})" if text and answer.status != 200 else "")


def witnesses_of(target: Target, seen: Observation, redact: Redact) -> dict[str, Witness]:
    generation = seen.generation
    return {
        "unit": _unit(seen.unit),
        "port": _port(target, seen.processes, redact),
        "workers": _workers(target, seen.processes),
        "model": _model(target, seen.models, redact),
        "generation": Witness(None, "not asked")
        if generation is None
        else Witness(generation.ok, f"{_said(generation.answer, redact)} after {generation.answer.seconds:.1f} s"),
    }


def _judge_unit(target: Target, seen: Observation, port: Witness) -> tuple[Verdict, str] | None:
    """The verdict where the unit alone decides it, else None."""
    unit = seen.unit
    if unit is None:
        if seen.processes.main is None and seen.processes.listeners == ():
            return "absent", f"nobody listens on {target.host}:{target.port}"
        return None
    also = f"; {port.detail}" if port.ok is False else ""
    if unit.crash_looping():
        return "crash_looping", f"{unit.describe()}{also}"
    if unit.phase == "unknown":
        return "unknown", f"systemd could not be asked about {unit.name}"
    if unit.phase == "absent":
        return "absent", f"there is no unit {unit.name}{also}"
    if unit.phase in ("failed", "restarting"):
        return "failed", f"{unit.describe()}{also}"
    if port.ok is False:
        return "port_taken", f"{unit.describe()}; {port.detail}"
    if unit.phase in ("stopped", "stopping"):
        return "stopped", unit.describe()
    if unit.phase in ("queued", "guard"):
        return "starting", unit.describe()
    main = seen.processes.main
    if unit.main_pid is not None and (main is None or not main.alive):
        return "failed", f"{unit.describe()}, but its main process {unit.main_pid} is {'dead' if main else 'gone'}"
    return None


def _judge_silence(target: Target, seen: Observation, workers: Witness, redact: Redact) -> tuple[Verdict, str] | None:
    """The verdict where /health is not 200, else None."""
    health, log = seen.health, seen.log
    was_ready = log is not None and log.ready
    stage = f"stage {log.stage}" if log is not None else "its log is not known"
    if health is not None and health.status == 200:
        return None
    if log is not None and log.fatal:
        return "failed", f"its log says: {log.fatal}"
    if health is None or health.failure in ("refused", "unreachable"):
        if was_ready:
            return "failed", f"nobody listens on port {target.port} although the server said that it was ready"
        return "starting", f"nobody listens on port {target.port} yet, {stage}"
    if refused_key(health):
        return "unauthorized", f"/health {_said(health, redact)}"
    if was_ready and workers.ok is False:
        return "failed", f"/health {_said(health, redact)}, and {workers.detail}"
    if health.status == 503 and log is not None and log.shutting_down:
        return "stopped", "/health answers 503: it is shutting down"
    unanswered = log is not None and log.unanswered
    slow = health.failure == "timeout" or (health.status == 503 and (health.seconds >= SLOW_REFUSAL or unanswered))
    if slow:
        after = f"/health {_said(health, redact)} after {health.seconds:.1f} s"
        if seen.requests.progress:
            return "busy", f"{after}, but the model moves: {seen.requests.running} requests running"
        if log is not None and not was_ready and not unanswered:
            return "starting", f"{after}, {stage}"
        return "hung", f"{after}: no sign of life from the model"
    if health.status == 503:
        if was_ready:
            return "stopped", "/health answers 503 at once although the server had been ready: it is shutting down"
        return "starting", f"the port is open, /health answers 503, {stage}"
    return "failed", f"/health {_said(health, redact)}"


def judge(target: Target, seen: Observation, redact: Redact) -> tuple[Verdict, str, dict[str, Witness]]:
    """The one word, the sentence that says why, and the witnesses."""
    witnesses = witnesses_of(target, seen, redact)
    verdict, reason = _judge(target, seen, witnesses, redact)
    return verdict, reason, witnesses


def _judge(
    target: Target, seen: Observation, witnesses: t.Mapping[str, Witness], redact: Redact
) -> tuple[Verdict, str]:
    decided = _judge_unit(target, seen, witnesses["port"]) or _judge_silence(target, seen, witnesses["workers"], redact)
    if decided is not None:
        return decided
    if witnesses["workers"].ok is False:
        return "failed", f"/health answers 200, but {witnesses['workers'].detail}"
    models, generation = seen.models, seen.generation
    if refused_key(models.answer if models else None) or refused_key(generation.answer if generation else None):
        return "unauthorized", "it runs, but it refuses the API key (or wants one and none was given)"
    if models is None or models.ids is None:
        answered = models.answer.failure is None if models else False
        return "failed" if answered else "hung", f"/health answers 200, but {witnesses['model'].detail}"
    if not witnesses["model"].ok:
        return "wrong_model", witnesses["model"].detail
    if generation is not None and generation.ok:
        # Before its own first request a new server can look ready through an older one's answers.
        if witnesses["port"].ok is None and seen.unit is not None and seen.log is not None and not seen.log.ready:
            return "starting", f"{witnesses['port'].detail}, and its own log does not say ready yet"
        took = f"a generation took {generation.answer.seconds:.1f} s"
        return "ready", f"{witnesses['model'].detail}; {witnesses['workers'].detail}; {took}"
    return _judge_generation(generation, seen.requests, witnesses["generation"])


def _judge_generation(generation: Generation | None, requests: Requests, witness: Witness) -> tuple[Verdict, str]:
    answer = generation.answer if generation is not None else Answer()
    if answer.status in (429, 503):
        return "busy", f"the server takes no more requests for now: the generation {witness.detail}"
    if answer.status is not None:
        return "failed", f"/health answers 200, but the generation {witness.detail}"
    if answer.failure == "timeout" and (requests.progress or (requests.progress is None and requests.running)):
        return "busy", f"{requests.running} requests running, {requests.queued} queued; the generation {witness.detail}"
    return "hung", f"/health answers 200, but the generation {witness.detail}"


def look(
    target: Target,
    *,
    systemd: Systemd,
    opener: Opener,
    clock: Clock,
    redact: Redact,
    log: t.Callable[[UnitState | None, float | None], LogState | None],
    proc_root: str = "/proc",
    boot_clock: t.Callable[[], float] = seconds_since_boot,
) -> HealthLook:
    """One look. It sends nothing to a port that belongs to somebody else: the key must not go there.

    :param log: gives what the log of this run says, from the unit and the moment its main process started.
    """
    unit = read_unit(systemd, target.unit) if target.unit else None
    processes = look_at_processes(
        unit.main_pid if unit else None,
        unit.control_group if unit else "",
        target.host,
        target.port,
        unit=unit is not None,
        proc_root=proc_root,
    )
    since = None
    if processes.main is not None:
        since = clock.wall() - (boot_clock() - processes.main.started_after_boot())
    elif unit is not None and unit.main_started_monotonic is not None:
        since = clock.wall() - (clock.monotonic() - unit.main_started_monotonic)
    seen = Observation(unit, processes, log(unit, since))
    runs = unit is None or unit.phase == "running"
    if runs and processes.foreign is None and processes.listeners != ():
        seen = _ask(target, seen, opener, clock)
        health = seen.health
        if health is not None and health.status == 503:
            # The server writes into its log why it says no.
            seen = dataclasses.replace(seen, log=log(unit, since))
            if seen.log is not None and seen.log.unanswered and not _is_slow(health):
                # Its own patience may be set shorter than ours.
                seen = _ask_progress(seen, opener, clock)
    if processes.main is None and unit is not None and unit.changed_monotonic is not None:
        since = clock.wall() - (clock.monotonic() - unit.changed_monotonic)
    verdict, reason, witnesses = judge(target, seen, redact)
    return HealthLook(target.name, verdict, reason, seen, witnesses, since)


def _ask(target: Target, seen: Observation, opener: Opener, clock: Clock) -> Observation:
    health = opener("/health", timeout=target.request_timeout, with_key=False)
    seen = dataclasses.replace(seen, health=health)
    if health.status == 200:
        models = ask_models(opener)
        seen = dataclasses.replace(seen, models=models)
        ids = models.ids or ()
        if not ids or (target.served_model_name is not None and target.served_model_name not in ids):
            return seen
        generation = ask_generation(opener, target.served_model_name or ids[0], target.request_timeout)
        seen = dataclasses.replace(seen, generation=generation)
        if generation.ok:
            load = ask_lasting_load(opener, clock)
            return dataclasses.replace(seen, requests=Requests(load.running, load.queued))
        stuck = generation.answer.failure == "timeout"
    else:
        stuck = _is_slow(health)
    return _ask_progress(seen, opener, clock) if stuck else seen


def _is_slow(health: Answer) -> bool:
    return health.failure == "timeout" or health.seconds >= SLOW_REFUSAL


def _ask_progress(seen: Observation, opener: Opener, clock: Clock) -> Observation:
    before = ask_load(opener)
    if before.tokens is None:
        return dataclasses.replace(seen, requests=Requests(before.running, before.queued))
    clock.sleep(LOAD_INTERVAL)
    return dataclasses.replace(seen, requests=compare_loads(before, ask_load(opener)))
