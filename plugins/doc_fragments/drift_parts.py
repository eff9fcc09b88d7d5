# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of a look at drift that have modules of their own: the server, and the GPUs."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  health:
    description:
      - How to look at the server, in the options of M(cleanslate.gpu.sglang_health_info). Without it nobody looks.
      - Host, port, key, log and number of workers are those with which the server was started, see
        O(cleanslate.gpu.sglang_health_info#module:installed); these options are used where that cannot be read.
      - It is looked at only where the profile to compare with is among O(profiles).
    type: dict
    suboptions:
      host:
        description: The address on which the server listens. A wildcard address is asked on loopback.
        type: str
        default: 127.0.0.1
      port:
        description: The port on which the server listens.
        type: int
        default: 30000
      served_model_name:
        description: The model that the server must list. Where it is left out, any will do.
        type: str
      expected_workers:
        description: How many scheduler processes must be alive.
        type: int
      log_file:
        description: The file with the server's output. Where it is left out, the journal of the unit is read.
        type: path
      request_timeout:
        description: How many seconds each request that needs the model may take.
        type: float
        default: 25.0
      with_server_info:
        description: Whether to return what a healthy server says about itself too.
        type: bool
        default: false
  gate:
    description:
      - How to look at the GPUs and their holders, in the options of M(cleanslate.gpu.gpu_wait_idle). Targets are the
        processes of O(unit). Without it nobody looks.
      - They are looked at under the same condition as the server, see O(health).
    type: dict
    suboptions:
      expected_count:
        description: How many GPUs there must be. One of this and O(gate.expected_uuids) is needed.
        type: int
      expected_uuids:
        description: The UUIDs of the GPUs that must be there.
        type: list
        elements: str
      max_used_mib:
        description: How many MiB a GPU may hold and still be called idle.
        type: int
        default: 0
      settled_mib:
        description: How many MiB a GPU may hold when nothing uses it.
        type: int
        default: 0
      containers:
        description: Containers whose processes count as the unit's.
        type: list
        elements: str
        default: []
      devices:
        description: Globs of the GPU device nodes, as absolute paths.
        type: list
        elements: str
        default:
          - /dev/nvidia*
      majors:
        description: The device majors of the nodes. By default those of the NVIDIA driver.
        type: list
        elements: int
      scan_timeout:
        description: How many seconds one look at all processes may take.
        type: float
        default: 30.0
      nvidia_smi:
        description: The C(nvidia-smi) to run, as a name that is looked up in E(PATH) or as a path.
        type: path
        default: nvidia-smi
      smi_timeout:
        description: How many seconds one call of C(nvidia-smi) may take before it is killed.
        type: float
        default: 60.0
"""
