# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launches that cannot come up: refused by name, while the old server goes on with the same PID."""

from __future__ import annotations

import functools
import typing as t

import pytest
import refused_launch
from planted_faults import REFUSED, Refusal
from simulated_nodes import Node, Playbooks, Run


@pytest.fixture(scope="module")
def old_server(node: Node, play: Playbooks) -> t.Iterator[list[int]]:
    started = play("start", node)
    assert started.rc == 0, str(started)
    yield node.launchers()
    node.end_processes()


@pytest.fixture(scope="module")
def relaunched(node: Node, play: Playbooks, old_server: list[int]) -> t.Callable[[str], Run]:
    return functools.cache(lambda group: refused_launch.relaunch(node, play, group))


@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: fault.name)
def test_refused_launch(node: Node, old_server: list[int], relaunched: t.Callable[[str], Run], fault: Refusal) -> None:
    run = relaunched(fault.group)
    assert run.rc == 2, str(run)
    assert fault.says in run.text, str(run)
    assert "verdict: refuse" in run.out or not run.of(node), "a wrong variable is found before the node is asked"
    assert all(call.asks for call in run.of(node)), run.of(node)
    assert node.launchers() == old_server
    assert len(old_server) == 1
