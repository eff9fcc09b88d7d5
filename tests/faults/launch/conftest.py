# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One simulated node for all cases; what a case starts on it, the case ends."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "integration" / "playbooks"))

from simulated_nodes import Node, Playbooks, simulate


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Node]:
    folder = tmp_path_factory.mktemp("launch") / "node"
    try:
        yield Node(folder)
    finally:
        simulate("destroy", folder)


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory) -> Playbooks:
    return Playbooks(tmp_path_factory.mktemp("plays"))
