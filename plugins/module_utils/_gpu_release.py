# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""A release of the real GPUs: who may be signalled at all, the scans between two steps of it, and the gate after it."""

from __future__ import annotations

import dataclasses

from ansible_collections.cleanslate.gpu.plugins.module_utils import _allow_list, _pair_proof
from ansible_collections.cleanslate.gpu.plugins.module_utils._allow_list import ALLOWED, AllowListError, read_allowed
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions, GateResult, wait_idle
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import (
    ScanRequest,
    describe,
    hold_again,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._kinship import ProcKinship
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder import ReleaseOptions, release
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Identity, ReleaseResult, identity
from ansible_collections.cleanslate.gpu.plugins.module_utils._managers import NodeManagers
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._signalling import KernelSignaller

# Seconds: somebody new who has a device open makes us ask nvidia-smi who computes, but not more often than that.
ASK_AGAIN = 2.0
# Seconds: somebody who has no device left is only there because nvidia-smi listed him; he is done when it no longer
# does.
ASK_ABOUT_DYING = 0.2


class Rescanner:
    """Scans with one list of compute processes, which is asked for again only when somebody new has a device open.

    Whoever was not there at the first look stays new: it opens the devices first and is listed when it computes.
    """

    def __init__(self, world: GpuWorld) -> None:
        self._world = world
        self.first_look = world.look()
        self._processes = self.first_look.processes
        self._asked_at = world.clock.monotonic()
        self._met: set[Identity] | None = None
        self._listed: dict[int, int | None] = {}
        self.latest = HolderScan()

    def __call__(self) -> HolderScan:
        scan = self._world.scan(self._processes)
        if self._met is None:
            self._met = {identity(holder) for holder in scan.holders}
            self._remember(scan)
        elif self._drop_reused(scan) or self._ask_again(scan):
            scan = self._world.scan(self._processes)
        self.latest = scan
        return scan

    def _remember(self, scan: HolderScan) -> None:
        starts = {holder.pid: holder.start_time for holder in scan.holders}
        self._listed = {process.pid: starts.get(process.pid) for process in self._processes}

    def _drop_reused(self, scan: HolderScan) -> bool:
        """A listed PID that belongs to another process by now says nothing about that one."""
        reused = {
            holder.pid
            for holder in scan.holders
            if holder.pid in self._listed and self._listed[holder.pid] != holder.start_time
        }
        if reused:
            self._processes = tuple(process for process in self._processes if process.pid not in reused)
            self._remember(scan)
        return bool(reused)

    def _ask_again(self, scan: HolderScan) -> bool:
        met = self._met or set()
        new = [holder for holder in scan.holders if identity(holder) not in met and not _settled_role(holder)]
        listed_only = [holder for holder in scan.holders if holder.dying and not holder.devices]
        pause = ASK_ABOUT_DYING if listed_only else ASK_AGAIN
        now = self._world.clock.monotonic()
        if not (new or listed_only) or self.first_look.state != "ok" or now - self._asked_at < pause:
            return False
        again = self._world.look()
        self._asked_at = self._world.clock.monotonic()
        if again.state != "ok":
            return False
        # What was listed and has died stays: a child that inherited its context may still be there.
        known = {process.pid for process in again.processes}
        held = {holder.pid for holder in scan.holders}
        kept = tuple(process for process in self._processes if process.pid not in known and process.pid not in held)
        self._processes = (*again.processes, *kept)
        self._remember(scan)
        return True


def _settled_role(holder: Holder) -> bool:
    """Whether the list of compute processes could not change what the rules make of it."""
    return holder.disposition in ("target", "self", "never", "protected")


@dataclasses.dataclass(frozen=True)
class Released:
    """A release, the gate after it where one was asked for, and what nvidia-smi was like at the beginning."""

    result: ReleaseResult
    gate: GateResult | None
    smi_state: str

    @property
    def failed(self) -> bool:
        return self.result.failed or (self.gate is not None and not self.gate.passed)

    @property
    def message(self) -> str:
        if self.gate is None or self.result.failed:
            return self.result.message
        return f"{self.result.message} Gate: {self.gate.message}"


def refusal(request: ScanRequest, node_pid_namespace: str | None, allowed_path: str = ALLOWED) -> str | None:
    """Why nothing may be signalled at all, told before anybody is looked at; None where nothing stands against it."""
    proc = Proc(request.proc_root)
    if proc.is_of_another_namespace():
        return (
            f"{request.proc_root} numbers processes as another PID namespace than this module's does, so a signal "
            "could reach somebody else. Nothing was touched. Run this where both are the same: enter a container with "
            "its own /proc, or work on its host."
        )
    try:
        forbidden = _allow_list.refusal(request.scope, read_allowed(allowed_path), allowed_path)
    except AllowListError as error:
        return f"{error}. Nothing was touched."
    if forbidden is None and request.scope.name == "lxc" and node_pid_namespace is not None:
        return _pair_proof.refusal(node_pid_namespace, request.scope.lxc, proc)
    return forbidden


def release_gpus(
    world: GpuWorld,
    options: ReleaseOptions,
    *,
    stop_timeout: float = 180.0,
    gate: GateOptions | None = None,
    node_pid_namespace: str | None = None,
    stopped_at: float | None = None,
) -> Released:
    """Release, and then the gate if its options are given and the release did not fail. stopped_at: when a server was
    stopped before that, on the world's clock: its memory may still be coming back, as of whom the release signals."""
    request = world.request
    refused = refusal(request, node_pid_namespace)
    if refused is not None:
        return Released(ReleaseResult("refused", refused), None, "not_asked")
    scanner = Rescanner(world)
    index_of = {gpu.uuid: gpu.index for gpu in scanner.first_look.gpus}
    result = release(
        scanner,
        dataclasses.replace(options, gate_follows=gate is not None),
        hold_again=lambda holders: hold_again(holders, request),
        describe=lambda holder: describe(holder, index_of),
        clock=world.clock,
        signaller=KernelSignaller(world.clock, proc_root=request.proc_root),
        kinship=ProcKinship(request.proc_root),
        managers=NodeManagers(
            world.runner, request.scope, systemd=world.systemd, timeout=stop_timeout, proc_root=request.proc_root
        ),
        used_mib=world.used_mib,
    )
    gate_result = None
    if gate is not None and not result.failed:
        ends = [moment for moment in (stopped_at, result.last_signal_at) if moment is not None]
        gate = dataclasses.replace(gate, killed_at=max(ends, default=None))
        gate_result = wait_idle(
            world.look, world.scan, gate, world.clock, proc_root=request.proc_root, seen=scanner.latest
        )
    return Released(result, gate_result, scanner.first_look.state)
