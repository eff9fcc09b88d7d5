#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be known to be wrong before anything is stopped."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_preflight
short_description: Find out before any downtime what would keep an SGLang server from starting
version_added: 0.1.0
description:
  - Makes a list of checks where the server runs, inside the container where there is one, while the old server still
    serves. All of them are made, and all failures are reported at once, each with what cures it and where.
  - A server that runs says nothing about the next one. A running process keeps the devices that it has open, and
    C(nvidia-smi) answers where the nodes that CUDA needs are missing or of a stale number.
  - C(service_user) looks for the user and the group of the unit.
  - C(device_nodes) looks for the nodes of the GPUs, C(nvidiactl), C(nvidia-uvm) and C(nvidia-uvm-tools) in the folders
    of O(devices).
  - C(device_kind) sees whether these are character devices with the numbers that the driver has now. What a container
    that was started too early has in place of a node is often an empty file.
  - C(device_access) sees whether the service user may open them read-write by mode and owner, and opens each of them
    itself for a moment, because the device rules of a container can refuse what the mode allows. Nothing is opened
    that is not one of these devices.
  - C(driver_match) compares the version of the driver's library with that of the kernel module.
  - Fails where a check failed. It changes nothing.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.info_module
options:
  devices:
    description:
      - Globs of the GPU device nodes, as absolute paths. The nodes are looked for in the folders of these globs.
      - Where every glob lies outside C(/dev), plain files stand in for nodes.
    type: list
    elements: str
    default:
      - /dev/nvidia*
  majors:
    description:
      - The device majors that a node may have.
      - By default the one that C(/proc/devices) gives to the NVIDIA driver for a node of that name.
    type: list
    elements: int
  expected_count:
    description:
      - How many GPUs the server uses. As many GPU nodes must be there, those that the driver has where it has just as
        many, or else C(nvidia0) and the following.
      - Excludes O(expected_uuids).
    type: int
  expected_uuids:
    description:
      - The UUIDs of the GPUs that the server uses. The node of each must be there, and where the driver does not tell
        which that is, at least as many GPU nodes.
      - Excludes O(expected_count).
    type: list
    elements: str
  service_user:
    description:
      - The user as whom the server runs, by name or number. Without it the permissions of the nodes are not compared
        with anybody.
    type: str
    default: ""
  service_group:
    description:
      - The group of the unit, by name or number. By default the primary group of O(service_user).
    type: str
    default: ""
  timeout:
    description:
      - How many seconds opening one node may take.
      - Where persistence mode is off and nobody uses the GPUs, opening a node starts the GPU, which takes seconds.
    type: float
    default: 15.0
notes:
  - Run it as root. Another user cannot tell the device rules of a container from missing permissions.
seealso:
  - module: cleanslate.gpu.gpu_wait_idle
  - module: cleanslate.gpu.sglang_wait_ready
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
"""

EXAMPLES = r"""
- name: Check the passthrough of eight GPUs before anything is stopped
  cleanslate.gpu.sglang_preflight:
    expected_count: 8
    service_user: sglang
  become: true

- name: Say what is wrong and go on
  cleanslate.gpu.sglang_preflight:
    expected_uuids:
      - GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7
      - GPU-3d91e2a4-8c5b-66a0-7b1f-0a7e5e1c9f42
    service_user: sglang
  register: look
  become: true
  failed_when: false

- name: Show what failed
  ansible.builtin.debug:
    msg: "{{ look.checks | rejectattr('ok', 'ne', false) }}"
"""

RETURN = r"""
checks:
  description:
    - What each check found, in the order in which they were made. Empty where the options do not fit together.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description:
        - The check.
      type: str
      returned: always
      sample: device_kind
    ok:
      description:
        - Whether it passed. Null where it does not apply here, or where it could not be told.
      type: bool
      returned: always
      sample: false
    detail:
      description:
        - What was found, or why it was not checked.
      type: str
      returned: always
      sample: "/dev/nvidia-uvm is a plain file: the container was started before the host had the node"
    cure:
      description:
        - What to do about it, and where. Empty where nothing failed.
      type: str
      returned: always
      sample: Stop the container. On the host load the uvm module and make its nodes, and start the container again.
verdict:
  description:
    - V(pass), no check failed. V(refuse), at least one did, or the options do not fit together.
  returned: always
  type: str
  sample: refuse
msg:
  description:
    - All failures with their cures. Without any, what passed and what was not checked.
  returned: always
  type: str
  sample: "Passed: service_user, device_nodes, device_kind, device_access, driver_match."
"""

import math
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Context, run_checks
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_devices import (
    device_access,
    device_kind,
    device_nodes,
    service_user,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_driver import driver_match
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_arguments import SCAN_ARGUMENTS, scan_request
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import (
    EXPECTATION_ARGUMENTS,
    expectation_from,
)

CHECKS = (service_user, device_nodes, device_kind, device_access, driver_match)


def context_of(params: t.Mapping[str, t.Any]) -> Context:
    """ValueError names the option and the value that do not fit."""
    timeout = params["timeout"]
    if not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout is {timeout:g}; it must be a number of seconds above 0.")
    user, group = params["service_user"].strip(), params["service_group"].strip()
    if group and not user:
        raise ValueError(f"service_group is {group}, but service_user is empty; name the user too.")
    nodes = scan_request({**params, "scope": "own", "scan_timeout": timeout})
    clock = SystemClock()
    return Context(
        devices=nodes.devices,
        majors=nodes.majors,
        expectation=expectation_from({**params, "max_used_mib": 0}),
        service_user=user,
        service_group=group,
        timeout=timeout,
        runner=CommandRunner(clock),
        clock=clock,
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **{name: SCAN_ARGUMENTS[name] for name in ("devices", "majors")},
            **{name: EXPECTATION_ARGUMENTS[name] for name in ("expected_count", "expected_uuids")},
            "service_user": {"type": "str", "default": ""},
            "service_group": {"type": "str", "default": ""},
            "timeout": {"type": "float", "default": 15.0},
        },
        supports_check_mode=True,
    )
    try:
        context = context_of(module.params)
    except ValueError as error:
        module.fail_json(msg=str(error), changed=False, checks=[], verdict="refuse")
    found = run_checks(context, CHECKS)
    result = {
        "changed": False,
        "msg": found.message,
        "checks": [check.as_dict() for check in found.checks],
        "verdict": found.verdict,
    }
    if found.failures:
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
