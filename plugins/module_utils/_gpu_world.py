# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The real GPUs and processes behind the ladder and the gate, asked no more often than needed."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner, Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._container_names import with_container_ids
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import (
    ScanRequest,
    look_for_holders,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Identity, identity
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import FieldMemo, look
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd


class GpuWorld:
    """One module execution's view of the machine."""

    def __init__(
        self,
        request: ScanRequest,
        clock: Clock,
        *,
        nvidia_smi: str = "nvidia-smi",
        smi_timeout: float = 60.0,
        runner: Runner | None = None,
    ) -> None:
        self.clock = clock
        self.runner: Runner = runner or CommandRunner(clock)
        self.request = with_container_ids(request, self.runner)
        self.systemd = Systemd(self.runner, request.systemd_scope)
        self._nvidia_smi = nvidia_smi
        self._smi_timeout = smi_timeout
        self._memo = FieldMemo()
        self._relatives: set[Identity] = set()

    def look(self, processes: bool = True) -> GpuLook:
        return look(
            self.runner,
            nvidia_smi=self._nvidia_smi,
            timeout=self._smi_timeout,
            processes=processes,
            proc_root=self.request.proc_root,
            memo=self._memo,
        )

    def scan(self, processes: t.Sequence[GpuProcess]) -> HolderScan:
        found = look_for_holders(
            self.request,
            processes,
            unit_states=self.systemd.active,
            clock=self.clock,
            relatives=self._relatives,
            unit_mains=self.unit_mains(),
        )
        # A launcher that has no GPU open outlives its workers, and after that nothing shows whose it was.
        self._relatives.update(identity(holder) for holder in found.targets() if holder.listens)
        return found

    def unit_mains(self) -> dict[int, str]:
        """Only a user's manager may run units without cgroups; elsewhere they tell more, and cost no call."""
        asked = self.request.systemd_scope == "user" and self.request.scope.name in ("unit", "own")
        return self.systemd.main_pids(self.request.scope.units) if asked and self.request.scope.units else {}

    def used_mib(self) -> int | t.Literal["hangs"] | None:
        """Memory of all GPUs together, None where that cannot be told, "hangs" where nvidia-smi does not answer."""
        seen = self.look(processes=False)
        if seen.state == "hung":
            return "hangs"
        numbers = [gpu.used_mib for gpu in seen.gpus if gpu.used_mib is not None]
        return sum(numbers) if seen.state == "ok" and len(numbers) == len(seen.gpus) else None
