# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that reaches no node is no success."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

PLAYBOOKS = ("relaunch", "preflight", "start", "stop", "release", "status")


@pytest.mark.parametrize(
    ("playbooks", "group", "words"),
    [
        pytest.param(PLAYBOOKS, "others", ("-l", "node1"), id="limited to a host outside the group"),
        pytest.param(("relaunch",), "others", (), id="empty group"),
        pytest.param(("relaunch",), "sglang_nodes", ("-l", "node1,!node1"), id="limited to nothing"),
    ],
)
def test_no_host_is_left(playbooks, group, words, make_node, play) -> None:
    node = make_node()
    with ThreadPoolExecutor(2) as pool:
        runs = dict(zip(playbooks, pool.map(lambda name: play(name, node, *words, group=group), playbooks)))
    for name, run in runs.items():
        assert run.rc != 0, f"{name}: {run}"
        assert not run.of(node), f"{name} asked the node"
