# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running the playbooks on the played host as a user does: ansible-playbook, real SSH, one more inventory per run."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import typing as t

import commands
import layout
from layout import HarnessError

RUNS = os.path.join(layout.STATE, "log", "runs")
LEASES = os.path.join(layout.STATE, "leases")
TIMEOUT = 240.0
# What took part of the time between two moments without being a step of the relaunch itself.
SILENT = ("ansible.builtin.set_fact", "ansible.builtin.assert", "ansible.builtin.debug", "ansible.builtin.set_stats")


@dataclasses.dataclass(frozen=True)
class Step:
    """One task on one host."""

    play: str
    task: str
    action: str
    host: str
    delegated: str | None
    began: float | None
    ended: float
    status: str  # ok, failed, unreachable
    result: dict[str, t.Any]

    @property
    def seconds(self) -> float:
        return self.ended - (self.began or self.ended)


@dataclasses.dataclass(frozen=True)
class Play:
    """A run that is over."""

    code: int
    text: str
    steps: tuple[Step, ...]

    def of(self, task: str, host: str = "") -> list[Step]:
        """The steps whose task has these words in its name."""
        return [step for step in self.steps if task in step.task and host in ("", step.host)]

    def last(self, task: str, host: str = "") -> Step:
        found = self.of(task, host)
        if not found:
            raise AssertionError(f"no step {task!r} on {host or 'any host'} in this run:\n{self.text[-6000:]}")
        return found[-1]

    def failed(self) -> list[Step]:
        return [step for step in self.steps if step.status != "ok"]

    def why(self) -> str:
        """What the failed steps said, in one line each."""
        said = [f"{step.host}: {step.task}: {step.result.get('msg', '')}" for step in self.failed()]
        return "\n".join(" ".join(line.split()) for line in said)

    def release(self, host: str) -> dict[str, t.Any]:
        """The real release's result, not that of the rehearsal."""
        return self.last("End who holds the GPUs", host).result

    def stopped(self, host: str) -> bool:
        """Whether this run told the server of that host to stop."""
        return bool(self.of("Stop sglang", host))


class Running:
    """A run that goes on."""

    def __init__(self, process: subprocess.Popen[str], steps: str, output: str) -> None:
        self.process = process
        self._steps, self._output = steps, output

    def seen(self) -> tuple[Step, ...]:
        try:
            with open(self._steps, encoding="utf-8") as handle:
                return tuple(Step(**json.loads(line)) for line in handle if line.endswith("\n"))
        except FileNotFoundError:
            return ()

    def wait_for_step(self, task: str, timeout: float = 120) -> None:
        def there() -> bool:
            if self.process.poll() is not None:
                raise HarnessError(f"the run ended before {task!r}:\n{self.text()[-6000:]}")
            return any(task in step.task for step in self.seen())

        commands.wait_for(f"the run reaches {task!r}", there, timeout)

    def text(self) -> str:
        with open(self._output, encoding="utf-8") as handle:
            return handle.read()

    def end(self, timeout: float = TIMEOUT) -> Play:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise HarnessError(f"no end after {timeout} s:\n{self.text()[-6000:]}") from None
        return Play(code, self.text(), self.seen())


def uuids(gpus: t.Iterable[int]) -> list[str]:
    with open(os.path.join(layout.NODE, "node.json"), encoding="utf-8") as handle:
        all_of_them = [str(gpu["uuid"]) for gpu in json.load(handle)["gpus"]]
    return [all_of_them[number] for number in gpus]


# What every case sets: the played host's own place for leases.
COMMON: dict[str, t.Any] = {"gpu_release_lease_dir": LEASES}
# The hosts' variables in most cases: each container has its half of the GPUs.
HALVES: dict[str, dict[str, t.Any]] = {
    "ct101": {"sglang_server_profile": "low", "gpus": [0, 1, 2, 3]},
    "ct102": {"sglang_server_profile": "high", "gpus": [4, 5, 6, 7]},
}
WHOLE: dict[str, dict[str, t.Any]] = {name: {"sglang_server_profile": "all", "gpus": range(8)} for name in HALVES}


def start(
    playbook: str,
    limit: str,
    *words: str,
    hosts: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
    extra: t.Mapping[str, t.Any] | None = None,
    environment: t.Mapping[str, str] | None = None,
) -> Running:
    os.makedirs(RUNS, exist_ok=True)
    place = tempfile.mkdtemp(prefix=os.path.basename(playbook).split(".", maxsplit=1)[0] + "-", dir=RUNS)
    inventory, steps, output = (os.path.join(place, name) for name in ("hosts.json", "steps.jsonl", "output"))
    described = {}
    for name, variables in (HALVES if hosts is None else hosts).items():
        described[name] = {**COMMON, **{key: value for key, value in variables.items() if key != "gpus"}}
        if "gpus" in variables:
            described[name]["gpu_idle_expected_uuids"] = uuids(variables["gpus"])
    layout.write(inventory, json.dumps({"all": {"hosts": described}}))
    argv = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", layout.INVENTORY, "-i", inventory,
            "-l", limit, os.path.join(layout.ROOT, "playbooks", playbook), *words]  # fmt: skip
    if extra:
        argv += ["-e", json.dumps(extra)]
    with open(output, "w", encoding="utf-8") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            cwd=layout.ROOT,
            env={
                **commands.environment(),
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_CONFIG": os.path.join(layout.ROOT, "ansible.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": os.path.join(layout.ROOT, ".ansible", "collections"),
                "ANSIBLE_CALLBACK_PLUGINS": os.path.join(layout.HERE, "callback"),
                "ANSIBLE_CALLBACKS_ENABLED": "lxc_steps",
                "CLEANSLATE_LXC_STEPS": steps,
                **(environment or {}),
            },
        )  # fmt: skip
    return Running(process, steps, output)


def play(playbook: str, limit: str, *words: str, timeout: float = TIMEOUT, **named: t.Any) -> Play:
    return start(playbook, limit, *words, **named).end(timeout)
