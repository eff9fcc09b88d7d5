# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._fleet_status import LEVELS, fleet_status
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import Verdict
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_text import status_text
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fleet_looks import (
    gone,
    gpus,
    holder,
    look,
    server,
    stuck,
    uuid,
)

NOW = "2026-11-29T18:40:00Z"
VERDICTS = t.get_args(Verdict)


def one(seen: dict[str, t.Any]) -> dict[str, t.Any]:
    (host,) = fleet_status([seen], NOW)["hosts"]
    return host


def said(host: dict[str, t.Any]) -> str:
    return " ".join(f"{problem['what']} {problem['next']}" for problem in host["problems"])


def test_every_node_has_the_same_keys_whatever_was_seen_of_it() -> None:
    document = fleet_status([look("a"), stuck("b"), gone("c"), {"host": "d", "reached": False}, {"host": "e"}], NOW)
    shapes = {tuple(sorted(host)) for host in document["hosts"]}
    assert len(shapes) == 1
    assert document["summary"] == {"well": 1, "in_hand": 0, "attention": 1, "not_known": 3}
    assert sum(document["summary"].values()) == len(document["hosts"])
    assert tuple(document["summary"]) == LEVELS
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_of_a_server_is_in_order_in_hand_or_has_a_next_step(verdict) -> None:
    host = one(look("gpu1", health=server(verdict, "because")))
    expected = {"ready": "well", "starting": "in_hand", "busy": "in_hand"}.get(verdict, "attention")
    assert host["level"] == expected
    assert all(problem["next"] for problem in host["problems"])
    if expected == "attention":
        assert host["problems"][0]["what"] == f"The server is {verdict}: because."


def test_a_look_that_failed_is_no_good_news() -> None:
    host = one(
        look(
            "gpu1",
            gpu={"failed": False, "msg": "no python"},
            health={"msg": "gone"},
            holders={"msg": "not root"},
            lock={"msg": "no folder"},
        )
    )
    assert host["level"] == "attention"
    assert (host["server"]["verdict"], host["gpu"]["verdict"], host["holders"]["verdict"]) == (
        "unknown",
        "unknown",
        "unknown",
    )
    for reason in ("no python", "gone", "not root", "no folder"):
        assert reason in said(host)


def test_a_left_over_worker_is_named_with_the_playbook_that_ends_it() -> None:
    host = one(stuck("gpu2"))
    assert "pid 5310 (python3), user anna" in said(host)
    assert "release.yml -l gpu2" in said(host)
    assert host["gpu"]["gpus"][1]["processes"] == [
        {"pid": 5310, "name": "python3", "used_mib": 76115, "disposition": "target"}
    ]


def test_memory_without_a_holder_is_looked_for_on_the_gpu_host() -> None:
    down = {"health": server("stopped", "inactive"), "gpu": gpus([0, 500], {})}
    inside = one(look("gpu1", holders={"verdict": "none", "holders": []}, **down))
    assert "no holder is to be seen on gpu1" in said(inside)
    assert "gpu_release_host" not in said(one(look("gpu1", gpu_host="pve1", holders={"verdict": "none"}, **down)))
    assert "gpu_release_host" in said(inside)


@pytest.mark.parametrize(
    ("used", "expected", "is_told"),
    [([uuid(0)], [], True), ([uuid(0)], [uuid(0)], True), ([uuid(0)], [uuid(1)], False), ([], [uuid(1)], True)],
)
def test_somebody_else_is_told_of_where_they_use_gpus_of_this_node_or_may(used, expected, is_told) -> None:
    other = holder(99, "python3", "foreign", user="ben", container={"kind": "docker", "id": "ollama"}, gpus=used)
    host = one(look("gpu1", expected_uuids=expected, holders={"verdict": "some", "holders": [other]}))
    assert ("pid 99 (python3), user ben, docker container ollama" in said(host)) is is_told


def test_pids_of_the_gpu_host_are_joined_with_those_that_the_container_counts() -> None:
    seen = holder(90017, "sglang::schedul", "target", ns_pid=17)
    host = one(look("gpu1", gpu_host="pve1", gpu=gpus([500], {0: 17}), holders={"verdict": "some", "holders": [seen]}))
    assert host["gpu"]["gpus"][0]["processes"] == [
        {"pid": 17, "name": "sglang::schedul", "used_mib": 500, "disposition": "target"}
    ]


