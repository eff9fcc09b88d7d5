# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the modules that ask nvidia-smi."""

from __future__ import annotations


class ModuleDocFragment:
    # How nvidia-smi is run.
    DOCUMENTATION = r"""
options:
  nvidia_smi:
    description:
      - The C(nvidia-smi) to run, as a name that is looked up in E(PATH) or as a path.
    type: path
    default: nvidia-smi
  smi_timeout:
    description:
      - How many seconds one call of C(nvidia-smi) may take before it is killed.
      - Where persistence mode is off, C(nvidia-smi) starts every GPU first and may take seconds for each of them.
      - A C(nvidia-smi) that cannot be killed because it is stuck in the driver is left behind, its PID is reported,
        and no other one is started while it is there.
    type: float
    default: 60.0
attributes:
  action_group:
    description:
      - Use C(group/cleanslate.gpu.gpu) in C(module_defaults) to set the common options of these modules once.
    support: full
    membership:
      - cleanslate.gpu.gpu
"""

    # Which GPUs must be there, and how much memory they may hold. Every module says what happens with neither.
    EXPECTATION = r"""
options:
  expected_count:
    description:
      - How many GPUs there must be. The number must match exactly; fewer or more GPUs are never called idle.
      - Excludes O(expected_uuids).
    type: int
  expected_uuids:
    description:
      - The UUIDs of the GPUs that must be there, as C(nvidia-smi -L) lists them. Only these GPUs are judged; others
        may be busy, faulty or hidden.
      - Excludes O(expected_count).
    type: list
    elements: str
  max_used_mib:
    description:
      - How many MiB a GPU may hold and still be called idle.
      - A real server passes through a few MiB while it goes down, so anything but V(0) may let a gate open too early.
      - At most V(512); what computes on a GPU holds more than that.
    type: int
    default: 0
"""
