#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_force_release
short_description: Make processes let go of the GPUs
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Finds the processes that hold GPU devices and ends those that are in scope. It does what C(fuser -k /dev/nvidia*)
    was meant to do.
  - Holders are found by device number in the open files and mappings of every thread, so it sees those that C(fuser)
    does not, such as holders in containers, threads of a dead leader, mappings without an open file, and children
    that inherited a GPU context.
  - Units and containers that were named are stopped through C(systemctl), C(docker) or C(podman) first. Then the
    top-most process of each tree gets the first signal of the O(ladder), and what is left gets the last one, which is
    C(KILL).
  - Right before each signal the process is looked at again, and the signal goes through a handle (pidfd) on exactly
    that process.
  - Processes that were killed and are still giving memory back are waited for and not signalled again.
  - It scans again until no target is left, so workers that appear late are found as well.
  - Never signalled are this module and its ancestors, PID 1 of any kind, system daemons such as
    C(nvidia-persistenced), monitors such as C(nvidia-smi) or C(nvtop), and whatever is not in O(scope). What is not
    signalled is reported with the reason.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.smi
  - cleanslate.gpu.smi.expectation
  - cleanslate.gpu.scan
  - cleanslate.gpu.gate
attributes:
  check_mode:
    support: full
    details:
      - Looks, and returns who would be signalled and which manager would be asked. Nothing is signalled.
      - With O(wait_idle=true) the gate is rehearsed with one look.
  diff_mode:
    support: full
    details:
      - Shows the holders before and after, one line each.
  idempotent:
    support: full
    details:
      - Where no target holds a GPU device, nothing is done.
options:
  scope:
    description:
      - Whose processes may be signalled.
      - V(unit) means those of O(units), in their cgroup or started from it.
      - V(own) means in addition those of this node that are in no container and in no other active service, such as
        those of login sessions, of C(tmux), of C(pct exec), and orphans.
      - V(lxc), on a Proxmox host, means those in the containers of O(lxc).
      - V(all) means everything but this module, PID 1 and protected processes. It needs O(allow_foreign=true).
    type: str
    required: true
    choices:
      - unit
      - own
      - lxc
      - all
  ladder:
    description:
      - Which signals are sent, one after the other, and how long each of them is given to work.
      - The last one has to be C(KILL). Its time is prolonged, up to 300 seconds, as long as the killed still give
        memory back, or have not ended and the driver answers nobody, as it does while pinned host memory is given back.
    type: list
    elements: dict
    default:
      - signal: TERM
        wait: 15
      - signal: KILL
        wait: 180
    suboptions:
      signal:
        description:
          - The signal by name, with or without C(SIG). One of C(TERM), C(INT), C(QUIT), C(HUP), C(ABRT) and C(KILL).
        type: str
        required: true
      wait:
        description:
          - Seconds until the next signal is sent. It goes on earlier where nobody who was asked is left.
        type: float
        required: true
  stop_unit:
    description:
      - A unit that is stopped first, in the same execution and as M(cleanslate.gpu.sglang_unit_stop) does. Where it
        does not end, nobody is signalled.
      - Not with O(scope=lxc), since its systemd is that of the container.
    type: str
  drain:
    description:
      - Seconds from SIGTERM until what is left of O(stop_unit) is killed.
    type: float
    default: 60.0
  stop_timeout:
    description:
      - Seconds in which each unit or container has to have stopped. It should be longer than the C(TimeoutStopSec) of
        the units.
    type: float
    default: 180.0
  respawn_watch:
    description:
      - Seconds for which the module keeps watching after the last target has gone, where the parent of a killed
        target is still alive and might start it again. Where no such parent is left, it does not wait.
    type: float
    default: 10.0
  node_pid_namespace:
    description:
      - With O(scope=lxc), what C(readlink /proc/1/ns/pid) prints on the node that these GPUs are released for. It
        must equal that of the init of one of the containers in O(lxc), else nothing is touched.
      - Without it, the containers are taken as named.
    type: str
  wait_idle:
    description:
      - Whether to wait until the GPUs are proven idle, as M(cleanslate.gpu.gpu_wait_idle) does, in the same
        execution.
      - Needs O(expected_count) or O(expected_uuids).
    type: bool
    default: false
notes:
  - Run it as root in the PID namespace that owns the processes. In a container the processes of others cannot be
    seen.
  - C(nvidia-smi) is asked who computes. Where it is missing or hangs, open and mapped devices alone decide. So they do
    where it lists a number without a name, which is that of a dead process, or counts in another PID namespace.
requirements:
  - Linux
seealso:
  - module: cleanslate.gpu.gpu_holders_info
  - module: cleanslate.gpu.gpu_wait_idle
"""

EXAMPLES = r"""
- name: End what the unit and earlier launches by hand left on the GPUs
  cleanslate.gpu.gpu_force_release:
    scope: own
    units:
      - sglang.service

- name: See who would be signalled on a Proxmox host for container 101
  cleanslate.gpu.gpu_force_release:
    scope: lxc
    lxc:
      - "101"
  check_mode: true
  diff: true

- name: Release, and wait for eight GPUs at 0 MiB
  cleanslate.gpu.gpu_force_release:
    scope: own
    units:
      - sglang.service
    ladder:
      - signal: TERM
        wait: 5
      - signal: KILL
        wait: 180
    wait_idle: true
    expected_count: 8
