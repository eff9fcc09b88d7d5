# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every planted fault of a run, in the order in which the page shows them."""

from __future__ import annotations

import beside_rows
import broken_rows
import clock_rows
import disk_rows
import drift_rows
import state_rows
from run_row import RunFault

ROWS: tuple[RunFault, ...] = (
    *broken_rows.ROWS,
    *drift_rows.ROWS,
    *beside_rows.ROWS,
    *clock_rows.ROWS,
    *disk_rows.ROWS,
    *state_rows.ROWS,
)
