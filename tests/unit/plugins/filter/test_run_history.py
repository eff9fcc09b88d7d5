# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.cleanslate.gpu.plugins.filter.run_history import history_table, run_record_entry

GPU = {"index": 0, "uuid": "GPU-a", "used_mib": 500, "name": "H200", "problems": []}
READY = {
    "__relaunch_begun": 90.0,
    "__relaunch_stop_at": 100.0,
    "__relaunch_start_at": 103.25,
    "__relaunch_ended": 110.0,
    "__relaunch_verdict": "ready",
    "gpu_idle_rehearsal": {"gpus": [GPU]},
    "sglang_stop_result": {"verdict": "drained", "stopped_after_s": 1.5},
    "gpu_release_result": {
        "elapsed_s": 2.5,
        "holders": [{"pid": 1}],
        "signalled": [{"pid": 1, "signal": "KILL", "after_s": 0.1}],
        "gate": {"verdict": "idle", "waited_s": 0.5, "gpus": [{**GPU, "used_mib": 0}]},
    },
    "sglang_server_ready": {"stages": {"load_weights": 5.0}},
    "run_record_evidence": {"path": "/var/log/cleanslate/evidence/x"},
}
RUN = {
    "run_id": "r1", "event": "ended", "playbook": "relaunch.yml", "profile": "qwen", "who": "anna",
    "began_at": "2026-11-29T16:09:02.120Z", "ended_at": "2026-11-29T16:16:40.512Z", "duration_s": 458.4,
    "interrupted": False, "verdict": "ready", "signals": [{"pid": 1}], "failed_step": None, "reason": None,
}  # fmt: skip


def test_the_entry_of_a_run_that_came_through() -> None:
    entry = run_record_entry(READY)
    assert entry == {
        "verdict": "ready",
        "gpus_before": [{"index": 0, "uuid": "GPU-a", "used_mib": 500}],
        "gpus_after": [{"index": 0, "uuid": "GPU-a", "used_mib": 0}],
        "holders": [{"pid": 1}],
        "signals": [{"pid": 1, "signal": "KILL", "after_s": 0.1}],
        "seconds": {
            "stop": 1.5, "release": 2.5, "gate": 0.5, "stop_to_start": 3.2, "start_to_ready": 6.8,
            "stage_load_weights": 5.0,
        },
        "evidence": "/var/log/cleanslate/evidence/x",
    }  # fmt: skip


def test_the_gate_on_the_node_counts_where_the_release_had_none() -> None:
    host = {"gpu_release_result": {"gate": None}, "gpu_idle_result": {"gpus": [GPU], "waited_s": 7}}
    entry = run_record_entry(host)
    assert (entry["gpus_after"][0]["used_mib"], entry["seconds"]) == (500, {"gate": 7})


def test_the_rehearsal_of_the_preflight_counts_where_a_run_did_not_come_to_its_own() -> None:
    early = {"sglang_server_preflight": {"gate": {"gpus": [GPU]}}}
    later = {**early, "gpu_idle_rehearsal": {"gpus": [{**GPU, "used_mib": 7}]}}
    told = [run_record_entry(host)["gpus_before"][0]["used_mib"] for host in (early, later)]
    assert told == [500, 7]
    assert run_record_entry({"sglang_server_preflight": {"gate": None}}) == {}


def test_a_stop_in_the_execution_of_the_release_counts_as_one_of_its_own() -> None:
    host = {"gpu_release_result": {"stop": {"verdict": "drained", "stopped_after_s": 0.4}, "elapsed_s": 0.1}}
    assert run_record_entry(host)["seconds"] == {"stop": 0.4, "release": 0.1}


def test_a_failure_a_rollback_and_one_that_failed_too() -> None:
    failed = {"__relaunch_begun": 1, "__relaunch_failed_step": "Start", "__relaunch_failed_reason": "it died"}
    assert run_record_entry(failed) == {"verdict": "failed", "failed_step": "Start", "reason": "it died"}
    back = run_record_entry({**failed, "__relaunch_rolled_back": "former"})
    assert (back["verdict"], back["rollback"]) == ("rolled_back", {"outcome": "ready", "profile": "former"})
    down = run_record_entry({**failed, "__relaunch_rollback_reason": "busy"})
    assert (down["verdict"], down["rollback"]) == ("failed", {"outcome": "failed", "reason": "busy"})


