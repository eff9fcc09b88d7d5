# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands between any two tasks of a run: looks at the node, stops a host there, cuts it off, and kills the controller
once every host is where it was to be."""

from __future__ import annotations

import collections
import hashlib
import json
import os
import pathlib
import re
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
# What never leaves the controller.
HERE = (
    "assert",
    "debug",
    "fail",
    "include_role",
    "include_tasks",
    "meta",
    "set_fact",
    "set_stats",
    "validate_argument_spec",
)
# What a run changes on a node, and where that stands.
PARTS = {
    "files": ("etc", "home/.config", "lib"),
    "timer": ("run/timers",),
    "wanted state": ("state/wanted.json",),
    "drift's memory": ("state/drift.json",),
    "record": ("record",),
}


def main_pid(node: pathlib.Path) -> int | None:
    """The main process of the node's unit, as its systemctl remembers it, where that process lives."""
    for path in node.glob("run/**/sglang.service.status"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, dummy, value = line.partition("=")
            if name == "MainPID" and value.isdigit() and os.path.exists(f"/proc/{value}"):
                return int(value)
    return None


def digest(node: pathlib.Path, places: t.Sequence[str]) -> str:
    said = hashlib.sha256()
    for place in places:
        top = node / place
        for path in sorted([top, *top.rglob("*")]):
            if path.is_file():
                said.update(f"{path}\n".encode() + path.read_bytes())
    return said.hexdigest()


def look(node: pathlib.Path) -> dict[str, t.Any]:
    """What a controller that dies now leaves there."""
    found: list[dict[str, t.Any]] = []
    for path in node.glob("run/cleanslate/leases-*.json"):
        found.append(json.loads(path.read_text(encoding="utf-8")))
    return {
        "leases": [lease for file in found for lease in file["leases"]],
        "starting": [marker["node"] for file in found for marker in file.get("starting", [])],
        "timer": "".join(path.read_text(encoding="utf-8") for path in sorted((node / "run" / "timers").iterdir())),
        "main_pid": main_pid(node),
        "parts": {part: digest(node, places) for part, places in PARTS.items()},
    }


class Plan:
    """hosts: name to {"node": folder, "before": the task, "nth": of that name, "do": "hold" or "lose", "lost": the file
    that cuts a host off}. play: its name. end: the task that each host comes to when its rescue and always have run.
    log: where every moment is written."""

    def __init__(self, path: str) -> None:
        self.told: dict[str, t.Any] = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        self.play = ""
        self.waiting = set(self.told["hosts"])
        self.seen: collections.Counter[tuple[str, str]] = collections.Counter()

    @staticmethod
    def name(task: str) -> str:
        """Without its role, and without hosts: what is rendered for one host may stand there when the next comes."""
        return re.sub(r"\bpve\d+\b", "GPU HOST", re.sub(r"\bnode\d+\b", "NODE", task.rpartition(" : ")[2]))

    def meet(self, host: str, task: str) -> bool:
        """A task is about to be queued for a host; whether it may be."""
        about = self.told["hosts"].get(host)
        if about is None or self.play not in self.told["plays"]:
            return True
        name = self.name(task)
        self.seen[host, name] += 1
        nth = self.seen[host, name]
        self._write({"host": host, "task": name, "nth": nth, **look(pathlib.Path(about["node"]))})
        if (about["before"], about["nth"]) == (name, nth):
            if about["do"] == "hold":
                self._arrived(host)
                return False
            pathlib.Path(about["lost"]).touch()
        return True

    def ended(self, host: str, task: str, where: str) -> None:
        """A task has ended on a host, in whichever way. where: the host to which it went, if it went anywhere."""
        about = self.told["hosts"].get(host)
        if about is None or self.play not in self.told["plays"]:
            return
        name = self.name(task)
        if where:
            self._write({"host": host, "ran": name, "nth": self.seen[host, name], "where": where})
        if self.told["end"] in name and about["do"] != "hold":
            self._arrived(host)

    def _write(self, entry: dict[str, t.Any]) -> None:
        with open(self.told["log"], "a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")

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

    def _ended(self, result: t.Any, ran: bool = True) -> None:
        host, task = result.host.get_name(), result.task
        to = result.result.get("_ansible_delegated_vars", {}).get("ansible_delegated_host") or host
        goes = ran and task.action.rpartition(".")[2] not in HERE and to != "localhost"
        self._plan.ended(host, task.get_name(), to if goes else "")

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._ended(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._ended(result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._ended(result, ran=False)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._ended(result)

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._plan.play = play.get_name()
