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
  - The rest needs O(profile). C(arguments) asks the parser of the environment that will run the server whether it takes
    what was rendered, as the service user and with no GPU in sight. All refusals are told, not only the first.
  - C(model_files) looks whether the model is there and whole, by its index and by what each shard says of its length.
    Only headers are read. C(context_length), C(tensor_parallel), C(trust_remote_code) and C(served_model_name) compare
    its C(config.json) with the arguments.
  - C(draft_model) does the same for the draft model of speculative decoding, and compares it with the target. SGLang
    itself looks at it only after the whole target was loaded.
  - C(disk_space) and C(shared_memory) look for room in O(folders) and in C(/dev/shm). C(unit_syntax) lets
    C(systemd-analyze) read O(unit_text).
  - C(gate) refuses what a release would not mend, with O(gate), and a C(nvidia-smi) that hangs.
  - C(port) looks who listens where the server will; it must be nobody, or what is stopped and released before.
  - C(root_paths) looks whether O(root_files) and O(root_folders) are out of the reach of everybody but root.
  - Fails where a check failed. It changes nothing.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.info_module
  - cleanslate.gpu.smi
  - cleanslate.gpu.scan
  - cleanslate.gpu.launch
options:
  scope:
    description:
      - Whose processes will be stopped or released before the launch, and may therefore keep O(port) until then.
      - V(lxc) is for a GPU host and has no use here.
    type: str
    choices: [unit, own, lxc, all]
    default: own
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
      - How many seconds opening one node, reading one file or one other step may take.
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

- name: Check a launch too
  cleanslate.gpu.sglang_preflight:
    expected_count: 8
    service_user: sglang
    python: [/opt/sglang/bin/python]
    profile:
      args:
        model-path: /models/Kimi-K2.5
        tp-size: 8
        context-length: 131072
      config: |
        context-length: 131072
        model-path: "/models/Kimi-K2.5"
        tp-size: 8
    folders: [/var/log/sglang, /etc/sglang]
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
gate:
  description:
    - The rehearsal, as M(cleanslate.gpu.gpu_wait_idle) returns it in check mode. Null without O(gate), and where the
      options do not fit together.
  returned: always
  type: dict
  sample: {verdict: busy, msg: All 8 GPUs are held by processes of sglang.service., would_open_after_release: true}
health:
  description:
    - The server, as M(cleanslate.gpu.sglang_health_info) returns it. Null without O(health), and where the options do
      not fit together.
  returned: always
  type: dict
  sample: {verdict: ready, reason: "sglang.service on 127.0.0.1:30000: serves kimi; a generation took 0.3 s"}
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
  sample: "Passed: service_user, device_nodes, device_kind, device_access, driver_match, arguments, model_files."
