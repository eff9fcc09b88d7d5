# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.cleanslate.gpu.plugins.filter.node_tables import relaunch_rows, relaunch_table
from ansible_collections.cleanslate.gpu.plugins.filter.run_history import run_record_entry

READY = {
    "inventory_hostname": "gpu1",
    "sglang_server_profile": "qwen",
    "__relaunch_begun": 100.0,
    "__relaunch_stop_at": 100.0,
    "__relaunch_start_at": 103.25,
    "__relaunch_ended": 110.0,
    "__relaunch_verdict": "ready",
    "sglang_stop_result": {"verdict": "drained"},
    "gpu_release_result": {
        "verdict": "released",
        "signalled": [{"pid": 1, "signal": "KILL"}],
        "gate": {"verdict": "idle", "gpus": [{"used_mib": 0}] * 8},
    },
    "sglang_server_ready": {"stages": {"load": 5.0}},
}
FAILED = {
    "inventory_hostname": "gpu2",
    "__relaunch_begun": 100.0,
    "__relaunch_failed_step": "Release the GPUs",
    "__relaunch_failed_reason": "GPU 1 still holds 76115 MiB",
    "gpu_release_result": {
        "gate": {"verdict": "orphaned", "gpus": [{"used_mib": 0}, {"used_mib": 76115}, {"used_mib": None}]}
    },
}


def test_rows_tell_ready_failed_and_untouched_hosts_apart() -> None:
    rows = relaunch_rows([READY, FAILED, {"inventory_hostname": "gpu3"}])
    assert [row["verdict"] for row in rows] == ["ready", "failed", "not_touched"]
    assert abs(rows[0]["stop_to_start_s"] - 3.25) < 0.06
    assert rows[0]["start_to_ready_s"] == 6.8
    assert rows[0]["signalled"] == 1
    assert rows[1]["stop_to_start_s"] is None


def test_a_host_on_which_the_former_profile_serves_again_is_not_called_failed() -> None:
    """The table, the result file and the record say the same word."""
    host = {**FAILED, "__relaunch_rolled_back": "base"}
    (row,) = relaunch_rows([host])
    assert row["verdict"] == "rolled_back" == run_record_entry(host)["verdict"]
    assert relaunch_table([row]).splitlines()[1].endswith("rolled_back")


def test_a_rollback_does_not_stand_for_the_relaunch_before_it() -> None:
    names = ("gpu_release_result", "gpu_idle_result", "sglang_stop_result")
    host = {
        **READY,
        "__relaunch_first_results": {name: READY.get(name, {}) for name in names},
        "sglang_stop_result": {"verdict": "cut"},
        "gpu_release_result": {"verdict": "free", "signalled": [], "gate": {"verdict": "settled", "gpus": []}},
    }
    assert relaunch_rows([host]) == relaunch_rows([READY])


def test_the_table_shows_eight_zeros_and_an_unread_gpu_is_never_zero() -> None:
    text = relaunch_table(relaunch_rows([READY, FAILED]))
    assert "8 x 0 MiB" in text
    assert "0 76115 ? MiB" in text
    assert "GPU 1 still holds 76115 MiB" in text
    assert text.splitlines()[1].endswith("ready")


def test_a_stop_in_the_execution_of_the_release_counts_as_one_of_its_own() -> None:
    release = {**READY["gpu_release_result"], "stop": {"verdict": "cut"}}  # type: ignore[dict-item]
    (row,) = relaunch_rows([{**READY, "gpu_release_result": release, "sglang_stop_result": None}])
    assert row["stop"] == "cut"
