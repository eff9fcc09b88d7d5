# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process, on real files."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

KEYS = {
    "changed", "verdict", "reason", "file", "record", "runs", "problem", "healed", "rotated", "metrics_path",
}  # fmt: skip
RUN = {"run_id": "r1", "playbook": "relaunch.yml", "node": "gpu1", "unit": "sglang.service", "who": "anna"}
KEY = "sk-0123456789abcdefghij"


class Host:
    """Runs the module on a folder of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.dir = folder / "log"
        self.metrics = folder / "metrics"
        self.metrics.mkdir()
        self.folder = folder

    @property
    def lines(self) -> list[str]:
        file = self.dir / "runs.jsonl"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def prom(self) -> str:
        file = self.metrics / "cleanslate.prom"
        return file.read_text() if file.exists() else ""

    def run(self, **options: t.Any) -> dict[str, t.Any]:
        options = {"dir": str(self.dir), **options}
        answer = module_process.run("run_record", self.folder, options)
        if "missing" not in answer.get("msg", ""):
            assert set(answer) - {"msg", "failed", "invocation"} == KEYS
        return answer

    def record(self, event: str, **options: t.Any) -> dict[str, t.Any]:
        return self.run(**{"event": event, "metrics_dir": str(self.metrics), **RUN, **options})


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_a_run_from_its_beginning_to_its_end(host: Host) -> None:
    would = host.record("begun", _ansible_check_mode=True)
    assert (would["verdict"], would["changed"], host.dir.exists(), host.prom) == ("would_record", True, False, "")
    assert would["record"]["run_id"] == "r1"

    begun = host.record("begun")
    assert (begun["verdict"], begun["changed"], begun["problem"]) == ("recorded", True, None)
    (running,) = host.run(state="shown")["runs"]
    assert (running["verdict"], running["interrupted"]) == ("running", False)

    ended = host.record("ended", verdict="ready", reason=f"--api-key {KEY}", seconds={"stop": 1.5})
    assert ended["metrics_path"] == str(host.metrics / "cleanslate.prom")
    assert [json.loads(line)["event"] for line in host.lines] == ["begun", "ended"]
    assert KEY not in "".join(host.lines) + json.dumps({**ended, "invocation": None})
    shown = host.run(state="shown")
    assert (shown["verdict"], shown["changed"], shown["problem"]) == ("shown", False, None)
    assert [(run["run_id"], run["verdict"]) for run in shown["runs"]] == [("r1", "ready")]
    assert 'verdict="ready"} 1' in host.prom


def test_shown_names_the_last_runs_of_one_node_and_what_is_damaged(host: Host) -> None:
    for number in range(4):
        host.record("ended", run_id=f"r{number}", verdict="ready", node=f"gpu{number % 2}")
    with (host.dir / "runs.jsonl").open("a") as file:
        file.write('{"torn')
    healed = host.record("ended", run_id="r9", verdict="failed")
    assert (healed["verdict"], healed["healed"]) == ("recorded", True)
    assert "cut short" in healed["problem"]
    shown = host.run(state="shown", node="gpu1", limit=2)
    assert [run["run_id"] for run in shown["runs"]] == ["r3", "r9"], "the newest last"
    assert "1 lines are cut short or damaged" in shown["problem"]


def test_nothing_recorded_is_no_failure(host: Host) -> None:
    shown = host.run(state="shown")
    assert (shown["verdict"], shown["runs"], shown["problem"]) == ("shown", [], None)
    assert "no run is recorded" in shown["reason"]
    assert not host.dir.exists()
    host.dir.write_text("no folder")
    assert "no folder" in host.run(state="shown")["problem"]


def test_counters_do_not_fall_when_old_lines_are_rotated_away(host: Host) -> None:
    for number in range(6):
        holders = [{"pid": pid, "reason": "x" * 3500} for pid in range(8)]
        answer = host.record("ended", run_id=f"r{number}", verdict="ready", holders=holders, keep=1, max_bytes=65536)
    assert answer["verdict"] == "recorded"
    runs = host.run(state="shown")["runs"]
    assert len(runs) < 6, "some are gone"
    assert 'verdict="ready"} 6' in host.prom


def test_metrics_begun_later_or_lost_are_made_from_the_lines(host: Host) -> None:
    host.record("ended", run_id="r0", verdict="ready", metrics_dir="")
    assert not (host.dir / "metrics.json").exists()
    host.record("ended", verdict="ready")
    assert 'verdict="ready"} 2' in host.prom
    (host.dir / "metrics.json").write_text('{"version": 1, "samples": [7]}')
    host.record("ended", verdict="ready")
    assert 'verdict="ready"} 3' in host.prom


def test_metrics_that_cannot_be_written_do_not_cost_the_line(host: Host) -> None:
    host.metrics.rmdir()
    answer = host.record("ended", verdict="ready")
    assert (answer["failed"], answer["verdict"], answer["changed"]) == (True, "not_counted", True)
    assert "was recorded in" in answer["msg"]
    assert "but the metrics were not" in answer["msg"]
    assert len(host.lines) == 1


@pytest.mark.parametrize(
    ("options", "verdict", "part"),
    [
        ({"verdict": ""}, "refused", "verdict must be given"),
        ({"verdict": "ready", "run_id": ""}, "refused", "run_id must be given"),
        ({"verdict": "ready", "max_bytes": 10}, "refused", "max_bytes is 10"),
        ({"verdict": "ready", "keep": 0}, "refused", "keep is 0"),
        ({"verdict": "ready", "metrics_dir": "here"}, "refused", "metrics_dir is 'here'"),
        ({"verdict": "ready", "dir": "/proc/cleanslate"}, "not_recorded", "cannot make the folder /proc/cleanslate"),
    ],
)
def test_refusals_return_the_same_keys(host: Host, options: dict[str, t.Any], verdict: str, part: str) -> None:
    answer = host.record("ended", **options)
    assert (answer["failed"], answer["verdict"], answer["changed"]) == (True, verdict, False)
    assert part in answer["msg"]
    assert not host.lines


def test_what_must_be_given_is_asked_for(host: Host) -> None:
    assert "event" in host.run(run_id="r1")["msg"]
