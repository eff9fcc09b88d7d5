# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One simulated node of each size and one server of modules for all rows; what a row starts, the row ends."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

for _folder in (pathlib.Path(__file__).parent, pathlib.Path(__file__).parents[1]):
    sys.path.insert(0, str(_folder))

import processes  # noqa: E402
from driving import Node  # noqa: E402
from modules import Modules  # noqa: E402

COLLECTIONS = pathlib.Path(__file__).resolve().parents[3] / ".ansible" / "collections"


@pytest.fixture(scope="session")
def modules() -> t.Iterator[Modules]:
    made = Modules(COLLECTIONS)
    yield made
    made.close()


@pytest.fixture(scope="session")
def node_of(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[t.Callable[[int], Node]]:
    """The node with so many GPUs."""
    made: dict[int, Node] = {}

    def get(gpus: int) -> Node:
        if gpus not in made:
            made[gpus] = Node(tmp_path_factory.mktemp("release") / f"node{gpus}", gpus=gpus)
        return made[gpus]

    yield get
    for node in made.values():
        assert processes.stop(node.path) == []
