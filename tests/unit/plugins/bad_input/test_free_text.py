# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is for people takes any text, and keeps it on one line, short, and without orders to a terminal."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease, _run_records, _wanted_state
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.tests.unit.plugins.bad_input import bad_values as bad

MOST = 200


@pytest.mark.parametrize("text", bad.BROKEN_LINES, ids=range(len(bad.BROKEN_LINES)))
def test_who_and_why_of_what_is_wanted(tmp_path: pathlib.Path, text: str) -> None:
    request = _wanted_state.WantedRequest(state="stopped", unit="sglang.service", who=text, by=text, run_id=text)
    found = _wanted_state.write(request, str(tmp_path / "state" / "wanted.json"), SystemClock())
    assert found.after is not None
    for kept in (found.after.who, found.after.by, found.after.run_id):
        assert kept.isprintable()
        assert 0 < len(kept) <= MOST


@pytest.mark.parametrize("text", bad.BROKEN_LINES, ids=range(len(bad.BROKEN_LINES)))
def test_who_and_why_of_a_lease(tmp_path: pathlib.Path, text: str) -> None:
    request = _lease.LeaseRequest(state="held", run_id="run-1", node="gpu1", who=text, purpose=text)
    found = _lease.lease(request, str(tmp_path / "leases"), "boot", BootClock())
    assert found.lease is not None
    for kept in (found.lease["who"], found.lease["purpose"]):
        assert kept.isprintable()
        assert 0 < len(kept) <= MOST


@pytest.mark.parametrize("text", bad.BROKEN_LINES, ids=range(len(bad.BROKEN_LINES)))
def test_a_record_is_one_line_of_ascii(text: str) -> None:
    names = ("run_id", "playbook", "node", "unit", "profile", "mode", "verdict", "failed_step", "reason", "evidence")
    rows = {name: [{"pid": text, text[:50]: text}] for name in ("gpus_before", "gpus_after", "holders", "signals")}
    more = {"seconds": {text[:50]: text}, "rollback": {text[:50]: text}, "duration_s": bad.NAN}
    record = _run_records.make_record(
        "ended", {**dict.fromkeys(names, text), **rows, **more}, _run_records.Origin(1.0, "gpu1", "boot")
    )
    line = _run_records.as_line(record)
    assert line.count(b"\n") == 1
    assert line.isascii()
    assert b"\0" not in line
    assert len(line) < len(bad.LONG)
    assert record["duration_s"] is None