def test_a_rollback_adds_to_what_the_relaunch_did_and_replaces_nothing_of_it() -> None:
    """It releases once more, under the same names; the seconds belong to the relaunch itself."""
    names = ("gpu_release_result", "gpu_idle_result", "sglang_stop_result")
    kept = {**READY, "__relaunch_first_results": {name: READY.get(name, {}) for name in names}}
    again = {
        "sglang_stop_result": {"verdict": "cut", "stopped_after_s": 0.4},
        "gpu_release_result": {
            "elapsed_s": 0.2,
            "holders": [{"pid": 2}],
            "signalled": [{"pid": 2, "signal": "TERM", "after_s": 0.3}],
            "gate": {"verdict": "idle", "waited_s": 0.1, "gpus": [{**GPU, "used_mib": 1}]},
        },
    }
    alone, both = run_record_entry(READY), run_record_entry({**kept, **again})
    assert [holder["pid"] for holder in both.pop("holders")] == [1, 2]
    assert [signal["pid"] for signal in both.pop("signals")] == [1, 2]
    assert both == {name: value for name, value in alone.items() if name not in ("holders", "signals")}
    assert run_record_entry(kept) == alone, "a rollback that came to no release of its own counts nothing twice"


def test_nothing_is_made_up_where_nothing_was_done() -> None:
    assert run_record_entry({}) == {}
    assert run_record_entry({"gpu_release_result": {"skipped": True}, "sglang_stop_result": None}) == {}


def test_the_table_shows_each_run_and_says_below_what_went_wrong() -> None:
    failed = {
        **RUN,
        "verdict": "failed",
        "failed_step": "Release",
        "reason": "GPU 1 holds\n76115 MiB",
        "duration_s": 5.0,
    }
    cut = {**RUN, "run_id": "r7", "verdict": "interrupted", "interrupted": True, "ended_at": None, "duration_s": None}
    text = history_table(
        [
            {"host": "gpu1", "runs": [RUN, failed, cut], "problem": "1 lines are cut short"},
            {"host": "gpu2", "runs": [], "problem": ""},
        ]
    )
    lines = text.splitlines()
    assert lines[0].split("  ")[0] == "node"
    assert " ".join(lines[1].split()) == "gpu1 2026-11-29 16:09 relaunch.yml qwen anna 7 min 38 s 1 ready"
    assert lines[2].endswith("failed")
    assert lines[3].endswith("INTERRUPTED")
    assert lines[4].startswith("gpu2")
    assert lines[4].endswith("no run is recorded")
    assert "gpu1: 1 lines are cut short" in lines
    assert "gpu1: 2026-11-29 16:09: Release: GPU 1 holds 76115 MiB" in lines
    assert "gpu1: 2026-11-29 16:09: run r7 began and has no end: it was interrupted." in lines


def test_a_drift_look_says_that_it_was_one_and_a_run_without_its_beginning_shows_its_end() -> None:
    look = {**RUN, "event": "drift", "playbook": "drift.yml", "verdict": "report", "began_at": None}
    line = history_table([{"host": "gpu1", "runs": [look]}]).splitlines()[1]
    assert "drift.yml (look)" in line
    assert "2026-11-29 16:16" in line


def test_what_was_recorded_cannot_move_the_cursor() -> None:
    text = history_table(
        [{"host": "gpu1", "runs": [{**RUN, "who": "a\x1b[2Jb\x9b", "reason": "x\x1b[A", "verdict": "failed"}]}]
    )
    assert "\x1b" not in text
    assert "\x9b" not in text


def test_an_empty_fleet_is_a_header() -> None:
    assert history_table([]) == "node  began (UTC)  playbook  profile  who  took  signals  verdict"
