# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last look before a signal: it stands even where everything before it is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _ladder_rules
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan, Unreadable
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.ladder_world import Fake, World

OWN = 500  # of the world of these tests


@pytest.fixture(autouse=True)
def _everybody_is_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is broken: whoever was found would be signalled."""
    monkeypatch.setattr(_ladder_rules, "targets_of", lambda scan, own: scan.holders)


@pytest.mark.parametrize(
    "one",
    [
        Fake(1),
        Fake(0),
        Fake(OWN),
        *(Fake(10, disposition=word) for word in ("foreign", "monitor", "protected", "never", "self")),
        Fake(OWN, disposition="self"),
    ],
    ids=lambda one: f"{one.pid} {one.disposition}",
)
def test_nobody_is_signalled_who_must_not_be(one: Fake) -> None:
    world = World(one)
    with pytest.raises(AssertionError, match="Contract violation: about to signal"):
        world.release()
    assert world.got() == {}


@pytest.mark.parametrize("pid", [2, 10, OWN + 100])
def test_every_other_target_is(pid: int) -> None:
    world = World(Fake(pid))
    assert world.release().verdict == "released"
    assert world.got() == {pid: ["TERM"]}


def test_whoever_is_another_or_ends_already_is_passed_over_and_the_next_one_is_not() -> None:
    """Between the scan and the signal: a number was taken over, one began to end, one went, and one stayed."""
    world = World(Fake(10, kill=None), Fake(11, kill=None), Fake(12, kill=None), Fake(13))

    def changed(holder: Holder) -> Holder | None:
        again = {10: {"start_time": 999}, 11: {"dying": True}}.get(holder.pid, {})
        return None if holder.pid == 12 else dataclasses.replace(holder, **again)

    world.look_again = changed  # type: ignore[method-assign]
    world.release()
    assert world.got() == {13: ["TERM"]}


def test_an_incomplete_look_says_that_nothing_was_signalled_only_where_that_is_true() -> None:
    unreadable = (Unreadable(77, "vllm", "fd", "Permission denied", True, "uid 7 may open a node"),)
    broken = HolderScan(unreadable=unreadable, complete=False, incomplete_reason="fd of pid 77 could not be read")
    before, after = World(Fake(10)), World(Fake(10))
    before.incomplete = [broken] * 99
    after.before_send = lambda pid: after.incomplete.extend([broken] * 999)
    assert "Nothing was signalled" in before.release().message
    found = after.release()
    assert (found.verdict, "Nothing was signalled" in found.message) == ("incomplete", False)
    assert after.got() == {10: ["TERM"]}
