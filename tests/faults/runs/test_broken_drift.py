# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A scheduled run that loses its node or its GPU host while it mends: real runs of drift.yml."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import typing as t

import pytest
from broken_runs import Plan
from broken_scene import Left, Scene, look
from drift_rows import ROWS
from driving import until
from fault_rows import not_run
from run_row import RunFault

POLICY = {"gpu_drift_mode": "remediate", "gpu_drift_confirm_after": 1, "gpu_drift_max_share": 1.0}
PLAYED = [row for row in ROWS if not not_run(row)]


class DriftScene(Scene):
    """Three looks: one that suspects, one that mends and is lost, and the next."""

    def _play_out(self, rows: t.Sequence[RunFault]) -> None:
        for number, row in enumerate(rows, 1):
            self._make(number, row)
        self.serve()
        # The played host cannot tell a unit's processes from the container's others, so there the server is dead.
        hangs = [part.node for part in self.parts.values() if part.gpu_host is None]
        dies = [part.node for part in self.parts.values() if part.gpu_host is not None]
        for node in hangs:
            for pid in (*node.of_role("scheduler_TP0"), *node.of_role("scheduler_TP1")):
                os.kill(pid, signal.SIGSTOP)
        self.suspects = self.drift(1)
        for node in dies:
            for pid in node.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert until(lambda node=node: not node.processes() and sum(node.used_mib()) == 0, 30), node.processes()
        plan = Plan(self.folder, kill=False, plays=("Mend",))
        for part in self.parts.values():
            on_host = part.gpu_host is not None and part.row.options["who"] == "GPU HOST"
            lost = part.gpu_host.lost if on_host and part.gpu_host else part.node.lost
            plan.at(part.node, part.row.options["before"], "lose", 1, lost)
        self.mends = self.drift(2, environment=plan.environment())
        for part in self.parts.values():
            part.left = look(part.node)
        (self.run_id,) = {lease["run_id"] for part in self.parts.values() for lease in look(part.node).leases}
        for part in self.parts.values():
            self.time_comes(part)
        self.looks_again = self.drift(3)
        self.afterwards: dict[str, Left] = {name: look(part.node) for name, part in self.parts.items()}

    def drift(self, number: int, **options: t.Any) -> dict[str, dict[str, t.Any]]:
        path = self.folder / f"{number}.json"
        run = self.playbook("drift", list(self.parts.values()), **POLICY, gpu_drift_result_file=str(path), **options)
        assert path.exists(), str(run)
        return {row["host"]: {**row, "run": run} for row in json.loads(path.read_text())}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[DriftScene]:
    played = DriftScene(tmp_path_factory.mktemp("drift"), PLAYED)
    yield played
    played.end()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_fault(row: RunFault, request: pytest.FixtureRequest) -> None:
    if not_run(row):
        pytest.skip(not_run(row))
    scene: DriftScene = request.getfixturevalue("scene")
    part = scene.parts[row.name]
    name, left, came = part.node.name, part.left, part.timer_came
    assert left is not None
    assert came is not None
    if row.options["server"] != "new":
        assert scene.suspects[name]["held_back"] == "confirmation", scene.suspects[name]
    told = scene.mends[name]
    server, calls = row.options["server"], told["run"].of(part.node)
    verbs = [call.verb for call in calls if "sglang.service" in call.argv and call.verb in ("stop", "start")]
    assert told["action"] == "relaunch", f"{told}\n{told['run']}"
    assert [lease["run_id"] for lease in left.standing] == [scene.run_id]
    assert "could not be given back" in told["run"].text, str(told["run"])
    if server == "new":
        # A dead server has nothing that could be stopped.
        assert (told["outcome"], verbs, left.armed_by) == ("ready", ["start"], ""), f"{told}\n{told['run']}"
        assert len(left.launchers) == 1
        assert left.launchers == came.launchers
    else:
        assert told["outcome"] == "failed", f"{told}\n{told['run']}"
        assert f"{name} was lost" in told["failed"], told
        assert left.armed_by == scene.run_id
    if server == "hung":
        assert left.launchers == came.launchers == part.old.launchers
        assert verbs == []
    if server == "down":
        assert (left.launchers, verbs) == ((), ["stop"])
        assert len(came.launchers) == 1
        assert scene.looks_again[name]["server"] in ("ready", "starting"), scene.looks_again[name]
    assert scene.looks_again[name]["outcome"] is None, scene.looks_again[name]
    assert scene.afterwards[row.name].launchers == came.launchers
    assert scene.stranger_lives()
