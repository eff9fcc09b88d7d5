# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes for ways to run the playbooks other than by ansible-playbook on one controller."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import typing as t

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "playbooks"))

from simulated_nodes import ROOT, Node, Playbooks, simulate


@pytest.fixture
def nodes(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> t.Iterator[list[Node]]:
    """As many as the mark `parametrize` of the test says, indirectly."""
    with contextlib.ExitStack() as ends:
        made = []
        for number in range(1, request.param + 1):
            folder = tmp_path / f"node{number}"
            ends.callback(simulate, "destroy", folder)
            made.append(Node(folder))
        yield made


@pytest.fixture
def play(tmp_path: pathlib.Path) -> Playbooks:
    return Playbooks(tmp_path)


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> dict[str, str]:
    """The environment of a job: this checkout's collection, and none of the person's own settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "CLEANSLATE_"))}
    return {
        **own,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_NOCOLOR": "true",
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    }
