# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run is appended and counted, or the reason says why not; and what is read back of it."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _metrics_text, _run_recording
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_record_file import NAME
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_recording import (
    LEAST_BYTES,
    MOST_BYTES,
    Keeping,
    Recorded,
    append_run,
    last_runs,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_records import Origin
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.drift_world import SteppedClock

RUN = {"run_id": "r1", "playbook": "relaunch.yml", "node": "gpu1", "unit": "sglang.service"}


class Host:
    """Where people's runs are recorded; its clock is stepped by tests."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.dir, self.metrics = folder / "log", folder / "metrics"
        self.metrics.mkdir()
        self.clock = SteppedClock()
        self.keeping: dict[str, t.Any] = {"max_bytes": 1 << 20, "keep": 3, "metrics_dir": str(self.metrics)}

    def append(self, event: t.Any = "ended", **fields: t.Any) -> Recorded:
        check = {"check": True} if fields.pop("check", False) else {}
        origin = Origin(self.clock.wall(), "pve1", "boot-1")
        keeping = Keeping(str(self.dir), **self.keeping)
        return append_run(event, {**RUN, "verdict": "ready", **fields}, keeping, origin, self.clock, **check)

    def last(self, limit: int = 10, **options: t.Any) -> Recorded:
        return last_runs(str(self.dir), limit, self.clock, "pve1", **options)

    def ids(self, limit: int = 100, **options: t.Any) -> list[str]:
        return [run["run_id"] for run in self.last(limit, **options).runs]

    @property
    def file(self) -> pathlib.Path:
        return self.dir / NAME

    @property
    def counted(self) -> str:
        return "".join(path.read_text() for path in self.metrics.glob("*.prom"))


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_a_run_is_appended_counted_and_read_back(host: Host) -> None:
    found = host.append()
    assert (found.verdict, found.failed, found.problem, found.healed, found.rotated) == (
        "recorded", False, None, False, False,
    )  # fmt: skip
    assert found.reason == f"run r1 of relaunch.yml for gpu1 (ended) was recorded in {host.file}."
    assert found.metrics_path is not None
    assert 'verdict="ready"' in host.counted
    assert json.loads(host.file.read_text())["run_id"] == "r1"
    shown = host.last()
    assert [run["run_id"] for run in shown.runs] == ["r1"]
    assert (shown.verdict, shown.failed, shown.problem) == ("shown", False, None)
    assert shown.reason == f"1 runs of {host.file} on pve1."


def test_check_mode_tells_and_writes_nothing(host: Host) -> None:
    found = host.append(check=True)
    assert (found.verdict, found.failed, host.dir.exists()) == ("would_record", False, False)
    assert found.record is not None


@pytest.mark.parametrize(
    ("keeping", "words"),
    [
        ({"max_bytes": LEAST_BYTES - 1}, "max_bytes is 65535: it must be between 65536 and 1099511627776."),
        ({"max_bytes": MOST_BYTES + 1}, "max_bytes is 1099511627777"),
        ({"keep": 0}, "keep is 0: it must be between 1 and 1000."),
        ({"keep": 1001}, "keep is 1001"),
        ({"metrics_dir": "metrics"}, "metrics_dir is 'metrics', which is not an absolute path."),
    ],
)
def test_what_cannot_be_kept_so_is_refused(host: Host, keeping: dict[str, t.Any], words: str) -> None:
    host.keeping.update(keeping)
    found = host.append()
    assert (found.verdict, found.failed, host.dir.exists()) == ("refused", True, False)
    assert words in found.reason
    assert found.reason.endswith("Nothing was recorded.")


@pytest.mark.parametrize("keeping", [{"max_bytes": 65536, "keep": 1}, {"max_bytes": 1 << 40, "keep": 1000}])
def test_the_bounds_themselves_are_kept(host: Host, keeping: dict[str, t.Any]) -> None:
    host.keeping.update(keeping)
    assert host.append().verdict == "recorded"


def test_what_makes_no_record_is_refused(host: Host) -> None:
    assert "run_id must be given" in host.append(run_id="").reason


def test_without_metrics_there_is_no_state_of_them(host: Host) -> None:
    host.keeping["metrics_dir"] = ""
    found = host.append()
    assert (found.verdict, found.metrics_path) == ("recorded", None)
    assert not (host.dir / _metrics_text.STATE_NAME).exists()


def test_a_folder_that_cannot_be_used_is_told_and_nothing_recorded(host: Host) -> None:
    host.dir.mkdir()
    host.dir.chmod(0o777)
    found = host.append()
    assert (found.verdict, found.failed) == ("not_recorded", True)
    assert found.reason.startswith("run r1 of relaunch.yml for gpu1 (ended) was not recorded on pve1: ")
    assert list(host.dir.iterdir()) == []


def test_metrics_that_cannot_be_written_do_not_lose_the_run(host: Host) -> None:
    host.metrics.rmdir()
    host.metrics.write_text("a file")
    found = host.append()
    assert (found.verdict, found.failed, found.metrics_path) == ("not_counted", True, None)
    assert f"was recorded in {host.file} on pve1, but the metrics were not: " in found.reason
    assert host.ids() == ["r1"]


def test_a_line_that_was_cut_short_is_closed_and_told(host: Host) -> None:
    host.append()
    with host.file.open("ab") as file:
        file.write(b'{"version": 1, "event": "beg')
    found = host.append(run_id="r2")
    assert (found.verdict, found.healed) == ("recorded", True)
    assert found.problem is not None
    assert found.reason.endswith(f" But {found.problem}")
    assert host.ids() == ["r1", "r2"]
    assert host.last().problem == f"{host.file} on pve1: 1 lines are cut short or damaged."


def test_lines_of_another_version_are_left_out_and_told(host: Host) -> None:
    host.append()
    with host.file.open("ab") as file:
        file.write(b'{"version": 9}\n{"version": 9}\n{cut\n')
    shown = host.last()
    assert len(shown.runs) == 1
    assert shown.problem is not None
    assert "1 lines are cut short or damaged and 2 lines are of another version and were left out" in shown.problem
    assert shown.problem in shown.reason


@pytest.mark.parametrize("state", [None, b"{cut", b"[" * 100000, b'{"version": 99}', b""])
def test_counters_that_cannot_be_used_are_made_anew_from_the_lines(host: Host, state: bytes | None) -> None:
    for number in range(3):
        host.append(run_id=f"r{number}")
    kept = host.dir / _metrics_text.STATE_NAME
    before = kept.read_bytes()
    if state is None:
        kept.unlink()
    else:
        kept.write_bytes(state)
    host.append(run_id="r3")
    after = host.counted
    kept.write_bytes(before)
    host.append(run_id="r3")
    assert host.counted == after, "as if nothing had been lost"


def test_runs_are_read_from_the_rotated_files_too_oldest_first(host: Host) -> None:
    host.keeping["max_bytes"] = LEAST_BYTES
    rotated = [host.append(run_id=f"r{number}", reason="word " * 700).rotated for number in range(40)]
    assert True in rotated
    assert host.ids() == [f"r{number}" for number in range(40)]
    assert host.ids(2) == ["r38", "r39"]
    assert host.ids(0) == []


def test_so_much_is_read_and_no_more_and_half_a_line_is_none(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        host.append(run_id=f"r{number}")
    monkeypatch.setattr(_run_recording, "MOST_READ", host.file.stat().st_size // 5 * 2 + 10)
    assert host.ids() == ["r3", "r4"]
    assert host.last().problem is None


def test_which_runs_are_wanted(host: Host) -> None:
    host.append(run_id="r1")
    host.append(run_id="r2", node="gpu2")
    host.append(run_id="r3", unit="other.service")
    assert host.ids() == ["r1", "r2", "r3"]
    assert host.ids(node="gpu1") == ["r1", "r3"]
    assert host.ids(unit="sglang.service") == ["r1", "r2"]
    assert host.ids(node="gpu1", unit="other.service") == ["r3"]


def test_no_folder_is_no_run_and_no_problem(host: Host) -> None:
    shown = host.last()
    assert (shown.verdict, shown.problem, shown.runs) == ("shown", None, ())
    assert shown.reason == f"no run is recorded on pve1: there is no folder {host.dir}."


def test_a_folder_that_cannot_be_read_is_told(host: Host) -> None:
    host.dir.write_text("a file")
    shown = host.last()
    assert (shown.verdict, shown.runs) == ("shown", ())
    assert shown.problem is not None
    assert shown.problem.startswith("the record on pve1 could not be read: ")
