# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers about runs, held against Prometheus' own promtool where it is installed."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _metrics_text
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_record_file import RecordError
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_records import Origin, make_record

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "record.md"
PROMTOOL = shutil.which("promtool")
AT = 1_790_000_000.0
BASE = {"run_id": "r", "playbook": "relaunch.yml", "node": "gpu1", "unit": "sglang.service"}
PLACE = 'node="gpu1",playbook="relaunch.yml",unit="sglang.service"'


def state_after(*events: tuple[t.Any, ...]) -> _metrics_text.State:
    """Each event: its kind, seconds after AT, fields."""
    state = _metrics_text.new_state()
    for event, after, fields in events:
        state = _metrics_text.advance(state, make_record(event, {**BASE, **fields}, Origin(AT + after, "pve1")))
    return state


def text_after(*events: tuple[t.Any, ...]) -> list[str]:
    return _metrics_text.render(state_after(*events)).splitlines()


READY = ("ended", 400, {"verdict": "ready", "seconds": {"stop": 3, "load": 380.5}})
FAILED = ("ended", 900, {"verdict": "failed", "signals": [{"pid": 1, "signal": "KILL", "after_s": 1}] * 2})
ODD = {"node": 'odd "node"\\', "unit": "two\nlines", "playbook": "stop.yml"}
EVERYTHING = (
    ("begun", 0, {}),
    READY,
    ("begun", 800, {}),
    FAILED,
    ("drift", 1000, {"decision": {"action": "report"}}),
    ("begun", 2000, ODD),
    ("ended", 2001, {**ODD, "verdict": "stopped", "seconds": {"stop": 1}}),
)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian package prometheus) is not installed")
def test_promtool_finds_nothing_to_complain_about() -> None:
    assert PROMTOOL is not None
    text = _metrics_text.render(state_after(*EVERYTHING))
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # That it would have said something:
    wrong = subprocess.run(
        [PROMTOOL, "check", "metrics"],
        input=text.replace("runs_total", "runs"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode != 0


def test_a_run_that_came_through() -> None:
    lines = text_after(("begun", 0, {}), READY)
    assert f"cleanslate_last_run_timestamp_seconds{{{PLACE}}} 1790000400.000" in lines
    assert f"cleanslate_last_success_timestamp_seconds{{{PLACE}}} 1790000400.000" in lines
    assert f"cleanslate_last_run_success{{{PLACE}}} 1" in lines
    assert f"cleanslate_run_duration_seconds{{{PLACE}}} 400.000" in lines
    labels = PLACE.replace(",unit=", ',step="load",unit=')
    assert f"cleanslate_run_step_duration_seconds{{{labels}}} 380.500" in lines
    assert f'cleanslate_runs_total{{{PLACE},verdict="ready"}} 1' in lines
    assert "# TYPE cleanslate_runs_total counter" in lines


def test_a_failure_keeps_the_last_success_and_takes_over_no_old_number() -> None:
    lines = text_after(("begun", 0, {}), READY, FAILED)
    assert f"cleanslate_last_success_timestamp_seconds{{{PLACE}}} 1790000400.000" in lines
    assert f"cleanslate_last_run_success{{{PLACE}}} 0" in lines
    assert f'cleanslate_runs_total{{{PLACE},verdict="ready"}} 1' in lines
    assert f'cleanslate_runs_total{{{PLACE},verdict="failed"}} 1' in lines
    assert 'cleanslate_signals_total{node="gpu1",signal="KILL",unit="sglang.service"} 2' in lines
    assert not [line for line in lines if "step=" in line]


def test_a_run_that_has_begun_is_later_than_the_last_end() -> None:
    lines = text_after(("begun", 0, {}), READY, ("begun", 800, {}))
    assert f"cleanslate_run_begun_timestamp_seconds{{{PLACE}}} 1790000800.000" in lines
    assert f"cleanslate_last_run_timestamp_seconds{{{PLACE}}} 1790000400.000" in lines


def test_one_decision_is_true_at_a_time_and_each_is_counted() -> None:
    looks = [
        ("drift", n, {"decision": {"action": action}}) for n, action in enumerate(("relaunch", "report", "report"))
    ]
    lines = text_after(*looks)
    place = 'node="gpu1",unit="sglang.service"'
    values = {
        action: f'cleanslate_drift_decision{{decision="{action}",{place}}} {int(action == "report")}' in lines
        for action in ("nothing", "report", "release", "relaunch")
    }
    assert all(values.values()), lines
    assert f'cleanslate_drift_decisions_total{{decision="report",{place}}} 2' in lines
    assert not [line for line in lines if line.startswith("cleanslate_last_run")], "a look is no run"


def test_labels_are_escaped_and_each_metric_stands_together() -> None:
    lines = text_after(*EVERYTHING)
    assert any('node="odd \\"node\\"\\\\"' in line and 'unit="two\\nlines"' in line for line in lines)
    names = [line.split("{")[0] for line in lines if not line.startswith("#")]
    assert names == sorted(names, key=list(dict.fromkeys(names)).index), "promtool and node_exporter want them grouped"
    assert len([line for line in lines if line.startswith("# TYPE")]) == len(set(names))


def test_the_state_survives_json_and_a_strange_one_is_not_taken() -> None:
    state = state_after(*EVERYTHING)
    assert _metrics_text.is_state(json.loads(json.dumps(state)))
    for wrong in (None, [], {}, {"version": 2, "samples": []}, {"version": 1, "samples": [["up", {}, 1]]}):
        assert not _metrics_text.is_state(wrong)
    assert not _metrics_text.is_state({"version": 1, "samples": [["runs_total", {"node": 1}, 1]]})


def test_the_file_is_readable_and_replaced_as_a_whole(tmp_path: pathlib.Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("stays")
    (tmp_path / "cleanslate.prom").symlink_to(victim)
    path = pathlib.Path(_metrics_text.publish(str(tmp_path), "x 1\n"))
    assert path.read_text() == "x 1\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert victim.read_text() == "stays", "a link is replaced, not followed"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["cleanslate.prom", "victim"]


def test_a_folder_that_is_not_there_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RecordError, match=r"cannot write the metrics into the folder .*/no"):
        _metrics_text.publish(str(tmp_path / "no"), "")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian package prometheus) is not installed")
def test_the_alerts_in_the_documentation_are_rules(tmp_path: pathlib.Path) -> None:
    assert PROMTOOL is not None
    (rules,) = re.findall(r"```yaml\n(groups:.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "rules.yml"
    file.write_text(rules)
    done = subprocess.run([PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rules found" in done.stdout


def test_the_documentation_lists_every_metric_with_its_labels() -> None:
    table = dict(re.findall(r"^\| `(cleanslate_\w+)` \| ([\w, ]+) \|", PAGE.read_text(), re.MULTILINE))
    written: dict[str, set[str]] = {}
    for line in text_after(*EVERYTHING):
        if not line.startswith("#"):
            name, _brace, rest = line.partition("{")
            written.setdefault(name, set()).update(re.findall(r'(\w+)="', rest))
    assert {name: set(labels.split(", ")) for name, labels in table.items()} == written
