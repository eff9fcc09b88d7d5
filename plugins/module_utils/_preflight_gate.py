# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether the gate would open once everything of ours was released, told in the execution of the other checks."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions, GateResult, wait_idle
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_verdicts import Sample, assess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import judge
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Port
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)

NAME = "gate"
_CURE = "No release would mend that: see to it first, then try again."


class OneLook:
    """GPUs and holders for all checks. A nvidia-smi that hangs takes its whole deadline, so it is asked once."""

    def __init__(self, world: GpuWorld) -> None:
        self._world = world
        self._look: GpuLook | None = None
        self._scan: HolderScan | None = None

    @property
    def port(self) -> Port | None:
        return self._world.request.port

    @property
    def proc_root(self) -> str:
        return self._world.request.proc_root

    def look(self, _processes: bool = True) -> GpuLook:
        if self._look is None:
            self._look = self._world.look()
        return self._look

    def scan(self, _processes: t.Sequence[GpuProcess] = ()) -> HolderScan:
        """A new one each time: a rehearsal scans again where one was not complete."""
        self._scan = self._world.scan(self.look().processes)
        return self._scan

    def holders(self) -> HolderScan:
        """What the latest scan saw."""
        return self._scan or self.scan()


def rehearse(seen: OneLook, options: GateOptions, clock: Clock) -> GateResult:
    return wait_idle(seen.look, seen.scan, options, clock, proc_root=seen.proc_root)


def gate(context: Context, rehearsed: GateResult | None, seen: OneLook) -> Check:
    """What the rehearsal said. Where none was asked for, a nvidia-smi that hangs is told all the same: whoever asks
    it next would wait as long again."""
    if rehearsed is not None:
        said = rehearsed.reason.rstrip(".")
        return passed(NAME, said) if rehearsed.passed else failed(NAME, [Fault(said, _CURE)])
    if seen.port is None or seen.look().state != "hung":
        return not_checked(NAME, "its rehearsal was not asked for")
    unanswered = assess(Sample(seen.look(), judge(seen.look(), context.expectation), scan=None))
    return failed(NAME, [Fault(unanswered.reason.rstrip("."), _CURE)])
