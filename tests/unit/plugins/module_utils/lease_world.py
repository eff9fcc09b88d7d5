# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with a folder for leases, and a clock that tests move."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest, LeaseResult

GPUS = tuple(f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0f{number}" for number in range(8))
BOOT = "7d1f6c1e-0000-4000-8000-000000000001"


class FakeClock:
    def __init__(self) -> None:
        self.now, self.date = 1000.0, 1.8e9
        self.while_asleep: t.Callable[[], None] = lambda: None
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.date

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        self.while_asleep()


class Host:
    def __init__(self, folder: pathlib.Path) -> None:
        self.path = str(folder / "cleanslate")
        self.boot = BOOT
        self.clock = FakeClock()

    @property
    def file(self) -> pathlib.Path:
        return pathlib.Path(self.path, f"leases-{self.boot}.json")

    def ask(self, state: t.Any, run_id: str, node: str, check: bool, **options: t.Any) -> LeaseResult:
        request = LeaseRequest(state, run_id, node, **options)
        return _lease.lease(request, self.path, self.boot, self.clock, check=check)

    def held(self, run_id: str = "A", node: str = "n1", check: bool = False, **options: t.Any) -> LeaseResult:
        return self.ask("held", run_id, node, check, **options)

    def released(self, run_id: str = "A", node: str = "n1", check: bool = False, **options: t.Any) -> LeaseResult:
        return self.ask("released", run_id, node, check, **options)

    def shown(self, **options: t.Any) -> LeaseResult:
        return self.ask("shown", "", "", False, **options)

    def runs(self) -> list[str]:
        return [lease["run_id"] for lease in self.shown().leases]


def outcome(result: LeaseResult) -> tuple[str, bool, bool]:
    return result.verdict, result.failed, result.changed
