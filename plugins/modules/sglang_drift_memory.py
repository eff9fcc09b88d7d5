#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What scheduled runs remember of a server between two of them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_drift_memory
short_description: Keep what scheduled runs suspected and did on a node
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Keeps on the node what earlier looks suspected, which remedies were begun and how they ended, until when the next
    one must wait, and whether scheduled runs have given up here. It lasts across reboots.
  - Nobody writes over what he has not seen. A change names the revision on which was decided.
  - Time inside a boot is told by CLOCK_BOOTTIME, so that a changed date neither confirms a suspicion nor ends a wait.
  - A file that cannot be read is left as it is, and nothing is begun, since a budget that is not known is spent.
    Only O(state=reset) replaces it.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.node_state
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - Every look that O(state=noted) counts is one more.
options:
  state:
    description:
      - V(noted), a look suspects O(key). V(cleared), a look suspects nothing; where nothing was suspected before, not
        even a lock file is made.
      - V(begun), before the first step of a remedy. It is refused where latch, back-off or budget are against it, and
        otherwise counts, whatever becomes of the run. V(ended), after the last step.
      - V(reset), a person has taken over, and nothing that was counts any more.
      - V(shown) changes nothing.
    type: str
    choices: [noted, cleared, begun, ended, reset, shown]
    required: true
  revision:
    description:
      - The C(revision) of the memory on which was decided, V(0) where there was none. Required with O(state=noted),
        O(state=cleared) and O(state=begun).
    type: int
  key:
    description:
      - What is suspected, of whom. Required with O(state=noted).
    type: str
    default: ''
  run_id:
    description:
      - The run that acts. Required with O(state=begun) and O(state=ended).
    type: str
    default: ''
  action:
    description:
      - What is begun. Required with O(state=begun).
    type: str
    choices: [release, relaunch]
  outcome:
    description:
      - V(ready), the server serves. V(failed), it does not. Required with O(state=ended).
    type: str
    choices: [ready, failed]
  reason:
    description:
      - Why it failed, in a sentence.
    type: str
    default: ''
  confirm_within:
    description:
      - Seconds after which an earlier look no longer counts.
    type: float
    default: 3600
  confirm_after:
    description:
      - Seconds that must lie between two looks that confirm each other.
    type: float
    default: 180
  max_remediations:
    description:
      - How many remedies may begin within O(window), and how many may fail in a row before scheduled runs give up.
    type: int
    default: 2
  window:
    description:
      - Seconds for which a remedy counts against O(max_remediations).
    type: float
    default: 86400
  backoff:
    description:
      - Seconds to wait after the first failed remedy. Doubled with each further one in a row.
    type: float
    default: 900
  backoff_most:
    description:
      - The longest wait, in seconds.
    type: float
    default: 14400
  path:
    default: /var/lib/cleanslate/drift.json
seealso:
  - module: cleanslate.gpu.sglang_wanted
  - plugin: cleanslate.gpu.drift_decision
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Spend the budget before the first step
  cleanslate.gpu.sglang_drift_memory:
    state: begun
    unit: sglang.service
    revision: "{{ decision.memory.revision }}"
    run_id: "{{ drift_run_id }}"
    action: "{{ decision.action }}"
  become: true

- name: Say how it ended
  cleanslate.gpu.sglang_drift_memory:
    state: ended
    unit: sglang.service
    run_id: "{{ drift_run_id }}"
    outcome: ready
  become: true

- name: Let scheduled runs act again, now that the cause is known
  cleanslate.gpu.sglang_drift_memory:
    state: reset
    unit: sglang.service
  become: true
"""

RETURN = r"""
verdict:
  description:
    - V(written), V(unchanged) or V(shown).
    - V(held_back), latch, back-off or budget are against a remedy. V(moved), another run has written since. With both
      the module fails.
    - V(unreadable), the file cannot be read and was left as it is. V(refused), an option or the folder cannot be used.
      With both the module fails and nothing was written.
  returned: always
  type: str
  sample: written
reason:
  description:
    - The verdict as a sentence.
  returned: always
  type: str
  sample: "sglang.service: 1 begun so far, the last at 2026-11-29T16:09:02Z: begun."
memory:
  description:
    - What is remembered now, or would be in check mode. Null where that is nothing, or it cannot be read.
  returned: always
  type: dict
  contains:
    revision:
      description: How often this was changed.
      type: int
      returned: always
    suspicions:
      description:
        - What the last look suspected, C(key), C(looks), C(boot_id), C(first_at), C(first_boot_s), C(last_at),
          C(last_boot_s).
      type: list
      elements: dict
      returned: always
    remediations:
      description:
        - The last fifty, oldest first, C(at), C(boot_id), C(boot_s), C(action), C(run_id), C(outcome) (null where
          nobody came back), C(ended), C(reason).
      type: list
      elements: dict
      returned: always
    backoff:
      description: C(at), C(boot_id), C(boot_s) and C(seconds), for which the next one must wait, or null.
      type: dict
      returned: always
    backoff_until:
      description: The end of that as a date, or null.
      type: str
      returned: always
    gave_up:
      description: C(at) and C(reason), or null.
      type: dict
      returned: always
problem:
  description:
    - What is wrong, as a sentence, or null. With O(state=shown) it does not fail the module.
  returned: always
  type: str
  sample: null
"""

import dataclasses
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory_file, _state_file
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import Limits, Memory
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory_file import MemoryRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["noted", "cleared", "begun", "ended", "reset", "shown"],
                "required": True,
            },
            "unit": {"type": "str", "required": True},
            "revision": {"type": "int"},
            "key": {"type": "str", "default": "", "no_log": False},
            "run_id": {"type": "str", "default": ""},
            "action": {"type": "str", "choices": ["release", "relaunch"]},
            "outcome": {"type": "str", "choices": ["ready", "failed"]},
            "reason": {"type": "str", "default": ""},
            "confirm_within": {"type": "float", "default": 3600},
            "confirm_after": {"type": "float", "default": 180},
            "max_remediations": {"type": "int", "default": 2},
            "window": {"type": "float", "default": 86400},
            "backoff": {"type": "float", "default": 900},
            "backoff_most": {"type": "float", "default": 14400},
            "path": {"type": "path", "default": "/var/lib/cleanslate/drift.json"},
        },
        required_if=[
            ("state", "noted", ("revision", "key")),
            ("state", "cleared", ("revision",)),
            ("state", "begun", ("revision", "run_id", "action")),
            ("state", "ended", ("run_id", "outcome")),
        ],
        supports_check_mode=True,
    )
    options: dict[str, t.Any] = dict(module.params)
    path = options.pop("path")
    limits = Limits(**{field.name: options.pop(field.name) for field in dataclasses.fields(Limits)})
    if options["state"] == "shown":
        memory, problem = _drift_memory_file.shown(path, options["unit"])
        reason = problem or f"{options['unit']}: {_drift_memory_file.words(memory)}."
        view = memory.view() if memory is not None else None
        module.exit_json(changed=False, verdict="shown", reason=reason, memory=view, problem=problem)
    options["action"], options["outcome"] = options["action"] or "", options["outcome"] or ""
    request = MemoryRequest(limits=limits, **options)
    found = _drift_memory_file.change(request, path, boot_id(), BootClock(), check=module.check_mode)
    result = _state_file.returned(found, "memory", Memory.view, _drift_memory_file.lines)
    if found.failed:
        module.fail_json(msg=found.reason, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
