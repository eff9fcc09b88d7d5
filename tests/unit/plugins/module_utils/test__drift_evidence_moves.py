# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether anything in a server moves, out of what the modules say: no standstill is concluded from a look elsewhere."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import GPUS, Node
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.test__drift_evidence import seen


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("progress", "use", "workers", "word"),
    [
        (True, 0, None, "yes"),
        (False, 0, None, "no"),
        (False, None, None, "no"),
        (None, 0, None, "no"),
        (None, None, None, "unknown"),
        (False, 95, None, "yes"),  # a long prefill gives no token
        (None, 95, True, "yes"),
        (None, 95, False, "yes"),  # they serve, or wait for the dead one at full speed, which their watchdog ends
        (None, 0, False, "no"),
        (True, 95, False, "yes"),
    ],
)
def test_signs(node: Node, progress: bool | None, use: int | None, workers: bool | None, word: str) -> None:
    node.hang()
    node.requests["progress"], node.use = progress, use
    node.health["witnesses"] = {"workers": {"ok": workers}}
    assert seen(node).situation.moves == word


def test_a_generation_that_was_answered_is_a_sign(node: Node) -> None:
    node.hang()
    node.health["witnesses"] = {"workers": {"ok": False}, "generation": {"ok": True}}
    assert seen(node).situation.moves == "yes"


@pytest.mark.parametrize(
    ("told", "port", "use", "word"),
    [
        (False, None, 0, "unknown"),  # nobody listens where it was asked, and that may be the wrong place
        (False, True, 0, "no"),
        (False, None, 95, "yes"),
        (True, None, 0, "no"),
    ],
)
def test_one_that_may_have_been_asked_elsewhere(node: Node, told: bool, port: bool | None, use: int, word: str) -> None:
    node.hang()
    node.use = use
    node.health["witnesses"] = {"port": {"ok": port}}
    node.health["started_with"] = {"told": told, "why": "x was written to"}
    found = seen(node)
    assert found.situation.moves == word
    assert ("is not known: x was written to." in found.said["server"]) == (not told)


def test_the_use_of_other_gpus_says_nothing(node: Node) -> None:
    node.hang()
    node.requests["progress"] = None
    look = node.look()
    rows = [{"uuid": uuid, "utilization_pct": 90 if number == 7 else 0} for number, uuid in enumerate(GPUS)]
    found = seen(node, gpus=GPUS[:4], gate={**look["gate"], "gpus": rows})
    assert found.situation.moves == "no"


def test_one_gpu_that_does_not_tell(node: Node) -> None:
    node.hang()
    node.requests["progress"] = None
    rows = [{"uuid": GPUS[0], "utilization_pct": 0}, {"uuid": GPUS[1], "utilization_pct": None}]
    assert seen(node, gate={**node.look()["gate"], "gpus": rows}).situation.moves == "unknown"
