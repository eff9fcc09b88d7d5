#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait until an SGLang server serves."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_wait_ready
short_description: Wait until an SGLang server serves, and end early when it cannot any more
version_added: 0.1.0
description:
  - Looks again and again as M(cleanslate.gpu.sglang_health_info) does, until the server is V(ready) and still is after
    O(settle) seconds.
  - Two clocks bound the wait, O(timeout) for all of it and O(progress_timeout) for standing still. A start may be
    silent for long and legitimate, or silent for ever.
  - It ends as soon as nothing can come of it any more, when the unit fails, stops or is started again, when the log
    tells that a part of the server died, when a worker disappears, when the port belongs to another process, when the
    key is refused, or when another model is served.
  - While it waits it prints a line on stderr whenever the stage or the progress has changed. Where the output is a
    terminal and the batch has one host, a bar is redrawn instead. Under C(async) and in check mode nothing is printed.
  - The message of a failure holds the stage, a guess at the cause, a next step and the last lines of the log.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.info_module
  - cleanslate.gpu.sglang
  - cleanslate.gpu.smi
attributes:
  check_mode:
    details:
      - In check mode it looks once, returns what it saw and does not fail.
options:
  timeout:
    description:
      - How many seconds the whole wait may take.
    type: float
    default: 2700.0
  progress_timeout:
    description:
      - How many seconds nothing may move. Signs of progress are a line in the log, a later state of the unit, CPU time
        of the server's processes, and more memory in use on the GPUs.
      - CPU time does not count while the GPUs look for each other, where a hanging collective spins.
    type: float
    default: 600.0
  settle:
    description:
      - How many seconds after the first success the server is looked at once more before it is called V(ready).
    type: float
    default: 5.0
  log_position:
    description:
      - Where the log ended before the server was started, as RV(cleanslate.gpu.sglang_health_info#module:log_position)
        says it. Lines before it belong to an earlier run.
      - Where neither this nor O(log_since) is given, lines count from the moment at which the main process started.
    type: dict
  expected_uuids:
    description:
      - UUIDs of the GPUs that the server uses. Where they are left out, RV(gpu_memory) speaks of all GPUs of the node.
    type: list
    elements: str
    default: []
  profile:
    description:
      - What is being started. With O(starts_file), the seconds of good starts are kept under this name, and
        RV(estimate) says from them how long this one may still take.
    type: str
  starts_file:
    description:
      - The file in which the seconds of the last five good starts of each profile are kept. It is written when the
        server is V(ready), never in check mode; one that is missing or spoilt only means that there is no estimate.
    type: path
  guard_file:
    description:
      - The report of the unit's start guard. Where it is about this very start, it is returned as RV(guard), and a
        refusal is named as what the start failed of.
    type: path
  log_since:
    description:
      - Lines of the log that are older than this belong to an earlier run, in seconds since the epoch.
    type: float
  progress_interval:
    description:
      - How many seconds may pass between two looks at the progress that is shown.
    type: float
    default: 5.0
  resume:
    description:
      - The RV(resume) of a wait that has not ended. The module then goes on with it for O(progress_interval) seconds.
        An empty text begins a wait in such slices.
      - This is how progress is shown; playbooks leave it out.
    type: str
seealso:
  - module: cleanslate.gpu.sglang_health_info
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
"""

EXAMPLES = r"""
- name: Start the server
  ansible.builtin.systemd_service:
    name: sglang.service
    state: started

- name: Wait until it serves
  cleanslate.gpu.sglang_wait_ready:
    unit: sglang.service
    port: 30000
    api_key: "{{ sglang_key }}"
    served_model_name: kimi-k2.5
    expected_workers: 8
    log_file: /var/log/sglang/sglang.log
    timeout: 2700
    progress_timeout: 900
"""

RETURN = r"""
verdict:
  description:
    - The same words as RV(cleanslate.gpu.sglang_health_info#module:verdict), and V(no_progress).
  returned: always, except for options that cannot be meant
  type: str
  sample: ready
reason:
  description: One sentence that says what the verdict rests on.
  returned: always, except for options that cannot be meant
  type: str
  sample: "sglang.service on 127.0.0.1:30000: serves kimi-k2.5; 8 of 8 workers are alive; a generation took 0.3 s"
finished:
  description: Whether the wait is over. It is V(false) only where O(resume) was given.
  returned: always, except for options that cannot be meant
  type: bool
  sample: true
resume:
  description: Opaque text with which the wait goes on; V(null) where it is over.
  returned: always, except for options that cannot be meant
  type: str
stage:
  description: How far the start has come, as in RV(cleanslate.gpu.sglang_health_info#module:stage).
  returned: always, except for options that cannot be meant
  type: str
  sample: ready
stages:
  description: Seconds that each stage took, in the order in which they came.
  returned: always, except for options that cannot be meant
  type: dict
  sample: {launch: 41.0, init_distributed: 12.0, load_weights: 318.0, capture_graphs: 55.0, warm_up: 4.0}
progress:
  description: The progress bar that the server shows, C(what), C(done) and C(total); V(null) where it shows none.
  returned: always, except for options that cannot be meant
  type: dict
  sample: {what: Multi-thread loading shards, done: 37, total: 64}
waited_s:
  description: Seconds since the wait began.
  returned: always, except for options that cannot be meant
  type: float
  sample: 431.2
guess:
  description: What a failure looks like, C(cause), and what to do next, C(cure); V(null) where there is none.
  returned: always, except for options that cannot be meant
  type: dict
  sample:
    cause: A GPU ran out of memory.
    cure: See whether all GPUs were at 0 MiB before the start; then lower mem-fraction-static or context-length.
witnesses:
  description: As in RV(cleanslate.gpu.sglang_health_info#module:witnesses).
  returned: always, except for options that cannot be meant
  type: dict
requests:
  description: As in RV(cleanslate.gpu.sglang_health_info#module:requests).
  returned: always, except for options that cannot be meant
  type: dict
since:
  description: As in RV(cleanslate.gpu.sglang_health_info#module:since).
  returned: always, except for options that cannot be meant
  type: str
main_pid:
  description: The main process of the server.
  returned: always, except for options that cannot be meant
  type: int
workers:
  description: The scheduler processes that are alive, each with C(pid) and C(rank).
  returned: always, except for options that cannot be meant
  type: list
  elements: dict
restarts:
  description: As in RV(cleanslate.gpu.sglang_health_info#module:restarts).
  returned: always, except for options that cannot be meant
  type: int
log_tail:
  description: The last lines of the log, without progress bars and with keys masked.
  returned: always, except for options that cannot be meant
  type: list
  elements: str
log_position:
  description: Where the log was read up to.
  returned: always, except for options that cannot be meant
  type: dict
gpu_memory:
  description:
    - How full the GPUs were when they were last asked, C(used_mib) of C(total_mib) on so many C(gpus) together; V(null)
      where that could not be told.
  returned: always, except for options that cannot be meant
  type: dict
  sample: {used_mib: 236544, total_mib: 783360, gpus: 8}
estimate:
  description:
    - How many seconds the start may still take, C(left_s), judged by the last good starts of O(profile), and how many
      the last one took, C(last_s); V(null) where none is known or the wait is over.
  returned: always, except for options that cannot be meant
  type: dict
  sample: {left_s: 180.0, last_s: 250.4}
guard:
  description: The report of the start guard about this start; V(null) where there is none.
  returned: always, except for options that cannot be meant
  type: dict
  sample: {verdict: start, reason: all 8 GPUs are idle, waited_s: 3.1}
server_info:
  description:
    - What the server says under C(/server_info), with keys masked; V(null) where O(with_server_info) is not set, or the
      server is not healthy.
  returned: always, except for options that cannot be meant
  type: dict
  sample: {tp_size: 8, version: 0.5.23, context_length: 262144}
models:
  description: What the server says under C(/v1/models); V(null) under the same conditions.
  returned: always, except for options that cannot be meant
  type: dict
  sample: {object: list, data: [{id: kimi-k2.5, max_model_len: 262144}]}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_times
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock, SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner, Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_fill import QUICK, GpuFill, gpu_fill
from ansible_collections.cleanslate.gpu.plugins.module_utils._guard_report import of_this_start_at as guard
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import look as look_at_gpus
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_arguments import (
    SGLANG_ARGUMENTS,
    answers_as_dict,
    check_seconds,
    check_wait,
    log_as_dict,
    log_reader,
    look_as_dict,
    redactor,
    target_of,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import Target, look
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import HttpOpener
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import Redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_questions import masked
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_ready import (
    Wait,
    WaitOptions,
    WaitResult,
    WaitState,
    begin,
    from_token,
    to_token,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import SMI_ARGUMENTS, check_smi_arguments
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    **SGLANG_ARGUMENTS,
    **SMI_ARGUMENTS,
    "timeout": {"type": "float", "default": 2700.0},
    "progress_timeout": {"type": "float", "default": 600.0},
    "settle": {"type": "float", "default": 5.0},
    "log_position": {"type": "dict"},
    "expected_uuids": {"type": "list", "elements": "str", "default": []},
    "profile": {"type": "str"},
    "starts_file": {"type": "path"},
    "guard_file": {"type": "path"},
    "log_since": {"type": "float"},
    "progress_interval": {"type": "float", "default": 5.0},
    "resume": {"type": "str"},
}


def _subject(target: Target) -> str:
    return f"{target.unit} {target.host} {target.port}"


def _checked(params: t.Mapping[str, t.Any]) -> tuple[Target, WaitState]:
    target = target_of(params)
    check_smi_arguments(params)
    check_seconds(params, "timeout", "progress_timeout", "progress_interval")
    check_seconds(params, "settle", zero=True)
    check_wait(params)
    position = params["log_position"]
    clock = SystemClock()
    state = from_token(params["resume"], _subject(target), clock) if params["resume"] else begin(clock, position)
    return target, state


def _gpu_memory(params: t.Mapping[str, t.Any], runner: Runner, patient: bool) -> GpuFill | None:
    timeout = params["smi_timeout"] if patient else min(QUICK, params["smi_timeout"])
    seen = look_at_gpus(runner, nvidia_smi=params["nvidia_smi"], timeout=timeout, processes=False)
    return gpu_fill(seen, params["expected_uuids"])


def _starts(module: AnsibleModule, result: WaitResult, clock: Clock) -> dict[str, t.Any]:
    """Keep the seconds of a good start; say how long another one may still take."""
    path, profile = module.params["starts_file"], module.params["profile"]
    if not path or not profile:
        return {"estimate": None}
    if result.finished:
        if result.verdict == "ready" and not module.check_mode:
            complaint = _start_times.remember(path, profile, result.stages, clock.wall())
            if complaint:
                module.warn(complaint)
        return {"estimate": None}
    history, complaint = _start_times.read(path)
    if complaint and not module.params["resume"]:  # said once, at the beginning of the wait
        module.warn(complaint)
    stage = result.look.stage or result.state.log.stage
    estimate = _start_times.estimate(history.get(profile, ()), stage, result.stages)
    return {"estimate": estimate.as_dict() if estimate is not None else None}


def _as_dict(result: WaitResult, target: Target, redact: Redact) -> dict[str, t.Any]:
    log = result.state.log
    return {
        **look_as_dict(result.look, redact),
        **log_as_dict(log, result.state.position),
        "verdict": result.verdict,
        "reason": redact(f"{result.look.name}: {result.reason}"),
        "stage": result.look.stage or log.stage,
        "finished": result.finished,
        "resume": None if result.finished else to_token(result.state, _subject(target)),
        "stages": dict(result.stages),
        "progress": log.steps.as_dict() if log.steps is not None else None,
        "waited_s": round(result.waited, 1),
        "guess": {"cause": result.guess.cause, "cure": result.guess.cure} if result.guess is not None else None,
        "gpu_memory": result.memory.as_dict() if result.memory is not None else None,
        "guard": masked(dict(result.guard), redact) if result.guard is not None else None,
    }


def main() -> t.NoReturn:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    try:
        target, state = _checked(params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    clock, redact = SystemClock(), redactor([params["api_key"]])
    runner = CommandRunner(clock)
    systemd = Systemd(runner, params["systemd_scope"], params["systemctl"])
    path = params["guard_file"]
    opener = HttpOpener(target.host, target.port, clock, api_key=params["api_key"] or None)
    wait = Wait(
        WaitOptions(
            timeout=params["timeout"],
            progress_timeout=params["progress_timeout"],
            settle=params["settle"],
            slice=params["progress_interval"] if params["resume"] is not None else None,
        ),
        state,
        look=lambda log: look(target, systemd=systemd, opener=opener, clock=clock, redact=redact, log=log),
        read_log=log_reader(params, target, runner),
        clock=clock,
        redact=redact,
        memory=lambda patient: _gpu_memory(params, runner, patient),
        guard=lambda unit, invocations: guard(path, unit, invocations, clock, boot_id() or "") if path else None,
        log_since=params["log_since"],
    )
    result = wait.once() if module.check_mode else wait.run()
    wanted = params["with_server_info"] and (result.verdict == "ready" or module.check_mode)
    returned = {
        **_as_dict(result, target, redact),
        **_starts(module, result, clock),
        **answers_as_dict(result.look, opener, redact, wanted),
    }
    if module.check_mode:
        module.exit_json(changed=False, **{**returned, "finished": True, "resume": None})
    if result.finished and result.verdict != "ready":
        module.fail_json(msg=redact(result.message()), changed=False, **returned)
    module.exit_json(changed=False, **returned)


if __name__ == "__main__":
    main()
