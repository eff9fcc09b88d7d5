#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_wait_idle
short_description: Wait until every expected GPU is proven idle
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Looks at the GPUs until every expected one reports 0 MiB in consecutive looks and no target holds a GPU device. It
    is the gate in front of every start of a server.
  - What cannot be read is not zero. A missing GPU, an unreadable value, a C(nvidia-smi) that hangs or a process that
    could not be looked at keep it shut.
  - It tells the reasons for memory apart. A process that computes, one that was killed and is still giving memory
    back, a driver that is still draining, and memory that nobody holds each have their own verdict and their own next
    step.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.info_module
  - cleanslate.gpu.smi
  - cleanslate.gpu.smi.expectation
  - cleanslate.gpu.scan
  - cleanslate.gpu.gate
attributes:
  check_mode:
    support: full
    details:
      - Takes one look and does not wait. It passes where the GPUs are idle, or busy only because of targets and the
        dying. Anything that a release cannot mend fails. That makes it the rehearsal of the gate while the old server
        still serves.
options:
  scope:
    description:
      - Which holders are targets, that is, would be ended by M(cleanslate.gpu.gpu_force_release) with the same
        options.
      - V(unit) means those of O(units), in their cgroup or started from it.
      - V(own) means in addition those of this node that are in no container and in no other active service.
      - V(lxc), on a Proxmox host, means those in the containers of O(lxc).
      - V(all) means everything but this module, PID 1 and protected processes. It needs O(allow_foreign=true).
    type: str
    default: own
    choices:
      - unit
      - own
      - lxc
      - all
  holders:
    description:
      - Whether to look for the processes that hold GPU devices. Without that nobody can be named, and a process that
        holds a GPU without memory on it is not noticed.
    type: bool
    default: true
  killed_ago:
    description:
      - Seconds since a process that used these GPUs was last killed or stopped, by another execution or on another
        machine, as the GPU host is for a container.
      - For 180 seconds from then on, memory that nobody can be seen to hold is still being given back
        (V(draining)) and not V(orphaned).
    type: float
notes:
  - Exactly one of O(expected_count) and O(expected_uuids) is needed.
  - O(port) needs O(holders=true).
requirements:
  - Linux
  - nvidia-smi
seealso:
  - module: cleanslate.gpu.gpu_force_release
  - module: cleanslate.gpu.nvidia_gpu_facts
"""

EXAMPLES = r"""
- name: Wait until all eight GPUs are idle
  cleanslate.gpu.gpu_wait_idle:
    expected_count: 8
    units:
      - sglang.service

- name: Rehearse the gate while the server still serves
  cleanslate.gpu.gpu_wait_idle:
    expected_count: 8
    units:
      - sglang.service
  check_mode: true

- name: Accept the 4 MiB that these cards show when nothing uses them
  cleanslate.gpu.gpu_wait_idle:
    expected_count: 8
    settled_mib: 4
    timeout: 120
"""

RETURN = r"""
verdict:
  description:
    - V(idle) and, within O(settled_mib), V(settled) pass. Everything else fails, except in check mode V(busy) because
      of targets and V(dying).
    - V(busy) means that targets hold the GPUs or O(port), V(foreign) that others do, V(dying) that the killed are still
      giving memory back, V(draining) that nobody is left and the driver is not done yet, V(orphaned) that memory is
      held and nobody can be seen who holds it.
    - V(settled) means that a few MiB stand still with nobody there, V(missing) that a GPU was not seen, V(faulty)
      that one is broken or divided by MIG, V(fabric_not_ready) that NVLink is not up yet, V(unknown) that something
      could not be read.
  returned: always, except for options that cannot be meant
  type: str
  sample: idle
msg:
  description:
    - The outcome in a sentence, with GPU, MiB, holder and next step where it failed.
  returned: always, except for options that cannot be meant
  type: str
  sample: All 8 GPUs that are expected report 0 MiB.
waited_s:
  description:
    - Seconds from the first to the last look.
  returned: always, except for options that cannot be meant
  type: float
  sample: 2.31
looks:
  description:
    - How often the GPUs were looked at.
  returned: always, except for options that cannot be meant
  type: int
  sample: 14
history:
  description:
    - The memory of the expected GPUs, at the first look and wherever it changed.
  returned: always, except for options that cannot be meant
  type: list
  elements: dict
  contains:
    t:
      description:
        - Seconds since the first look.
      type: float
      returned: always
    used_mib:
      description:
        - MiB by GPU UUID, null where it could not be read.
      type: dict
      returned: always
  sample:
    - t: 0.0
      used_mib:
        GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9: 76115
    - t: 2.2
      used_mib:
        GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9: 0
gpus:
  description:
    - The GPUs at the last look. See M(cleanslate.gpu.nvidia_gpu_facts) for the fields.
  returned: always, except for options that cannot be meant
  type: list
  elements: dict
  sample: []
holders:
  description:
    - Who held GPU devices at the last scan. See M(cleanslate.gpu.gpu_holders_info) for the fields.
  returned: always, except for options that cannot be meant
  type: list
  elements: dict
  sample: []
port_owners:
  description:
    - Who listened on O(port) at the last scan. See M(cleanslate.gpu.gpu_holders_info) for the fields.
  returned: always, except for options that cannot be meant
  type: list
  elements: dict
  sample: []
smi_state:
  description:
    - What asking C(nvidia-smi) gave at the last look, V(ok) where it answered.
  returned: always, except for options that cannot be meant
  type: str
  sample: ok
would_open_after_release:
  description:
    - In check mode, whether the gate would open once the targets are released. Null otherwise.
  returned: always, except for options that cannot be meant
  type: bool
  sample:
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_look import GATE_LOOK_ARGUMENTS, gate_from


def main() -> t.NoReturn:
    module = AnsibleModule(argument_spec=GATE_LOOK_ARGUMENTS, supports_check_mode=True)
    try:
        gate = gate_from(module.params, SystemClock(), check_mode=module.check_mode)
    except ValueError as error:
        module.fail_json(msg=str(error))
    result = gate()
    leave = module.exit_json if result.passed else module.fail_json
    leave(changed=False, **result.as_dict())


if __name__ == "__main__":
    main()
