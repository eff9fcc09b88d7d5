# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stop of the server and the release in one execution, with a systemctl that plays the unit."""

from __future__ import annotations

import os
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process
from ansible_collections.cleanslate.gpu.tests.unit.plugins.modules.release_node import Node, alive, gone

UNIT = "sglang.service"
# stop and kill: "ends" ends the process at the stop, "cut" at the kill only; "refuses": systemd says no.
SYSTEMCTL = """#!{python}
import os, signal, sys
how, pid, calls = {how!r}, {pid}, {calls!r}
verb = next(word for word in sys.argv[1:] if not word.startswith("-"))
with open(calls, "a") as log:
    log.write(verb + "\\n")
done = open(calls).read().split()
stopped = pid == 0 or (how == "ends" and "stop" in done) or (how == "cut" and "kill" in done)
if verb == "show":
    print("LoadState=loaded\\nActiveState=" + ("inactive" if stopped else "active"))
    print("SubState=dead\\nMainPID=" + ("0" if stopped else str(pid)) + "\\nResult=success\\nRestart=no")
if verb == "stop" and how == "refuses":
    sys.exit("Access denied")
if pid and stopped and verb in ("stop", "kill"):
    os.kill(pid, signal.SIGKILL)
"""


class Unit:
    """The node, a unit on it, and what systemctl was asked."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.node = Node(folder)
        self.log = folder / "systemctl-calls"
        self.log.touch()
        self.bin = folder / "bin"
        self.bin.mkdir()

    def play(self, how: str, pid: int) -> None:
        tool = self.bin / "systemctl"
        tool.write_text(SYSTEMCTL.format(python=sys.executable, how=how, pid=pid, calls=str(self.log)))
        tool.chmod(0o755)

    def release(self, *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        arguments = {
            "devices": [f"{self.node.folder}/dev/nvidia*"],
            "nvidia_smi": str(self.node.smi),
            "scope": "own",
            "units": [UNIT],
            "stop_unit": UNIT,
            "drain": 0.2,
            "ladder": [{"signal": "KILL", "wait": 60}],
            "respawn_watch": 0,
            "_ansible_check_mode": check,
            "_ansible_diff": True,
            **params,
        }
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return module_process.run("gpu_force_release", self.node.folder, arguments, PATH=path)

    def asked(self) -> list[str]:
        return [verb for verb in self.log.read_text().split() if verb != "show"]


@pytest.fixture
def unit(tmp_path: pathlib.Path) -> t.Iterator[Unit]:
    made = Unit(tmp_path)
    yield made
    made.node.close()


@pytest.mark.parametrize(("how", "verdict", "asked"), [("ends", "drained", ["stop"]), ("cut", "cut", ["stop", "kill"])])
def test_the_server_is_stopped_through_systemd_and_what_it_left_is_released(
    how: str, verdict: str, asked: list[str], unit: Unit
) -> None:
    (server,), (left,) = unit.node.hold("note"), unit.node.hold("note")
    unit.play(how, server)
    result = unit.release(wait_idle=True, expected_count=2, timeout=30)
    assert (result["stop"]["verdict"], result["stop"]["main_pid"]) == (verdict, server)
    assert unit.asked()[: len(asked)] == asked
    assert (result["verdict"], result["gate"]["verdict"], result["changed"]) == ("released", "idle", True)
    assert [one["pid"] for one in result["signalled"]] == [left]
    assert gone(server, left)
    assert result["diff"][0]["before"] == "active\n"


def test_where_the_server_is_not_stopped_nobody_is_signalled(unit: Unit) -> None:
    (server,) = unit.node.hold("note")
    unit.play("refuses", server)
    result = unit.release()
    assert (result["failed"], result["stop"]["verdict"]) == (True, "still_running")
    assert "Access denied" in result["msg"]
    assert "Nobody else was signalled" in result["msg"]
    assert (result["signalled"], result["gate"]) == ([], None)
    assert unit.node.signals() == []
    assert alive(server)


def test_no_server_is_stopped_where_it_cannot_be_seen_who_holds_the_gpus(unit: Unit) -> None:
    (server,) = unit.node.hold("note")
    unit.play("cut", server)
    result = unit.release(devices=[f"{unit.node.folder}/nothing*"])
    assert (result["failed"], result["verdict"], result["stop"]) == (True, "incomplete", None)
    assert f"{UNIT} was not stopped" in result["msg"]
    assert unit.asked() == []
    assert alive(server)


def test_a_release_that_fails_after_the_stop_says_that_there_was_one(unit: Unit) -> None:
    (server,), (left,) = unit.node.hold("note"), unit.node.hold("note")
    unit.play("cut", server)
    result = unit.release(scope="unit", wait_idle=True, expected_count=2, timeout=0.5)
    assert result["failed"]
    assert result["msg"].startswith(f"{UNIT} (pid {server}) had not ended 0 s after SIGTERM and was cut off"), result
    assert alive(left)


def test_a_server_that_does_not_run_is_no_change(unit: Unit) -> None:
    unit.play("ends", 0)
    result = unit.release()
    assert (result["stop"]["verdict"], result["verdict"], result["changed"]) == ("already_stopped", "free", False)
    assert unit.asked() == []


def test_check_mode_stops_nothing(unit: Unit) -> None:
    (server,) = unit.node.hold("note")
    unit.play("ends", server)
    result = unit.release(check=True)
    assert (result["stop"]["verdict"], result["verdict"], result["changed"]) == ("would_stop", "would_release", True)
    assert unit.asked() == []
    assert alive(server)


def test_a_gpu_host_stops_no_unit_of_its_own(unit: Unit) -> None:
    """The systemd of a GPU host knows no unit of a container."""
    (server,) = unit.node.hold("note")
    unit.play("ends", server)
    result = unit.release(scope="lxc", lxc=["101"], units=[], node_pid_namespace="pid:[1]")
    assert result["failed"]
    assert "stop_unit is sglang.service, and scope is lxc" in result["msg"]
    assert unit.asked() == []
    assert alive(server)


def test_without_a_unit_nothing_is_stopped_first(unit: Unit) -> None:
    unit.play("ends", 0)
    assert unit.release(stop_unit=None)["stop"] is None
