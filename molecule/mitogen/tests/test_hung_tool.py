# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvidia-smi never answers here: the interpreter that waits for it goes on with the rest, and nothing is stopped."""

from __future__ import annotations

import json
import re

from seen import EPHEMERAL, of_role, verb

testinfra_hosts = ["ansible://hung_tool"]


def run(name: str) -> tuple[int, str]:
    kept = json.loads((EPHEMERAL / "nodes" / f"{name}.run.json").read_text())
    return kept["rc"], re.sub(r"\s+", " ", kept["out"])


def test_the_rest_of_the_node_was_looked_at_all_the_same(node) -> None:
    rc, out = run("hung-status")
    assert rc == 0, out
    assert re.search(rf"{node.name} : .*unreachable=0 failed=0 ", out), out
    # Asked for after the GPUs, by the same interpreter.
    assert "Look at the record" in out
    assert "did not answer" in out or "hung" in out, out


def test_the_relaunch_was_refused_and_said_why(node) -> None:
    rc, out = run("hung-relaunch")
    assert rc == 2, out
    assert "nvidia-smi" in out
    assert "unreachable=0" in out, out


def test_the_old_server_was_left_alone(node) -> None:
    assert of_role(node.status(), "launcher") == of_role(node.note("before"), "launcher") != []
    assert not {"stop", "start", "restart", "kill"} & {verb(call) for call in node.calls()}
