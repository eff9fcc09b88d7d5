#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has a GPU device open or mapped, and what the rules make of each."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_holders_info
short_description: List the processes that have a GPU device open or mapped
version_added: 0.1.0
description:
  - Looks at every process of the machine and returns those that have a GPU device node open or mapped, with their unit,
    container, user, age and state, and with the disposition that M(cleanslate.gpu.gpu_force_release) would give them
    with the same options.
  - It finds holders by device number. That includes those which opened another node of the same number in a container,
    those which closed the file and kept the mapping, threads of a process whose leader is dead, and children that
    inherited the device from a dead parent.
  - Where an entry of C(/proc) that could matter cannot be read, the verdict is V(incomplete). Run it as root, and for
    containers on their host.
  - It changes nothing, and it never fails because of what the machine looks like.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.info_module
  - cleanslate.gpu.smi
  - cleanslate.gpu.scan
options:
  scope:
    description:
      - Which holders count as targets.
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
  processes:
    description:
      - Whether to ask C(nvidia-smi) which processes compute, and on which GPU.
      - Without that a process computes only where it has a GPU mapped, and RV(holders[].gpus) is empty.
    type: bool
    default: true
seealso:
  - module: cleanslate.gpu.gpu_force_release
  - module: cleanslate.gpu.nvidia_gpu_facts
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
"""

EXAMPLES = r"""
- name: Look who has the GPUs open
  cleanslate.gpu.gpu_holders_info:
    units:
      - sglang.service
  register: look
  become: true

- name: Show one line for each
  ansible.builtin.debug:
    var: look.lines

- name: Refuse where somebody else uses the GPUs, or where that could not be told
  ansible.builtin.assert:
    that:
      - look.complete
      - look.holders | selectattr('disposition', 'eq', 'foreign') | list | length == 0
    fail_msg: "{{ look.incomplete_reason or look.lines | join('; ') }}"

- name: On the Proxmox host, look at what container 101 holds
  cleanslate.gpu.gpu_holders_info:
    scope: lxc
    lxc:
      - "101"
  become: true
"""

RETURN = r"""
holders:
  description: The processes that have a GPU device node open or mapped, ordered by PID.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: The process id, as this machine counts.
      type: int
      returned: always
      sample: 4711
    ns_pid:
      description:
        - The process id inside its own PID namespace, as its container counts. Null where that could not be read.
      type: int
      returned: always
      sample: 812
    start_time:
      description: When it started, in clock ticks since boot. Together with the PID it identifies a process.
      type: int
      returned: always
      sample: 8231877
    ppid:
      description: The process id of its parent.
      type: int
      returned: always
      sample: 4690
    comm:
      description: Its name in the kernel, cut to 15 characters.
      type: str
      returned: always
      sample: sglang::schedul
    cmdline:
      description: Its command line with secrets masked, at most some 4096 characters. Empty where it could not be read.
      type: str
      returned: always
      sample: sglang::scheduler_TP1
    exe:
      description: Its executable, null where that could not be read.
      type: str
      returned: always
      sample: /srv/venv/bin/python3
    uid:
      description: Its effective user id.
      type: int
      returned: always
      sample: 990
    user:
      description: The name of that user, null where there is none.
      type: str
      returned: always
      sample: sglang
    state:
      description: Its state as C(ps) shows it. V(Z) with a device open is a dead leader whose threads live.
      type: str
      returned: always
      sample: S
    dying:
      description:
        - Whether it is on its way out, with SIGKILL pending or every thread exiting. It may still hold GPU memory for
          seconds while the kernel unpins it. Another signal does not help.
      type: bool
      returned: always
      sample: false
    unit:
      description:
        - Its systemd unit, for a process in a container that of the container's systemd. Null where it has none.
      type: str
      returned: always
      sample: sglang.service
    container:
      description: The container it runs in, null for a process of this node.
      type: dict
      returned: always
      contains:
        kind:
          description:
            - V(lxc), V(docker), V(podman), V(kubernetes) and so on, or V(unknown).
          type: str
          returned: when it runs in a container
          sample: lxc
        id:
          description: The VMID for V(lxc) on Proxmox, a container id or name, or the cgroup path for V(unknown).
          type: str
          returned: when it runs in a container
          sample: "101"
    devices:
      description: The nodes it has open or mapped.
      type: list
      elements: str
      returned: always
      sample: [/dev/nvidia1, /dev/nvidiactl, /dev/nvidia-uvm]
    via:
      description: How it holds them, by V(fd), by the V(thread_fd) of a living thread, or by V(map).
      type: list
      elements: str
      returned: always
      sample: [fd, map]
    computes:
      description: Whether it maps a GPU, or has one open and is listed by name as computing. Null where not known.
      type: bool
      returned: always
      sample: true
    listens:
      description: Where it listens on O(port), as address and port.
      type: list
      elements: str
      returned: always
      sample: []
    gpus:
      description: The UUIDs of the GPUs on which C(nvidia-smi) lists it.
      type: list
      elements: str
      returned: always
      sample:
        - GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7
    age_s:
      description: How old it is, in seconds.
      type: float
      returned: always
      sample: 7980.4
    wchan:
      description: Where in the kernel it waits, in state V(D) only.
      type: str
      returned: always
      sample: uvm_va_space_destroy
    disposition:
      description:
        - V(self), this module or one of its ancestors. V(never), PID 1, a kernel thread or the monitor of a container.
          V(protected), a system service of the GPUs. V(monitor), has devices open but does not compute. V(target), in
          scope. V(foreign), somebody else's.
      type: str
      returned: always
      sample: target
    reason:
      description: Why it has this disposition.
      type: str
      returned: always
      sample: belongs to sglang.service
