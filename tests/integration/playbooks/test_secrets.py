# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The keys of a profile are in files of mode 0600 and in the server's own log, and nowhere else.

They are looked for by their first and by their last part, so that half a mask is seen too.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
import typing as t

import pytest
from simulated_nodes import Node, Playbooks, Run

KEYS = {"api_key": "planted-A0._~+/x-tail4711==", "admin_api_key": "planted-admin~x-tail4711"}
NEEDLES = ("planted-", "-tail4711")
# The log is the server's own: SGLang prints its keys. The rest is the configuration as it is, was, and was proved.
MAY_HOLD = ("sglang.log", "etc/sglang.yaml", "etc/sglang.yaml.previous", "etc/sglang.yaml.proved")


def holds(text: str | bytes) -> bool:
    """Is a key in it, or a part of one?"""
    data = text if isinstance(text, bytes) else text.encode()
    return any(needle.encode() in data for needle in NEEDLES)


class ArgvWatch:
    """Looks into every command line of the machine, again and again."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.looks = 0
        self.over = threading.Event()

    def look_on(self) -> None:
        while not self.over.wait(0.1):
            self.looks += 1
            for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    text = place.read_bytes()
                except OSError:
                    continue
                if holds(text):
                    self.seen.append(text.replace(b"\0", b" ").decode(errors="replace"))


@contextlib.contextmanager
def watch_command_lines() -> t.Iterator[ArgvWatch]:
    watch = ArgvWatch()
    thread = threading.Thread(target=watch.look_on)
    thread.start()
    try:
        yield watch
    finally:
        watch.over.set()
        thread.join()


class Planted(t.NamedTuple):
    """What was run with the keys planted, and what was seen while it ran."""

    node: Node
    runs: dict[str, Run]
    watch: ArgvWatch
    result_file: pathlib.Path


@pytest.fixture(scope="module")
def planted(make_shared_node, play: Playbooks, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    node = make_shared_node({"die_at": {"stage": "kv_cache", "exit_code": 1}})
    result_file = tmp_path_factory.mktemp("result") / "result.json"
    profile = {
        "name": "planted",
        **KEYS,
        "args": {"model-path": "{{ simulated_node }}/models/demo-397b", "tp-size": 8, "port": node.port},
        # What the server says of itself holds the keys too; what was found is told where it is not what was expected.
        "expect": [{"query": "server_info.api_key", "equals": "something else"}],
    }
    variables = {"sglang_server_profile": "planted", "sglang_server_profiles": [profile]}

    def run(playbook: str, *words: str, **extra: t.Any) -> Run:
        return play(playbook, node, "-vvv", *words, variables=variables, **extra)

    with watch_command_lines() as watch:
        runs = {"check": run("relaunch", "--check", "--diff", relaunch_result_file=str(result_file))}
        # The server dies: its log, which holds the keys as the real one's does, is quoted in the failure.
        runs["dies"] = run("relaunch", "--diff")
        node.script()
        runs["serves"] = run("relaunch", "--diff")
        runs["status"] = run("status")
        runs["stop"] = run("stop")
    return Planted(node, runs, watch, result_file)


def test_the_runs_went_through_every_place_where_a_key_could_come_out(planted: Planted) -> None:
    runs = planted.runs
    assert runs["check"].rc == 0, str(runs["check"])
    assert "api-key" in runs["check"].out, "the configuration is in the diff"
    assert "simulated death" in runs["dies"].text, str(runs["dies"])
    assert "server_info.api_key" in runs["serves"].text, str(runs["serves"])
    assert runs["status"].rc == 0, str(runs["status"])
    assert planted.watch.looks > 20
    assert holds((planted.node.folder / "sglang.log").read_text()), "the fake prints them, as the real one does"
    assert json.loads(planted.result_file.read_text())


@pytest.mark.parametrize("name", ["check", "dies", "serves", "status", "stop"])
def test_no_key_is_printed_even_with_all_verbosity(name: str, planted: Planted) -> None:
    assert not [line for line in planted.runs[name].out.splitlines() if holds(line)]


def test_no_key_is_on_any_command_line(planted: Planted) -> None:
    assert not planted.watch.seen


def test_no_file_holds_a_key_but_the_configuration_and_the_servers_own_log(planted: Planted) -> None:
    node = planted.node
    holding = {
        path.relative_to(node.folder).as_posix(): path.stat().st_mode & 0o777
        for path in node.folder.rglob("*")
        if path.is_file() and holds(path.read_bytes())
    }
    assert holding["etc/sglang.yaml"] == 0o600
    assert set(holding) <= set(MAY_HOLD)
    assert set(holding.values()) == {0o600}
    assert node.unit.exists()
    assert not holds(planted.result_file.read_text())


@pytest.mark.parametrize(
    "playbook",
    ["drift", "history", "pause", "preflight", "relaunch", "release", "start", "status", "stop", "unlock"],
)
def test_no_playbook_puts_a_secret_into_the_environment_of_modules(
    playbook: str, planted: Planted, play: Playbooks
) -> None:
    """Ansible would set it on the command line of every module."""
    node = planted.node
    before = node.snapshot()
    secret = {"HF_TOKEN": KEYS["api_key"]}
    with watch_command_lines() as watch:
        run = play(
            playbook, node, "-vvv", variables={"cleanslate_environment": secret}, pause_minutes=1, pause_reason="x"
        )
    assert run.rc != 0, str(run)
    assert "cleanslate_environment: HF_TOKEN looks like a secret" in run.text, str(run)
    assert not run.of(node), "it is found before the node is asked anything"
    assert node.snapshot() == before
    assert not watch.seen
    assert not holds(run.out)
