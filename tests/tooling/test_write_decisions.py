# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page about drift's decisions says what the table says."""

from __future__ import annotations

import write_decisions


def test_the_page_is_fresh() -> None:
    page = write_decisions.PAGE.read_text(encoding="utf-8")
    assert page == write_decisions.page(), "run: python tests/tooling/write_decisions.py"


def test_the_page_tells_actions_apart() -> None:
    page = write_decisions.page()
    (hung,) = (line for line in page.splitlines() if line.startswith("| hung |"))
    (dead,) = (line for line in page.splitlines() if line.startswith("| failed |"))
    assert hung.split("|")[3] == " report, **relaunch** after two looks ", "own"
    assert dead.split("|")[2].startswith(" nothing, report, **relaunch**,"), "idle: some need one look only"
    assert {cell.strip() for cell in hung.split("|")[4:9]} == {"report"}, "nobody else's GPUs"
