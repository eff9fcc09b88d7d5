# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every row of the tables that is played in this process or in one of its own; the runs of playbooks stand beside."""

from __future__ import annotations

import pathlib

import beside_plays
import beside_rows
import clock_plays
import clock_rows
import disk_plays
import disk_rows
import pytest
import state_plays
import state_rows
from fault_rows import not_run
from run_row import RunFault

PLAYS = {**state_plays.PLAYS, **clock_plays.PLAYS, **beside_plays.PLAYS, **disk_plays.PLAYS}
ROWS = [*state_rows.ROWS, *clock_rows.ROWS, *beside_rows.ROWS, *disk_rows.ROWS]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_fault(row: RunFault, tmp_path: pathlib.Path) -> None:
    missing = not_run(row)
    if missing:
        pytest.skip(missing)
    PLAYS[row.play](row, tmp_path)


@pytest.mark.parametrize("name", state_plays.FILES)
def test_a_good_file_is_obeyed(name: str, tmp_path: pathlib.Path) -> None:
    """Else the rows about spoilt ones would prove nothing."""
    asked = state_plays.FILES[name](tmp_path).ask()
    assert asked.obeyed, asked.said
