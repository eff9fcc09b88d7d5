# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fake /proc with fake device nodes, for looks at who holds them."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest, look_for_holders
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import SystemdScope
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc, make_nodes

GPU0, GPU1 = (f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in range(2))
OWN = Scope("own", units=("sglang.service",))
SERVICE = "0::/system.slice/sglang.service"


class Node:
    """A fake /proc and fake nodes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.fake = FakeProc(folder / "proc")
        self.glob = make_nodes(folder / "dev")
        self.gpu = folder / "dev/nvidia0"
        self.control = folder / "dev/nvidiactl"
        self.asked: list[list[str]] = []
        self.states: dict[str, bool | None] = {}
        self.systemd_scope: SystemdScope = "system"

    def request(self, scope: Scope = OWN, timeout: float = 60.0) -> ScanRequest:
        return ScanRequest(
            scope, (self.glob,), timeout=timeout, proc_root=self.fake.root, systemd_scope=self.systemd_scope
        )

    def unit_states(self, units: t.Sequence[str]) -> dict[str, bool | None]:
        self.asked.append(list(units))
        return {unit: self.states.get(unit) for unit in units}

    def look(
        self,
        scope: Scope = OWN,
        listed: t.Sequence[tuple[int, str]] = (),
        timeout: float = 60.0,
        name: str | None = "python3",
    ) -> HolderScan:
        """name: of all that are listed, as nvidia-smi has it."""
        processes = [GpuProcess(uuid, pid, name, 1) for pid, uuid in listed]
        return look_for_holders(
            self.request(scope, timeout), processes, unit_states=self.unit_states, clock=SystemClock()
        )

    def dispositions(self, scope: Scope = OWN, listed: t.Sequence[tuple[int, str]] = ()) -> dict[int, str]:
        return {holder.pid: holder.disposition for holder in self.look(scope, listed).holders}
