# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""One look at what is installed for a server and at what systemd makes of it, compared with what a profile says."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _config_drift
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._config_drift import Difference, NotUnderstood
from ansible_collections.cleanslate.gpu.plugins.module_utils._small_file import read_small
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd
from ansible_collections.cleanslate.gpu.plugins.module_utils._unit_files import PROVED

PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "NRestarts",
    "MainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "ExecMainStartTimestampMonotonic",
    "ExecMainExitTimestampMonotonic",
    "ActiveExitTimestampMonotonic",
    "Restart",
    "FragmentPath",
    "DropInPaths",
    "FreezerState",
    "ControlGroup",
    "ExecStartPre",
    "NeedDaemonReload",
    "UnitFileState",
)
_ENABLED = ("enabled", "enabled-runtime", "alias", "static", "linked", "generated")


@dataclasses.dataclass(frozen=True)
class Installed:
    """What should be there. Texts None: not compared. secrets fill the placeholders of the configuration."""

    unit: str
    unit_path: str
    unit_text: str | None = None
    config_path: str = ""
    config_text: str | None = None
    launch: tuple[str, ...] = ()
    secrets: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    must_be_enabled: bool = True


@dataclasses.dataclass(frozen=True)
class Comparison:
    """verdict unknown: at least one part could not be compared, and no other differs."""

    differences: tuple[Difference, ...]
    not_compared: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return "drifted" if self.differences else "unknown" if self.not_compared else "same"

    def but_not(self, why: str) -> Comparison:
        """The same, with one more part that was not compared."""
        return Comparison(self.differences, (*self.not_compared, why))

    def as_dict(self) -> dict[str, t.Any]:
        return {
            "verdict": self.verdict,
            "differences": [one.as_dict() for one in self.differences],
            "not_compared": list(self.not_compared),
        }


class Look:
    """Collects differences; what cannot be read is told and does not end the look."""

    def __init__(self, wanted: Installed, answer: t.Mapping[str, str] | None, clock: Clock, proc_root: str) -> None:
        self.wanted = wanted
        self.answer = answer
        self._clock = clock
        self._proc_root = proc_root
        self._found: list[Difference] = []
        self._not: list[str] = []
        self._as_wanted: set[str] = set()

    def compare(self) -> Comparison:
        wanted = self.wanted
        if wanted.unit_text is not None:
            self._compare(wanted.unit_path, lambda text: self._unit(wanted.unit_text or "", text))
        if wanted.config_text is not None:
            self._compare(wanted.config_path, lambda text: self._config(wanted.config_text or "", text))
        if self.answer is None:
            self._not.append(f"systemd could not be asked about {wanted.unit}")
        else:
            self._systemd(self.answer)
            self._process(self.answer)
        return Comparison(tuple(self._found), tuple(self._not))

    def _compare(self, path: str, differences: t.Callable[[str | None], list[Difference]]) -> None:
        try:
            text: str | None = read_small(path)[0].decode("utf-8", errors="replace")
        except FileNotFoundError:
            text = None
        except OSError as error:
            self._not.append(f"{path} could not be read: {error.strerror or error}")
            return
        try:
            found = differences(text)
        except NotUnderstood as error:
            self._not.append(f"{path} was not compared by value: {error}")
            return
        self._found += found
        if not found and text == _proved(path):
            self._as_wanted.add(path)

    def _unit(self, wanted: str, found: str | None) -> list[Difference]:
        return _config_drift.unit_differences(self.wanted.unit_path, wanted, found)

    def _config(self, wanted: str, found: str | None) -> list[Difference]:
        return _config_drift.config_differences(self.wanted.config_path, wanted, found, self.wanted.secrets)

    def _systemd(self, answer: t.Mapping[str, str]) -> None:
        unit = self.wanted.unit
        if answer.get("NeedDaemonReload") == "yes":
            self._found.append(Difference(unit, "daemon-reload", "not needed", "needed: systemd knows older files"))
        if answer.get("DropInPaths"):
            self._found.append(Difference(unit, "drop-ins", None, answer["DropInPaths"]))
        fragment = answer.get("FragmentPath", "")
        if fragment and os.path.realpath(fragment) != os.path.realpath(self.wanted.unit_path):
            self._found.append(Difference(unit, "file", self.wanted.unit_path, fragment))
        state = answer.get("UnitFileState", "")
        if self.wanted.must_be_enabled and state and state not in _ENABLED:
            self._found.append(Difference(unit, "at boot", "enabled", state))

    def _process(self, answer: t.Mapping[str, str]) -> None:
        pid = answer.get("MainPID", "0")
        if pid in ("", "0"):
            return
        try:
            with open(os.path.join(self._proc_root, pid, "cmdline"), "rb") as handle:
                argv = handle.read().decode(errors="replace").rstrip("\0").split("\0")
        except OSError as error:
            self._not.append(f"the command line of process {pid} could not be read: {error.strerror or error}")
            return
        self._found += _config_drift.running_differences(self.wanted.launch, argv)
        started = self._started(answer)
        for path in (self.wanted.unit_path, self.wanted.config_path):
            # A date alone is no drift: a backup that was put back, or a clock that was set.
            if path not in self._as_wanted:
                self._found += _config_drift.changed_since(path, _modified(path), started)

    def _started(self, answer: t.Mapping[str, str]) -> float | None:
        text = answer.get("ExecMainStartTimestampMonotonic", "")
        if not text.isdigit() or text == "0":
            return None
        return self._clock.wall() - (self._clock.monotonic() - int(text) / 1e6)


