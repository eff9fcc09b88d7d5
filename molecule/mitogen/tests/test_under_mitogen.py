# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two nodes whose GPU 1 was stuck serve again, and one interpreter of Mitogen executed the whole relaunch of each."""

from __future__ import annotations

import json
import re

from seen import EPHEMERAL, KEY, alive, of_role, order_is_right

testinfra_hosts = ["ansible://sglang_nodes"]


def run(name: str) -> tuple[int, str]:
    kept = json.loads((EPHEMERAL / "nodes" / f"{name}.run.json").read_text())
    return kept["rc"], kept["out"]


def test_it_was_mitogen_that_executed_the_relaunch(node) -> None:
    assert "(mitogen:" in node.note("interpreter")["title"]


def test_its_interpreter_was_not_signalled_and_is_gone(node) -> None:
    rc, out = run("relaunch")
    assert rc == 0, out
    # A lost interpreter would be a lost host.
    assert re.search(rf"{node.name} +: .*unreachable=0 +failed=0 .*rescued=0", out), out
    assert not alive(node.note("interpreter")["pid"])


def test_the_holder_is_gone(node) -> None:
    before = node.note("before")
    (pid,) = of_role(before, "left-over")
    assert [gpu["used_mib"] for gpu in before["gpus"]] == [0, 76115, 0, 0, 0, 0, 0, 0]
    assert not alive(pid)


def test_the_server_serves(node) -> None:
    seen = node.status()
    assert len(of_role(seen, "launcher")) == 1
    assert all(len(of_role(seen, f"scheduler_TP{rank}")) == 1 for rank in range(8)), seen
    assert node.ask("/v1/completions", data={"model": "demo-397b", "prompt": "1", "max_tokens": 1})[0] == 200


def test_nothing_was_started_before_eight_zeros(node) -> None:
    assert not order_is_right(node.calls()), node.calls()


def test_who_does_not_compute_lives_on(node) -> None:
    others = node.note("bystanders")
    assert all(alive(pid) for pid in [*others["monitors"], others["bystander"]]), others


def test_a_scheduled_look_finds_nothing_wrong(node) -> None:
    rc, out = run("drift")
    assert rc == 0
    assert re.search(rf"\b{node.name}\b.*\bnothing\b", out), out


def test_the_key_was_not_printed(node) -> None:
    assert KEY not in run("relaunch")[1] + run("drift")[1]
    assert KEY in node.config.read_text()
