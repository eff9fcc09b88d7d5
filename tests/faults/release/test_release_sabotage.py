# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No row can pass with its guard removed: on a copy of the core without that guard it fails, and says why."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import typing as t

import pytest
from driving import Node
from fault_rows import not_run
from modules import Modules
from playing_rows import play
from release_faults import ROWS
from sabotage import sabotaged

CORE = "plugins/module_utils"


@dataclasses.dataclass(frozen=True)
class Sabotage:
    """guard: what is taken out of which file. row: the name of the row that must fail, and what it must say."""

    guard: str
    file: str
    old: str
    new: str
    row: str
    says: str


ALIVE = "must live|must not be signalled"
SABOTAGES: tuple[Sabotage, ...] = (
    Sabotage("scope: a container is somebody else's", "_dispositions.py",
             '    if owner.container is not None:\n        return False, f"belongs to {_place(owner)}"\n', "",
             "a docker container", "verdict released"),
    Sabotage("scope: another active service is somebody else's", "_dispositions.py",
             '    return False, f"belongs to {unit}, another active service"', '    return True, "sabotage"',
             "another active service computes", "verdict released"),
    Sabotage("scope: the VMID as it is", "_dispositions.py", "container.id in scope.lxc",
             "container.id.startswith(tuple(one[:6] for one in scope.lxc))", "VMIDs that look alike", ALIVE),
    Sabotage("scope: the unit as it is named", "_dispositions.py", "owner.node_unit in scope.units",
             "owner.node_unit[-13:] in scope.units", "units with names alike", ALIVE),
    Sabotage("identity: the hold is looked at again", "_ladder.py",
             "if again is None or again.dying or identity(again) != key or rules.stopped_computing(holder, again):",
             "if False:", "lets go before the signal", ALIVE),
    Sabotage("identity: it must still compute", "_ladder.py", " or rules.stopped_computing(holder, again)", "",
             "becomes a protected daemon before the signal", ALIVE),
    Sabotage("identity: the numbers of our own PID namespace", "_gpu_release.py",
             "    if proc.is_of_another_namespace():\n", "    if False:\n", "/proc is that of another PID namespace",
             "verdict|another PID namespace got TERM"),
    Sabotage("protection: by executable", "_dispositions.py", "    if raw.program in PROTECTED_EXECUTABLES or ",
             "    if ", "a real daemon calls itself python3", "verdict released"),
    Sabotage("protection: not by a name that anybody may give", "_dispositions.py",
             "    if raw.program in PROTECTED_EXECUTABLES or ", "    if name in PROTECTED_EXECUTABLES or ",
             "a copy of a program under a daemon's name", "verdict free"),
    Sabotage("protection: a monitor is left alone", "_dispositions.py", "    if not claim.computes and not counts:\n",
             "    if False:\n", "calls itself sglang::scheduler", "verdict released"),
    Sabotage("gate: every expected GPU", "_gpu_verdict.py", "    lacking = expectation.count - len(look.gpus)\n",
             "    lacking = 0\n", "a GPU vanishes between two looks for good", "verdict idle"),
    Sabotage("gate: no GPU too many", "_gpu_verdict.py", "    if lacking < 0 and answered:\n", "    if False:\n",
             "ten GPUs where eight are expected", "verdict idle"),
    Sabotage("gate: a target stands against it", "_gate_verdicts.py", "    if living:\n", "    if False:\n",
             "a process maps a GPU between two samples", "verdict idle"),
    Sabotage("gate: a look that is not complete proves nothing", "_gate_verdicts.py",
             "    if sample.scan is not None and not sample.scan.complete:\n", "    if False:\n",
             "open files cannot be read, at the gate", "verdict idle"),
    Sabotage("gate: unknown is not nobody", "_ladder_rules.py", "holder.computes is not False", "holder.computes",
             "reading mappings blocks, at the gate", "verdict idle"),
)  # fmt: skip


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.guard)
def test_without_its_guard_the_row_fails(
    sabotage: Sabotage, node_of: t.Callable[[int], Node], tmp_path: pathlib.Path
) -> None:
    (row,) = (row for row in ROWS if row.name == sabotage.row)
    if not_run(row):
        pytest.skip(not_run(row))
    place = sabotaged(tmp_path, f"{CORE}/{sabotage.file}", sabotage.old, sabotage.new)
    modules = Modules(place)
    try:
        assert modules.core.is_relative_to(place), "the copy is what runs"
        with pytest.raises(AssertionError, match=sabotage.says):
            play(row, modules, node_of(row.gpus), pathlib.Path(tempfile.mkdtemp(prefix="fault-")))
    finally:
        modules.close()


def test_each_kind_of_guard_is_taken_out_at_least_twice() -> None:
    kinds = [sabotage.guard.split(":")[0] for sabotage in SABOTAGES]
    assert {kind for kind in kinds if kinds.count(kind) >= 2} == {"scope", "identity", "protection", "gate"}
