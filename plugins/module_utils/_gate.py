# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The gate: waiting until the GPUs are proven idle, or until it is known that they will not be."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_verdicts import Finding, GateVerdict, Sample, assess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import (
    Expectation,
    Gpu,
    GpuLook,
    GpuProcess,
    Judgement,
    LookState,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import check_idle_mib, judge
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan, PortOwner
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import describe
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import look_until_complete
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_number

SCAN_INTERVAL = 2.0  # seconds between scans while memory is high: they only name who holds it
KILLED_RECENTLY = 180.0  # seconds in which what was killed may still be giving memory back
FALLING_WINDOW = 10.0  # seconds for which a decrease counts as still going on
# Seconds: a look may be held up for a minute by somebody who unpins memory, and that was waiting enough.
LONGEST_PAUSE = 2.0
# The inode of the first PID namespace is the same on every Linux (PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"

MOST_SAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class GateOptions:
    """patience: how long an outcome that will not change by itself must have stood. killed_at: when this execution
    last sent a signal, on the same clock."""

    expectation: Expectation
    max_used_mib: int = 0
    settled_mib: int = 0
    samples: int = 2
    interval: float = 0.1
    timeout: float = 300.0
    patience: float = 10.0
    settle_time: float = 10.0
    killed_at: float | None = None
    check_mode: bool = False

    def __post_init__(self) -> None:
        """ValueError: a sentence that names the option and its value."""
        count, uuids = self.expectation.count, self.expectation.uuids
        if (count is None) == (not uuids):
            raise ValueError(
                "Exactly one of expected_count and expected_uuids is needed: the gate has to know which GPUs must "
                "be idle "
                f"(expected_count is {count}, expected_uuids is {list(uuids)})."
            )
        check_idle_mib("max_used_mib", self.max_used_mib)
        check_idle_mib("settled_mib", self.settled_mib)
        check_number("samples", self.samples, 1, MOST_SAMPLES)
        if not 0.01 <= self.interval <= 60:
            raise ValueError(f"interval is {self.interval:g}: it has to be between 0.01 and 60 seconds.")
        if not 0 <= self.timeout <= 86400:
            raise ValueError(f"timeout is {self.timeout:g}: it has to be between 0 and 86400 seconds.")


@dataclasses.dataclass(frozen=True)
class HistoryEntry:
    """Memory by GPU UUID at one moment: seconds since the gate began."""

    at_s: float
    used_mib: t.Mapping[str, int | None]

    def as_dict(self) -> dict[str, t.Any]:
        return {"t": self.at_s, "used_mib": dict(self.used_mib)}


