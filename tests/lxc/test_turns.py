# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two containers in one run, and two runs at once: who shares GPUs is taken in turn or refused."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

import commands
import layout
import pytest
import serving
from inside import Inside, end_holders
from playing import WHOLE, Play, play, start

HOOK = """- name: Wait for the test
  ansible.builtin.wait_for:
    path: %s
    timeout: 120
  delegate_to: localhost
"""
IMPORTS_S = 6  # as a real server, which opens no GPU in its first seconds


def span(played: Play, host: str, first: str, last: str) -> tuple[float, float]:
    return played.last(first, host).began or 0, played.last(last, host).ended


@contextlib.contextmanager
def slow_to_open(*containers: Inside) -> t.Iterator[None]:
    python = "/opt/sglang/bin/python"
    script = f'#!/bin/sh\nsleep {IMPORTS_S}\nexec {layout.NODE}/bin/python "$@"\n'
    for inside in containers:
        inside.pct("rm", python)
        inside.put(python, script, "755")
    try:
        yield
    finally:
        for inside in containers:
            inside.pct("ln", "-sfn", layout.NODE + "/bin/python", python)


def test_both_by_a_limit_at_the_same_time(scene: tuple[Inside, Inside], watch: t.Any) -> None:
    """Disjoint sets: neither waits for the other."""
    for inside, gpus in zip(scene, ([0, 1, 2, 3], [4, 5, 6, 7]), strict=True):
        serving.serve(inside, gpus)
    with watch("101 (GPUs 0-3) and 102 (4-7) relaunched at the same time in one run", 101) as case:
        played = play("relaunch.yml", "ct101,ct102", extra={"relaunch_serial": 2})
    case.outcome = "ready: both" if played.code == 0 else played.why()[:240]
    assert played.code == 0, played.why()
    for vmid in (101, 102):
        assert serving.answers(Inside(vmid))
        assert case.units_after[vmid].shown["InvocationID"] != case.units[vmid].shown["InvocationID"]
    (a, b), (c, d) = (span(played, host, "Stop sglang", "Start the server") for host in ("ct101", "ct102"))
    assert max(a, c) < min(b, d), "their downtimes overlap"


def test_two_that_share_gpus_are_taken_in_turn_and_never_both_serve(scene: tuple[Inside, Inside], watch: t.Any) -> None:
    """The first starts; the second, whose turn comes while the first still opens no GPU, must not start on top."""
    end_holders()
    with slow_to_open(*scene), watch("101 and 102 on all eight relaunched in one run, nobody serves", 101) as case:
        played = play("relaunch.yml", "ct101,ct102", extra={"relaunch_serial": 2}, hosts=WHOLE)
    case.outcome = played.why()[:240] or "both ended well"
    assert played.code != 0
    states = {vmid: case.units_after[vmid].shown["ActiveState"] for vmid in (101, 102)}
    assert sorted(states.values()) == ["active", "inactive"], played.why()
    winner = next(vmid for vmid, state in states.items() if state == "active")
    loser = 203 - winner
    assert serving.answers(Inside(winner))
    assert ": Started sglang.service" not in case.units_after[loser].journal[len(case.units[loser].journal) :]
    assert f"{winner}" in played.why()
    given_back = played.of("Give back the lease", f"ct{winner}")[0].began or 0
    assert played.last("Take the lease", f"ct{loser}").ended > given_back, "it waited for its turn"


@pytest.fixture
def hook() -> t.Iterator[tuple[str, str]]:
    """A hook that waits for a file: the path of the hook and that of the file."""
    path, go = (os.path.join(layout.STATE, "log", name) for name in ("hook.yml", "go-on"))
    layout.write(path, HOOK % go)
    yield path, go
    with contextlib.suppress(FileNotFoundError):
        os.unlink(go)


def test_a_second_run_on_shared_gpus_is_refused_and_told_whose_they_are(
    scene: tuple[Inside, Inside], watch: t.Any, hook: tuple[str, str]
) -> None:
    end_holders()
    serving.serve(scene[0], [0, 1, 2, 3])
    serving.serve(scene[1], [4, 5, 6, 7])
    shares = {"ct102": {"sglang_server_profile": "high", "gpus": [3, 5, 6, 7]}}
    with watch("102 (GPUs 3, 5-7) relaunched by a second run while the first holds GPUs 0-3 for 101", 102) as case:
        first = start("relaunch.yml", "ct101", extra={"relaunch_hook_after_release": hook[0]})
        try:
            first.wait_for_step("Wait for idle GPUs")
            before = time.time()
            second = play("relaunch.yml", "ct102", hosts=shares)
            shown = play("unlock.yml", "ct101")
        finally:
            layout.write(hook[1], "")
            played = first.end()
    case.outcome = "second run refused: " + second.why()[:240]
    assert played.code == 0, played.why()
    assert second.code != 0
    assert not second.stopped("ct102")
    case.untouched(102)
    run_id = played.last("Take the lease").result["leases"][0]["run_id"]
    assert run_id in second.why()
    assert "ct101" in second.why()
    assert run_id in shown.text
    assert "ct101" in shown.text
    assert second.last("Take the lease").seconds < 60, "another run is not waited for"
    assert second.steps[-1].ended < (played.last("Start the server").began or 0)
    assert before < second.steps[0].ended
    commands.wait_for("the first run's server answers", lambda: serving.answers(scene[0]), 10)
