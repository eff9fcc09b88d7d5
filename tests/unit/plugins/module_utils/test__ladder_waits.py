# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long the ladder waits for whom it has signalled."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Rung
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ladder_world import Fake, World


def test_one_who_ended_while_he_was_looked_at_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who unpins memory holds up the reading of his mappings until he has ended: seen as dying, and gone by then."""
    world = World(Fake(10, term=None, kill=3.0, dying_after_kill=True))
    scan = world.scan

    def blocks() -> HolderScan:
        began = world.clock.now
        found = scan()
        one = world.processes[0]
        if one.dying and one.dies_at is not None and not one.dead:
            world.clock.now = max(world.clock.now, one.dies_at)
        return dataclasses.replace(found, seconds=world.clock.now - began)

    monkeypatch.setattr(world, "scan", blocks)
    result = world.release([Rung("KILL", 60)])
    assert (result.verdict, world.got()) == ("released", {10: ["KILL"]})
    assert 3.0 <= result.elapsed_s < 3.02


def test_nobody_is_looked_at_while_the_kernel_tears_him_down() -> None:
    """A second for a process that had pinned host memory: the look would take as long, and come back too late."""
    world = World(Fake(10, term=None, kill=1.1, dying_after_kill=True))
    result = world.release([Rung("KILL", 60)])
    assert (result.verdict, world.scans) == ("released", 3)
    assert 1.1 <= result.elapsed_s < 1.12


def test_where_no_signal_was_let_through_nobody_is_waited_for() -> None:
    assert World(Fake(10, permitted=False)).release([Rung("KILL", 60)]).elapsed_s < 0.1
