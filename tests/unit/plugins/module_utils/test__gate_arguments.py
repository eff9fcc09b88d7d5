# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the gate is given when nobody says anything, and that what people say reaches it."""

from __future__ import annotations

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gate_arguments import GATE_ARGUMENTS, gate_options

GIVEN = {
    **{name: spec["default"] for name, spec in GATE_ARGUMENTS.items()},
    "expected_count": 8,
    "expected_uuids": None,
    "max_used_mib": 0,
}


def test_by_default_two_looks_in_a_row_at_gpus_without_a_mib() -> None:
    options = gate_options(GIVEN, check_mode=False)
    assert (options.expectation.count, options.max_used_mib, options.settled_mib) == (8, 0, 0)
    assert (options.samples, options.interval, options.timeout) == (2, 0.1, 300.0)
    assert options.check_mode is False


def test_what_people_say_is_what_the_gate_does() -> None:
    said = {"max_used_mib": 500, "settled_mib": 3, "samples": 5, "interval": 2.0, "timeout": 60.0}
    options = gate_options({**GIVEN, **said}, check_mode=True)
    assert {name: getattr(options, name) for name in said} == said
    assert options.check_mode is True


def test_a_gate_that_does_not_know_what_to_expect_is_refused() -> None:
    with pytest.raises(ValueError, match="Exactly one of expected_count and expected_uuids"):
        gate_options({**GIVEN, "expected_count": None}, check_mode=False)
