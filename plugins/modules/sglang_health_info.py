#!/usr/bin/python
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One look at an SGLang server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_health_info
short_description: Say in one word how an SGLang server is
version_added: 0.1.0
description:
  - Looks once at the unit, at the owner of the port, at the workers and at the log, asks the server for its health, its
    models and one real generation, and comes to one word.
  - Any one of these signs alone is known to lie. The server's process can answer for an hour after its model has died,
    and an older server can answer in place of a new one.
  - The module never fails because of what the server looks like. It changes nothing.
extends_documentation_fragment:
  - cleanslate.gpu.attributes
  - cleanslate.gpu.attributes.info_module
  - cleanslate.gpu.sglang
options:
  request_timeout:
    aliases: [timeout]
  installed:
    description:
      - Where the files of the server are installed. It is then asked and judged by what it was started with, the host,
        port, key, log and number of workers in those files and on its command line, and not by the options of this
        module, which are used only where the files cannot be read.
      - Files that were written to after the server had started are not what it was started with. The files that were
        last proved, V(PATH.proved), are used then; RV(started_with) says whether that is known to be right.
    type: dict
    suboptions:
      unit_path:
        description: Absolute path of the unit file.
        type: path
        required: true
      config_path:
        description: Absolute path of SGLang's configuration.
        type: path
        required: true
seealso:
  - module: cleanslate.gpu.sglang_wait_ready
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
"""

EXAMPLES = r"""
- name: Look at the server
  cleanslate.gpu.sglang_health_info:
    unit: sglang.service
    port: 30000
    api_key: "{{ sglang_key }}"
    served_model_name: kimi-k2.5
    expected_workers: 8
    log_file: /var/log/sglang/sglang.log
  register: server

- name: Say how it is
  ansible.builtin.debug:
    msg: "{{ server.verdict }}. {{ server.reason }}"

- name: Do not stop a server that has requests
  ansible.builtin.assert:
    that: not server.requests.running
    fail_msg: "{{ server.requests.running }} requests are running."
"""

RETURN = r"""
verdict:
  description:
    - V(absent), there is no such unit; without a unit, nobody listens on the port.
    - V(stopped), the unit is not running, or it is shutting down.
    - V(starting), it is on its way; RV(stage) says how far.
    - V(ready), every sign that was asked for is there, and it generated.
    - V(busy), it does not take another request in time, but its model moves.
    - V(hung), it runs but its model gives no sign of life.
    - V(unauthorized), it runs and refuses the key.
    - V(wrong_model), it runs and serves another model.
    - V(port_taken), the port belongs to a process that is not part of the unit.
    - V(crash_looping), it died several times and systemd restarted it each time, or systemd has given up.
    - V(failed), it is dead or dying, or a part of it is; RV(reason) names which.
    - V(unknown), systemd could not be asked about the unit.
  returned: success
  type: str
  sample: ready
reason:
  description: One sentence that says what the verdict rests on.
  returned: success
  type: str
  sample: "sglang.service on 127.0.0.1:30000: serves kimi-k2.5; 8 of 8 workers are alive; a generation took 0.3 s"
stage:
  description:
    - How far a start has come, V(guard), V(launch), V(init_distributed), V(load_weights), V(load_draft_weights),
      V(allocate_memory), V(capture_graphs), V(open_port), V(warm_up) or V(ready).
    - V(null) where nothing runs, or where the log does not tell.
  returned: success
  type: str
  sample: load_weights
witnesses:
  description:
    - The independent signs V(unit), V(port), V(workers), V(model) and V(generation).
    - Each is a dictionary of C(ok), which is V(null) where it was not asked or could not be told, and C(detail).
  returned: success
  type: dict
  sample:
    unit: {ok: true, detail: the unit is active (running)}
    port: {ok: true, detail: port 30000 belongs to the server}
    workers: {ok: true, detail: 8 of 8 workers are alive}
    model: {ok: true, detail: serves kimi-k2.5; wanted is kimi-k2.5}
    generation: {ok: true, detail: answered 200 after 0.3 s}
requests:
  description:
    - C(running) and C(queued) requests, and C(progress), whether the model moved between two readings five seconds
      apart. Each is V(null) where it was not asked or could not be told.
  returned: success
  type: dict
  sample: {running: 0, queued: 0, progress: null}
since:
  description:
    - When the main process of the server started; where there is none, when the unit came into its present state.
  returned: success
  type: str
  sample: "2026-11-29T15:02:11Z"
main_pid:
  description: The main process of the server.
  returned: success
  type: int
  sample: 4711
workers:
  description: The scheduler processes that are alive, each with C(pid) and C(rank).
  returned: success
  type: list
  elements: dict
  sample: [{pid: 4801, rank: TP0}]
restarts:
  description: How often systemd has restarted the unit by itself since it was last started on purpose.
  returned: success
  type: int
  sample: 0
log_tail:
  description: The last lines of the log, without progress bars and with keys masked.
  returned: success
  type: list
  elements: str
  sample: ["[2026-11-29 15:04:01] The server is fired up and ready to roll!"]
log_position:
  description:
    - Where the log ends now. Given as O(cleanslate.gpu.sglang_wait_ready#module:log_position), no earlier line is taken
      for one of the run that is waited for.
  returned: success
  type: dict
  sample: {inode: 131, offset: 81920}
server_info:
  description:
    - What the server says under C(/server_info), with keys masked; V(null) where O(with_server_info) is not set, or the
      server is not healthy.
  returned: success
  type: dict
  sample: {tp_size: 8, version: 0.5.23, context_length: 262144}
models:
  description: What the server says under C(/v1/models); V(null) under the same conditions.
  returned: success
  type: dict
  sample: {object: list, data: [{id: kimi-k2.5, max_model_len: 262144}]}
started_with:
  description:
    - By what the server was judged, its C(host), C(port) and C(workers) (V(null) where no number was expected), and
      C(profile), from which the files were rendered. V(null) without O(installed).
    - C(source) is V(installed), V(proved), or V(given) for the options of the module. C(told) is V(false) where it is
      not known that the server was started with this, and C(why) says what is in the way. C(installed) says whether
      the live files could be read.
  returned: success
  type: dict
  sample: {source: installed, told: true, installed: true, profile: kimi, host: 127.0.0.1, port: 30000, workers: 8,
    why: null}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_path
from ansible_collections.cleanslate.gpu.plugins.module_utils._server_look import server_look_from
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_arguments import SGLANG_ARGUMENTS
from ansible_collections.cleanslate.gpu.plugins.module_utils._started_with import Files

INSTALLED_ARGUMENTS = {name: {"type": "path", "required": True} for name in ("unit_path", "config_path")}


def files_of(params: t.Mapping[str, t.Any]) -> Files | None:
    """Where the files are. ValueError with a sentence where that cannot be meant."""
    if params["installed"] is None:
        return None
    for name, path in params["installed"].items():
        check_path(f"installed: {name}", path)
    if not params["unit"]:
        raise ValueError("installed is given and unit is empty: without a unit no files belong to the server.")
    return Files(params["unit"], **params["installed"])


def main() -> t.NoReturn:
    spec = {**SGLANG_ARGUMENTS, "request_timeout": {**SGLANG_ARGUMENTS["request_timeout"], "aliases": ["timeout"]}}
    spec["installed"] = {"type": "dict", "options": INSTALLED_ARGUMENTS}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    clock = SystemClock()
    try:
        look = server_look_from(module.params, clock, CommandRunner(clock), files_of(module.params))
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **look())


if __name__ == "__main__":
    main()
