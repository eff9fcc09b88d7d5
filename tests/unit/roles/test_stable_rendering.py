# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same input gives the same bytes: a unit in another order is called drifted, and systemd reads all units anew."""

from __future__ import annotations

import pathlib
import re

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
# Ansible's set filters give their entries in the order of a Python set, which is another one in each process.
SETS = re.compile(r"\|\s*(ansible\.builtin\.)?(difference|union|intersect|symmetric_difference)\b")


def test_no_template_writes_a_set() -> None:
    templates = [path for path in ROLES.glob("*/templates/*") if path.is_file()]
    assert len(templates) >= 3
    found = [
        f"{path.name}: {line.strip()}"
        for path in templates
        for line in path.read_text(encoding="utf-8").splitlines()
        if SETS.search(line)
    ]
    assert found == []