"""

import functools
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock, SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_account, shown
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Check, Context, run_checks
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_arguments import arguments
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_devices import (
    device_access,
    device_kind,
    device_nodes,
    service_user,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_draft import draft_model
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_driver import driver_match
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_gate import OneLook, gate, rehearse
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_model import (
    context_length,
    model_files,
    served_model_name,
    tensor_parallel,
    trust_remote_code,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_port import port_free
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_request import (
    LAUNCH_ARGUMENTS,
    check_timeouts,
    launch_of,
    reader_of,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_room import disk_space, shared_memory
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_trust import root_paths
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_unit import unit_syntax
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_arguments import SCAN_ARGUMENTS, scan_request
from ansible_collections.cleanslate.gpu.plugins.module_utils._server_look import server_look_from
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_arguments import SGLANG_ARGUMENTS
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import (
    EXPECTATION_ARGUMENTS,
    SMI_ARGUMENTS,
    check_smi_arguments,
    expectation_from,
)

CHECKS = (
    service_user,
    device_nodes,
    device_kind,
    device_access,
    driver_match,
    arguments,
    model_files,
    context_length,
    draft_model,
    tensor_parallel,
    trust_remote_code,
    served_model_name,
    disk_space,
    shared_memory,
    unit_syntax,
    root_paths,
)


GATE_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "max_used_mib": EXPECTATION_ARGUMENTS["max_used_mib"],
    "settled_mib": {"type": "int", "default": 0},
}

HEALTH_ARGUMENTS = {name: SGLANG_ARGUMENTS[name] for name in ("host", "port", "api_key", "log_file")}


def health_of(params: t.Mapping[str, t.Any], context: Context) -> t.Callable[[], dict[str, t.Any] | None]:
    """ValueError with a sentence where its options cannot be meant."""
    if params["health"] is None:
        return lambda: None
    others = {name: option.get("default") for name, option in SGLANG_ARGUMENTS.items()}
    of_unit = {name: params[name] for name in ("unit", "systemd_scope")}
    try:
        return server_look_from({**others, **of_unit, **params["health"]}, context.clock, context.runner)
    except ValueError as error:
        raise ValueError(f"health: {error}") from None


def gate_of(params: t.Mapping[str, t.Any], context: Context) -> GateOptions | None:
    """ValueError with a sentence where its options cannot be meant."""
    if params["gate"] is None:
        return None
    try:
        return GateOptions(expectation=context.expectation, check_mode=True, **params["gate"])
    except ValueError as error:
        raise ValueError(f"gate: {error}") from None


def context_of(params: t.Mapping[str, t.Any], scan: ScanRequest, clock: Clock) -> Context:
    """ValueError names the option and the value that do not fit."""
    check_timeouts(params, "timeout")
    user, group = params["service_user"].strip(), params["service_group"].strip()
    if group and not user:
        raise ValueError(f"service_group is {shown(group)}, but service_user is empty; name the user too.")
    for name, account in (("service_user", user), ("service_group", group)):
        if account:
            check_account(name, account)
    return Context(
        devices=scan.devices,
        majors=scan.majors,
        expectation=expectation_from({**params, "max_used_mib": 0}),
        service_user=user,
        service_group=group,
        timeout=params["timeout"],
        runner=CommandRunner(clock),
        clock=clock,
        launch=launch_of(params, clock, reader_of(user, group)),
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **SMI_ARGUMENTS,
            **SCAN_ARGUMENTS,
            "scope": {**SCAN_ARGUMENTS["scope"], "default": "own"},
            **{name: EXPECTATION_ARGUMENTS[name] for name in ("expected_count", "expected_uuids")},
            **LAUNCH_ARGUMENTS,
            "service_user": {"type": "str", "default": ""},
            "service_group": {"type": "str", "default": ""},
            "timeout": {"type": "float", "default": 15.0},
            "gate": {"type": "dict", "options": GATE_ARGUMENTS},
            "health": {"type": "dict", "options": HEALTH_ARGUMENTS},
        },
        supports_check_mode=True,
    )
    params, clock = module.params, SystemClock()
    try:
        check_smi_arguments(params)
        request = scan_request(params)
        context = context_of(params, request, clock)
        options = gate_of(params, context)
        look_at_server = health_of(params, context)
    except ValueError as error:
        module.fail_json(msg=str(error), changed=False, checks=[], gate=None, health=None, verdict="refuse")
    world = GpuWorld(
        request,
        clock,
        nvidia_smi=params["nvidia_smi"],
        smi_timeout=params["smi_timeout"],
        runner=context.runner,
    )
    health = look_at_server()
    seen = OneLook(world)
    rehearsed = rehearse(seen, options, clock) if options else None
    checks: tuple[t.Callable[[Context], Check], ...] = (
        *CHECKS,
        functools.partial(gate, rehearsed=rehearsed, seen=seen),
        functools.partial(port_free, seen=seen),
    )
    found = run_checks(context, checks)
    result = {
        "changed": False,
        "msg": found.message,
        "checks": [check.as_dict() for check in found.checks],
        "gate": rehearsed and rehearsed.as_dict(),
        "health": health,
        "verdict": found.verdict,
    }
    if found.failures:
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