def _proved(path: str) -> str | None:
    """The text with which the server was last proved to serve."""
    try:
        return read_small(path + PROVED)[0].decode("utf-8", errors="replace")
    except OSError:
        return None


def _modified(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def look_at_installed(
    wanted: Installed,
    systemd: Systemd,
    clock: Clock,
    *,
    proc_root: str = "/proc",
    cgroup_root: str = "/sys/fs/cgroup",
) -> tuple[Comparison, dict[str, t.Any] | None]:
    """The comparison, and what systemd says of the unit (None: it could not be asked). Reads only.

    clock: its monotonic seconds must be systemd's, CLOCK_MONOTONIC.
    """
    answer = systemd.show((wanted.unit,), PROPERTIES).get(wanted.unit)
    comparison = Look(wanted, answer, clock, proc_root).compare()
    if answer is None:
        return comparison, None
    return comparison, {
        "load_state": answer.get("LoadState"),
        "active_state": answer.get("ActiveState"),
        "sub_state": answer.get("SubState"),
        "result": answer.get("Result"),
        "restarts": _number(answer.get("NRestarts")),
        "exit_status": _number(answer.get("ExecMainStatus")),
        "restart": answer.get("Restart"),
        # A stop that somebody asked for leaves active before the main process ends, a crash after it.
        "left_active_us": _number(answer.get("ActiveExitTimestampMonotonic")),
        "main_ended_us": _number(answer.get("ExecMainExitTimestampMonotonic")),
        # How the start guard ended, among others: with status 5 where it was told to stop.
        "start_pre": answer.get("ExecStartPre"),
        "frozen": _frozen(answer, cgroup_root),
    }


def _frozen(answer: t.Mapping[str, str], cgroup_root: str) -> bool | None:
    """Whether the unit's processes are frozen. None: it cannot be told."""
    if answer.get("FreezerState"):
        # systemd's own words: running, frozen, and what lies between.
        return answer["FreezerState"] != "running"
    group = answer.get("ControlGroup", "").strip("/")
    if not group:
        return False  # nothing of it runs, or it has no group that could be frozen
    for path in (f"{group}/cgroup.events", f"freezer/{group}/freezer.state"):
        try:
            with open(os.path.join(cgroup_root, path), encoding="ascii") as handle:
                words = handle.read().split()
        except OSError:
            continue
        return "FROZEN" in words or "FREEZING" in words or dict(zip(words, words[1:])).get("frozen") == "1"
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
