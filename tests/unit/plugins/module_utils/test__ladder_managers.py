# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Before the first signal: managers are asked, and check mode says what would be done."""

from __future__ import annotations

import dataclasses

from ansible_collections.cleanslate.gpu.plugins.module_utils._managers import Order
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ladder_world import Fake, World

UNIT = Order("unit", "sglang.service", ("systemctl", "stop", "sglang.service"), (10,))


def test_a_manager_is_asked_before_any_signal() -> None:
    world = World(Fake(10))
    world.orders = (UNIT,)
    world.on_order = lambda: setattr(world.processes[0], "dead", True)
    result = world.release()
    assert result.verdict == "released"
    assert result.changed
    assert world.got() == {}
    assert world.carried == ["sglang.service"]
    assert result.stopped == ("systemctl stop sglang.service (for PID 10)",)


def test_what_its_manager_left_is_signalled() -> None:
    world = World(Fake(10))
    world.orders = (UNIT,)
    result = world.release()
    assert result.verdict == "released"
    assert world.got() == {10: ["TERM"]}


def test_a_manager_that_fails_ends_the_run_before_any_signal() -> None:
    world = World(Fake(10))
    world.orders, world.order_ok = (UNIT,), False
    result = world.release()
    assert result.verdict == "survivors"
    assert result.failed
    assert not result.changed
    assert world.got() == {}
    assert "Job failed" in result.message
    assert "sglang.service" in result.message


def test_unless_nothing_starts_it_again() -> None:
    world = World(Fake(10))
    world.orders, world.order_ok = (dataclasses.replace(UNIT, restarts=False),), False
    result = world.release()
    assert result.verdict == "released"
    assert world.got() == {10: ["TERM"]}
    assert "Job failed" in result.message


def test_what_is_never_signalled_ends_the_run_at_once_where_it_cannot_be_told() -> None:
    world = World(Fake(10), Fake(11))
    world.spared = {11}
    world.orders, world.order_ok = (dataclasses.replace(UNIT, kind="mps", restarts=False, spared=True),), False
    result = world.release()
    assert (result.verdict, result.changed) == ("survivors", False)
    assert world.got() == {}
    assert result.elapsed_s < 1.0
    assert "stop it by hand" in result.message
    assert "signalled instead" not in result.message


def test_what_ends_after_its_clients_is_waited_for_while_they_are_signalled() -> None:
    world = World(Fake(10), Fake(11))
    world.spared, world.order_later = {11}, True
    world.orders, world.order_ok = (dataclasses.replace(UNIT, kind="mps", restarts=False, spared=True),), False
    world.processes[0].on_death = lambda dying: setattr(dying.processes[1], "dead", True)
    result = world.release()
    assert result.verdict == "released"
    assert world.got() == {10: ["TERM"]}
    assert "signalled instead" not in result.message


def test_a_released_protected_process_is_never_signalled() -> None:
    world = World(Fake(10), Fake(11))
    world.spared = {11}
    result = world.release()
    assert world.got() == {10: ["TERM"]}
    assert result.verdict == "survivors"
    assert "through its manager" in result.message


# -- check mode -------------------------------------------------------------------------------------------------------


def test_check_mode_says_whom_and_touches_nobody() -> None:
    world = World(Fake(10), Fake(11, ppid=10), Fake(12, dying=True), Fake(20))
    world.orders = (dataclasses.replace(UNIT, pids=(20,)),)
    result = world.release(check_mode=True)
    assert (result.verdict, result.changed, result.failed) == ("would_release", False, False)
    assert result.would_signal == ((10, "TERM"), (11, "KILL"))
    assert result.would_stop == ("systemctl stop sglang.service (for PID 20)",)
    assert world.got() == {}
    assert world.carried == []
    assert world.scans == 1


def test_check_mode_with_nothing_to_do() -> None:
    assert World().release(check_mode=True).verdict == "free"
