# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What the start guard of a unit left behind about this very start."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState

Report = t.Mapping[str, t.Any]

_LARGEST = 256 * 1024  # bytes
_EARLIER = 2.0  # seconds: clocks are rounded
_NO = ("refused", "gave_up", "interrupted", "error")
_UNDATED = 600.0  # seconds before the wait, where systemd does not tell when the start began


def read(path: str) -> dict[str, t.Any] | None:
    """The report as it stands; None where there is none that can be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def of_this_start(
    report: Report | None,
    unit: UnitState | None,
    *,
    boot_id: str,
    invocations: t.Sequence[str],
    now: float,
    uptime: float,
) -> bool:
    """Whether the report belongs to the start that is looked at: an older one would accuse the wrong holder.

    :param invocations: systemd's ids of the runs of the unit that were seen.
    :param now: seconds since the epoch.
    :param uptime: monotonic seconds, as systemd counts them.
    """
    if report is None or report.get("boot_id") != boot_id:
        return False
    known = [invocation for invocation in invocations if invocation]
    if known and report.get("invocation_id"):
        return report["invocation_id"] in known
    began = report.get("started_at")
    if isinstance(began, bool) or not isinstance(began, (int, float)):
        return False
    since = unit.entered_monotonic if unit is not None else None
    return began >= (now - (uptime - since) - _EARLIER if since is not None else now - _UNDATED)


def of_this_start_at(
    path: str, unit: UnitState | None, invocations: t.Sequence[str], clock: Clock, boot_id: str
) -> Report | None:
    """The report at this path, where it is about the start that is looked at."""
    report, now, uptime = read(path), clock.wall(), clock.monotonic()
    fresh = of_this_start(report, unit, boot_id=boot_id, invocations=invocations, now=now, uptime=uptime)
    return report if fresh else None


def refusal(report: Report | None) -> str:
    """Why the guard did not let the server start; empty where it did, or still looks."""
    if report is None or report.get("verdict") not in _NO:
        return ""
    return " ".join(str(report.get("reason") or "it gave no reason").split())
