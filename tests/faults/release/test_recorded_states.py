# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No recorded state of nvidia-smi opens what it must not open, wherever it is asked."""

from __future__ import annotations

import pathlib
import tempfile
import typing as t

import pytest
from driving import Node
from modules import Modules
from playing_rows import play
from recorded_states import ROWS
from release_row import ReleaseFault


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_recorded_state(row: ReleaseFault, modules: Modules, node_of: t.Callable[[int], Node]) -> None:
    play(row, modules, node_of(row.gpus), pathlib.Path(tempfile.mkdtemp(prefix="fault-")))


def test_they_are_all_there_and_some_open() -> None:
    assert len(ROWS) >= 3 * 40
    for word in ("idle", "start"):
        assert any(row.verdicts == (word,) for row in ROWS)
