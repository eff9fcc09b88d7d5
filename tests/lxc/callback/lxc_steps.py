# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every task of a run as a line of JSON: when it began and ended, on which host, with what result."""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: lxc_steps
type: aggregate
short_description: Writes each task with its times and its result as a line of JSON.
description:
  - For the scenario's own tests. The file is named by C(CLEANSLATE_LXC_STEPS).
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "lxc_steps"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._play = ""
        self._began: dict[tuple[str, str], float] = {}
        self._out = open(os.environ["CLEANSLATE_LXC_STEPS"], "a", encoding="utf-8")  # noqa: SIM115

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._play = play.get_name()

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        self._began[host.get_name(), task._uuid] = time.time()

    def _write(self, result: t.Any, status: str) -> None:
        host, task = result.host.get_name(), result.task
        answer = dict(result.result)
        line = {
            "play": self._play,
            "task": task.get_name(),
            "action": task.action,
            "host": host,
            "delegated": (answer.get("_ansible_delegated_vars") or {}).get("ansible_delegated_host"),
            "began": self._began.get((host, task._uuid)),
            "ended": time.time(),
            "status": status,
            "result": answer,
        }
        self._out.write(json.dumps(line, default=str) + "\n")
        self._out.flush()

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._write(result, "ok")

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._write(result, "failed")

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._write(result, "unreachable")
