# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of GPU 1 never clears: the relaunch failed, started nothing, and said why."""

from __future__ import annotations

import re

from seen import alive, of_role, verb

testinfra_hosts = ["ansible://never_clears"]


def test_the_play_failed_and_named_gpu_and_memory(node) -> None:
    run = node.note("relaunch")
    assert run["rc"] == 2
    said = re.sub(r"\s+", " ", run["out"])
    message = said[said.rindex("msg: ") :] if "msg: " in said else said
    assert "GPU 1" in said, said
    assert "76115 MiB" in said, said
    assert "IS DOWN" in said or "was not stopped" in said, message


def test_the_worker_was_released_nevertheless(node) -> None:
    (pid,) = of_role(node.note("before"), "left-over")
    assert not alive(pid)


def test_nothing_was_started(node) -> None:
    verbs = [verb(call) for call in node.calls()]
    assert "query-gpu" in verbs
    assert not {"start", "restart"} & set(verbs), verbs
    assert not of_role(node.status(), "launcher")
    assert [gpu["used_mib"] for gpu in node.status()["gpus"]] == [0, 76115, 0, 0, 0, 0, 0, 0]


def test_who_does_not_compute_lives_on(node) -> None:
    others = node.note("bystanders")
    assert all(alive(pid) for pid in [*others["monitors"], others["bystander"]]), others