@dataclasses.dataclass(frozen=True)
class GateResult:
    """would_open_after_release is None unless this was a rehearsal (check mode). reason is the message without the
    time that was waited."""

    verdict: GateVerdict
    passed: bool
    message: str
    waited_s: float = 0.0
    looks: int = 0
    history: tuple[HistoryEntry, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    holders: tuple[Holder, ...] = ()
    port_owners: tuple[PortOwner, ...] = ()
    smi_state: LookState = "ok"
    would_open_after_release: bool | None = None
    reason: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        """The public shape (RETURN of gpu_wait_idle)."""
        return {
            "verdict": self.verdict,
            "msg": self.message,
            "waited_s": self.waited_s,
            "looks": self.looks,
            "history": [entry.as_dict() for entry in self.history],
            "gpus": [gpu.as_dict() for gpu in self.gpus],
            "holders": [holder.as_dict() for holder in self.holders],
            "port_owners": [owner.as_dict() for owner in self.port_owners],
            "smi_state": self.smi_state,
            "would_open_after_release": self.would_open_after_release,
        }


def inside_container(proc_root: str = "/proc") -> bool:
    """Whether this is another PID namespace than that of the machine, so that not every process can be seen."""
    try:
        return os.readlink(os.path.join(proc_root, "self/ns/pid")) != _FIRST_PID_NAMESPACE
    except OSError:
        return False


def wait_idle(
    look: t.Callable[[bool], GpuLook],
    scan: t.Callable[[t.Sequence[GpuProcess]], HolderScan] | None,
    options: GateOptions,
    clock: Clock,
    *,
    proc_root: str = "/proc",
    seen: HolderScan | None = None,
) -> GateResult:
    """Look until the gate opens or is known to stay shut. In check mode: one look, the rehearsal.

    look is told whether to ask for the compute processes too. Samples that follow a good one do without: at the first
    there was none, and the scan of the last one sees whoever came. seen: a scan of this moment, which names who holds
    memory until it is time for the next.
    """
    gate = _Gate(look, scan, options, clock, proc_root, seen)
    while True:
        result = gate.step()
        if result is not None:
            return result
        clock.sleep(gate.pause())


class _Gate:
    def __init__(
        self,
        look: t.Callable[[bool], GpuLook],
        scan: t.Callable[[t.Sequence[GpuProcess]], HolderScan] | None,
        options: GateOptions,
        clock: Clock,
        proc_root: str,
        seen: HolderScan | None,
    ) -> None:
        self._look, self._scan, self._options, self._clock = look, scan, options, clock
        self._proc_root = proc_root
        self._in_container = inside_container(proc_root)
        self._began = clock.monotonic()
        self._history: list[HistoryEntry] = []
        self._looks = 0
        self._good = 0
        self._doubted = False
        self._holders = seen
        self._scanned_at = None if seen is None else self._began
        self._used: dict[str, int | None] = {}
        self._used_since = self._began
        self._fell_at: float | None = None
        self._standing: tuple[t.Any, ...] | None = None
        self._standing_since = self._began
        self._cost = 0.0

    def pause(self) -> float:
        """Until the next look: about half of the time at most goes into asking a nvidia-smi that is slow each time, and
        the last look is at the end. Scans have an interval of their own."""
        left = self._options.timeout - (self._clock.monotonic() - self._began)
        pause = max(self._options.interval, min(self._cost, LONGEST_PAUSE))
        return min(pause, max(left, self._options.interval))

    def step(self) -> GateResult | None:
        """One sample; the result where it ends the waiting."""
        began = self._clock.monotonic()
        look = self._look(self._good == 0)
        self._cost = self._clock.monotonic() - began
        judgement = judge(look, self._options.expectation, self._options.max_used_mib)
        self._looks += 1
        self._note_memory(judgement, look)
        self._scan_where_needed(look, judgement)
        now = self._clock.monotonic()
        finding = assess(self._sample(look, judgement, now))
        self._good = self._good + 1 if finding.verdict == "idle" else 0
        # Memory is 0 and a scan says otherwise: then no sample goes without one any more.
        self._doubted = self._doubted or (judgement.verdict == "idle" and finding.verdict != "idle")
        if self._options.check_mode:
            return self._rehearsed(finding, look)
        standing = (finding.verdict, finding.pids, tuple(sorted(self._used.items())))
        if standing != self._standing:
            self._standing, self._standing_since = standing, now
        if self._ends(finding, now):
            passed = finding.passes and (finding.verdict != "idle" or self._good >= self._options.samples)
            return self._result(finding, look, passed, None)
        return None

    def _ends(self, finding: Finding, now: float) -> bool:
        if finding.verdict == "idle":
            # Once zero was seen the remaining samples are worth their moment, also past the timeout.
            return self._good >= self._options.samples
        if finding.then in ("opens", "at_once"):
            return True
        if finding.then == "patience" and now - self._standing_since >= self._options.patience:
            return True
        return now - self._began >= self._options.timeout

    def _note_memory(self, judgement: Judgement, look: GpuLook) -> None:
        used = {gpu.uuid: gpu.used_mib for gpu in judgement.expected}
        if self._looks > 1 and used == self._used:
            return
        now = self._clock.monotonic()
        if look.state == "ok" and any(
            before is not None and (used.get(uuid) is not None) and t.cast(int, used[uuid]) < before
            for uuid, before in self._used.items()
        ):
            self._fell_at = now
        self._used, self._used_since = used, now
        self._history.append(HistoryEntry(round(now - self._began, 3), used))

    def _scan_where_needed(self, look: GpuLook, judgement: Judgement) -> None:
        if self._scan is None or look.state != "ok":
            return
        now = self._clock.monotonic()
        fresh = self._scanned_at is not None and now - self._scanned_at < SCAN_INTERVAL
        if judgement.verdict != "idle" and fresh:
            return
        first = self._good + 1 < self._options.samples and not self._options.check_mode
        if judgement.verdict == "idle" and first and not self._doubted:
            self._holders = self._scanned_at = None  # who held them is past, and the last sample looks anew
            return
        scan = self._scan
        if self._options.check_mode:  # There is no next look that would see more.
            self._holders = look_until_complete(lambda: scan(look.processes), self._clock)
        else:
            self._holders = scan(look.processes)
        self._scanned_at = self._clock.monotonic()

    def _sample(self, look: GpuLook, judgement: Judgement, now: float) -> Sample:
        options = self._options
        return Sample(
            look=look,
            judgement=judgement,
            scan=self._holders if self._scan is not None else None,
            by_uuid=bool(options.expectation.uuids),
            falling=self._fell_at is not None and now - self._fell_at < FALLING_WINDOW,
            killed_recently=options.killed_at is not None and now - options.killed_at < KILLED_RECENTLY,
            still_for=None if options.check_mode else now - self._used_since,
            settle_time=options.settle_time,
            settled_mib=options.settled_mib,
            dead_pids=self._dead_pids(look, judgement),
            in_container=self._in_container,
            describe=lambda holder: describe(holder, {gpu.uuid: gpu.index for gpu in look.gpus}),
        )

    def _dead_pids(self, look: GpuLook, judgement: Judgement) -> tuple[int, ...]:
        busy = {gpu.uuid for gpu in judgement.busy}
        listed = {process.pid for process in look.processes if process.gpu_uuid in busy}
        return tuple(sorted(pid for pid in listed if not os.path.exists(os.path.join(self._proc_root, str(pid)))))

    def _rehearsed(self, finding: Finding, look: GpuLook) -> GateResult:
        opens = finding.passes or finding.releasable
        text = " The gate would wait for that to be released, and nothing else stands against it." if opens else ""
        if finding.passes:
            text = " The gate would open."
        return self._result(dataclasses.replace(finding, reason=finding.reason + text), look, opens, opens)

    def _result(self, finding: Finding, look: GpuLook, passed: bool, would_open: bool | None) -> GateResult:
        waited = round(self._clock.monotonic() - self._began, 3)
        message = finding.reason
        if not passed and not self._options.check_mode:
            message = f"The GPUs are not idle after {waited:.1f} s ({finding.verdict}): {message}"
        return GateResult(
            verdict=finding.verdict,
            passed=passed,
            message=message,
            waited_s=waited,
            looks=self._looks,
            history=tuple(self._history),
            gpus=look.gpus,
            holders=self._holders.holders if self._holders is not None else (),
            port_owners=self._holders.port_owners if self._holders is not None else (),
            smi_state=look.state,
            would_open_after_release=would_open,
            reason=finding.reason,
        )
