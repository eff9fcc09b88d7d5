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
  - It never fails because of what it finds, and changes nothing at all.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.info_module
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
      - Values for the placeholders, by the name of the profile. They are compared and never shown.
    type: dict
    default: {}
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

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory_file, _wanted_state
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock, SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._installed_server import (
    Comparison,
    Installed,
    look_at_installed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease import LeaseRequest, lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    check_line,
    check_path,
    check_unit,
    shown,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_arguments import iso_time
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "unit": {"type": "str", "required": True},
    "systemd_scope": {"type": "str", "choices": ["system", "user"], "default": "system"},
    "unit_path": {"type": "path", "required": True},
    "config_path": {"type": "path", "required": True},
    "profiles": {"type": "dict", "default": {}},
    "profile": {"type": "str", "default": ""},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
    "must_be_enabled": {"type": "bool", "default": True},
    "wanted_file": {"type": "path", "default": "/var/lib/cleanslate/wanted.json"},
    "memory_file": {"type": "path", "default": "/var/lib/cleanslate/drift.json"},
    "lease_dir": {"type": "path"},
}


def leases_of(path: str | None) -> dict[str, t.Any]:
    """Whose leases stand, and who is starting."""
    if not path:
        return {"leases": None, "starting": None, "leases_problem": None}
    found = lease(LeaseRequest(state="shown"), path, boot_id(), BootClock(), check=True)
    problem = found.reason if found.failed or found.unreadable else None
    return {"leases": found.leases, "starting": found.starting, "leases_problem": problem}


def check_options(params: t.Mapping[str, t.Any]) -> None:
    """ValueError with a sentence where an option cannot be meant."""
    check_unit("unit", params["unit"])
    for name in ("unit_path", "config_path", "wanted_file", "memory_file", "lease_dir"):
        if params[name] is not None:
            check_path(name, params[name])
    check_line("profile", params["profile"])
    for name in ("profiles", "secrets"):
        for profile, of_it in params[name].items():
            if not isinstance(of_it, t.Mapping):  # which for secrets must not be shown
                raise ValueError(f"{name} holds a {type(of_it).__name__} for {shown(profile)}, which is no mapping.")
    for profile, texts in params["profiles"].items():
        for key, kind in (("unit_text", str), ("config_text", str), ("launch", list)):
            if not isinstance(texts.get(key), (kind, type(None))):
                raise ValueError(
                    f"profiles: {key} of {shown(profile)} is {shown(texts[key])}, which is no {kind.__name__}."
                )


def installed(params: t.Mapping[str, t.Any], profile: str) -> Installed:
    """What the profile says of the files; nothing where it is not known."""
    texts = params["profiles"].get(profile) or {}
    return Installed(
        unit=params["unit"],
        unit_path=params["unit_path"],
        unit_text=texts.get("unit_text"),
        config_path=params["config_path"],
        config_text=texts.get("config_text"),
        launch=tuple(texts.get("launch") or ()),
        secrets={name: str(value) for name, value in (params["secrets"].get(profile) or {}).items()},
        must_be_enabled=params["must_be_enabled"],
    )


def nothing_seen(why: str, clock: Clock) -> dict[str, t.Any]:
    """The result where the options cannot be meant."""
    names = ("service", "wanted", "wanted_problem", "memory", "memory_problem", "leases", "starting", "leases_problem")
    return {
        **dict.fromkeys(names),
        "changed": False,
        "profile": "",
        "config": Comparison((), (why,)).as_dict(),
        "boot_id": boot_id(),
        "boottime_s": round(BootClock().monotonic(), 3),
        "looked_at": iso_time(clock.wall()),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params, clock = module.params, SystemClock()
    try:
        check_options(params)
    except ValueError as error:
        module.fail_json(msg=f"{error} Nothing was looked at.", **nothing_seen(str(error), clock))
    asked_for, wanted_problem = _wanted_state.shown(params["wanted_file"], params["unit"])
    profile = (asked_for.profile if asked_for is not None else None) or params["profile"]
    systemd = Systemd(CommandRunner(clock), params["systemd_scope"])
    config, service = look_at_installed(installed(params, profile), systemd, clock)
    if profile not in params["profiles"]:
        config = config.but_not(f"profile {profile or 'nobody asked for'} is not among those known: no text to compare")
    memory, memory_problem = _drift_memory_file.shown(params["memory_file"], params["unit"])
    module.exit_json(
        changed=False,
        profile=profile if profile in params["profiles"] else "",
        config=config.as_dict(),
        service=service,
        wanted=asked_for.document() if asked_for is not None else None,
        wanted_problem=wanted_problem,
        memory=memory.view() if memory is not None else None,
        memory_problem=memory_problem,
        **leases_of(params["lease_dir"]),
        boot_id=boot_id(),
        boottime_s=round(BootClock().monotonic(), 3),
        looked_at=iso_time(clock.wall()),
    )


if __name__ == "__main__":
    main()
