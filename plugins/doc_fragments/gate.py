# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the modules that wait until the GPUs are idle."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  settled_mib:
    description:
      - How many MiB a GPU may hold when nothing uses it, on hardware that never goes down to 0.
      - It counts only where the memory of every expected GPU has not changed for 10 seconds and nobody but monitors
        and system daemons has a GPU device open. Until then, and for anything that moves, the gate waits for 0.
      - What stands still above V(64) is never accepted as such a floor.
    type: int
    default: 0
  samples:
    description:
      - How many looks in a row have to be good. A bad one in between starts the count again.
      - The first good one asks which processes compute, too, and the last one looks for holders. Where that finds one,
        so does every look after it.
    type: int
    default: 2
  interval:
    description:
      - Seconds between two looks. Where a look takes longer than that, as long as it takes, and at most 2.
    type: float
    default: 0.1
  timeout:
    description:
      - Seconds after which the gate gives up.
      - It fails earlier where nothing will change by itself, that is, where a missing or faulty GPU, a foreign
        holder, a target, or memory that nobody holds has stood unchanged for 10 seconds.
      - The driver answers nobody while pinned host memory is given back, for over a minute where there is much of it.
        So a C(nvidia-smi) that hangs and cannot be killed is waited for, and no second one is started meanwhile. Where
        it could be killed it is asked again if somebody was killed of late or is dying, and ends it at once if not.
    type: float
    default: 300.0
"""
