# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The start guard: the gate in front of every start of a unit, whoever starts it.

A start by hand, a restart by systemd and a boot pass no playbook. The guard runs the same gate on the node, slice by
slice, says what it waits for, and lets the server start or not.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions, GateResult, wait_idle
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_locks import GpuLock, held_by, prepare
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_record import GuardRecord
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_rules import (
    GuardVerdict,
    Seen,
    Step,
    cuda_numbers,
    decide,
)

SLICE = 15.0  # seconds of the gate at a time: longer than memory must stand still to be called settled
STANDING = 2.0  # seconds that a holder must have been there unchanged: a tool that looks at the GPUs is gone by then
BETWEEN_SLICES = 1.0
PROGRESS_EVERY = 60.0
TRIES_AGAIN = "systemd tries again."


class GuardWorld(t.Protocol):
    """What the guard does to the machine."""

    def look(self, processes: bool) -> GpuLook: ...

    def scan(self, processes: t.Sequence[GpuProcess]) -> HolderScan: ...

    def write(self, record: GuardRecord) -> None: ...

    def write_environment(self, numbers: str | None) -> None: ...

    def forget_starts(self) -> str | None:
        """Take this start out of systemd's start limit; what went wrong, or None."""

    def sweep(self) -> t.Mapping[str, t.Any] | None:
        """Remove what a killed server left behind; None where that is not wanted."""

    def say(self, text: str, *, warning: bool = False) -> None: ...


@dataclasses.dataclass(frozen=True)
class GuardOptions:
    """gate.timeout is the guard's whole time. by_number: the server is told the numbers of the expected GPUs."""

    unit: str
    gate: GateOptions
    locks: tuple[GpuLock, ...] = ()
    lock_group: int | None = None
    boot_id: str = ""
    invocation_id: str = ""
    pid: int = 0
    refusals: int = 0
    proc_root: str = "/proc"

    @property
    def by_number(self) -> bool:
        return bool(self.gate.expectation.uuids)


