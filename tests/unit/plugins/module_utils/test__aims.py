# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who of the signalled has ended, and who got KILL and has not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._aims import Aims
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Rung
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ladder_world import Fake, World

TERM, KILL = Rung("TERM", 1.0), Rung("KILL", 1.0)


def aims_of(world: World) -> Aims:
    return Aims(t.cast(t.Any, world), world.clock)


def holder(pid: int, start: int = 100) -> Holder:
    return Holder(pid=pid, start_time=start, comm="x", ppid=1, disposition="target")


def test_only_who_is_there_is_taken() -> None:
    aims = aims_of(World(Fake(10)))
    assert aims.take(holder(10))
    assert aims.take(holder(10)), "once more"
    assert not aims.take(holder(10, start=101))
    assert not aims.take(holder(11))


@pytest.mark.parametrize(
    ("fake", "rung", "unended"),
    [
        pytest.param(Fake(10, kill=5.0), KILL, ((10, 100),), id="killed, and not ended"),
        pytest.param(Fake(10, kill=0.0), KILL, (), id="killed, and ended"),
        pytest.param(Fake(10, term=5.0), TERM, (), id="asked, and not ended"),
        pytest.param(Fake(10, permitted=False), KILL, (), id="not let through"),
    ],
)
def test_who_got_kill_and_has_not_ended(fake: Fake, rung: Rung, unended: tuple[t.Any, ...]) -> None:
    aims = aims_of(World(fake))
    aims.take(holder(10))
    aims.send(holder(10), rung)
    assert aims.unended() == unended


def test_an_end_is_news_until_it_was_noted() -> None:
    world = World(Fake(10, kill=1.0), Fake(11))
    aims = aims_of(world)
    aims.take(holder(10))
    aims.take(holder(11))
    aims.send(holder(10), KILL)
    assert (aims.news(), aims.ended(holder(10)), aims.ended(holder(12))) == (False, False, False)
    assert aims.wait(5.0, together=False)
    assert world.clock.now == pytest.approx(1001.0)
    assert (aims.news(), aims.ended(holder(10)), aims.ended(holder(11))) == (True, True, False)
    aims.note_ended()
    assert not aims.news()


def test_all_of_them_are_let_go_of() -> None:
    world = World(Fake(10), Fake(11))
    aims = aims_of(world)
    aims.take(holder(10))
    aims.take(holder(11))
    aims.close()
    assert world.closed == 2
