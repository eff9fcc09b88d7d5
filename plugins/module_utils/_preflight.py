# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Checks that are made before any downtime: what one is, what it may look at, and what all of them together say.

A check is a function over a Context. The module lists those it runs; a new one needs a function and a place in that
list.
"""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import Launch
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account, find_account


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that is wrong, as a clause that can follow a name, and what cures it, as sentences."""

    what: str
    cure: str


@dataclasses.dataclass(frozen=True)
class Check:
    """What one check found. ok is None where it did not apply, or could not be told: that is no pass."""

    name: str
    ok: bool | None
    detail: str
    cure: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Context:
    """What was asked, and the part of the world that several checks look at. What only one looks at is an argument of
    that check."""

    devices: tuple[str, ...]
    expectation: Expectation
    runner: Runner
    clock: Clock
    majors: tuple[int, ...] | None = None
    service_user: str = ""
    service_group: str = ""
    timeout: float = 10.0  # for one open, one file or one command
    launch: Launch | None = None  # without one only the node is looked at
    proc: Proc = dataclasses.field(default_factory=Proc)
    own_uid: int = dataclasses.field(default_factory=os.geteuid)
    stat: t.Callable[[str], os.stat_result] = os.stat
    account: t.Callable[[str, str], Account] = find_account


@dataclasses.dataclass(frozen=True)
class Preflight:
    """All checks together."""

    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.ok is False)

    @property
    def verdict(self) -> str:
        return "refuse" if self.failures else "pass"

    @property
    def message(self) -> str:
        if self.failures:
            count = len(self.failures)
            found = " ".join(f"{check.name}: {check.detail}. {check.cure}" for check in self.failures)
            return f"The preflight refuses, {count} of {len(self.checks)} checks failed. {found}"
        good = [check.name for check in self.checks if check.ok]
        skipped = [f"{check.name} ({check.detail})" for check in self.checks if check.ok is None]
        said = [f"Passed: {', '.join(good) or 'nothing'}."]
        if skipped:
            said.append(f"Not checked: {'; '.join(skipped)}.")
        return " ".join(said)


def passed(name: str, detail: str) -> Check:
    return Check(name, True, detail)


def not_checked(name: str, why: str) -> Check:
    return Check(name, None, why)


def failed(name: str, faults: t.Sequence[Fault]) -> Check:
    """All faults of one check; a cure that several share is said once."""
    cures = dict.fromkeys(fault.cure for fault in faults)
    return Check(name, False, "; ".join(fault.what for fault in faults), " ".join(cures))


def run_checks(context: Context, checks: t.Sequence[t.Callable[[Context], Check]]) -> Preflight:
    """Every check runs, whatever the ones before it found."""
    return Preflight(tuple(check(context) for check in checks))
