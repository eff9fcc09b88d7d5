#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_unit_stop
short_description: Stop an SGLang unit within a drain of one's own
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Asks systemd to stop the unit, gives the server O(drain) seconds to finish its requests (SGLang itself sets no
    limit), kills what is left of the unit after that, and clears a failed state.
  - A stopped unit proves nothing about the GPUs. Use M(cleanslate.gpu.gpu_force_release) and
    M(cleanslate.gpu.gpu_wait_idle) for that.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the unit's state before and after.
  idempotent:
    support: full
options:
  unit:
    description:
      - Name of the unit, with its suffix.
    type: str
    required: true
  drain:
    description:
      - Seconds from SIGTERM until what is left of the unit is killed.
    type: float
    default: 60
  systemd_scope:
    description:
      - Whose systemd runs the unit.
    type: str
    choices: [system, user]
    default: system
seealso:
  - module: cleanslate.gpu.gpu_force_release
"""

EXAMPLES = r"""
- name: Stop the server, at most a minute from now
  cleanslate.gpu.sglang_unit_stop:
    unit: sglang.service
    drain: 60
"""

RETURN = r"""
verdict:
  description:
    - V(absent) there is no such unit; V(already_stopped); V(drained) it ended by itself within the drain; V(cut) it
      was killed after the drain, or by systemd before it was over; V(would_stop) in check mode; V(still_running),
      with which the module fails.
  returned: always
  type: str
  sample: drained
reason:
  description:
    - The verdict as a sentence, with pid and seconds.
  returned: always
  type: str
  sample: sglang.service (pid 4711) stopped by itself 6.7 s after SIGTERM
main_pid:
  description:
    - Main process of the unit before it was stopped, or null where there was none.
  returned: always
  type: int
state_before:
  description:
    - The unit's ActiveState before.
  returned: always
  type: str
  sample: active
result:
  description:
    - The unit's Result after, in systemd's words, or null where it is not known.
  returned: always
  type: str
  sample: success
stopped_after_s:
  description:
    - Seconds that stopping took.
  returned: always
  type: float
cleared_failure:
  description:
    - Whether a failed state was cleared.
  returned: always
  type: bool
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_stop
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import SUFFIXES, check_seconds, check_unit
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd


def _result(stopped: _unit_stop.StopResult) -> dict[str, t.Any]:
    return {**stopped.as_dict(), "changed": stopped.changed, "diff": stopped.as_diff()}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "drain": {"type": "float", "default": 60},
            "systemd_scope": {"type": "str", "choices": ["system", "user"], "default": "system"},
        },
        supports_check_mode=True,
    )
    unit, drain = module.params["unit"], module.params["drain"]
    clock = SystemClock()
    systemd = Systemd(CommandRunner(clock), module.params["systemd_scope"])
    try:
        check_unit("unit", unit, SUFFIXES)
        check_seconds("drain", drain, zero=True)
    except ValueError as error:
        nothing = _unit_stop.StopResult("still_running", str(error), None, "unknown", None, 0.0)
        module.fail_json(msg=str(error), **_result(nothing))
    stopped = _unit_stop.stop_or_look(systemd, unit, drain, clock, check_mode=module.check_mode)
    if stopped.failed:
        module.fail_json(msg=stopped.reason, **_result(stopped))
    module.exit_json(**_result(stopped))


if __name__ == "__main__":
    main()
