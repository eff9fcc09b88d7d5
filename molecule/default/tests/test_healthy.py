# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy server was relaunched to another profile, twice."""

from __future__ import annotations

import re

from seen import EPHEMERAL, KEY, alive, command_lines, of_role, order_is_right, verb

testinfra_hosts = ["ansible://sglang_nodes"]


def test_each_relaunch_restarts(node) -> None:
    old, first, second = (of_role(node.note(moment), "launcher") for moment in ("before", "first", "second"))
    assert len(old) == len(first) == len(second) == 1
    assert len({*old, *first, *second}) == 3
    assert not alive(old[0])
    assert not alive(first[0])
    assert alive(second[0])
    assert of_role(node.status(), "launcher") == second


def test_all_ranks_are_up(node) -> None:
    seen = node.status()
    assert all(len(of_role(seen, f"scheduler_TP{rank}")) == 1 for rank in range(8)), seen
    assert [gpu["used_mib"] for gpu in seen["gpus"]] == [76115] * 8


def test_the_new_profile_is_live(host, node) -> None:
    config = host.file(str(node.config))
    assert config.mode == 0o600
    assert re.search(r"context-length.*65536", config.content_string)
    status, info = node.ask("/server_info")
    assert status == 200
    assert str(info["context_length"]) == "65536"
    assert host.file(str(node.unit)).mode == 0o644
    assert not list(node.config.parent.glob("*.new")) + list(node.unit.parent.glob("*.new"))


def test_it_serves_the_right_model(node) -> None:
    status, models = node.ask("/v1/models")
    assert status == 200
    assert [card["id"] for card in models["data"]] == ["demo-397b"]
    assert node.ask("/v1/models", key=None)[0] == 401
    status, answer = node.ask("/v1/completions", data={"model": "demo-397b", "prompt": "1", "max_tokens": 1})
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "length"


def test_nothing_was_started_before_eight_zeros(node) -> None:
    calls = node.calls()
    before, first, second = (node.note(moment)["calls"] for moment in ("before", "first", "second"))
    for run in (calls[before:first], calls[first:second]):
        assert "stop" in map(verb, run)
        assert not order_is_right(run), [verb(call) for call in run]


def test_the_role_changes_nothing_the_second_time(node) -> None:
    assert node.note("again") == {"staged": False, "installed": False}


def test_the_key_is_in_no_log_and_no_command_line(node) -> None:
    printed = (EPHEMERAL / "plays.log").read_text()
    assert "PLAY RECAP" in printed
    assert KEY not in printed
    assert KEY not in (node.folder / "calls.jsonl").read_text()
    assert KEY not in node.unit.read_text()
    assert KEY in node.config.read_text()
    assert not [line for line in command_lines() if KEY in line]


def test_who_does_not_compute_lives_on(node) -> None:
    others = node.note("bystanders")
    assert all(alive(pid) for pid in [*others["monitors"], others["bystander"]]), others
