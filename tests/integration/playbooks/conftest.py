# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes for one test or one module, always ended and removed behind it."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sys
import typing as t

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from simulated_nodes import Node, Playbooks, simulate

MakeNode = t.Callable[..., Node]


@contextlib.contextmanager
def nodes_below(folder: pathlib.Path) -> t.Iterator[MakeNode]:
    numbers = itertools.count(1)
    with contextlib.ExitStack() as ends:

        def make(*arguments: t.Any, **options: t.Any) -> Node:
            place = folder / f"node{next(numbers)}"
            # Before it is made: what was half made is removed too.
            ends.callback(simulate, "destroy", place)
            return Node(place, *arguments, **options)

        yield make


@pytest.fixture
def make_node(tmp_path: pathlib.Path) -> t.Iterator[MakeNode]:
    with nodes_below(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_shared_node(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[MakeNode]:
    with nodes_below(tmp_path_factory.mktemp("shared")) as make:
        yield make


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory) -> Playbooks:
    return Playbooks(tmp_path_factory.mktemp("plays"))
