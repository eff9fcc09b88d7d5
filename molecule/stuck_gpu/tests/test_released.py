# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three nodes whose GPU 1 was stuck, each in another way, serve again."""

from __future__ import annotations

import re

from seen import EPHEMERAL, KEY, alive, of_role, order_is_right

testinfra_hosts = ["ansible://sglang_nodes"]


def holder_before(node) -> int:
    before = node.note("before")
    role = "zombie leader" if node.name == "zombie" else "left-over"
    (pid,) = of_role(before, role)
    assert [gpu["used_mib"] for gpu in before["gpus"]] == [0, 76115, 0, 0, 0, 0, 0, 0]
    return pid


def test_the_holder_is_gone(node) -> None:
    assert not alive(holder_before(node))


def test_the_play_named_it_before_and_released_it(node) -> None:
    pid = holder_before(node)
    printed = (EPHEMERAL / "plays.log").read_text()
    assert re.search(rf"\bpid:? {pid}\b", printed)


def test_the_server_serves(node) -> None:
    seen = node.status()
    assert len(of_role(seen, "launcher")) == 1
    assert all(len(of_role(seen, f"scheduler_TP{rank}")) == 1 for rank in range(8)), seen
    status, models = node.ask("/v1/models")
    assert status == 200
    assert [card["id"] for card in models["data"]] == ["demo-397b"]
    assert node.ask("/v1/completions", data={"model": "demo-397b", "prompt": "1", "max_tokens": 1})[0] == 200


def test_nothing_was_started_before_eight_zeros(node) -> None:
    assert not order_is_right(node.calls()), node.calls()


def test_who_does_not_compute_lives_on(node) -> None:
    others = node.note("bystanders")
    assert all(alive(pid) for pid in [*others["monitors"], others["bystander"]]), others


def test_the_key_was_not_printed(node) -> None:
    assert KEY not in (EPHEMERAL / "plays.log").read_text()
    assert KEY in node.config.read_text()
    assert oct(node.config.stat().st_mode & 0o777) == "0o600"
