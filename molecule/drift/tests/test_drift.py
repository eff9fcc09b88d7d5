# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two looks at seven nodes: who is mended, and who is left as he is."""

from __future__ import annotations

import json

import pytest
from seen import EPHEMERAL, alive, of_role

testinfra_hosts = ["ansible://sglang_nodes"]

# (at the first look, at the second): what was done, and what it rests on.
EXPECTED = {
    "healthy": (("nothing", None), ("nothing", None)),
    "hung": (("report", "confirmation"), ("relaunch", None)),
    "loading": (("nothing", None), ("nothing", None)),
    "other_model": (("report", None), ("report", None)),
    "edited": (("report", None), ("report", None)),
    "gpu_lost": (("report", None), ("report", None)),
    "smi_hangs": (("report", None), ("report", None)),
}
WORDS = {"other_model": "something-else", "edited": "RestartSec", "gpu_lost": "7 of 8", "smi_hangs": "nvidia-smi"}


@pytest.fixture
def rows(node) -> list[dict]:
    """What both looks said of this node."""
    files = (EPHEMERAL / "drift.json.first", EPHEMERAL / "drift.json")
    return [next(row for row in json.loads(path.read_text()) if row["host"] == node.name) for path in files]


def test_what_was_done(node, rows) -> None:
    assert tuple((row["action"], row["held_back"]) for row in rows) == EXPECTED[node.name], rows
    assert [row["outcome"] for row in rows] == [None, "ready" if node.name == "hung" else None], rows


def test_why_is_said(node, rows) -> None:
    assert WORDS.get(node.name, "") in " ".join(rows[1]["reasons"]), rows[1]["reasons"]


def test_nobody_else_was_touched(node) -> None:
    before = {process["pid"] for process in node.note("before")["processes"] if process["role"] != "driver"}
    after = {process["pid"] for process in node.note("after")["processes"] if process["role"] != "driver"}
    if node.name == "hung":
        assert [pid for pid in before if alive(pid)] == [node.note("bystanders")["bystander"]]
        assert len(of_role(node.note("after"), "launcher")) == 1
    else:
        assert before <= after
        assert of_role(node.note("before"), "launcher") == of_role(node.note("after"), "launcher")


def test_one_look_killed_nobody(node) -> None:
    before = {process["pid"] for process in node.note("before")["processes"] if process["role"] != "driver"}
    between = {process["pid"] for process in node.note("between")["processes"] if process["role"] != "driver"}
    assert before <= between
