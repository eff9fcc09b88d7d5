#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write or show what a person last asked for on this node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_wanted
short_description: Write or show what a person last asked of an SGLang server
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Keeps on the node what a person last asked for, a profile serving or a stopped server, and until when scheduled
    runs are to keep still. Scheduled runs follow this and not the inventory, so that nobody's stop or trial is undone
    at night.
  - Only runs that a person starts write it. Where nothing stands, or nothing that can be read, scheduled runs do no
    more than report.
  - The file is replaced as a whole and flushed to the disk. Everybody may read it.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.node_state
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details:
      - The same run asking for the same again changes nothing.
options:
  state:
    description:
      - V(serving), O(profile) is to serve. V(stopped), nothing is to run.
      - V(paused), scheduled runs keep still until O(until); what is wanted stays as it is. V(resumed) ends that.
      - V(shown) changes nothing.
    type: str
    choices: [serving, stopped, paused, resumed, shown]
    required: true
  profile:
    description:
      - The profile that is to serve. Without it, whatever is installed.
    type: str
  outcome:
    description:
      - How the person's run ended. After V(failed) scheduled runs only report. After V(rolled_back), O(profile) is the
        one that serves now.
    type: str
    choices: [ready, failed, rolled_back, done]
    default: done
  until:
    description:
      - The end of a pause, in UTC by the clock of this node, such as V(2026-11-30T06:00:00Z). At most 366 days ahead.
      - Required with O(state=paused).
    type: str
  reason:
    description:
      - Why scheduled runs are to keep still. Required with O(state=paused). Shown to whoever asks.
    type: str
    default: ''
  who:
    description:
      - Who asks, such as the name of the user on the controller.
    type: str
    default: ''
  by:
    description:
      - What that person ran, such as the name of the playbook.
    type: str
    default: ''
  run_id:
    description:
      - The run, as in its record.
    type: str
    default: ''
  proved_files:
    description:
      - The files of the unit with which the server was just proved to serve. They are kept for a rollback, as
        M(cleanslate.gpu.sglang_unit_files) does with O(cleanslate.gpu.sglang_unit_files#module:state=proved), before
        anything is written here. Only with O(outcome=ready).
    type: list
    elements: path
    default: []
  memory_path:
    description:
      - Forget what scheduled runs have noted about this unit in this file, as M(cleanslate.gpu.sglang_drift_memory)
        does with O(cleanslate.gpu.sglang_drift_memory#module:state=reset), once the rest is written. Only with
        O(outcome=ready).
    type: path
  path:
    default: /var/lib/cleanslate/wanted.json
seealso:
  - module: cleanslate.gpu.sglang_drift_memory
  - module: cleanslate.gpu.sglang_unit_files
"""

EXAMPLES = r"""
- name: Say that this profile serves now
  cleanslate.gpu.sglang_wanted:
    state: serving
    unit: sglang.service
    profile: kimi-k2.5
    outcome: ready
    who: "{{ lookup('ansible.builtin.env', 'USER') }}"
    by: relaunch.yml
    run_id: "{{ relaunch_id }}"
  become: true

- name: Keep scheduled runs away until tomorrow morning
  cleanslate.gpu.sglang_wanted:
    state: paused
    unit: sglang.service
    until: "2026-11-30T06:00:00Z"
    reason: The rack is being rewired
    who: anna
  become: true

- name: See what is wanted
  cleanslate.gpu.sglang_wanted:
    state: shown
    unit: sglang.service
  register: asked
"""

RETURN = r"""
verdict:
  description:
    - V(written), V(unchanged) or V(shown).
    - V(refused), an option or the file cannot be used, and nothing was written. The module fails.
  returned: always
  type: str
  sample: written
reason:
  description:
    - The verdict as a sentence.
  returned: always
  type: str
  sample: "sglang.service: serving: kimi-k2.5, ready."
wanted:
  description:
    - What is wanted now, or would be in check mode. Null where nothing stands or it cannot be read.
  returned: always
  type: dict
  contains:
    state:
      description: V(serving) or V(stopped); null where nobody asked for anything but a pause.
      type: str
      returned: always
    profile:
      description: The profile, or null.
      type: str
      returned: always
    outcome:
      description: How the person's run ended.
      type: str
      returned: always
    by:
      description: What that person ran.
      type: str
      returned: always
    who:
      description: Who asked.
      type: str
      returned: always
    at:
      description: When, in UTC.
      type: str
      returned: always
    run_id:
      description: The run.
      type: str
      returned: always
    pause:
      description: The C(until), C(reason) and C(who) of a pause, also of one that has passed. Null without one.
      type: dict
      returned: always
  sample:
    state: serving
    profile: kimi-k2.5
    outcome: ready
    by: relaunch.yml
    who: anna
    at: "2026-11-29T16:09:02Z"
    run_id: 7f3a
    pause: null
problem:
  description:
    - What is wrong with the file, or with that of O(memory_path), as a sentence, or null. With O(state=shown) it does
      not fail the module.
  returned: always
  type: str
  sample: null
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils import (
    _drift_memory_file,
    _state_file,
    _unit_files,
    _wanted_state,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory_file import MemoryRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_path
from ansible_collections.cleanslate.gpu.plugins.module_utils._wanted_state import Wanted, WantedRequest, WantedResult


def keep_proved(files: t.Sequence[str], check: bool) -> None:
    """ValueError or UnitFileError with a sentence."""
    for path in files:
        check_path("proved_files", path)
    if files and not check:
        _unit_files.prove(files)


def forget(path: str | None, unit: str, check: bool) -> str | None:
    """Why what scheduled runs noted could not be forgotten."""
    if path is None:
        return None
    found = _drift_memory_file.change(MemoryRequest("reset", unit), path, boot_id(), BootClock(), check=check)
    return found.reason if found.failed else None


def returned(found: WantedResult) -> dict[str, t.Any]:
    return _state_file.returned(found, "wanted", Wanted.document, _wanted_state.lines)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["serving", "stopped", "paused", "resumed", "shown"],
                "required": True,
            },
            "unit": {"type": "str", "required": True},
            "profile": {"type": "str"},
            "outcome": {"type": "str", "choices": ["ready", "failed", "rolled_back", "done"], "default": "done"},
            "until": {"type": "str"},
            "reason": {"type": "str", "default": ""},
            "who": {"type": "str", "default": ""},
            "by": {"type": "str", "default": ""},
            "run_id": {"type": "str", "default": ""},
            "proved_files": {"type": "list", "elements": "path", "default": []},
            "memory_path": {"type": "path"},
            "path": {"type": "path", "default": "/var/lib/cleanslate/wanted.json"},
        },
        required_if=[("state", "paused", ("until", "reason"))],
        supports_check_mode=True,
    )
    options: dict[str, t.Any] = dict(module.params)
    path = options.pop("path")
    if options["state"] == "shown":
        wanted, problem = _wanted_state.shown(path, options["unit"])
        reason = problem or f"{options['unit']}: {_wanted_state.words(wanted)}."
        document = wanted.document() if wanted is not None else None
        module.exit_json(changed=False, verdict="shown", reason=reason, wanted=document, problem=problem)
    options["until"] = options["until"] or ""
    options["profile"] = options["profile"] or None
    proved, memory = options.pop("proved_files"), options.pop("memory_path")
    before, _problem = _wanted_state.shown(path, options["unit"])
    try:
        if (proved or memory) and options["outcome"] != "ready":
            raise ValueError(
                f"proved_files and memory_path go with outcome=ready only, and it is {options['outcome']}."
            )
        if memory:
            check_path("memory_path", memory)
        keep_proved(proved, module.check_mode)
    except (ValueError, _unit_files.UnitFileError) as error:
        reason = f"{options['unit']}: {error} What was asked for was not kept."
        found = WantedResult("refused", reason, failed=True, before=before, after=before)
        module.fail_json(msg=reason, **returned(found))
    found = _wanted_state.write(WantedRequest(**options), path, SystemClock(), check=module.check_mode)
    result = returned(found)
    if found.failed:
        module.fail_json(msg=found.reason, **result)
    result["problem"] = forget(memory, options["unit"], module.check_mode)
    if result["problem"]:
        module.fail_json(msg=f"{found.reason} That was kept, and then: {result['problem']}", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
