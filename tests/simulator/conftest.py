# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes for the tests of the simulator itself; every one is stopped, also when its test fails."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE / "fake_sglang"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import processes  # noqa: E402
from driving import Node  # noqa: E402


@pytest.fixture
def make_node(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[..., Node]]:
    made: list[Node] = []

    def make(folder: str = "node", **options: t.Any) -> Node:
        made.append(Node(tmp_path / folder, **options))
        return made[-1]

    yield make
    for one in made:
        left = processes.stop(one.path)
        assert left == []


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Node]:
    """For tests that only set a script and ask nvidia-smi."""
    one = Node(tmp_path_factory.mktemp("simulated") / "node")
    yield one
    assert processes.stop(one.path) == []


@pytest.fixture
def node(make_node: t.Callable[..., Node]) -> Node:
    return make_node()
