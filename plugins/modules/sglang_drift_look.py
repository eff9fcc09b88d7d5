#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a server's files, unit and command line is not as wanted, and what was wanted."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_drift_look
short_description: Look at what has drifted of an SGLang server's files, unit and command line
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Compares the installed unit and configuration, what systemd has loaded, and the command line of the running process
    with what a profile says. Values are compared, not text, so a comment or another order is no drift.
  - Reads what a person last asked for on this node and what earlier scheduled runs have noted, and where this machine
    owns its GPUs, whose lease stands.
  - The server is judged by what it was started with, the files in O(unit_path) and O(config_path) and its command
    line, as O(cleanslate.gpu.sglang_health_info#module:installed) says. What a profile says otherwise is a difference
    and makes no healthy server a sick one.
  - With O(health) and O(gate) it looks at the server and at its GPUs in the same execution, as
    M(cleanslate.gpu.sglang_health_info) and M(cleanslate.gpu.gpu_wait_idle) in check mode do.
  - It never fails because of what it finds, and changes nothing at all.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.info_module
  - cleanslate.gpu.drift_parts
options:
  unit:
    description:
      - The systemd unit that runs the server, with its suffix.
    type: str
    required: true
  systemd_scope:
    description:
      - Whether the unit belongs to the system's manager or to that of the user the module runs as.
    type: str
    choices: [system, user]
    default: system
  unit_path:
    description:
      - Absolute path of the unit file.
    type: path
    required: true
  config_path:
    description:
      - Absolute path of SGLang's configuration.
    type: path
    required: true
  profiles:
    description:
      - What each profile makes of the files, by the name of the profile. The one that a person asked for is compared.
      - Each has C(unit_text), C(config_text), in which C("<<secret:NAME>>") stands for a value in O(secrets), and
        C(launch), the command that the unit runs, as a list of arguments. What comes before SGLang's entry point is
        not compared.
    type: dict
    default: {}
  profile:
    description:
      - The profile to compare with where nobody asked for one on this node.
    type: str
    default: ""
  secrets:
    description:
      - Values for the placeholders, by the name of the profile. They are compared and never shown. C(api_key) is also
        the key with which the server is asked for O(health).
    type: dict
    default: {}
  count_installed:
    description:
      - Whether O(gate) expects as many GPUs as the server was started on, where that is known, and not
        O(gate.expected_count). Not for a node whose GPUs are counted or named by hand.
    type: bool
    default: false
  must_be_enabled:
    description:
      - Whether the unit must start at boot.
    type: bool
    default: true
  wanted_file:
    description:
      - The file in which M(cleanslate.gpu.sglang_wanted) keeps what a person asked for.
    type: path
    default: /var/lib/cleanslate/wanted.json
  memory_file:
    description:
      - The file in which M(cleanslate.gpu.sglang_drift_memory) keeps what scheduled runs noted.
    type: path
    default: /var/lib/cleanslate/drift.json
  lease_dir:
    description:
      - The folder of the leases, where this machine owns its GPUs. Without it they are not looked at.
    type: path
notes:
  - Run it as root, or the configuration, which holds keys, cannot be read.
seealso:
  - module: cleanslate.gpu.sglang_health_info
  - module: cleanslate.gpu.gpu_wait_idle
"""

EXAMPLES = r"""
- name: See whether somebody has edited the unit
  cleanslate.gpu.sglang_drift_look:
    unit: sglang.service
    unit_path: /etc/systemd/system/sglang.service
    config_path: /etc/sglang/sglang.yaml
    profile: kimi
    profiles:
      kimi:
        unit_text: "{{ lookup('ansible.builtin.template', 'sglang.service.j2') }}"
        config_text: "{{ lookup('ansible.builtin.template', 'sglang.yaml.j2') }}"
        launch: [/opt/sglang/bin/python, -m, sglang.launch_server, --config, /etc/sglang/sglang.yaml]
    secrets:
      kimi: {api_key: "{{ vault_sglang_api_key }}"}
  become: true
  register: look

- name: Say what differs
  ansible.builtin.debug:
    msg: "{{ look.config.differences }}"
"""

RETURN = r"""
config:
  description:
    - The comparison. Its C(verdict) is V(same), V(drifted) or, where something could not be compared and nothing else
      differs, V(unknown). C(differences) names C(where), C(item), C(wanted) and C(found), with keys masked;
      C(not_compared) holds sentences.
  returned: always
  type: dict
  sample:
    verdict: drifted
    differences: [{where: /etc/sglang/sglang.yaml, item: context-length, wanted: "262144", found: "65536"}]
    not_compared: []
profile:
  description: The profile that was compared with. Empty where none was.
  returned: always
  type: str
  sample: kimi
service:
  description:
    - What systemd says of the unit, C(load_state), C(active_state), C(sub_state), C(result), C(restarts),
      C(exit_status), C(restart) (its C(Restart=)), C(left_active_us) and C(main_ended_us), when it was last active and
      when its main process ended in microseconds since the boot, C(start_pre), its C(ExecStartPre=) and how that ended,
      and C(frozen), whether its processes are frozen. Null where systemd could not be asked.
  returned: always
  type: dict
  sample: {load_state: loaded, active_state: active, sub_state: running, result: success, restarts: 0, exit_status: 0,
    restart: always, left_active_us: 0, main_ended_us: 0, start_pre: null, frozen: false}
wanted:
  description: What a person last asked for, as in the file. Null where nobody did.
  returned: always
  type: dict
  sample: {state: serving, profile: kimi, by: relaunch.yml, who: ana, at: "2026-11-29T15:02:11Z", run_id: r1,
    outcome: ready, pause: null}
wanted_problem:
  description: Why what is wanted cannot be told. Null where it can.
  returned: always
  type: str
  sample: null
memory:
  description: What scheduled runs have noted about this unit, as in the file. Null where that is nothing.
  returned: always
  type: dict
  sample: null
memory_problem:
  description: Why that cannot be told. Null where it can.
  returned: always
  type: str
  sample: null
leases:
  description: The leases that stand, as M(cleanslate.gpu.gpu_host_lock) returns them. Null without O(lease_dir).
  returned: always
  type: list
  elements: dict
  sample: []
starting:
  description: The servers that are starting, as RV(leases).
  returned: always
  type: list
  elements: dict
  sample: []
leases_problem:
  description: Why the leases cannot be read. Null where they can.
  returned: always
  type: str
  sample: null
health:
  description:
    - The server, as M(cleanslate.gpu.sglang_health_info) returns it. Null without O(health), and where the profile to
      compare with is not among O(profiles).
  returned: always
  type: dict
  sample: {verdict: ready, reason: "sglang.service on 127.0.0.1:30000: serves kimi; a generation took 0.3 s"}
gate:
  description:
    - The GPUs, as M(cleanslate.gpu.gpu_wait_idle) returns them in check mode. Null without O(gate), and where
      RV(health) would be.
  returned: always
  type: dict
  sample: {verdict: busy, msg: All 8 GPUs are held by processes of sglang.service., would_open_after_release: true}
boot_id:
  description: The boot in which this was seen.
  returned: always
  type: str
  sample: 5b3c1c8e-8f1b-4f0e-9c0f-0a4f0c7c9d11
boottime_s:
  description: Seconds since that boot, suspension included.
  returned: always
  type: float
  sample: 86400.5
looked_at:
  description: When this was seen, in UTC.
  returned: always
  type: str
  sample: "2026-11-29T15:02:11Z"
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_look import (
    DRIFT_LOOK_ARGUMENTS,
    drift_look_from,
    nothing_seen,
)


def main() -> None:
    module = AnsibleModule(argument_spec=DRIFT_LOOK_ARGUMENTS, supports_check_mode=True)
    clock = SystemClock()
    try:
        look = drift_look_from(module.params, clock, CommandRunner(clock))
    except ValueError as error:
        why = str(error)
        module.fail_json(msg=f"{why} Nothing was looked at.", changed=False, **nothing_seen(why, clock))
    module.exit_json(changed=False, **look())


if __name__ == "__main__":
    main()
