# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that keep state on a node, as real processes. Their rules are tested with the core."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

UNIT = "sglang.service"


def run(module: str, folder: pathlib.Path, **options: t.Any) -> dict[str, t.Any]:
    path = str(folder / "state" / f"{module}.json")
    return module_process.run(module, folder, {"path": path, "unit": UNIT, **options})


WANTED = {"changed", "verdict", "reason", "wanted", "problem"}
MEMORY = {"changed", "verdict", "reason", "memory", "problem"}
RESULT = {"msg", "failed", "invocation", "diff"}


def test_wanted(tmp_path: pathlib.Path) -> None:
    empty = run("sglang_wanted", tmp_path, state="shown")
    assert (empty["verdict"], empty["wanted"], empty["problem"], empty["changed"]) == ("shown", None, None, False)
    options = {"state": "serving", "profile": "kimi", "outcome": "ready", "who": "ana", "by": "relaunch.yml"}
    would = run("sglang_wanted", tmp_path, **options, _ansible_check_mode=True)
    assert (would["changed"], (tmp_path / "state").exists()) == (True, False)
    written = run("sglang_wanted", tmp_path, **options)
    assert set(written) - RESULT == WANTED
    assert (written["verdict"], written["diff"]) == ("written", {"before": "", "after": "serving: kimi, ready\n"})
    shown = run("sglang_wanted", tmp_path, state="shown")
    assert set(shown) - RESULT == WANTED
    assert shown["wanted"] == written["wanted"]
    assert run("sglang_wanted", tmp_path, state="paused", until="tomorrow", reason="x")["failed"]
    refused = run("sglang_wanted", tmp_path, state="serving", unit="sglang")
    assert set(refused) - RESULT == WANTED
    assert refused["msg"] == refused["problem"] == refused["reason"]
    assert (
        "state is paused but all of the following are missing: until"
        in run("sglang_wanted", tmp_path, state="paused", reason="x")["msg"]
    )
    (tmp_path / "state" / "sglang_wanted.json").write_text("{")
    corrupt = run("sglang_wanted", tmp_path, state="shown")
    assert (corrupt.get("failed"), corrupt["wanted"]) == (None, None)
    assert "Drift only reports" in corrupt["problem"]


def test_what_serves_is_kept_and_what_was_suspected_is_forgotten(tmp_path: pathlib.Path) -> None:
    unit, missing = tmp_path / "sglang.service", tmp_path / "sglang.yaml"
    unit.write_text("[Service]")
    memory = {"path": str(tmp_path / "state" / "drift.json")}
    noted = run("sglang_drift_memory", tmp_path, state="noted", revision=0, key="hung", **memory)
    assert noted["memory"]["suspicions"]
    options = {"state": "serving", "profile": "kimi", "outcome": "ready", "proved_files": [str(unit), str(missing)],
               "memory_path": memory["path"]}  # fmt: skip
    would = run("sglang_wanted", tmp_path, **options, _ansible_check_mode=True)
    assert (would["changed"], would.get("failed"), (tmp_path / "sglang.service.proved").exists()) == (True, None, False)

    for changes, word in (
        ({"outcome": "failed"}, "outcome=ready"),
        ({"memory_path": "drift.json"}, "memory_path"),
        ({"proved_files": ["sglang.service"]}, "proved_files"),
        ({"proved_files": [str(tmp_path / "state")]}, str(tmp_path / "state")),
    ):
        refused = run("sglang_wanted", tmp_path, **{**options, **changes})
        assert (refused["failed"], refused["verdict"], set(refused) - RESULT) == (True, "refused", WANTED), changes
        assert word in refused["msg"]
        assert not (tmp_path / "state" / "sglang_wanted.json").exists()
    assert run("sglang_drift_memory", tmp_path, state="shown", **memory)["memory"] == noted["memory"]

    written = run("sglang_wanted", tmp_path, **options)
    assert (written["verdict"], written["problem"]) == ("written", None)
    assert (tmp_path / "sglang.service.proved").read_text() == "[Service]"
    assert run("sglang_drift_memory", tmp_path, state="shown", **memory)["memory"]["suspicions"] == []

    told = run("sglang_wanted", tmp_path, **{**options, "profile": "other", "memory_path": str(unit / "drift.json")})
    assert (told["failed"], told["wanted"]["profile"]) == (True, "other")
    assert told["problem"] in told["msg"]
    assert str(unit) in told["problem"]


def test_memory(tmp_path: pathlib.Path) -> None:
    def memory(state: str, **options: t.Any) -> dict[str, t.Any]:
        return run("sglang_drift_memory", tmp_path, state=state, **options)

    assert memory("shown")["memory"] is None
    assert memory("cleared", revision=0)["verdict"] == "unchanged"
    assert not (tmp_path / "state").exists()
    noted = memory("noted", revision=0, key="hung: sglang.service, process 4711")
    assert set(noted) - RESULT == MEMORY
    assert (noted["verdict"], noted["memory"]["revision"], noted["memory"]["suspicions"][0]["looks"]) == (
        "written",
        1,
        1,
    )
    begun = memory("begun", revision=1, run_id="r1", action="relaunch")
    assert (begun["verdict"], begun["memory"]["remediations"][0]["outcome"]) == ("written", None)
    ended = memory("ended", run_id="r1", outcome="failed", reason="the gate did not open")
    assert ended["memory"]["backoff"]["seconds"] == 900
    assert ended["memory"]["backoff_until"] > ended["memory"]["backoff"]["at"]
    held = memory("begun", revision=3, run_id="r2", action="relaunch")
    assert set(held) - RESULT == MEMORY
    assert (held["failed"], held["verdict"], held["changed"]) == (True, "held_back", False)
    assert "the next one may begin in 1" in held["msg"]
    assert memory("begun", revision=2, run_id="r2", action="relaunch")["verdict"] == "moved"
    assert memory("noted", revision=3, key="x", confirm_within=10)["verdict"] == "refused"
    (tmp_path / "state" / "sglang_drift_memory.json").write_text("{")
    assert memory("shown").get("failed") is None
    assert memory("ended", run_id="r1", outcome="ready")["verdict"] == "unreadable"
    assert memory("reset", _ansible_check_mode=True)["changed"]
    assert (tmp_path / "state" / "sglang_drift_memory.json").read_text() == "{"
    assert memory("reset")["changed"]
    assert memory("shown")["problem"] is None


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"state": "noted", "revision": 0}, "key"),
        ({"state": "begun", "revision": 0, "action": "relaunch"}, "run_id"),
        ({"state": "ended", "run_id": "r"}, "outcome"),
    ],
)
def test_what_memory_needs(tmp_path: pathlib.Path, options: dict[str, t.Any], missing: str) -> None:
    found = run("sglang_drift_memory", tmp_path, **options)
    assert found["failed"]
    assert missing in found["msg"]
