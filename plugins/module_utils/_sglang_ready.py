# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Waiting until an SGLang server serves: two clocks (total, and no progress), and an early end when it dies.

The wait can be cut into slices: its whole state is one token, which holds no secret. Progress is a line in the log, a
later state of the unit, CPU time of the server or growing GPU memory. CPU time does not count while the GPUs look for
each other: there a hanging collective spins.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import typing as t
import zlib

from ansible_collections.cleanslate.gpu.plugins.module_utils import _sglang_log
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_fill import AskMemory, GpuFill
from ansible_collections.cleanslate.gpu.plugins.module_utils._guard_report import Report, refusal
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_guess import (
    CLEAN_EXIT,
    REFUSED,
    Guess,
    from_exit,
    from_lines,
    from_stall,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import HealthLook
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState, Redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log_source import Chunk, Position
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import CRASH_LOOP_RESTARTS, UnitState

POLL = 1.0
FATAL_GRACE = 5.0  # so that the rest of a traceback is read; the dying server itself may take more than a minute
SAME_START = 2.0  # seconds: what two looks work out for the start of one process differs by less
CONFIRMED = 2  # looks in a row for what a look in the middle of a change could show as well
MEMORY_INTERVAL = 5.0
MEMORY_RETRY = 30.0  # after a question that nvidia-smi did not answer: it may hang, and each look must stay quick
_CPU_SHARE = 0.1  # of one core; less is the idling of a process that waits
_MESSAGE_WIDTH = 200  # of a log line; log_tail holds more of it
_TOKEN_VERSION = 1

# Ends at once, or when a second look agrees.
_AT_ONCE = ("absent", "crash_looping", "unauthorized", "wrong_model")
_WHEN_CONFIRMED = ("failed", "stopped", "port_taken")


@dataclasses.dataclass(frozen=True)
class WaitOptions:
    """All in seconds. slice: come back after this long with a token (None: wait until there is a verdict)."""

    timeout: float
    progress_timeout: float
    settle: float
    slice: float | None = None


@dataclasses.dataclass(frozen=True)
class WaitState:
    """What must be remembered between two slices. Times are monotonic."""

    started: float
    progressed: float
    log: LogState
    position: Position | None = None
    pid: int | None = None
    pid_start: int | None = None
    restarts: int | None = None
    workers: int = 0
    cpu_ticks: int = 0
    cpu_since: float = 0.0
    memory: int | None = None
    memory_total: int | None = None
    memory_gpus: int = 0
    memory_asked: float = 0.0
    phase: str = ""
    ready_since: float | None = None
    fatal_since: float | None = None
    run_since: float | None = None
    invocation: str = ""
    log_error: str = ""
    doubt: str = ""
    doubts: int = 0


@dataclasses.dataclass(frozen=True)
class WaitResult:
    """finished False: a slice ended, and state is where to go on. Otherwise verdict is final."""

    verdict: str
    reason: str
    finished: bool
    look: HealthLook
    state: WaitState
    stages: t.Mapping[str, float]
    waited: float
    guess: Guess | None = None
    guard: Report | None = None

    @property
    def memory(self) -> GpuFill | None:
        """How full the GPUs were when they were last asked."""
        state = self.state
        return None if state.memory is None else GpuFill(state.memory, state.memory_total, state.memory_gpus)

    def message(self, log_lines: int = 8) -> str:
        """What a person reads when it did not work out: reason, stage, guess, next step, last lines of the log."""
        stage = self.look.stage or self.state.log.stage
        parts = [f"{self.look.name}: {self.reason} (stage {stage}, after {self.waited:.0f} s)."]
        if self.guess is not None:
            parts.append(f"It looks like this: {self.guess.cause} Next step: {self.guess.cure}")
        lines = [line[:_MESSAGE_WIDTH] for line in self.state.log.last_lines()[-log_lines:]]
        if lines and not self.state.log.tail:
            parts.append("Last lines of the log, which may be an earlier run's:\n" + "\n".join(lines))
        elif lines:
            parts.append("Last lines of the log:\n" + "\n".join(lines))
        else:
            parts.append(self.state.log_error or "The log shows no line of this run.")
        return " ".join(parts)


def begin(clock: Clock, position: Position | None = None) -> WaitState:
    """A wait that begins now. Without a position in the log, lines count from the start of the server's process on."""
    now = clock.monotonic()
    log = LogState(since=now, accepting=position is not None)
    return WaitState(started=now, progressed=now, log=log, position=position, cpu_since=now)


def to_token(state: WaitState, subject: str) -> str:
    """The state as opaque text. subject names what is waited for: a token serves no other wait."""
    data = dataclasses.asdict(state)
    data["log"] = _sglang_log.to_json(state.log)
    text = json.dumps({"version": _TOKEN_VERSION, "subject": subject, "state": data}, separators=(",", ":"))
    # Not for secrecy: text that looks like JSON is turned into a dictionary on its way through templates.
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def from_token(token: str, subject: str, clock: Clock) -> WaitState:
    """The state that to_token wrote. ValueError with a sentence where it is none, or another wait's."""
    try:
        data = json.loads(zlib.decompress(base64.urlsafe_b64decode(token.encode())))
        if data["version"] != _TOKEN_VERSION or data["subject"] != subject:
            raise ValueError("it belongs to another wait")
        values = dict(data["state"])
        values["log"] = _sglang_log.from_json(values["log"])
        state = WaitState(**values)
        late = state.started > clock.monotonic()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
        raise ValueError(f"resume is not what was returned for {subject}; leave it out to begin a new wait") from error
    if late:
        raise ValueError("resume is from before the last boot of this node; leave it out to begin a new wait")
    return state


class Wait:
    """One wait, or one slice of it."""

    def __init__(
        self,
        options: WaitOptions,
        state: WaitState,
        *,
        look: t.Callable[[t.Callable[[UnitState | None, float | None], LogState | None]], HealthLook],
        read_log: t.Callable[[UnitState | None, float | None, Position | None], Chunk],
        clock: Clock,
        redact: Redact,
        memory: AskMemory | None = None,
        guard: t.Callable[[UnitState | None, t.Sequence[str]], Report | None] | None = None,
        log_since: float | None = None,
    ) -> None:
        self._options = options
        self._state = state
        self._look = look
        self._read_log = read_log
        self._clock = clock
        self._redact = redact
        self._memory = memory
        self._guard = guard
        self._log_since = log_since

    def run(self) -> WaitResult:
        """Look again and again until there is a verdict, or the slice is over."""
        end = None if self._options.slice is None else self._clock.monotonic() + self._options.slice
        while True:
            result = self.once()
            if result.finished:
                return result
            now, pause = self._clock.monotonic(), POLL
            if result.state.ready_since is not None:
                # One more look at the end of the settling time, not a generation every second.
                pause = max(0.1, result.state.ready_since + self._options.settle - now)
            if end is not None and now >= end:
                return result
            self._clock.sleep(pause if end is None else min(pause, end - now))

    def once(self) -> WaitResult:
        """One look and what follows from it."""
        look = self._look(self._update_log)
        now = self._clock.monotonic()
        unit = look.seen.unit
        guard = self._guard(unit, (self._state.invocation, unit.invocation if unit else "")) if self._guard else None
        ended = self._remember(look, now)
        verdict, reason = ended or self._decide(look, now)
        # The guard's refusal is why it did not start, whatever systemd makes of its exit status.
        if verdict in ("failed", "crash_looping") and refusal(guard):
            verdict, reason = "failed", f"its start guard did not let it start: {refusal(guard)}"
        if verdict is None:
            waiting = "starting" if look.verdict == "ready" else look.verdict
            return self._result(waiting, look.reason, False, look, now, guard)
        return self._result(verdict, reason, True, look, now, guard)

    def _result(
        self, verdict: str, reason: str, finished: bool, look: HealthLook, now: float, guard: Report | None
    ) -> WaitResult:
        state = self._state
        guess = None
        if finished and verdict != "ready":
            guess = REFUSED if verdict == "failed" and refusal(guard) else self._guess(verdict, look)
        return WaitResult(
            verdict=verdict,
            reason=reason,
            finished=finished,
            look=look,
            state=state,
            stages=state.log.stage_seconds(now),
            waited=now - state.started,
            guess=guess,
            guard=guard,
        )

    def _guess(self, verdict: str, look: HealthLook) -> Guess | None:
        log, unit = self._state.log, look.seen.unit
        all_shards = log.steps is not None and log.steps.done >= log.steps.total
        standing = verdict in ("no_progress", "starting", "hung")
        stalled = from_stall(look.stage or log.stage, all_shards) if standing else None
        # Ordinary lines name errors too: only lines of trouble count, and the last ones of a run that is not sure.
        lines = (*log.earlier_failures, *log.failures, *(() if log.tail else log.last_lines()))
        # A start survives many an error (a plug-in that is not there): what stands behind the fatal line counts first.
        behind = log.failures[log.failures.index(log.fatal) :] if log.fatal in log.failures else ()
        exited = from_exit(unit.exit_status, unit.exit_by_signal) if unit is not None else None
        quietly = CLEAN_EXIT if verdict == "failed" and unit is not None and unit.exit_status == 0 else None
        return stalled or from_lines(behind) or from_lines(lines) or exited or quietly

    def _update_log(self, unit: UnitState | None, since: float | None) -> LogState:
        state = self._state
        # Remembered: once the process is dead nobody tells any more when it began.
        since = state.run_since if since is None else since
        # What came since the last look is of the process that ran then, whatever its clock says: a container has a
        # time zone of its own.
        watched = (
            self._log_since is None
            and state.position is not None
            and since is not None
            and state.run_since is not None
            and abs(since - state.run_since) < SAME_START
        )
        if self._log_since is not None:
            since = self._log_since
        if unit is not None:
            # The last lines of a run that died are still wanted when systemd has begun the next one.
            invocation = state.invocation or unit.invocation
            state = dataclasses.replace(state, invocation=invocation)
            unit = dataclasses.replace(unit, invocation=invocation)
        chunk = self._read_log(unit, since, state.position)
        if (chunk.this_run or watched) and not state.log.accepting:
            state = dataclasses.replace(state, log=dataclasses.replace(state.log, accepting=True))
        now = self._clock.monotonic()
        log = _sglang_log.advance(
            state.log, chunk.lines, now, redact=self._redact, since=since, until=self._clock.wall(), rest=chunk.rest
        )
        if unit is not None:
            log = (_sglang_log.enter_guard if unit.phase == "guard" else _sglang_log.leave_guard)(log, now)
        self._state = dataclasses.replace(
            state, log=log, position=chunk.position, run_since=since, log_error=chunk.error
        )
        return log

    def _remember(self, look: HealthLook, now: float) -> tuple[str, str] | None:
        """Take up the signs of life. Returns verdict and reason where the server has died since the last look."""
        state, unit, processes = self._state, look.seen.unit, look.seen.processes
        ended: tuple[str, str] | None = None
        main = processes.main
        if main is not None and unit is not None:
            if state.pid is not None and (main.pid, main.start_time) != (state.pid, state.pid_start):
                ended = "failed", f"its main process {state.pid} died; systemd has started another one ({main.pid})"
            state = dataclasses.replace(state, pid=main.pid, pid_start=main.start_time)
        restarts = unit.restarts if unit is not None else None
        if restarts is not None and state.restarts is None:
            state = dataclasses.replace(state, restarts=restarts)
            if unit is not None and unit.phase == "running" and restarts >= CRASH_LOOP_RESTARTS and not look.was_ready:
                ended = "crash_looping", f"systemd has restarted it {restarts} times already, and it is starting again"
        elif restarts is not None and state.restarts is not None and restarts > state.restarts:
            died = restarts - state.restarts
            word = "crash_looping" if died >= CRASH_LOOP_RESTARTS else "failed"
            ended = ended or (word, f"systemd has restarted it {died} times since the wait began")
        state = dataclasses.replace(state, workers=max(state.workers, len(processes.workers)))
        self._state = self._progress(state, look, now)
        return ended

    def _progress(self, state: WaitState, look: HealthLook, now: float) -> WaitState:
        processes, unit = look.seen.processes, look.seen.unit
        phase = f"{unit.phase if unit else ''} {state.log.stage} {state.log.lines} {state.log.steps}"
        moved = phase != state.phase
        # The start guard has a deadline of its own (TimeoutStartSec).
        moved = moved or (unit is not None and unit.phase == "guard")
        seconds = now - state.cpu_since
        if seconds >= POLL or moved:
            ticks = processes.cpu_ticks - state.cpu_ticks
            if state.log.stage != "init_distributed" and ticks >= _CPU_SHARE * 100 * max(seconds, POLL):
                moved = True
            state = dataclasses.replace(state, cpu_ticks=processes.cpu_ticks, cpu_since=now)
        if look.verdict != "ready" and (unit is None or unit.phase == "running"):
            before = state.memory
            state = self._ask_memory(state, now)
            moved = moved or (before is not None and state.memory is not None and state.memory > before)
        return dataclasses.replace(state, phase=phase, progressed=now if moved else state.progressed)

    def _ask_memory(self, state: WaitState, now: float) -> WaitState:
        # Towards the end of the quiet time the answer decides, so that even a slow nvidia-smi is listened to.
        patient = now - state.progressed >= self._options.progress_timeout / 2
        answered = patient or state.memory is not None or not state.memory_asked
        due = now - state.memory_asked >= (MEMORY_INTERVAL if answered else MEMORY_RETRY)
        if self._memory is None or not due:
            return state
        fill = self._memory(patient)
        return dataclasses.replace(
            state,
            memory=fill.used_mib if fill else None,
            memory_total=fill.total_mib if fill else None,
            memory_gpus=fill.gpus if fill else 0,
            memory_asked=self._clock.monotonic(),
        )

    def _decide(self, look: HealthLook, now: float) -> tuple[str | None, str]:
        """The final verdict and its reason, or None to go on waiting."""
        if look.verdict in _AT_ONCE and not (look.verdict == "absent" and look.seen.unit is None):
            return look.verdict, look.reason
        doubt = self._doubt(look)
        state = self._state
        state = dataclasses.replace(
            state,
            doubt=doubt,
            doubts=state.doubts + 1 if doubt == state.doubt else 1,
            ready_since=None if look.verdict != "ready" or doubt else state.ready_since or now,
            fatal_since=None if not state.log.fatal or look.verdict == "ready" else state.fatal_since or now,
        )
        self._state = state
        if state.fatal_since is not None:
            alive = look.seen.unit is None or look.seen.unit.phase == "running"
            if alive and now - state.fatal_since < FATAL_GRACE:
                return None, ""
            return "failed", f"its log says: {state.log.fatal}"
        if doubt == "workers" and state.doubts >= CONFIRMED:
            return "failed", f"{len(look.seen.processes.workers)} of {state.workers} workers are left"
        if doubt and state.doubts >= CONFIRMED:
            return look.verdict, look.reason
        return self._clocks(look, now)

    def _clocks(self, look: HealthLook, now: float) -> tuple[str | None, str]:
        state, options = self._state, self._options
        if state.ready_since is not None and now - state.ready_since >= options.settle:
            return "ready", look.reason
        if now - state.started >= options.timeout:
            verdict = "starting" if look.verdict == "ready" else look.verdict
            return verdict, f"not ready within {options.timeout:.0f} s: {look.reason}"
        quiet = now - state.progressed
        if state.ready_since is None and quiet >= options.progress_timeout:
            what = "no line in the log, no CPU time, no GPU memory"
            return "no_progress", f"nothing has moved for {quiet:.0f} s ({what}): {look.reason}"
        return None, ""

    def _doubt(self, look: HealthLook) -> str:
        """What ends the wait if the next look shows it too."""
        if look.verdict in _WHEN_CONFIRMED:
            return look.verdict
        # Workers do not come back: a launcher that lost one may answer for another minute.
        return "workers" if len(look.seen.processes.workers) < self._state.workers else ""
