#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_unit_start
short_description: Swap in the staged files of an SGLang unit and start it
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Swaps in what M(cleanslate.gpu.sglang_unit_files) staged, has systemd read it, and starts the unit. All of that is
    downtime, so it is one execution.
  - Where nothing was started it says why, in the words of the unit's start guard where that refused.
  - It does not look at the GPUs. Use it behind M(cleanslate.gpu.gpu_wait_idle).
extends_documentation_fragment:
  - cleanslate.gpu.attributes
attributes:
  check_mode:
    support: full
    details:
      - A unit that still runs is no hindrance, since nothing was stopped.
  diff_mode:
    support: full
    details:
      - Shows the unit's state before and after.
  idempotent:
    support: none
    details:
      - A unit that runs already is a failure, since somebody else has started it.
options:
  unit:
    description:
      - Name of the unit, with its suffix.
    type: str
    required: true
  files:
    description:
      - The files of the unit. What is staged for them is swapped in first, all of it or none, as
        M(cleanslate.gpu.sglang_unit_files) does with O(cleanslate.gpu.sglang_unit_files#module:state=installed).
    type: list
    elements: path
    default: []
  enable:
    description:
      - Have systemd start the unit at boot too.
    type: bool
    default: false
  guard_report:
    description:
      - Where the unit's start guard leaves its verdict.
    type: path
  timeout:
    description:
      - Seconds for systemd to start the unit, its start guard included. It should be more than the unit's own
        C(TimeoutStartSec).
    type: float
    default: 600
  systemd_scope:
    description:
      - Whose systemd runs the unit.
    type: str
    choices: [system, user]
    default: system
seealso:
  - module: cleanslate.gpu.sglang_unit_files
  - module: cleanslate.gpu.sglang_unit_stop
  - module: cleanslate.gpu.sglang_wait_ready
"""

EXAMPLES = r"""
- name: Start the server with the files that were staged
  cleanslate.gpu.sglang_unit_start:
    unit: sglang.service
    files:
      - /etc/systemd/system/sglang.service
      - /etc/sglang/sglang.yaml
    enable: true
"""

RETURN = r"""
verdict:
  description:
    - V(started); V(would_start) in check mode. The module fails on V(already_active) (something else has started the
      unit; RV(files) tells whether that was seen before files were swapped in), V(unprepared) (the files could not be
      swapped in, or systemd could not read or enable the unit; it was not asked to start it), V(refused) (the unit's
      start guard said no) and V(failed) (systemd could not start it).
  returned: always
  type: str
  sample: started
msg:
  description:
    - The verdict as a sentence, with the guard's or systemd's own words where nothing was started.
  returned: always
  type: str
  sample: "sglang.service was not started: Refuses to start sglang.service: GPU 3 holds 5000 MiB, used by pid 4711"
state_before:
  description:
    - The unit's ActiveState before.
  returned: always
  type: str
  sample: inactive
files:
  description:
    - The files that were, or in check mode would be, swapped in, in the form that
      M(cleanslate.gpu.sglang_unit_files) takes, so that a later call can put back exactly these.
  returned: always
  type: list
  elements: dict
  sample: [{"path": "/etc/sglang/sglang.yaml"}]
reloaded:
  description:
    - Whether systemd was made to read the files of all units anew.
  returned: always
  type: bool
enabled:
  description:
    - Whether the unit was enabled now.
  returned: always
  type: bool
seconds:
  description:
    - Seconds that all of it took.
  returned: always
  type: float
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_start
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    check_path,
    check_seconds,
    check_unit,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd


def _result(started: _unit_start.StartResult) -> dict[str, t.Any]:
    after = "active" if started.verdict in ("started", "would_start") else started.state_before
    return {
        "changed": bool(started.swapped) or started.reloaded or started.enabled or not started.failed,
        "msg": started.reason,
        "verdict": started.verdict,
        "state_before": started.state_before,
        "files": [{"path": path} for path in started.swapped],
        "reloaded": started.reloaded,
        "enabled": started.enabled,
        "seconds": started.seconds,
        "diff": {"before": f"{started.state_before}\n", "after": f"{after}\n"},
    }


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "enable": {"type": "bool", "default": False},
            "guard_report": {"type": "path"},
            "timeout": {"type": "float", "default": 600},
            "systemd_scope": {"type": "str", "choices": ["system", "user"], "default": "system"},
        },
        supports_check_mode=True,
    )
    params, clock = module.params, SystemClock()
    try:
        request = _unit_start.StartRequest(
            unit=check_unit("unit", params["unit"]),
            timeout=check_seconds("timeout", params["timeout"]),
            files=tuple(check_path("files", path) for path in params["files"]),
            enable=params["enable"],
            guard_report=check_path("guard_report", params["guard_report"]) if params["guard_report"] else "",
        )
        if len(set(request.files)) != len(request.files):
            raise ValueError(f"files: the same path stands there more than once: {', '.join(request.files)}")
    except ValueError as error:
        module.fail_json(**_result(_unit_start.StartResult("unprepared", str(error))))
    systemd = Systemd(CommandRunner(clock), params["systemd_scope"])
    if module.check_mode:
        started = _unit_start.would_start(systemd, request)
    else:
        started = _unit_start.start_unit(systemd, request, clock, boot_id() or "")
    leave = module.fail_json if started.failed else module.exit_json
    leave(**_result(started))


if __name__ == "__main__":
    main()
