# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Asking systemd about units, and asking it to stop, start and signal them."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult, Runner

SystemdScope = t.Literal["system", "user"]

# Seconds. systemctl waits 25 s (its D-Bus deadline) for a manager that does not answer.
QUERY_TIMEOUT = 30.0

# A unit in one of these states has, or is about to have, processes that belong to it.
_ACTIVE_STATES = ("active", "reloading", "refreshing", "activating", "deactivating", "maintenance")
_ENDED_STATES = ("inactive", "failed")


class Systemd:
    """One systemd manager, reached through systemctl."""

    def __init__(self, runner: Runner, scope: SystemdScope = "system", systemctl: str = "systemctl") -> None:
        self._runner = runner
        self._base: tuple[str, ...] = (systemctl,) if scope == "system" else (systemctl, "--user")

    def show(self, units: t.Sequence[str], properties: t.Sequence[str]) -> dict[str, dict[str, str]]:
        """The properties of each unit. A unit that systemd could not be asked about is absent from the answer; one
        that does not exist is there, with LoadState=not-found."""
        if not units:
            return {}
        blocks = self._show(units, properties)
        if blocks is not None and len(blocks) == len(units):
            return dict(zip(units, blocks))
        # An alias named twice, or a unit name that systemctl refuses, shifts the answers: one by one then.
        answers: dict[str, dict[str, str]] = {}
        for unit in units if len(units) > 1 else ():
            if blocks is None:
                break  # whoever does not answer is not waited for once more
            blocks = self._show((unit,), properties)
            if blocks is not None and len(blocks) == 1:
                answers[unit] = blocks[0]
        return answers

    def _show(self, units: t.Sequence[str], properties: t.Sequence[str]) -> list[dict[str, str]] | None:
        """What is said of each unit; None where there was no answer in time."""
        result = self._run(("show", "--no-pager", "--property=" + ",".join(properties), "--", *units), QUERY_TIMEOUT)
        if result.timed_out:
            return None
        if result.exit_code != 0:
            return []
        blocks = []
        for text in result.stdout.strip("\n").split("\n\n"):
            block: dict[str, str] = {}
            for name, dummy, value in (line.partition("=") for line in text.splitlines() if "=" in line):
                # A unit's commands are a line each.
                block[name] = f"{block[name]}\n{value}" if name in block else value
            if block:
                blocks.append(block)
        return blocks

    def active(self, units: t.Sequence[str]) -> dict[str, bool | None]:
        """Whether each unit is active. None: it could not be told, as for a unit this manager does not know (it may
        belong to a user's manager, or to a container's)."""
        answers = self.show(units, ("LoadState", "ActiveState"))
        return {unit: self._is_active(answers.get(unit, {})) for unit in units}

    def main_pids(self, units: t.Sequence[str]) -> dict[int, str]:
        """The main process of each unit that has one."""
        answers = self.show(units, ("MainPID",))
        pids = {unit: answer.get("MainPID", "") for unit, answer in answers.items()}
        return {int(pid): unit for unit, pid in pids.items() if pid.isdigit() and pid != "0"}

    @staticmethod
    def _is_active(answer: t.Mapping[str, str]) -> bool | None:
        state = answer.get("ActiveState", "")
        if state in _ACTIVE_STATES:
            return True
        if state == "failed":
            return False
        if state == "inactive" and answer.get("LoadState") != "not-found":
            return False
        return None

    def argv(self, *arguments: str) -> tuple[str, ...]:
        """The command line as it is run, for people."""
        return (*self._base, *arguments)

    def hangs(self) -> bool:
        """Whether systemctl is there but does not answer in time."""
        return self._run(("show", "--no-pager", "--property=Version"), QUERY_TIMEOUT).timed_out

    def stop(self, unit: str, timeout: float, block: bool = True) -> CommandResult:
        """Stop a unit; without block only put the job in the queue."""
        return self._run(("stop", *(() if block else ("--no-block",)), "--", unit), timeout)

    def start(self, unit: str, timeout: float, block: bool = True) -> CommandResult:
        """Start a unit; without block only put the job in the queue."""
        return self._run(("start", *(() if block else ("--no-block",)), "--", unit), timeout)

    def reload(self, timeout: float) -> CommandResult:
        """Have systemd read the files of all units anew."""
        return self._run(("daemon-reload",), timeout)

    def enable(self, unit: str, timeout: float) -> CommandResult:
        """Have a unit started at boot."""
        return self._run(("enable", "--", unit), timeout)

    def kill(self, unit: str, signal: str, timeout: float = QUERY_TIMEOUT) -> CommandResult:
        """Send a signal (by name, such as SIGKILL) to every process of a unit."""
        return self._run(("kill", f"--signal={signal}", "--", unit), timeout)

    def reset_failed(self, unit: str, timeout: float = QUERY_TIMEOUT) -> CommandResult:
        """Forget that a unit failed, and how often it was started of late."""
        return self._run(("reset-failed", "--", unit), timeout)

    def _run(self, arguments: t.Sequence[str], timeout: float) -> CommandResult:
        return self._runner(self.argv(*arguments), timeout)


def is_ended(answer: t.Mapping[str, str]) -> bool:
    """Whether a unit's answer says that nothing of it runs: stopped, failed, or not known at all."""
    return answer.get("ActiveState") in _ENDED_STATES


def restarts_itself(answer: t.Mapping[str, str]) -> bool:
    """Whether systemd would start this unit again after its processes were killed. Not told counts as yes."""
    return answer.get("Restart", "unknown") != "no"


def what_it_said(result: CommandResult) -> str:
    """The outcome of a command in a few words, for a message: its own text where it printed any."""
    command = " ".join(result.argv)
    if result.error == "not_found":
        return f"{command}: there is no such command"
    if result.error is not None:
        return f"{command}: could not be started ({result.error})"
    if result.timed_out:
        return f"{command}: no end after {result.seconds:.0f} s"
    text = " ".join((result.stderr.strip() or result.stdout.strip()).split())
    return f"{command}: exit code {result.exit_code}" + (f", {text[:400]}" if text else "")
