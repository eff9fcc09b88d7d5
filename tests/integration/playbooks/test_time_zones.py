# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A controller far from Greenwich means the same moments as its nodes do."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import time

import pytest
from simulated_nodes import ROOT

FAR = ["EAST-9", "WEST8"]  # POSIX's sign: nine hours ahead of UTC, eight behind


@pytest.mark.parametrize("zone", FAR)
def test_a_pause_ends_when_it_was_asked_to(zone, make_shared_node, play) -> None:
    node = make_shared_node()
    run = play("pause", node, environment={"TZ": zone}, pause_minutes=60, pause_reason="the rack is rewired")
    assert run.rc == 0, str(run)
    wanted = json.loads((node.folder / "state" / "wanted.json").read_text())
    (until,) = set(re.findall(r'"until": "([^"]+)"', json.dumps(wanted)))
    ends = datetime.datetime.fromisoformat(until.replace("Z", "+00:00")).timestamp()
    assert abs(ends - time.time() - 3600) < 300, until


def test_no_playbook_takes_a_time_without_a_zone_for_a_moment() -> None:
    """now(utc=true) has no zone, so timestamp() reads it as the controller's local time."""
    files = [path for part in ("playbooks", "roles") for path in pathlib.Path(ROOT, part).rglob("*") if path.is_file()]
    assert len(files) > 50
    naive = re.compile(r"now\(\s*(utc\s*=\s*)?true\s*\)\s*\.\s*timestamp", re.IGNORECASE)
    assert [str(path) for path in files if naive.search(path.read_text(encoding="utf-8", errors="replace"))] == []
