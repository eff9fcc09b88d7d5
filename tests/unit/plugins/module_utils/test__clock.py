# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real clock: everything else is tested with one that is handed in."""

from __future__ import annotations

import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock


@pytest.mark.parametrize(("seconds", "waits"), [(-2.0, []), (-0.001, []), (0.0, []), (0.001, [0.001]), (1.0, [1.0])])
def test_time_that_is_over_is_not_waited_for(
    seconds: float, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a deadline may be less than nothing, which Python's own sleep refuses."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    SystemClock().sleep(seconds)
    assert waited == waits


def test_durations_do_not_follow_the_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    before = time.monotonic()
    clock = SystemClock()
    assert before <= clock.monotonic() <= time.monotonic()
    assert clock.wall() == 0.0