lines:
  description: One readable line for each of RV(holders).
  returned: always
  type: list
  elements: str
  sample:
    - "pid 4711 (sglang::scheduler_TP1), user sglang, unit sglang.service, GPU 1 nvidia1 nvidia-uvm, 2 h 13 min old,
      state S: target (belongs to sglang.service)"
verdict:
  description:
    - V(none), nobody holds a GPU device. V(some), somebody does. V(incomplete), whether somebody else does could not be
      told, for RV(incomplete_reason).
  returned: always
  type: str
  sample: some
complete:
  description: Whether every process that could have a node open was looked at.
  returned: always
  type: bool
  sample: true
incomplete_reason:
  description: Why the look is not complete, and what to do. Empty where it is.
  returned: always
  type: str
  sample: ""
unreadable:
  description: The entries of C(/proc) that could not be read.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: The process id.
      type: int
      returned: always
      sample: 1
    comm:
      description: The name of the process in the kernel.
      type: str
      returned: always
      sample: systemd
    what:
      description: What could not be read.
      type: str
      returned: always
      sample: fd
    error:
      description: What the kernel said.
      type: str
      returned: always
      sample: Permission denied
    matters:
      description: Whether the process could have been a holder that was missed.
      type: bool
      returned: always
      sample: false
    reason:
      description: Why it matters, or why it does not.
      type: str
      returned: always
      sample: PID 1 is never touched
port_owners:
  description:
    - Who listens on O(port), with C(address), C(pid) (null where nobody could be seen), C(comm), C(cmdline), C(user),
      C(unit), C(container), C(disposition) and C(reason), as in RV(holders). Only a V(target) would be signalled.
  returned: always
  type: list
  elements: dict
  sample: []
stale_nodes:
  description: What O(devices) found that is no GPU device.
  returned: always
  type: list
  elements: dict
  contains:
    path:
      description: The path.
      type: str
      returned: always
      sample: /dev/nvidia-uvm
    reason:
      description: What is wrong with it.
      type: str
      returned: always
      sample: has the number 510:0, but /proc/devices gives the NVIDIA driver 195, 509
processes_state:
  description:
    - What became of C(nvidia-smi), as RV(cleanslate.gpu.nvidia_gpu_facts#module:ansible_facts.nvidia_gpu.state), or
      V(not_asked).
  returned: always
  type: str
  sample: ok
pid_namespace:
  description:
    - The PID namespace of this node's PID 1. Seen from the host, the first process of the right container is in the
      same one. Null where it cannot be read.
  returned: always
  type: str
  sample: pid:[4026532501]
scan_seconds:
  description: How long the look took.
  returned: always
  type: float
  sample: 0.043
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._container_names import with_container_ids
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import describe, look_for_holders
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import look
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_arguments import SCAN_ARGUMENTS, scan_request
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import SMI_ARGUMENTS, check_smi_arguments
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd


def as_result(
    scan: HolderScan, processes_state: str, pid_namespace: str | None, index_of: t.Mapping[str, int]
) -> dict[str, t.Any]:
    """The public shape. Whoever was found is told also where the look was not complete."""
    verdict = "incomplete" if not scan.complete else "some" if scan.holders else "none"
    return {
        "holders": [holder.as_dict() for holder in scan.holders],
        "lines": [describe(holder, index_of) for holder in scan.holders],
        "verdict": verdict,
        "complete": scan.complete,
        "incomplete_reason": scan.incomplete_reason,
        "unreadable": [entry.as_dict() for entry in scan.unreadable],
        "stale_nodes": [node.as_dict() for node in scan.stale_nodes],
        "port_owners": [owner.as_dict() for owner in scan.port_owners],
        "processes_state": processes_state,
        "pid_namespace": pid_namespace,
        "scan_seconds": round(scan.seconds, 3),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **SMI_ARGUMENTS,
            **SCAN_ARGUMENTS,
            "scope": {**SCAN_ARGUMENTS["scope"], "default": "own"},
            "processes": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    params, clock = module.params, SystemClock()
    pid_namespace = Proc().pid_namespace_of_node()
    try:
        check_smi_arguments(params)
        request = scan_request(params)
    except ValueError as error:
        nothing = HolderScan(complete=False, incomplete_reason=f"Nothing was looked at: {error}")
        module.fail_json(msg=str(error), changed=False, **as_result(nothing, "not_asked", pid_namespace, {}))
    runner = CommandRunner(clock)
    request = with_container_ids(request, runner)
    processes: tuple[GpuProcess, ...] = ()
    state = "not_asked"
    index_of: dict[str, int] = {}
    if params["processes"]:
        seen = look(runner, nvidia_smi=params["nvidia_smi"], timeout=params["smi_timeout"])
        processes, state = seen.processes, seen.state
        index_of = {gpu.uuid: gpu.index for gpu in seen.gpus}
    scan = look_for_holders(request, processes, unit_states=Systemd(runner, request.systemd_scope).active, clock=clock)
    module.exit_json(changed=False, **as_result(scan, state, pid_namespace, index_of))


if __name__ == "__main__":
    main()
