# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether memory still becomes less while the dying are waited for: how often that is asked, and how long it counts."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._shrinking import Shrinking


class Memory:
    def __init__(self, *used: int | t.Literal["hangs"] | None) -> None:
        self.used = list(used)
        self.asked = 0

    def __call__(self) -> int | t.Literal["hangs"] | None:
        self.asked += 1
        return self.used.pop(0)


def test_it_is_asked_every_ten_seconds() -> None:
    memory = Memory(900, 900, 800)
    shrinking = Shrinking(memory)
    asked = []
    for moment in (0.0, 9.9, 10.0, 10.1, 19.9, 20.0, 29.9, 30.0):
        shrinking.look(0.0, moment)
        asked.append(memory.asked)
    assert asked == [0, 0, 1, 1, 1, 2, 2, 3]
    assert shrinking.look(0.0, 31.0) == 30.0, "when it was last seen to become less"


def test_a_driver_that_does_not_tell_is_not_asked_again() -> None:
    memory = Memory(None)
    shrinking = Shrinking(memory)
    assert [shrinking.look(0.0, moment) for moment in (10.0, 20.0, 99.0)] == [None, None, None]
    assert memory.asked == 1
    assert Shrinking(None).look(0.0, 99.0) is None


@pytest.mark.parametrize(("now", "still"), [(0.0, True), (29.9, True), (30.0, False), (99.0, False)])
def test_a_process_that_has_just_begun_to_die_has_time(now: float, still: bool) -> None:
    assert Shrinking(None).still(0.0, now) is still


@pytest.mark.parametrize(("now", "still"), [(20.0, True), (49.9, True), (50.0, False)])
def test_less_memory_gives_it_time_anew(now: float, still: bool) -> None:
    shrinking = Shrinking(Memory(900, 800))
    shrinking.look(0.0, 10.0)
    assert shrinking.look(0.0, 20.0) == 20.0
    assert shrinking.still(0.0, now) is still


def test_more_memory_does_not() -> None:
    shrinking = Shrinking(Memory(900, 900, 901))
    assert [shrinking.look(0.0, moment) for moment in (10.0, 20.0, 30.0)] == [None, None, None]
    assert not shrinking.still(0.0, 30.0)


def test_a_driver_that_does_not_answer_counts_as_less_memory_until_it_does() -> None:
    """It answers nobody while it unpins host memory, and one that is left behind costs nothing to ask about."""
    memory = Memory(900, "hangs", "hangs", 900, 800)
    shrinking = Shrinking(memory)
    told = [(shrinking.look(0.0, moment), shrinking.silent) for moment in (10.0, 20.0, 29.9, 30.0)]
    assert told == [(None, False), (20.0, True), (20.0, True), (30.0, True)]
    assert shrinking.still(0.0, 999.0), "nobody can have seen a decrease"
    assert (shrinking.look(0.0, 40.0), shrinking.silent) == (30.0, False)
    assert not shrinking.still(0.0, 60.0)
    assert shrinking.look(0.0, 50.0) == 50.0
