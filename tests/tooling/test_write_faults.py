# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page about faults says what the tables say, and there are enough of them."""

from __future__ import annotations

import write_faults


def test_the_page_is_fresh() -> None:
    page = write_faults.PAGE.read_text(encoding="utf-8")
    assert page == write_faults.page(), "run: python tests/tooling/write_faults.py"


def test_every_row_says_what_must_and_what_must_not_happen() -> None:
    rows = [*write_faults.release_faults.ROWS, *write_faults.run_faults.ROWS]
    assert len(rows) >= 120
    names = [(row.group, row.name) for row in rows]
    assert len(names) == len(set(names))
    for row in rows:
        assert row.before, row.name
        assert row.must, row.name
        assert row.must_not, row.name
