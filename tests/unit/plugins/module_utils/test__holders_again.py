# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The look right before a signal."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _scan_shares
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import hold_again
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.holders_world import GPU0, SERVICE, Node


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_hold_again_on_a_table(node: Node) -> None:
    node.fake.add(50, opens=[node.gpu], start=77, cgroup=SERVICE)
    (holder,) = node.look().holders
    (again,) = hold_again([holder], node.request())
    assert again == dataclasses.replace(holder, age_s=again.age_s if again else None)
    assert hold_again([dataclasses.replace(holder, start_time=78)], node.request()) == (None,)
    assert hold_again([dataclasses.replace(holder, pid=51)], node.request()) == (None,)
    (node.fake.path / "50/fd/3").unlink()
    assert hold_again([holder], node.request()) == (None,)


def test_hold_again_tells_the_dying(node: Node) -> None:
    node.fake.add(50, state="Z", start=77, pending=0x100, tasks={50: {"state": "Z"}}, cgroup=SERVICE)
    (holder,) = node.look(listed=[(50, GPU0)]).holders
    (again,) = hold_again([dataclasses.replace(holder, dying=False, state="S")], node.request())
    assert again is not None
    assert again.dying
    assert again.state == "Z"


def test_many_are_asked_in_one_child_and_answered_in_their_order(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in range(50, 60):
        node.fake.add(pid, opens=[node.gpu], start=pid, cgroup=SERVICE)
    holders = node.look().holders
    (node.fake.path / "53/fd/3").unlink()
    reused = dataclasses.replace(holders[5], start_time=1)
    forks = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(1) or fork())
    seen = hold_again([*reversed(holders[6:]), *holders[:5], reused], node.request())
    assert [again.pid if again else None for again in seen] == [59, 58, 57, 56, 50, 51, 52, None, 54, None]
    assert len(forks) == 1


def test_one_that_blocks_takes_nothing_from_the_others(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds a node by its open files is signalled all the same; what was read before the halt is read anew."""
    monkeypatch.setattr(_scan_shares, "_MOST_RETRIES", 0)
    for pid in (50, 51, 52):
        node.fake.add(pid, opens=[node.gpu], start=pid, cgroup=SERVICE)
    node.fake.add(53, state="Z", start=53, pending=0x100, tasks={53: {"state": "Z"}}, cgroup=SERVICE)
    holders = node.look(listed=[(53, GPU0)]).holders
    node.fake.block(51, "status")
    seen = hold_again(holders, node.request(timeout=1.5))
    assert [again.pid if again else None for again in seen] == [50, None, 52, 53]
