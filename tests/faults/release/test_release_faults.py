# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every row of the tables: the verdict, and by other means what has and what has not happened."""

from __future__ import annotations

import pathlib
import tempfile
import typing as t

import pytest
from driving import Node
from fault_rows import not_run
from modules import Modules
from peer_faults import KNOWN_DEFECTS
from playing_rows import decide, play
from release_faults import ROWS
from release_row import ReleaseFault


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.group}: {row.name}")
def test_release_fault(row: ReleaseFault, modules: Modules, node_of: t.Callable[[int], Node]) -> None:
    if not_run(row):
        pytest.skip(not_run(row))
    if row.ask == "drift":
        decide(row)
        return
    play(row, modules, node_of(row.gpus), pathlib.Path(tempfile.mkdtemp(prefix="fault-")))


def test_the_tables_are_whole() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names)), "two rows have one name"
    assert len(ROWS) >= 80


def test_every_known_defect_of_others_has_a_row() -> None:
    assert len(KNOWN_DEFECTS) == 17
    assert {row.peer for row in ROWS} == {"", *KNOWN_DEFECTS.values()}
