#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One look at the GPUs through nvidia-smi, as a fact."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gpu_facts
short_description: Say whether every NVIDIA GPU reports 0 MiB in use
version_added: 0.1.0
description:
  - Asks C(nvidia-smi) once for the GPUs and once for the compute processes, and returns what it said together with a
    verdict, V(idle), V(busy) or V(unknown), and a reason that a person can act on.
  - V(idle) needs proof for every expected GPU. A GPU that is missing, lost, hidden or unreadable, an error marker in
    any column, a line that is not understood, an C(nvidia-smi) that hangs or fails, and no GPU at all are V(unknown).
  - With neither O(expected_count) nor O(expected_uuids) there must be as many GPUs as there are entries under
    C(/proc/driver/nvidia/gpus). Where that cannot be read, as in some containers, the verdict is never V(idle).
  - The module never fails because of what the machine looks like; it fails only when its own options contradict
    themselves. It changes nothing.
  - Facts are for people and conditions. Where something is decided, use the registered result of this very task, or
    M(cleanslate.gpu.gpu_wait_idle), because facts may come from a cache.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.facts
  - cleanslate.gpu.attributes.facts_module
  - cleanslate.gpu.smi
  - cleanslate.gpu.smi.expectation
options:
  processes:
    description:
      - Whether to ask for the compute processes too.
      - The list can only speak against a GPU. A process on a GPU that reads 0 MiB makes this GPU unreadable, and an
        empty list proves nothing, because processes of other containers and graphics are not on it.
    type: bool
    default: true
seealso:
  - module: cleanslate.gpu.gpu_wait_idle
  - module: cleanslate.gpu.gpu_holders_info
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
"""

EXAMPLES = r"""
- name: Look at the GPUs of a node that must have eight of them
  cleanslate.gpu.nvidia_gpu_facts:
    expected_count: 8
  register: look

- name: Stop here when they are not idle
  ansible.builtin.assert:
    that: look.ansible_facts.nvidia_gpu.verdict == 'idle'
    fail_msg: "{{ look.ansible_facts.nvidia_gpu.reason }}"

- name: Judge only the GPUs of one of two servers
  cleanslate.gpu.nvidia_gpu_facts:
    expected_uuids:
      - GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9
      - GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7

- name: Show how much memory is in use, on GPUs that take long to answer
  cleanslate.gpu.nvidia_gpu_facts:
    smi_timeout: 180

- name: Name the GPUs that hold memory
  ansible.builtin.debug:
    msg: "{{ nvidia_gpu.gpus | selectattr('used_mib', 'ne', 0) | map(attribute='index') | list }}"
