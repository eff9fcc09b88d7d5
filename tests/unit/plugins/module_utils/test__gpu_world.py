# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one execution's view of the machine asks, and whom."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import SteppedClock
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc

UNITS = ("sglang.service",)


class Asked:
    """A systemctl with one main process, an nvidia-smi that is not there, and who was asked what."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        self.lines.append(" ".join(argv))
        if argv[0] == "systemctl":
            return CommandResult(tuple(argv), 0, "MainPID=4711\n", "", 0.1)
        return CommandResult(tuple(argv), 9, "", "NVIDIA-SMI has failed", 0.1)


def world(folder: pathlib.Path, asked: Asked, scope: Scope, systemd_scope: t.Any = "system") -> GpuWorld:
    proc = FakeProc(folder / "proc")
    request = ScanRequest(scope, proc_root=proc.root, systemd_scope=systemd_scope)
    return GpuWorld(request, SteppedClock(), runner=asked)


@pytest.mark.parametrize(
    ("scope", "systemd_scope", "mains"),
    [
        (Scope("own", units=UNITS), "user", {4711: "sglang.service"}),
        (Scope("unit", units=UNITS), "user", {4711: "sglang.service"}),
        (Scope("own"), "user", {}),
        (Scope("all", units=UNITS), "user", {}),
        (Scope("own", units=UNITS), "system", {}),
    ],
)
def test_a_main_process_makes_a_unit_only_where_units_may_have_no_cgroups(
    tmp_path: pathlib.Path, scope: Scope, systemd_scope: str, mains: dict[int, str]
) -> None:
    """Elsewhere the cgroup says whose a process is, and a main process must not say otherwise."""
    asked = Asked()
    assert world(tmp_path, asked, scope, systemd_scope).unit_mains() == mains
    assert len(asked.lines) == len(mains)


@pytest.mark.parametrize("ask", [lambda it: it.look(), lambda it: it.used_mib()], ids=["a look", "memory alone"])
def test_gpus_that_do_not_answer_are_asked_through_the_runner_and_hold_no_known_memory(
    tmp_path: pathlib.Path, ask: t.Callable[[GpuWorld], t.Any]
) -> None:
    asked = Asked()
    seen = world(tmp_path, asked, Scope("own"))
    ask(seen)
    assert asked.lines
    assert all(line.startswith("nvidia-smi ") for line in asked.lines)
    assert seen.used_mib() is None