"""

RETURN = r"""
verdict:
  description:
    - How it ended.
    - V(free) means that no target held a device, V(released) that every target is gone, V(would_release) what check
      mode says where there are targets, V(foreign) that only processes which are not in scope compute on the GPUs.
    - V(dying) means that all that is left was killed and was still giving memory back when the time was over, or that
      the driver had not answered since.
    - The module fails on V(survivors) (a target outlived the last signal, or could not be stopped), V(respawned)
      (something starts them again), V(incomplete) (not every process could be looked at) and V(refused) (the node is
      not the container it is said to be, C(/etc/cleanslate/allowed.json) on this machine does not allow it, or an
      option cannot be meant).
  returned: always
  type: str
  sample: released
msg:
  description:
    - The outcome in a sentence, with processes and the next step where it failed.
  returned: always
  type: str
  sample: "Released: 1 process signalled; a complete second look found no target left."
holders:
  description:
    - Who held GPU devices at the first look, with what the rules make of them. See M(cleanslate.gpu.gpu_holders_info)
      for the fields.
  returned: always
  type: list
  elements: dict
  sample: []
signalled:
  description:
    - The signals that were sent.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description:
        - The process.
      type: int
      returned: always
    signal:
      description:
        - The signal by name.
      type: str
      returned: always
    after_s:
      description:
        - Seconds since the module began.
      type: float
      returned: always
  sample:
    - pid: 4711
      signal: TERM
      after_s: 0.021
would_signal:
  description:
    - In check mode, whom it would signal, and with which signal first.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description:
        - The process.
      type: int
      returned: always
    signal:
      description:
        - The signal by name.
      type: str
      returned: always
  sample: []
stop:
  description:
    - What M(cleanslate.gpu.sglang_unit_stop) would have returned of O(stop_unit). Null where nothing was stopped first.
  returned: always
  type: dict
  sample:
stopped:
  description:
    - What was stopped through a manager, as the command and the processes concerned.
  returned: always
  type: list
  elements: str
  sample:
    - systemctl stop sglang.service (for PID 4711)
would_stop:
  description:
    - In check mode, what it would stop through a manager.
  returned: always
  type: list
  elements: str
  sample: []
survivors:
  description:
    - The targets that are still there, with RV(survivors[].state) and RV(survivors[].wchan).
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description:
        - The process.
      type: int
      returned: always
    state:
      description:
        - Its state as the kernel gives it.
      type: str
      returned: always
    wchan:
      description:
        - Where in the kernel it sleeps, for state D.
      type: str
      returned: always
  sample: []
respawned_by:
  description:
    - Who started a killed target again.
  returned: always
  type: str
  sample: PID 812 (/bin/sh /root/run.sh)
port_owners:
  description:
    - Who listened on O(port) at the first look. See M(cleanslate.gpu.gpu_holders_info) for the fields.
  returned: always
  type: list
  elements: dict
  sample: []
stale_nodes:
  description:
    - Device nodes that were found but are no nodes of the loaded driver. They were not looked for.
  returned: always
  type: list
  elements: dict
  contains:
    path:
      description:
        - The path.
      type: str
      returned: always
    reason:
      description:
        - Why it does not count.
      type: str
      returned: always
  sample: []
smi_state:
  description:
    - What asking C(nvidia-smi) for the compute processes gave at the beginning, as in
      RV(cleanslate.gpu.nvidia_gpu_facts#module:ansible_facts.nvidia_gpu.state). Anything but V(ok) means that open
      and mapped devices alone decided.
  returned: always
  type: str
  sample: ok
gate:
  description:
    - What the gate returned with O(wait_idle=true), as M(cleanslate.gpu.gpu_wait_idle) does. Null where it did not
      run.
  returned: always
  type: dict
  sample:
elapsed_s:
  description:
    - Seconds that the release took, without the gate.
  returned: always
  type: float
  sample: 0.31
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_arguments import GATE_ARGUMENTS, gate_options
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_arguments import LADDER_ARGUMENTS, release_options
from ansible_collections.cleanslate.gpu.plugins.module_utils._release_steps import (
    STOP_ARGUMENTS,
    as_result,
    check_stop_arguments,
    options_refused,
    stop_and_release,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_arguments import SCAN_ARGUMENTS, scan_request
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import (
    EXPECTATION_ARGUMENTS,
    SMI_ARGUMENTS,
    check_smi_arguments,
)


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            **SMI_ARGUMENTS,
            **EXPECTATION_ARGUMENTS,
            **SCAN_ARGUMENTS,
            **GATE_ARGUMENTS,
            **LADDER_ARGUMENTS,
            **STOP_ARGUMENTS,
            "scope": {**SCAN_ARGUMENTS["scope"], "required": True},
            "wait_idle": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params, clock = module.params, SystemClock()
    try:
        check_smi_arguments(params)
        check_stop_arguments(params)
        request = scan_request(params)
        options = release_options(params, module.check_mode)
        gate = gate_options(params, module.check_mode) if params["wait_idle"] else None
    except ValueError as error:
        module.fail_json(**as_result(options_refused(error), None))
    world = GpuWorld(request, clock, nvidia_smi=params["nvidia_smi"], smi_timeout=params["smi_timeout"])
    released, stopped = stop_and_release(world, params, options, gate, check_mode=module.check_mode)
    leave = module.fail_json if released.failed else module.exit_json
    leave(**as_result(released, stopped))


if __name__ == "__main__":
    main()
