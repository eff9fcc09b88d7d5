# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each task of a run cost: the seconds from the result before it to its own, so that they add up to the run."""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_costs
type: aggregate
short_description: Writes what each task cost as a line of JSON.
description:
  - For the benchmarks. The file is named by C(CLEANSLATE_TASK_COSTS).
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_costs"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._out = open(os.environ["CLEANSLATE_TASK_COSTS"], "a", encoding="utf-8")  # noqa: SIM115
        self._last = time.time()

    def _write(self, result: t.Any, status: str) -> None:
        now = time.time()
        line = {"task": result.task.get_name(), "action": result.task.action, "host": result.host.get_name(),
                "status": status, "ended": now, "seconds": now - self._last}  # fmt: skip
        self._last = now
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._write(result, "ok")

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._write(result, "failed")

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._write(result, "skipped")

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._write(result, "unreachable")
