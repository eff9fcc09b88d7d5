# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""How far a starting server has filled its GPUs."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook

QUICK = 5.0  # seconds that nvidia-smi may take where its answer is only shown


@dataclasses.dataclass(frozen=True)
class GpuFill:
    """MiB in use and MiB there are, on so many GPUs together."""

    used_mib: int
    total_mib: int | None
    gpus: int

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


def gpu_fill(seen: GpuLook, uuids: t.Collection[str] = ()) -> GpuFill | None:
    """The sum over the GPUs with these UUIDs (none: all). None where that cannot be told: unknown is not zero."""
    rows = [gpu for gpu in seen.gpus if not uuids or gpu.uuid in uuids]
    used = [gpu.used_mib for gpu in rows if gpu.used_mib is not None]
    totals = [gpu.total_mib for gpu in rows if gpu.total_mib is not None]
    if not rows or len(used) < max(len(rows), len(uuids)):
        return None
    return GpuFill(sum(used), sum(totals) if len(totals) == len(rows) else None, len(rows))


class AskMemory(t.Protocol):
    """Asks nvidia-smi, patiently where something depends on the answer. None where it cannot be told."""

    def __call__(self, patient: bool) -> GpuFill | None: ...
