#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: run_record
short_description: Write down that a run began or ended, and read the last runs back
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Appends one line of JSON to C(runs.jsonl) on this host, so that a person can read months later what was done to a
    server, by whom, and how it ended. A run whose beginning is there and whose end is not was interrupted.
  - A line is written as a whole and is on the disk when the module returns. Where that fails, because the disk is full
    for example, nothing of it stays, and the module fails with the reason.
  - Secrets in command lines, reasons and every other text are masked.
  - The file is rotated by this module. Nothing else should rotate it.
  - Keeps the same as metrics for the textfile collector of the node_exporter of Prometheus, where O(metrics_dir) is
    given.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
attributes:
  check_mode:
    support: full
    details:
      - Returns the line in RV(record) without writing it.
  diff_mode:
    support: none
    details:
      - A line is only ever added; RV(record) holds it.
  idempotent:
    support: none
    details:
      - Every execution with O(state=appended) adds a line.
options:
  state:
    description:
      - V(appended) adds a line.
      - V(shown) changes nothing and returns the last runs. It does not fail because of what the files look like.
    type: str
    choices: [appended, shown]
    default: appended
  event:
    description:
      - What the line is about. V(begun), a run begins to touch this node. V(ended), it has ended, and O(verdict) says
        how. V(drift), a scheduled look came to a O(decision).
      - Required with O(state=appended).
    type: str
    choices: [begun, ended, drift]
  run_id:
    description:
      - Names the run, the same in its V(begun) and V(ended) line. Required with O(state=appended).
    type: str
  who:
    description:
      - Who runs it, such as the name of the user on the controller.
    type: str
  playbook:
    description:
      - The playbook, such as C(relaunch.yml). Required with O(state=appended).
    type: str
  node:
    description:
      - The node that the run works on, as the inventory names it. Required with O(state=appended).
      - With O(state=shown) only the runs of this node.
    type: str
  unit:
    description:
      - The unit of the server, such as C(sglang.service).
      - With O(state=shown) only the runs of this unit.
    type: str
  profile:
    description:
      - The profile that is, or was to be, started.
    type: str
  mode:
    description:
      - How the run was told to go about it, such as V(drain), V(force), V(report) or V(remediate).
    type: str
  verdict:
    description:
      - The word in which the run ended, such as V(ready), V(failed) or V(rolled_back). Required with O(event=ended).
    type: str
  failed_step:
    description:
      - The step that failed.
    type: str
  reason:
    description:
      - Why, as a sentence.
    type: str
  duration_s:
    description:
      - Seconds that the run took. By default the time between its two lines.
    type: float
  gpus_before:
    description:
      - The GPUs before the release, as dictionaries of C(index), C(uuid) and C(used_mib). What else they hold is left
        out.
    type: list
    elements: dict
  gpus_after:
    description:
      - The GPUs at the end, in the same shape as O(gpus_before).
    type: list
    elements: dict
  holders:
    description:
      - Who held the GPUs, as RV(cleanslate.gpu.gpu_force_release#module:holders) has them. What identifies a holder and
        what the rules made of it is kept, of 256 holders at most.
    type: list
    elements: dict
  signals:
    description:
      - What was signalled, as dictionaries of C(pid), C(signal) and C(after_s).
    type: list
    elements: dict
  seconds:
    description:
      - Seconds for each step, by the name of the step.
    type: dict
  rollback:
    description:
      - How the way back to a former profile went. Any dictionary.
    type: dict
  decision:
    description:
      - What drift decided. Its C(action) is V(nothing), V(report), V(release) or V(relaunch). Required with
        O(event=drift).
    type: dict
  evidence:
    description:
      - The folder with the evidence, as RV(cleanslate.gpu.sglang_evidence#module:path) names it.
    type: str
  dir:
    description:
      - Folder of the record. Its last part is made with mode 0755, the file in it with mode 0640.
      - It must belong to root or to the user that the module runs as, must not be writable by others, and must not be a
        symbolic link.
    type: path
    default: /var/log/cleanslate
  max_bytes:
    description:
      - Size at which a new file is begun. The old one becomes C(runs.jsonl.1).
    type: int
    default: 8388608
  keep:
    description:
      - How many old files are kept.
    type: int
    default: 5
  metrics_dir:
    description:
      - Folder of the textfile collector. It must exist. Empty writes no metrics.
    type: str
    default: ''
  limit:
    description:
      - How many runs O(state=shown) returns.
    type: int
    default: 20
seealso:
  - module: cleanslate.gpu.sglang_evidence
"""

EXAMPLES = r"""
- name: Write down that this run begins
  cleanslate.gpu.run_record:
    event: begun
    run_id: "{{ gpu_release_run_id }}"
    playbook: relaunch.yml
    node: "{{ inventory_hostname }}"
    unit: sglang.service
    profile: qwen
    who: "{{ lookup('ansible.builtin.env', 'USER') }}"

- name: Write down how it ended
  cleanslate.gpu.run_record:
    event: ended
    run_id: "{{ gpu_release_run_id }}"
    playbook: relaunch.yml
    node: "{{ inventory_hostname }}"
    unit: sglang.service
    verdict: ready
    holders: "{{ gpu_release_result.holders }}"
    signals: "{{ gpu_release_result.signalled }}"
    seconds: {stop: 3.1, release: 8.4, load: 412.0}
    metrics_dir: /var/lib/prometheus/node-exporter

- name: See the last runs
  cleanslate.gpu.run_record:
    state: shown
    limit: 5
  register: history
"""

RETURN = r"""
verdict:
  description:
    - V(recorded), or in check mode V(would_record).
    - V(shown) with O(state=shown).
    - V(not_recorded), there is no line. The module fails.
    - V(not_counted), there is a line, but the metrics could not be written. The module fails.
    - V(refused), the options make no record. The module fails.
  returned: always
  type: str
  sample: recorded
reason:
  description: The verdict as a sentence, with the cause and the next step where something failed.
  returned: always
  type: str
  sample: run 20261129T160902Z-k3x9qa of relaunch.yml for gpu1 (ended) was recorded in /var/log/cleanslate/runs.jsonl.
file:
  description: The file of runs.
  returned: always
  type: str
  sample: /var/log/cleanslate/runs.jsonl
record:
  description: The line, with secrets masked, or null. Its keys are described in C(docs/record.md).
  returned: always
  type: dict
runs:
  description:
    - With O(state=shown) the last runs, the newest last. Each is the line with which the run ended, or the one with
      which it began where there is no other, and what follows here.
  returned: always
  type: list
  elements: dict
  contains:
    began_at:
      description: When it began, in UTC, or null where that line is not there.
      type: str
      sample: "2026-11-29T16:09:02.120Z"
    ended_at:
      description: When it ended, or null.
      type: str
      sample: "2026-11-29T16:16:40.512Z"
    duration_s:
      description: Seconds between the two, or null.
      type: float
    interrupted:
      description:
        - Whether its end is missing and will not come, because a later run of this unit began or two hours have passed.
      type: bool
    verdict:
      description:
        - The word in which it ended. V(running) or V(interrupted) where there is no end.
      type: str
problem:
  description: What is wrong with the files, as a sentence, or null. A line that was cut short is not a failure.
  returned: always
  type: str
healed:
  description: Whether the last line was found cut short and was closed.
  returned: always
  type: bool
rotated:
  description: Whether a new file was begun.
  returned: always
  type: bool
metrics_path:
  description: The file with the metrics, or null where none was written.
  returned: always
  type: str
  sample: /var/lib/prometheus/node-exporter/cleanslate.prom
"""

import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_number, check_path
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_recording import (
    Keeping,
    Recorded,
    append_run,
    last_runs,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_records import Origin


def _result(done: Recorded) -> dict[str, t.Any]:
    return {
        "changed": done.verdict in ("recorded", "would_record", "not_counted"),
        "verdict": done.verdict,
        "reason": done.reason,
        "file": done.path,
        "record": done.record,
        "runs": list(done.runs),
        "problem": done.problem,
        "healed": done.healed,
        "rotated": done.rotated,
        "metrics_path": done.metrics_path,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["appended", "shown"], "default": "appended"},
            "event": {"type": "str", "choices": ["begun", "ended", "drift"]},
            **{
                name: {"type": "str"}
                for name in ("run_id", "who", "playbook", "node", "unit", "profile", "mode", "verdict")
            },
            "failed_step": {"type": "str"},
            "reason": {"type": "str"},
            "duration_s": {"type": "float"},
            **{
                name: {"type": "list", "elements": "dict"}
                for name in ("gpus_before", "gpus_after", "holders", "signals")
            },
            **{name: {"type": "dict"} for name in ("seconds", "rollback", "decision")},
            "evidence": {"type": "str"},
            "dir": {"type": "path", "default": "/var/log/cleanslate"},
            "max_bytes": {"type": "int", "default": 8388608},
            "keep": {"type": "int", "default": 5},
            "metrics_dir": {"type": "str", "default": ""},
            "limit": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
        required_if=[("state", "appended", ["event", "run_id", "playbook", "node"])],
    )
    params, clock, here = module.params, SystemClock(), platform.node()
    if params["state"] == "shown":
        try:
            check_path("dir", params["dir"])
            check_number("limit", params["limit"], 0)
        except ValueError as error:
            refused = Recorded("refused", f"{error} Nothing was read.", params["dir"])
            module.fail_json(msg=refused.reason, **_result(refused))
        done = last_runs(
            params["dir"], params["limit"], clock, here, node=params["node"] or "", unit=params["unit"] or ""
        )
    else:
        keeping = Keeping(params["dir"], params["max_bytes"], params["keep"], params["metrics_dir"])
        origin = Origin(clock.wall(), here, boot_id())
        done = append_run(params["event"], params, keeping, origin, clock, check=module.check_mode)
    if done.failed:
        module.fail_json(msg=done.reason, **_result(done))
    module.exit_json(**_result(done))


if __name__ == "__main__":
    main()
