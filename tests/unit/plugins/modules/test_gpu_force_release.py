# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process, with plain files as device nodes and processes that really hold them."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process
from ansible_collections.cleanslate.gpu.tests.unit.plugins.modules.release_node import (
    HOLD_NODE,
    HOLDER,
    LONG,
    Node,
    alive,
    gone,
)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> t.Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


KEYS = {
    "changed", "msg", "verdict", "holders", "signalled", "would_signal", "stop", "stopped", "would_stop", "survivors",
    "respawned_by", "stale_nodes", "smi_state", "gate", "elapsed_s", "diff",
}  # fmt: skip


def test_nothing_to_do(node: Node) -> None:
    result = node.release()
    assert (result["verdict"], result["changed"], result["holders"]) == ("free", False, [])
    assert result.keys() >= KEYS


def test_one_that_ignores_term(node: Node) -> None:
    (pid,) = node.hold("ignore")
    result = node.release(wait_idle=True, expected_count=2, timeout=30)
    assert (result["verdict"], result["changed"], result["gate"]["verdict"]) == ("released", True, "idle")
    assert [(one["pid"], one["signal"]) for one in result["signalled"]] == [(pid, "TERM"), (pid, "KILL")]
    assert node.signals() == [(pid, "SIGTERM")]
    assert gone(pid)
    assert str(pid) in result["diff"]["before"]
    assert result["diff"]["after"] == ""


def test_only_the_top_of_a_tree_gets_term(node: Node) -> None:
    pids = node.hold("end", children=3)
    parent = node.started[0].pid
    result = node.release()
    assert result["verdict"] == "released"
    assert gone(*pids)
    assert node.signals() == [(parent, "SIGTERM")]
    assert sorted(one["pid"] for one in result["signalled"] if one["signal"] == "KILL") == sorted({*pids} - {parent})


def test_more_holders_than_descriptors(node: Node) -> None:
    """A pidfd for each must leave room for the looks, or a release ends halfway."""
    pids = node.hold("end", children=75)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        result = node.release(ladder=[{"signal": "KILL", "wait": 60}])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (result["verdict"], len(result["signalled"])) == ("released", 76)
    assert gone(*pids)


def test_one_that_forks_when_asked_to_end(node: Node) -> None:
    (pid,) = node.hold("fork")
    result = node.release(ladder=[{"signal": "TERM", "wait": 1}, {"signal": "KILL", "wait": 60}])
    assert result["verdict"] == "released"
    late = {one["pid"] for one in result["signalled"]} - {pid}
    assert len(late) == 1
    assert gone(pid, *late)


@pytest.mark.parametrize("way", ["map", "both", "mapping-zombie-leader", "inherit"])
def test_holders_that_others_do_not_find(way: str, node: Node) -> None:
    (pid,) = node.start(str(HOLD_NODE), way, str(node.folder / "dev/nvidia1"))
    if way == "inherit":
        node.started[0].wait(LONG)  # the parent whose context it inherited is dead
    result = node.release()
    assert result["verdict"] == "released"
    assert pid in [one["pid"] for one in result["signalled"]]
    assert gone(pid)


