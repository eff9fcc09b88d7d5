# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What systemd's properties amount to."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState, read_unit
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd


def unit(exit_code: int = 0, **properties: str) -> UnitState:
    text = "".join(f"{name}={value}\n" for name, value in properties.items())

    def runner(argv: t.Sequence[str], timeout: float) -> CommandResult:
        return CommandResult(tuple(argv), exit_code, text, "", 0.0)

    return read_unit(Systemd(runner), "sglang.service")


@pytest.mark.parametrize(
    ("properties", "phase"),
    [
        ({"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}, "absent"),
        ({"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead"}, "stopped"),
        ({"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "Job": "0"}, "stopped"),
        ({"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "Job": "4711"}, "queued"),
        ({"LoadState": "masked", "ActiveState": "inactive", "SubState": "dead"}, "stopped"),
        ({"LoadState": "loaded", "ActiveState": "activating", "SubState": "start-pre"}, "guard"),
        ({"LoadState": "loaded", "ActiveState": "activating", "SubState": "start"}, "running"),
        ({"LoadState": "loaded", "ActiveState": "activating", "SubState": "auto-restart"}, "restarting"),
        ({"LoadState": "loaded", "ActiveState": "activating", "SubState": "auto-restart-queued"}, "restarting"),
        ({"LoadState": "loaded", "ActiveState": "active", "SubState": "running"}, "running"),
        ({"LoadState": "not-found", "ActiveState": "active", "SubState": "running"}, "running"),
        ({"LoadState": "loaded", "ActiveState": "active", "SubState": "exited"}, "stopped"),
        ({"LoadState": "loaded", "ActiveState": "deactivating", "SubState": "stop-sigterm"}, "stopping"),
        ({"LoadState": "loaded", "ActiveState": "failed", "SubState": "failed"}, "failed"),
        ({"ActiveState": "active"}, "running"),
        ({"LoadState": "loaded"}, "unknown"),
    ],
)
def test_phases(properties: dict[str, str], phase: str) -> None:
    assert unit(**properties).phase == phase


def test_a_unit_that_systemd_could_not_be_asked_about() -> None:
    assert unit(exit_code=1).phase == "unknown"


def test_what_a_manager_does_not_tell_is_unknown_not_zero() -> None:
    seen = unit(ActiveState="active", SubState="running", MainPID="4711")
    assert (seen.main_pid, seen.restarts, seen.result, seen.exit_status) == (4711, None, None, None)
    assert (seen.main_started_monotonic, seen.changed_monotonic, seen.invocation) == (None, None, "")
    assert unit(ActiveState="inactive", MainPID="0", ExecMainStartTimestampMonotonic="0").main_pid is None


def test_how_it_ended() -> None:
    killed = unit(ActiveState="failed", Result="signal", ExecMainCode="2", ExecMainStatus="9", NRestarts="1")
    assert (killed.exit_status, killed.exit_by_signal) == (9, True)
    assert "signal 9" in killed.describe()
    assert "restarted 1 times" in killed.describe()
    exited = unit(ActiveState="failed", Result="exit-code", ExecMainCode="1", ExecMainStatus="3")
    assert (exited.exit_status, exited.exit_by_signal) == (3, False)
    assert unit(ActiveState="active", ExecMainCode="0", ExecMainStatus="0").exit_status is None


@pytest.mark.parametrize(
    ("properties", "looping"),
    [
        ({"ActiveState": "failed", "Result": "start-limit-hit"}, True),
        ({"ActiveState": "activating", "SubState": "auto-restart", "NRestarts": "2"}, True),
        ({"ActiveState": "activating", "SubState": "auto-restart", "NRestarts": "1"}, False),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, False),
        ({"ActiveState": "active", "SubState": "running", "NRestarts": "7"}, False),
        ({"ActiveState": "failed", "Result": "exit-code"}, False),
        ({"ActiveState": "failed", "Result": "exit-code", "NRestarts": "1"}, False),
        ({"ActiveState": "failed", "Result": "exit-code", "NRestarts": "2"}, True),
    ],
)
def test_crash_loops(properties: dict[str, str], looping: bool) -> None:
    assert unit(**properties).crash_looping() is looping


def test_moments_are_microseconds() -> None:
    assert unit(ActiveState="active", ExecMainStartTimestampMonotonic="1500000").main_started_monotonic == 1.5
