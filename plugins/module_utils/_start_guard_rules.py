# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What the start guard makes of a look at the GPUs. Nothing is read here.

It waits for what passes by itself, and refuses only a holder that it can name: that one has to be ended by whoever it
belongs to, and a person who starts the unit by hand should hear so at once. systemd tries again after a refusal.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_verdicts import GateVerdict
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Gpu

Step = t.Literal["start", "refuse", "give_up", "wait"]
GuardVerdict = t.Literal["waiting", "start", "refused", "gave_up", "interrupted", "error"]

EXIT_CODES: dict[GuardVerdict, int] = {"start": 0, "error": 1, "refused": 3, "gave_up": 4, "interrupted": 5}

QUICK_REFUSALS = 10  # in a row; after that nobody is waiting for the answer any more
LOOK_ON = 60.0  # seconds that each further refusal keeps looking first, so that the journal does not fill

# Somebody who lives and computes on these GPUs, and can be named. Everything else passes by itself or with a repair.
_NAMED: tuple[GateVerdict, ...] = ("busy", "foreign")


@dataclasses.dataclass(frozen=True)
class Seen:
    """One slice of looking. locked_by and unclear (why the GPUs' numbers cannot be told) count where the gate opens."""

    gate: GateVerdict
    passed: bool
    locked_by: str | None = None
    unclear: str | None = None


def decide(seen: Seen, waited: float, budget: float, refusals: int) -> Step:
    """What to do now. refusals: how often in a row the guard has said no before this start."""
    named = seen.gate in _NAMED if not seen.passed else seen.locked_by is not None
    if seen.passed and not named and seen.unclear is None:
        return "start"
    if named and waited >= looks_on(refusals, budget):
        return "refuse"
    return "give_up" if waited >= budget else "wait"


def looks_on(refusals: int, budget: float) -> float:
    """Seconds before a named holder is refused."""
    return 0.0 if refusals < QUICK_REFUSALS else min(LOOK_ON, budget)


def cuda_numbers(gpus: t.Sequence[Gpu], uuids: t.Sequence[str]) -> str:
    """The numbers by which CUDA knows these GPUs, by place on the PCI bus. ValueError says why they cannot be told.

    SGLang's custom all-reduce reads the entries of CUDA_VISIBLE_DEVICES as numbers, so UUIDs cannot stand there; and
    numbers change when a GPU is gone, so they are looked up at every start.
    """
    by_place = sorted(gpus, key=lambda gpu: gpu.bus_id.lower())
    for place, gpu in enumerate(by_place):
        if gpu.index != place:
            raise ValueError(
                f"nvidia-smi calls the GPU at {gpu.bus_id} number {gpu.index}, and it is number {place} by its place on"
                " the PCI bus: one is gone, and which numbers CUDA gives the others is not known"
            )
    numbers = {gpu.uuid.lower(): gpu.index for gpu in by_place}
    missing = [uuid for uuid in uuids if uuid.lower() not in numbers]
    if missing:
        raise ValueError(f"nvidia-smi does not list {', '.join(missing)}")
    return ",".join(str(number) for number in sorted(numbers[uuid.lower()] for uuid in uuids))