"""

RETURN = r"""
ansible_facts:
  description:
    - The fact RV(ansible_facts.nvidia_gpu). It has the same keys whatever happened.
  returned: always
  type: dict
  contains:
    nvidia_gpu:
      description:
        - What was seen. A number that could not be read is null, never 0.
      returned: always
      type: dict
      contains:
        verdict:
          description:
            - V(idle), every expected GPU is known to hold nothing (or at most O(max_used_mib)).
            - V(busy), at least one GPU is known to hold more. This outranks V(unknown).
            - V(unknown), anything else. It must be treated as not idle.
          type: str
          returned: always
          sample: busy
        reason:
          description:
            - Why, naming GPUs and MiB, and what to do next.
          type: str
          returned: always
          sample: "GPU 1 holds 76115 MiB (allowed: 0 MiB). gpu_holders_info shows who has the devices open."
        state:
          description:
            - What became of C(nvidia-smi) itself, not of the GPUs.
            - V(ok), it ended with 0 and printed at least one GPU, even if another one is missing or faulty.
            - V(no_tool), it was not found. V(no_driver), the driver or its library cannot be reached. V(no_devices), it
              sees no GPU. V(library_mismatch), the driver in the kernel and its library differ. V(blocked), it may not
              be run or may not use the GPUs. V(hung), it did not answer within O(smi_timeout). V(error), anything else.
          type: str
          returned: always
          sample: ok
        exit_code:
          description:
            - How the GPU query ended, negative for a signal, null where it did not end by itself or was not started.
          type: int
          returned: always
          sample: 0
        driver_version:
          description:
            - The version of the driver.
          type: str
          returned: always
          sample: 580.159.04
        count:
          description:
            - How many GPUs the driver counts. Up to driver 555 this includes GPUs that this user may not use.
            - Where the driver was not asked or did not say, the number of GPUs that are listed.
          type: int
          returned: always
          sample: 8
        used_mib_total:
          description:
            - The MiB in use on all listed GPUs. Null unless every GPU was there and could be read.
          type: int
          returned: always
          sample: 76115
        gpus:
          description:
            - The GPUs, in the order of C(nvidia-smi).
          type: list
          elements: dict
          returned: always
          contains:
            index:
              description:
                - The index in C(nvidia-smi). It may change at a boot, so the UUID is what identifies a GPU.
              type: int
              returned: always
              sample: 1
            uuid:
              description:
                - The UUID.
              type: str
              returned: always
              sample: GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7
            bus_id:
              description:
                - The PCI bus id as C(nvidia-smi) prints it, empty where it does not.
              type: str
              returned: always
              sample: "00000000:43:00.0"
            minor:
              description:
                - The minor number of the device node, from C(/proc/driver/nvidia/gpus).
              type: int
              returned: always
              sample: 1
            name:
              description:
                - The product name.
              type: str
              returned: always
              sample: NVIDIA H200
            total_mib:
              description:
                - The memory of the GPU.
              type: int
              returned: always
              sample: 143771
            used_mib:
              description:
                - The memory in use.
              type: int
              returned: always
              sample: 76115
            reserved_mib:
              description:
                - The memory that the driver keeps for itself. Null before driver 510.
              type: int
              returned: always
              sample: 616
            utilization_pct:
              description:
                - The utilization. It plays no part in the verdict, because an idle GPU can read 100 here.
              type: int
              returned: always
              sample: 0
            mig:
              description:
                - Whether MIG is on. False also where the GPU has no MIG, null where that could not be read.
              type: bool
              returned: always
              sample: false
            persistence:
              description:
                - The persistence mode.
              type: str
              returned: always
              sample: Enabled
            compute_mode:
              description:
                - The compute mode.
              type: str
              returned: always
              sample: Default
            recovery_action:
              description:
                - What the driver asks for to recover the GPU. Null before driver 570. Anything but C(None) taints it.
              type: str
              returned: always
              sample: None
            fabric_state:
              description:
                - The state of the NVLink fabric, null where there is none.
              type: str
              returned: always
              sample: Completed
            problems:
              description:
                - Why this row cannot be trusted. Empty for a sound GPU.
              type: list
              elements: str
              returned: always
              sample: []
        processes:
          description:
            - The compute processes that C(nvidia-smi) lists.
            - In a container, or for a process that has ended, the PID may be somebody else's here. Never act on it.
          type: list
          elements: dict
          returned: always
          contains:
            gpu_uuid:
              description:
                - The UUID of the GPU, of the parent for a MIG instance.
              type: str
              returned: always
              sample: GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7
            pid:
              description:
                - The process id as the host counts.
              type: int
              returned: always
              sample: 31871
            name:
              description:
                - The name, with secrets masked. Null where the driver could not tell.
              type: str
              returned: always
              sample: /srv/venv/bin/python3
            used_mib:
              description:
                - The memory it uses, null where that is not known.
              type: int
              returned: always
              sample: 76100
        processes_verdict:
          description:
            - V(none), V(some) or V(unknown). Also V(unknown) with O(processes=false).
            - Where no process is listed and a GPU holds more than O(max_used_mib), or it is not known how much, this is
              V(unknown), since who computes in another container or PID namespace is not listed.
          type: str
          returned: always
          sample: some
        problems:
          description:
            - What was wrong with the output as a whole.
          type: list
          elements: str
          returned: always
          sample: []
        faulty:
          description:
            - GPUs to look after, by index, or by bus id where nothing else is known.
          type: list
          elements: raw
          returned: always
          sample: []
        hung_pid:
          description:
            - An C(nvidia-smi) that was killed and did not go away.
          type: int
          returned: always
          sample: null
        query_seconds:
          description:
            - How long the calls of C(nvidia-smi) took together.
          type: float
          returned: always
          sample: 0.071
        collected_at:
          description:
            - When this was collected, in UTC.
          type: str
          returned: always
          sample: "2026-01-31T03:00:00Z"
        boot_id:
          description:
            - The boot in which this was collected. Facts of another boot say nothing.
          type: str
          returned: always
          sample: 5b3c1c8e-8f1b-4f0e-9c0f-0a4f0c7c9d11
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, GpuLook, Judgement
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import (
    judge,
    kernel_gpu_count,
    processes_verdict,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import look
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import (
    EXPECTATION_ARGUMENTS,
    SMI_ARGUMENTS,
    check_smi_arguments,
    expectation_from,
)


def fact(seen: GpuLook, judgement: Judgement, max_used_mib: int, collected: float) -> dict[str, t.Any]:
    """The public shape of a look."""
    complete = seen.state == "ok" and bool(seen.gpus) and not judgement.missing and not seen.elsewhere
    used = [gpu.used_mib for gpu in seen.gpus if gpu.used_mib is not None]
    return {
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "state": seen.state,
        "exit_code": seen.exit_code,
        "driver_version": seen.driver_version,
        "count": seen.count if seen.count is not None else len(seen.gpus) or None,
        "used_mib_total": sum(used) if complete and len(used) == len(seen.gpus) else None,
        "gpus": [gpu.as_dict() for gpu in seen.gpus],
        "processes": [process.as_dict() for process in seen.processes],
        "processes_verdict": processes_verdict(seen, max_used_mib),
        "problems": list(seen.problems),
        "faulty": list(seen.faulty),
        "hung_pid": seen.hung_pid,
        "query_seconds": round(seen.query_seconds, 3),
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(collected)),
        "boot_id": boot_id(),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={**SMI_ARGUMENTS, **EXPECTATION_ARGUMENTS, "processes": {"type": "bool", "default": True}},
        supports_check_mode=True,
    )
    clock = SystemClock()
    try:
        check_smi_arguments(module.params)
        expectation = expectation_from(module.params)
    except ValueError as error:
        not_asked = GpuLook(state="error", exit_code=None)
        nothing = fact(not_asked, Judgement("unknown", f"Nothing was asked: {error}"), 0, clock.wall())
        module.fail_json(msg=str(error), changed=False, ansible_facts={"nvidia_gpu": nothing})
    if not expectation.uuids and expectation.count is None:
        expectation = Expectation(count=kernel_gpu_count())
    seen = look(
        CommandRunner(clock),
        nvidia_smi=module.params["nvidia_smi"],
        timeout=module.params["smi_timeout"],
        processes=module.params["processes"],
    )
    allowed = module.params["max_used_mib"]
    found = fact(seen, judge(seen, expectation, allowed), allowed, clock.wall())
    module.exit_json(changed=False, ansible_facts={"nvidia_gpu": found})


if __name__ == "__main__":
    main()
