# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    Preflight,
    failed,
    not_checked,
    passed,
    run_checks,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.preflight_node import PreflightNode

GOOD, SKIPPED = passed("one", "fine"), not_checked("two", "no reason to")
BAD = failed("three", [Fault("a is missing", "Make it."), Fault("b is missing", "Make it."), Fault("c is old", "Go.")])


@pytest.mark.parametrize(
    ("checks", "verdict", "message"),
    [
        ((GOOD,), "pass", "Passed: one."),
        ((GOOD, SKIPPED), "pass", "Passed: one. Not checked: two (no reason to)."),
        ((SKIPPED,), "pass", "Passed: nothing. Not checked: two (no reason to)."),
        (
            (BAD, GOOD, Check("four", False, "d is wrong", "Right it.")),
            "refuse",
            "The preflight refuses, 2 of 3 checks failed. three: a is missing; b is missing; c is old. Make it. Go."
            " four: d is wrong. Right it.",
        ),
    ],
)
def test_what_all_of_them_say(checks: tuple[Check, ...], verdict: str, message: str) -> None:
    found = Preflight(checks)
    assert (found.verdict, found.message) == (verdict, message)


def test_all_run_whatever_the_first_found(tmp_path: pathlib.Path) -> None:
    def bad(context: Context) -> Check:
        return BAD

    def good(context: Context) -> Check:
        return passed("good", context.service_user)

    assert run_checks(PreflightNode(tmp_path).context(), (bad, good, bad)).checks == (
        BAD,
        passed("good", "sglang"),
        BAD,
    )


def test_what_was_not_checked_is_no_pass() -> None:
    assert SKIPPED.as_dict() == {"name": "two", "ok": None, "detail": "no reason to", "cure": ""}