def test_a_stop_on_purpose_is_in_hand_and_a_failed_launch_is_not() -> None:
    entry = {"state": "stopped", "who": "anna", "by": "stop.yml", "at": "2026-11-29T17:00:00Z", "profile": None}
    idle = {"gpu": gpus([0] * 8, {}), "holders": {"verdict": "none", "holders": []}}
    stopped = one(look("gpu1", health=server("stopped", "inactive"), wanted={"wanted": entry, "problem": None}, **idle))
    assert stopped["level"] == "in_hand"
    assert "stopped on purpose by anna" in stopped["notes"][0]
    failed = {**entry, "state": "serving", "outcome": "failed", "by": "relaunch.yml", "profile": "trial"}
    host = one(look("gpu1", wanted={"wanted": failed, "problem": None}))
    assert (host["level"], host["profile"], host["profile_from"]) == ("attention", "trial", "wanted")


def test_what_drift_remembers_is_told() -> None:
    pause = {"state": "serving", "profile": "kimi", "pause": {"until": "20:00", "reason": "new disks", "who": "ben"}}
    host = one(look("gpu1", wanted={"wanted": pause, "problem": None}))
    assert (host["level"], host["notes"]) == ("in_hand", ["Remediation is paused until 20:00 by ben: new disks."])
    memory = {"gave_up": {"at": "17:00", "reason": "3 of 3 attempts failed"}, "suspicions": [], "backoff_until": None}
    assert "gave up at 17:00: 3 of 3 attempts failed" in said(
        one(look("gpu1", memory={"memory": memory, "problem": None}))
    )
    corrupt = one(look("gpu1", memory={"memory": None, "problem": "drift.json: not JSON"}))
    assert "drift.json: not JSON" in said(corrupt)
    assert not corrupt["drift"]["known"]


def test_an_interrupted_run_needs_attention_unless_it_is_still_at_work() -> None:
    run = {"run_id": "7f3a", "playbook": "relaunch", "who": "anna", "began_at": NOW, "interrupted": True}
    runs = {"runs": [run], "problem": None}
    assert "7f3a" in said(one(look("gpu1", runs=runs)))
    lock = {"verdict": "busy", "leases": [{"text": "held by run 7f3a"}], "starting": []}
    working = one(look("gpu1", runs=runs, lock=lock))
    assert (working["level"], working["notes"]) == ("in_hand", ["A run is at work on its GPUs: held by run 7f3a."])
    lock = {"verdict": "not_held", "leases": [], "starting": [{"text": "a server of run 7f3a is starting"}]}
    loading = one(look("gpu1", runs=runs, lock=lock))
    assert loading["problems"] == [], "a load may take longer than the record waits for its end"
    assert loading["level"] == "in_hand"


def test_a_server_that_may_have_been_asked_in_the_wrong_place_is_told_with_that() -> None:
    started = {"told": False, "why": "sglang.yaml was written to after the server had started"}
    health = {**server("failed", "nobody listens on port 30001"), "started_with": started}
    words = "nobody listens on port 30001. With what it was started is not known: sglang.yaml was written to after"
    assert words in said(one(look("gpu1", health={**health, "main_pid": 77})))
    assert words not in said(one(look("gpu1", health={**health, "main_pid": None}))), "nothing runs"
    assert words not in said(one(look("gpu1", health={**health, "main_pid": 77, "started_with": {"told": True}})))


def test_the_text_has_a_line_for_each_node_and_details_where_they_matter() -> None:
    text = status_text(fleet_status([look("gpu1"), stuck("gpu2"), gone("gpu3")], NOW))
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["gpu1", "gpu2", "gpu3"]
    assert "1024.0 GiB of 1123.2 GiB on 8" in lines[1]
    assert "unreachable" in lines[3]
    assert "gpu2: server failed, GPUs busy" in lines
    assert not any(line.startswith("gpu1:") for line in lines)
    assert "###########.........  5310 python3 (76115 MiB)" in text


def test_a_node_looked_at_alone_is_shown_in_full_and_unread_memory_as_unknown() -> None:
    text = status_text(fleet_status([look("gpu1", gpu=gpus([500, None], {0: 4800}, {1: "is lost"}))], NOW))
    assert "? / ?" in text
    assert "????????????????????" in text
    assert "is lost" in text
    assert "4800 sglang::schedul (500 MiB)" in text


def test_nothing_from_a_node_redraws_the_terminal() -> None:
    evil = holder(99, "a\x1b[2Jb\nc", "foreign", user="x\r")
    text = status_text(fleet_status([look("gpu1", holders={"verdict": "some", "holders": [evil]})], NOW))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "a [2Jb c" in text