def test_monitors_and_the_shell_that_started_it_live(node: Node) -> None:
    """The shell holds the node on an open fd and in its child's mappings, as an ancestor of the module."""
    path = str(node.folder / "dev/nvidia1")
    (monitor,) = node.start(str(HOLD_NODE), "open", path)
    (victim,) = node.hold("end")
    arguments = node.folder / "in-shell.json"
    arguments.write_text(
        json.dumps(
            {
                "ANSIBLE_MODULE_ARGS": {
                    "devices": [f"{node.folder}/dev/nvidia*"],
                    "nvidia_smi": str(node.smi),
                    "scope": "own",
                    "respawn_watch": 0,
                }
            }
        )
    )
    script = (
        "import mmap, subprocess, sys\n"
        f"stream = open({path!r}, 'rb')\n"
        "area = mmap.mmap(stream.fileno(), 4096, prot=mmap.PROT_READ)\n"
        "done = subprocess.run([sys.executable, '-m', "
        f"'ansible_collections.cleanslate.gpu.plugins.modules.gpu_force_release', {str(arguments)!r}])\n"
        "print('survived', done.returncode)\n"
    )
    done = subprocess.run(
        ["sh", "-c", '"$@"; echo "shell lives"', "sh", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=LONG,
        env={**os.environ, "PYTHONPATH": module_process.import_path()},
        check=False,
    )
    assert "survived 0" in done.stdout, done
    assert "shell lives" in done.stdout, done
    result = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert [one["pid"] for one in result["signalled"]] == [victim]
    roles = {one["pid"]: one["disposition"] for one in result["holders"]}
    assert roles[monitor] == "monitor"
    assert "self" in roles.values()
    assert alive(monitor)
    assert gone(victim)


def test_a_supervisor_that_starts_it_again_is_named(node: Node) -> None:
    script = node.folder / "holder.py"
    script.write_text(HOLDER)
    loop = f'while :; do "{sys.executable}" "{script}" "{node.folder}/dev/nvidia1" "{node.log}" end; sleep 0.2; done'
    supervisor = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        result = node.release(respawn_watch=60)
        assert result["verdict"] == "respawned"
        assert result["failed"]
        assert result.keys() >= KEYS
        assert f"PID {supervisor.pid}" in result["respawned_by"]
        assert f"PID {supervisor.pid}" in result["msg"]
    finally:
        os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait(LONG)
        assert supervisor.stdout is not None
        supervisor.stdout.close()


def test_check_mode_says_whom_and_changes_nothing(node: Node) -> None:
    pids = node.hold("end", children=1)
    parent = node.started[0].pid
    (child,) = {*pids} - {parent}
    node.used(0, 76115)
    result = node.release(check=True, wait_idle=True, expected_count=2)
    assert (result["verdict"], result["changed"], result["signalled"]) == ("would_release", True, [])
    assert result["would_signal"] == [{"pid": parent, "signal": "TERM"}, {"pid": child, "signal": "KILL"}]
    assert (result["gate"]["verdict"], result["gate"]["would_open_after_release"]) == ("busy", True)
    assert result["diff"]["before"].count("\n") == 2
    assert result["diff"]["after"] == ""
    assert alive(parent)
    assert alive(child)
    assert node.signals() == []


def test_the_gate_fails_with_its_own_sentence(node: Node) -> None:
    node.used(0, 76115)
    result = node.release(wait_idle=True, expected_count=3, timeout=1)
    assert result["failed"]
    assert result["verdict"] == "free"
    assert result["gate"]["verdict"] == "missing"
    assert "2 of 3" in result["msg"]
    assert result.keys() >= KEYS


@pytest.mark.parametrize("trouble", ["absent", "failing"])
def test_without_nvidia_smi_devices_alone_decide(trouble: str, node: Node) -> None:
    (pid,) = node.hold("end")
    if trouble == "absent":
        result = node.release(nvidia_smi=str(node.folder / "nothing"))
    else:
        node.smi.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
        result = node.release()
    assert result["verdict"] == "released"
    assert gone(pid)
    assert result["smi_state"] == {"absent": "no_tool", "failing": "no_devices"}[trouble]


def test_nvidia_smi_is_not_asked_in_the_loop(node: Node) -> None:
    node.hold("ignore")
    node.release()
    assert (node.folder / "calls").read_text().count("--query-gpu\n") == 1


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"scope": "unit"}, "units is empty"),
        ({"scope": "all"}, "allow_foreign"),
        ({"ladder": [{"signal": "STOP", "wait": 1}]}, "'STOP' is none of"),
        ({"ladder": [{"signal": "TERM", "wait": 1}]}, "the last rung has to be KILL"),
        ({"respawn_watch": -1}, "respawn_watch is -1"),
        ({"stop_timeout": 0}, "stop_timeout is 0"),
        ({"wait_idle": True}, "expected_count and expected_uuids"),
        ({"wait_idle": True, "expected_count": 0}, "expected_count is 0"),
        ({"smi_timeout": 0}, "smi_timeout is 0"),
    ],
)
def test_options_that_cannot_be_meant_fail_before_anything_runs(
    params: dict[str, t.Any], words: str, node: Node
) -> None:
    (pid,) = node.hold("end")
    result = node.release(**params)
    assert result["failed"]
    assert words in result["msg"]
    assert alive(pid)
    assert not (node.folder / "calls").exists()
