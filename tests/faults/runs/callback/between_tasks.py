# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands between any two tasks of a run: looks at the node, stops a host there, cuts it off, and kills the controller
once every host is where it was to be."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import typing as t

from ansible.plugins.callback import CallbackBase
from ansible.plugins.strategy import StrategyBase

DOCUMENTATION = """
name: between_tasks
type: aggregate
short_description: Stops hosts before a task, loses them there, and kills the controller.
description:
  - For the tests' own. The plan is a file in JSON, named by C(CLEANSLATE_FAULT_PLAN).
author:
  - cleanslate.gpu contributors (@cleanslate-gpu)
"""


def main_pid(node: pathlib.Path) -> int | None:
    """The main process of the node's unit, as its systemctl remembers it, where that process lives."""
    for path in node.glob("run/**/sglang.service.status"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, dummy, value = line.partition("=")
            if name == "MainPID" and value.isdigit() and os.path.exists(f"/proc/{value}"):
                return int(value)
    return None


def look(node: pathlib.Path) -> dict[str, t.Any]:
    """What a controller that dies now leaves there."""
    leases: list[t.Any] = []
    for path in node.glob("run/cleanslate/leases-*.json"):
        leases = json.loads(path.read_text(encoding="utf-8"))["leases"]
    timer = node / "run" / "dead-man"
    return {
        "leases": leases,
        "timer": timer.read_text(encoding="utf-8").splitlines()[0] if timer.exists() else "",
        "main_pid": main_pid(node),
    }


class Plan:
    """hosts: name to {"node": folder, "before": the task, "do": "hold" or "lose"}. play: its name. end: the task
    that each host comes to when its rescue and always have run. log: where every moment is written."""

    def __init__(self, path: str) -> None:
        self.told: dict[str, t.Any] = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        self.play = ""
        self.waiting = set(self.told["hosts"])

    def meet(self, host: str, task: str) -> bool:
        """A task is about to be queued for a host; whether it may be."""
        about = self.told["hosts"].get(host)
        if about is None or self.play != self.told["play"]:
            return True
        node = pathlib.Path(about["node"])
        with open(self.told["log"], "a", encoding="utf-8") as log:
            log.write(json.dumps({"host": host, "task": task, **look(node)}) + "\n")
        if about["before"] and about["before"] in task and not about.get("done"):
            about["done"] = True
            if about["do"] == "hold":
                self._arrived(host)
                return False
            (node / "lost").touch()
        return True

    def ended(self, host: str, task: str) -> None:
        """A task has ended on a host, in whichever way."""
        about = self.told["hosts"].get(host, {"do": "hold"})
        if self.told["end"] in task and about["do"] != "hold":
            self._arrived(host)

    def _arrived(self, host: str) -> None:
        self.waiting.discard(host)
        if not self.waiting and self.told["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "between_tasks"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._plan = plan = Plan(os.environ["CLEANSLATE_FAULT_PLAN"])
        queue = StrategyBase._queue_task

        def queue_task(strategy: t.Any, host: t.Any, task: t.Any, task_vars: t.Any, play_context: t.Any) -> None:
            # A host that is held stays blocked, while the others go on: no strategy of the collection is linear there.
            if plan.meet(host.get_name(), task.get_name()):
                queue(strategy, host, task, task_vars, play_context)

        StrategyBase._queue_task = queue_task

    def _ended(self, result: t.Any) -> None:
        self._plan.ended(result.host.get_name(), result.task.get_name())

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._ended(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._ended(result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._ended(result)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._ended(result)

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._plan.play = play.get_name()
