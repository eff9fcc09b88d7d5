#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_evidence
short_description: Keep what a hung or failed SGLang server looked like
version_added: 0.1.0
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
description:
  - Writes a folder with what is lost once the server is stopped. Stacks, threads and open files of its processes, what
    C(nvidia-smi) says, who has the GPUs open, the unit, its journal and its log, kernel lines, memory and free space.
  - Every part has a deadline of its own. What does not answer is left out and named in C(index.json), and the rest is
    taken all the same.
  - Signals no process, stops none and pauses none. Secrets in command lines and logs are masked. The folder can be
    opened by the user that the module runs as only, which should be root.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.smi
  - cleanslate.gpu.scan
attributes:
  check_mode:
    support: full
    details:
      - Looks at nothing, and returns in RV(parts) and RV(reason) what would be taken.
  diff_mode:
    support: none
    details:
      - A folder is only ever added.
  idempotent:
    support: none
    details:
      - Every execution makes a folder.
options:
  run_id:
    description:
      - Names the run. It begins the name of the folder. 1 to 100 letters, digits and C(_.:@+-).
    type: str
    required: true
  unit:
    description:
      - The unit of the server, with its suffix.
    type: str
    required: true
  dir:
    description:
      - Folder of the record. The evidence goes into C(evidence) in it, which is made with mode 0700.
    type: path
    default: /var/log/cleanslate
  keep:
    description:
      - How many folders are kept, the new one included. The oldest go.
    type: int
    default: 10
  max_bytes:
    description:
      - How large a folder may become. What is longer is cut, logs at their beginning.
    type: int
    default: 33554432
  timeout:
    description:
      - Seconds for everything together. What is not taken by then is left out.
    type: float
    default: 120
  log_file:
    description:
      - The file that the server logs to. Empty where it logs to the journal. Symbolic links are not followed.
    type: str
    default: ''
  py_spy:
    description:
      - Path of C(py-spy), which shows where each Python thread is. Where there is none, or it is empty, that part is
        left out.
      - It runs as root only where nobody but root can have written it, and else as the user of the server. It does not
        pause the processes.
    type: str
    default: ''
  scope:
    description:
      - For whom the holders are judged, as in M(cleanslate.gpu.gpu_holders_info). Nobody is signalled.
      - V(lxc) is for the host of a container, which sees kernel stacks and kernel lines that the container does not.
        O(unit) is then the unit in the containers of O(lxc). Its properties, its journal and its log are left out.
    type: str
    choices: [unit, own, lxc, all]
    default: own
seealso:
  - module: cleanslate.gpu.run_record
"""

EXAMPLES = r"""
- name: Keep what the hung server looks like before it is stopped
  cleanslate.gpu.sglang_evidence:
    run_id: "{{ gpu_release_run_id }}"
    unit: sglang.service
    log_file: /var/log/sglang/sglang.log
    py_spy: /opt/sglang/bin/py-spy
  register: evidence
  ignore_errors: true
"""

RETURN = r"""
verdict:
  description:
    - V(taken), or V(partial) where some part could not be taken, or in check mode V(would_take).
    - V(not_taken), there is no folder, or its index could not be written. The module fails.
    - V(refused), an option cannot be meant. The module fails.
  returned: always
  type: str
  sample: partial
reason:
  description: The verdict as a sentence, with what could not be taken and why.
  returned: always
  type: str
  sample: >-
    /var/log/cleanslate/evidence/20261129T160902Z-k3x9qa-sglang.service: 9 of 11 parts in 6.2 s. Not: kernel (dmesg:
    exit code 1, dmesg: read kernel buffer failed: Operation not permitted).
path:
  description: The folder, or null.
  returned: always
  type: str
  sample: /var/log/cleanslate/evidence/20261129T160902Z-k3x9qa-sglang.service
parts:
  description: What became of each part, as in C(index.json).
  returned: always
  type: list
  elements: dict
  contains:
    part:
      description:
        - V(processes), V(py_spy), V(gpus), V(holders), V(nvidia_smi), V(unit), V(memory), V(space), V(kernel),
          V(journal) or V(log).
      type: str
    ok:
      description: Whether all of it was taken. Null where it does not apply here, and in check mode.
      type: bool
    error:
      description: What is missing and why, or null.
      type: str
    seconds:
      description: How long it took.
      type: float
    files:
      description: Its files in the folder.
      type: list
      elements: str
    bytes:
      description: Their size.
      type: int
    cut:
      description: Whether something was cut because of O(max_bytes).
      type: bool
pruned:
  description: Names of the old folders that were removed.
  returned: always
  type: list
  elements: str
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence import Evidence, Request, take_evidence
from ansible_collections.cleanslate.gpu.plugins.module_utils._evidence_parts import ServerEvidence, Sources
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_path, check_program, check_unit
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_arguments import SCAN_ARGUMENTS, scan_request
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import SMI_ARGUMENTS, check_smi_arguments


def _result(evidence: Evidence) -> dict[str, t.Any]:
    return {
        "changed": evidence.verdict in ("taken", "partial", "would_take"),
        "verdict": evidence.verdict,
        "reason": evidence.reason,
        "path": evidence.path,
        "parts": [entry.as_dict() for entry in evidence.parts],
        "pruned": list(evidence.pruned),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **SMI_ARGUMENTS,
            **SCAN_ARGUMENTS,
            "scope": {**SCAN_ARGUMENTS["scope"], "default": "own"},
            "run_id": {"type": "str", "required": True},
            "unit": {"type": "str", "required": True},
            "dir": {"type": "path", "default": "/var/log/cleanslate"},
            "keep": {"type": "int", "default": 10},
            "max_bytes": {"type": "int", "default": 33554432},
            "timeout": {"type": "float", "default": 120},
            "log_file": {"type": "str", "default": ""},
            "py_spy": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params, clock = module.params, SystemClock()
    request = Request(
        params["run_id"], params["unit"], params["dir"], params["keep"], params["max_bytes"], params["timeout"]
    )
    try:
        check_smi_arguments(params)
        scan = scan_request({**params, "units": params["units"] or [params["unit"]]})
        check_unit("unit", params["unit"])
        for name, check in (("log_file", check_path), ("py_spy", check_program)):
            if params[name]:
                check(name, params[name])
    except ValueError as error:
        refused = Evidence("refused", f"{error} No evidence was taken.")
        module.fail_json(msg=refused.reason, **_result(refused))
    sources = Sources(
        unit=params["unit"],
        scan=scan,
        nvidia_smi=params["nvidia_smi"],
        smi_timeout=params["smi_timeout"],
        log_file=params["log_file"],
        py_spy=params["py_spy"],
        folder=params["dir"],
    )
    parts = ServerEvidence(sources, CommandRunner(clock), clock).parts()
    evidence = take_evidence(request, parts, clock, check=module.check_mode)
    if evidence.failed:
        module.fail_json(msg=evidence.reason, **_result(evidence))
    module.exit_json(**_result(evidence))


if __name__ == "__main__":
    main()
