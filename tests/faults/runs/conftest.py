# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes for the rows about runs, ended and removed behind them."""

from __future__ import annotations

import pathlib
import sys

_HERE = pathlib.Path(__file__).parent
for _folder in (_HERE, _HERE.parent, _HERE.parents[1] / "integration" / "playbooks"):
    sys.path.insert(0, str(_folder))