class Guard:
    """One start."""

    def __init__(self, world: GuardWorld, options: GuardOptions, clock: Clock) -> None:
        self._world, self._options, self._clock = world, options, clock
        self._began = clock.monotonic()
        self._said_at = self._began
        self._said: tuple[t.Any, ...] | None = None
        self._reason = "Nothing was looked at yet."
        self._unwritten = False
        now = round(clock.wall(), 3)
        self._record = GuardRecord(
            unit=options.unit,
            verdict="waiting",
            reason=self._reason,
            boot_id=options.boot_id,
            invocation_id=options.invocation_id,
            pid=options.pid,
            started_at=now,
            updated_at=now,
            refused_count=options.refusals,
        )

    def run(self) -> GuardVerdict:
        """Look until the server may start or it is known that it must not."""
        self._write()
        if self._options.locks:
            prepare(self._options.locks, self._options.lock_group)
        while True:
            result = self._slice()
            seen, numbers = self._seen(result)
            waited = self._waited()
            step = decide(seen, waited, self._options.gate.timeout, self._options.refusals)
            self._note(seen, result)
            if step == "start":
                return self._start(numbers)
            if step in ("refuse", "give_up"):
                return self._refuse(step)
            self._tell(seen, result)
            self._clock.sleep(min(BETWEEN_SLICES, max(self._options.gate.timeout - self._waited(), 0.01)))

    def give_up(self) -> GuardVerdict:
        """The time is over while something does not come back."""
        return self._refuse("give_up")

    def interrupted(self) -> GuardVerdict:
        """systemd ended it: a stop, or TimeoutStartSec. Not a no of the guard, so the start limit counts it."""
        text = f"ended by a signal after {self._waited():.0f} s; {self._options.unit} was not started. {self._reason}"
        return self._end("interrupted", text, warning=True)

    def failed(self, what: str) -> GuardVerdict:
        """The guard itself failed. What could not be looked at is not idle."""
        return self._end(
            "error", f"could not do its work, so {self._options.unit} was not started: {what}", warning=True
        )

    def _waited(self) -> float:
        return self._clock.monotonic() - self._began

    def _slice(self) -> GateResult:
        gate = self._options.gate
        left = max(gate.timeout - self._waited(), 0.0)
        options = dataclasses.replace(gate, timeout=min(SLICE, left), patience=min(STANDING, gate.timeout))
        return wait_idle(self._world.look, self._world.scan, options, self._clock, proc_root=self._options.proc_root)

    def _seen(self, result: GateResult) -> tuple[Seen, str | None]:
        """The slice as the rules see it, and the numbers of the GPUs for the server."""
        locked_by = unclear = numbers = None
        if result.passed:
            locked_by = held_by(self._options.locks, self._clock.sleep, self._options.proc_root)
            if self._options.by_number:
                try:
                    numbers = cuda_numbers(result.gpus, self._options.gate.expectation.uuids)
                except ValueError as error:
                    unclear = str(error)
        return Seen(result.verdict, result.passed, locked_by, unclear), numbers

    def _note(self, seen: Seen, result: GateResult) -> None:
        self._reason = result.reason
        if seen.passed and seen.locked_by is not None:
            self._reason = f"The GPUs are idle, but another server is starting on them: {seen.locked_by}."
        elif seen.passed and seen.unclear is not None:
            self._reason = f"The GPUs are idle, but {seen.unclear}."
        self._record = dataclasses.replace(
            self._record,
            gate=result.verdict,
            gpus=tuple(gpu.as_dict() for gpu in result.gpus),
            holders=tuple(holder.as_dict() for holder in result.holders),
        )

    def _tell(self, seen: Seen, result: GateResult) -> None:
        """One line per change, and one a minute where nothing changes."""
        now = self._clock.monotonic()
        pids = tuple(holder.pid for holder in result.holders if holder.disposition in ("target", "foreign"))
        telling = (seen, pids)
        if telling == self._said and now - self._said_at < PROGRESS_EVERY:
            return
        again = telling == self._said
        self._said, self._said_at = telling, now
        budget = self._options.gate.timeout
        self._world.say(f"{'still ' if again else ''}waiting, {self._waited():.0f} of {budget:.0f} s: {self._reason}")
        self._write()

    def _start(self, numbers: str | None) -> GuardVerdict:
        # Before anything of the server runs, and only where the GPUs are proved idle: nobody of it can be left.
        leftovers = self._world.sweep()
        self._world.write_environment(numbers)
        self._record = dataclasses.replace(self._record, refused_count=0, leftovers=leftovers)
        parts = [f"starts {self._options.unit} after {self._waited():.1f} s: {self._reason}"]
        if self._options.refusals:
            parts.append(f"It had said no {self._options.refusals} times before.")
        if numbers is not None:
            parts.append(f"CUDA_VISIBLE_DEVICES={numbers}.")
        if leftovers is not None and leftovers.get("removed"):
            parts.append(str(leftovers.get("msg", "")))
        return self._end("start", " ".join(parts), warning=False)

    def _refuse(self, step: Step) -> GuardVerdict:
        count = self._options.refusals + 1
        self._record = dataclasses.replace(self._record, refused_count=count)
        unit = self._options.unit
        # The start limit is there for a server that crashes. Without this, a holder that stays for a while would leave
        # the unit failed for good.
        problem = self._world.forget_starts()
        after = f" The start limit counts this, since it could not be reset: {problem.rstrip('.')}." if problem else ""
        if step == "refuse":
            text = f"refuses to start {unit} (no {count} in a row): {self._reason} {TRIES_AGAIN}{after}"
            return self._end("refused", text, warning=True)
        waited = f"after {self._waited():.0f} s (no {count} in a row)"
        return self._end("gave_up", f"gives up on {unit} {waited}: {self._reason} {TRIES_AGAIN}{after}", warning=True)

    def _end(self, verdict: GuardVerdict, text: str, *, warning: bool) -> GuardVerdict:
        self._reason = text[0].upper() + text[1:]
        self._record = dataclasses.replace(self._record, verdict=verdict)
        self._world.say(text, warning=warning)
        self._write()
        return verdict

    def _write(self) -> None:
        """The report is for people; a full disk must keep no server down. What the server reads is another file."""
        record = dataclasses.replace(
            self._record,
            reason=self._reason,
            waited_s=round(self._waited(), 3),
            updated_at=round(self._clock.wall(), 3),
        )
        try:
            self._world.write(record)
        except OSError as error:
            if not self._unwritten:
                self._unwritten = True
                self._world.say(f"its report cannot be written, and it goes on without: {told(error)}", warning=True)
