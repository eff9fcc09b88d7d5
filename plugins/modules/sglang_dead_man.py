#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_dead_man
short_description: Have a stopped SGLang unit started again where nobody comes back to do it
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Arms a timer on the node before its server is stopped. If the controller dies, or the node cannot be reached any
    more, the node's own systemd starts the unit again, and so through whatever the unit does before its start.
  - At the end of the work it is disarmed. Where the unit runs by then, the timer does nothing either.
  - It is a transient timer made by C(systemd-run). A reboot ends it.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows whose timer was and is armed.
  idempotent:
    support: partial
    details:
      - Arming anew replaces the timer, so that it fires later, and is a change. The rest is idempotent.
options:
  state:
    description:
      - V(armed) arms the timer, in place of one that is armed for the same unit. V(disarmed) takes it away. V(shown)
        only looks.
    type: str
    choices: [armed, disarmed, shown]
    default: shown
  unit:
    description:
      - Name of the unit to start again, with its suffix C(.service).
    type: str
    required: true
  run_id:
    description:
      - Who arms it. Required with O(state=armed).
      - With O(state=disarmed) only the timer of that run is taken away. Without it, anybody's.
    type: str
  after:
    description:
      - Seconds until the unit is started, from 5 to 604800. Required with O(state=armed).
      - It has to be longer than the work takes at most, since it is started in the midst of that otherwise.
    type: int
  guard:
    description:
      - Path of the program that the unit runs before each start to prove that its GPUs are free. With O(state=armed) a
        timer is armed only where systemd runs that program before this unit, as what it starts must go through it.
    type: path
  systemd_run:
    description:
      - Name or path of C(systemd-run).
    type: str
    default: systemd-run
  systemd_scope:
    description:
      - Whose systemd runs the unit and keeps the timer. That of a user ends with the user's last session unless it
        lingers.
    type: str
    choices: [system, user]
    default: system
seealso:
  - module: cleanslate.gpu.sglang_unit_stop
"""

EXAMPLES = r"""
- name: Start the server again in an hour if nobody does before
  cleanslate.gpu.sglang_dead_man:
    state: armed
    unit: sglang.service
    run_id: 20261129T201500Z-k3v9xz
    after: 3600
    guard: /usr/local/lib/cleanslate/sglang.pyz
  become: true

- name: It serves again
  cleanslate.gpu.sglang_dead_man:
    state: disarmed
    unit: sglang.service
    run_id: 20261129T201500Z-k3v9xz
  become: true
"""

RETURN = r"""
verdict:
  description:
    - V(armed), a timer will start the unit. V(disarmed), it was taken away. V(not_armed), there is none. V(would_arm)
      and V(would_disarm) in check mode.
    - V(unguarded), the unit does not run O(guard) before its start, as one that was written by hand, so no timer may
      start it. One that was armed was taken away. That is no failure.
    - V(unsupported), nothing can keep the time, since systemd does not run this machine or, with
      O(systemd_scope=user), this user. That is no failure.
    - The module fails with V(not_armed) where it could not be armed, and with V(armed) where it could not be disarmed,
      or where systemd does not say whether one is armed.
  returned: always
  type: str
  sample: armed
reason:
  description:
    - The verdict as a sentence, with times and the next step where it failed.
  returned: always
  type: str
  sample: sglang.service is started again unless disarmed before, at 2026-11-29T21:15:00Z (in 3600 s).
timer:
  description:
    - Name of the timer, for C(systemctl).
  returned: always
  type: str
  sample: cleanslate-dead-man-sglang.timer
run_id:
  description:
    - Who armed the timer that is armed. Null where there is none.
  returned: always
  type: str
  sample: 20261129T201500Z-k3v9xz
fires_in_s:
  description:
    - Seconds until it fires. Null where none is armed, or that is not known.
  returned: always
  type: float
  sample: 3600.0
fires_at:
  description:
    - When it fires, in UTC by the node's clock. Null where RV(fires_in_s) is.
  returned: always
  type: str
  sample: "2026-11-29T21:15:00Z"
"""

import dataclasses
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._dead_man import DeadMan, DeadManResult, check_names
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_path, check_program

# There on every machine that systemd runs; sd_booted(3).
BOOTED = "/run/systemd/system"


def is_run(scope: str) -> bool:
    """Whether a systemd of this scope runs. A user's has its socket in the runtime folder."""
    if scope == "system":
        return os.path.isdir(BOOTED)
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return os.path.exists(os.path.join(folder, "systemd", "private"))


def as_result(result: DeadManResult, before: DeadManResult | None) -> dict[str, t.Any]:
    """The public shape (RETURN)."""
    shown = dataclasses.asdict(result)
    del shown["failed"]
    was = f"armed by run {before.run_id}\n" if before is not None and before.verdict == "armed" else "not armed\n"
    will = {"armed": f"armed by run {result.run_id}\n", "would_arm": "armed by this run\n", "unsupported": was}
    shown["diff"] = {"before": was, "after": will.get(result.verdict, "not armed\n")}
    return shown


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["armed", "disarmed", "shown"], "default": "shown"},
            "unit": {"type": "str", "required": True},
            "run_id": {"type": "str"},
            "after": {"type": "int"},
            "guard": {"type": "path"},
            "systemd_run": {"type": "str", "default": "systemd-run"},
            "systemd_scope": {"type": "str", "choices": ["system", "user"], "default": "system"},
        },
        required_if=[("state", "armed", ("run_id", "after"))],
        supports_check_mode=True,
    )
    params, clock = module.params, SystemClock()
    try:
        check_names(params["unit"], params["run_id"], params["after"])
        check_program("systemd_run", params["systemd_run"])
        if params["guard"] is not None:
            check_path("guard", params["guard"])
    except ValueError as error:
        module.fail_json(msg=str(error), **as_result(DeadManResult("not_armed", str(error), ""), None))
    timer = DeadMan(
        params["unit"],
        CommandRunner(clock),
        clock,
        scope=params["systemd_scope"],
        systemd_run=params["systemd_run"],
        booted=is_run(params["systemd_scope"]),
    )
    before = timer.show()
    if params["state"] == "armed":
        result = timer.arm(params["run_id"], params["after"], module.check_mode, params["guard"])
    elif params["state"] == "disarmed":
        result = timer.disarm(params["run_id"], module.check_mode)
    else:
        result = before
    if result.verdict == "unguarded":
        module.warn(result.reason)  # a task that went well shows no reason
    leave = module.fail_json if result.failed else module.exit_json
    leave(msg=result.reason, **as_result(result, before))


if __name__ == "__main__":
    main()
