# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A profile that does not come to serve: what is left, with and without a rollback, and where a rollback ends."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import socket
import sys
import typing as t

import pytest
from simulated_nodes import SIMULATE, Node, Run, alive

HANGS = {"SIM_HANG_AT": "graph"}
SOON = {"sglang_server_progress_timeout": 4}


class Rolled(t.NamedTuple):
    """base serves; broken fails without a rollback; worse fails with one."""

    node: Node
    first: Run
    without: Run
    rolled: Run
    files: dict[str, bytes]
    rows: list[dict[str, t.Any]]


def profiles(node: Node, *, base: bool = True) -> list[dict[str, t.Any]]:
    """The last one knows another key and name, so that a rollback cannot be proved with the new one's."""
    common = {"model-path": f"{node.folder}/models/demo-397b", "tp-size": 8, "port": node.port}
    broken: dict[str, t.Any] = {
        "args": {**common, "served-model-name": "new-model"},
        "api_key": "new-key-0123",
        "env": HANGS,
    }
    old = {"name": "base", "args": {**common, "served-model-name": "old-model"}, "api_key": "old-key-4567"}
    return [*([old] if base else []), {"name": "broken", **broken}, {"name": "worse", **broken}]


def installed(node: Node) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (node.unit, node.config)}


@pytest.fixture(scope="module")
def rolled(make_shared_node, play, tmp_path_factory) -> Rolled:
    node = make_shared_node()
    result = tmp_path_factory.mktemp("rolled") / "result.json"
    first = play("relaunch", node, sglang_server_profiles=profiles(node), sglang_server_profile="base")
    assert first.rc == 0, str(first)
    files = installed(node)
    without = play("relaunch", node, sglang_server_profiles=profiles(node), sglang_server_profile="broken", **SOON)
    # As where somebody has deleted the old profile from the inventory meanwhile, and switches with -e, which wins.
    rest = profiles(node, base=False)
    rolled = play(
        "relaunch",
        node,
        sglang_server_profiles=rest,
        sglang_server_profile="worse",
        sglang_server_rollback=True,
        relaunch_result_file=str(result),
        **SOON,
    )
    return Rolled(node, first, without, rolled, files, json.loads(result.read_text()))


def test_without_a_rollback_it_is_left_as_it_is_and_said(rolled) -> None:
    assert rolled.without.rc == 2, str(rolled.without)
    said = rolled.without.failures(rolled.node)[-1]
    assert "was started with profile broken and is left as it is" in said, said


def test_the_play_fails_and_says_what_failed_and_what_serves(rolled) -> None:
    assert rolled.rolled.rc == 2, str(rolled.rolled)
    said = rolled.rolled.failures(rolled.node)[-1]
    assert "Wait until the server serves" in said, said
    assert "rolled back: profile base serves again" in said, said
    assert "cleanslate_verdict: rolled_back" in rolled.rolled.out, str(rolled.rolled)
    assert [row["verdict"] for row in rolled.rows] == ["rolled_back"], "the result file says what the record says"


def test_the_last_one_that_served_is_back_not_the_one_before(rolled) -> None:
    assert installed(rolled.node) == rolled.files
    (pid,) = rolled.node.launchers()
    assert alive(pid)
    assert b"broken" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    models = rolled.node.folder / "etc" / "sglang.yaml"
    assert "old-model" in models.read_text()


def test_it_went_through_the_gate_again(rolled) -> None:
    verbs = rolled.rolled.verbs(rolled.node, "start", "query-gpu")
    first, second = [place for place, verb in enumerate(verbs) if verb == "start"]
    assert verbs[first:second].count("query-gpu") >= 2, verbs


def test_the_keys_of_neither_profile_are_shown(rolled, play) -> None:
    for run in (rolled.first, rolled.without, rolled.rolled):
        assert "old-key-4567" not in run.out
        assert "new-key-0123" not in run.out


def test_no_lease_is_left(rolled, play) -> None:
    shown = play("unlock", rolled.node)
    assert "no lease" in shown.text.lower() or "nobody" in shown.text.lower(), str(shown)


def test_a_start_that_the_guard_refuses_is_rolled_back_by_the_former_profiles_own_port(make_node, play) -> None:
    """Between the gate and the start somebody takes a GPU, and somebody else the port of the new profile. The way back
    is that of the old one: who has the new port does not matter to it."""
    node: Node = make_node()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    common = {"model-path": f"{node.folder}/models/demo-397b", "tp-size": 8}
    both = [
        {"name": "base", "args": {**common, "served-model-name": "base", "port": node.port}},
        {"name": "moved", "args": {**common, "served-model-name": "moved", "port": port}},
    ]
    first = play("relaunch", node, sglang_server_profiles=both, sglang_server_profile="base")
    assert first.rc == 0, str(first)
    files = installed(node)
    stranger = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    hold = [sys.executable, str(SIMULATE), "hold", str(node.folder), "--gpu", "3", "--mib", "5000"]
    once = node.folder / "once"
    line = (
        f"[ -e {once} ] || {{ touch {once}; {shlex.join(hold)}; setsid {shlex.join(stranger)} & echo $! >{once}; }}"
        " >/dev/null 2>&1"
    )
    node.wrap_systemctl({"daemon-reload": line})
    try:
        run = play(
            "relaunch", node, sglang_server_profiles=both, sglang_server_profile="moved", sglang_server_rollback=True
        )
        pid = int(once.read_text())
        assert alive(pid), "whoever has the port is nobody of ours"
    finally:
        node.unwrap_systemctl()
        if once.exists() and once.read_text().strip():
            os.kill(int(once.read_text()), signal.SIGKILL)
    assert run.rc == 2, str(run)
    said = run.failures(node)[-1]
    assert "Refuses to start sglang.service" in said, said
    assert f"pid {pid} " in said, said
    assert "rolled back: profile base serves again" in said, said
    assert installed(node) == files
    assert len(node.launchers()) == 1


def test_where_nothing_ever_served_there_is_no_way_back(make_node, play) -> None:
    node = make_node()
    run = play(
        "relaunch",
        node,
        sglang_server_profiles=profiles(node),
        sglang_server_profile="broken",
        sglang_server_rollback=True,
        **SOON,
    )
    assert run.rc == 2, str(run)
    said = run.failures(node)[-1]
    assert "no server was ever proved to serve" in said, said
    assert run.verbs(node, "stop", "start") == ["start"], "the server that hangs is not stopped for nothing"
