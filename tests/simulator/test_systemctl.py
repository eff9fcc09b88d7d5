# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from driving import until

needs_stand_in = pytest.mark.skipif(
    importlib.util.find_spec("systemctl2") is None, reason="docker-systemctl-replacement is not installed"
)
UNIT = """\
[Unit]
Description=SGLang
[Service]
Type=exec
ExecStartPre=%(pre)s
ExecStart=%(node)s/bin/python -m sglang.launch_server --model-path /m --tp-size 2 --port %(port)d
Environment=SIM_LOAD_S=0.3 SIM_TIME_SCALE=0.05 SIM_REQUESTS_RUNNING=%(requests)d SIM_REQUESTS_FINISH_S=1
KillMode=mixed
TimeoutStopSec=20
StandardOutput=append:%(node)s/unit.log
StandardError=append:%(node)s/unit.log
[Install]
WantedBy=default.target
"""


class Unit:
    def __init__(self, node, requests=0, pre="/bin/true"):
        self.node = node
        path = pathlib.Path(node.path, "home/.config/systemd/user/sglang.service")
        path.write_text(
            UNIT % {"node": node.path, "port": node.port, "requests": requests, "pre": pre}, encoding="utf-8"
        )

    def ctl(self, *argv):
        return subprocess.run([self.node.path + "/bin/systemctl", *argv], capture_output=True, text=True, timeout=60,
                              check=False)  # fmt: skip

    def do(self, *argv):
        done = self.ctl("--user", *argv)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def state(self):
        return self.do("show", "sglang.service", "-p", "ActiveState,SubState", "--value").split()

    def log(self):
        path = pathlib.Path(self.node.path, "unit.log")
        return path.read_text(encoding="utf-8") if path.exists() else ""


@needs_stand_in
def test_the_life_of_a_unit(node):
    unit = Unit(node)
    unit.do("daemon-reload")
    assert unit.do("show", "sglang.service", "-p", "ActiveState,SubState,Result,MainPID,NRestarts,LoadState") == (
        "ActiveState=inactive\nSubState=dead\nResult=success\nMainPID=0\nNRestarts=0\nLoadState=loaded\n"
    )
    unit.do("start", "sglang")
    assert unit.state() == ["active", "running"]
    assert unit.do("is-active", "sglang.service") == "active\n"
    first = unit.do("show", "sglang", "-p", "MainPID", "-p", "InvocationID", "--value").split()
    assert until(lambda: "fired up" in unit.log())
    assert int(first[0]) == node.processes()["launcher"][0].pid
    environment = pathlib.Path(f"/proc/{first[0]}/environ").read_bytes().split(b"\0")
    assert f"INVOCATION_ID={first[1]}".encode() in environment
    unit.do("restart", "sglang")
    second = unit.do("show", "--property=MainPID,InvocationID", "--value", "sglang").split()
    assert len(second) == 2
    assert not set(first) & set(second)
    unit.do("stop", "sglang")
    assert unit.state() == ["inactive", "dead"]
    assert unit.ctl("--user", "is-active", "sglang").returncode == 3
    assert until(lambda: node.processes().get("launcher") is None)
    unit.do("stop", "sglang")
    assert [call["argv"][1] for call in node.calls("systemctl")][:3] == ["daemon-reload", "show", "start"]


@needs_stand_in
def test_a_stop_without_waiting_shows_deactivating_until_it_is_over(node):
    unit = Unit(node, requests=1)
    unit.do("start", "sglang")
    assert until(lambda: "fired up" in unit.log())
    unit.do("stop", "--no-block", "sglang")
    assert unit.state() == ["deactivating", "stop-sigterm"]
    assert until(lambda: unit.state() == ["inactive", "dead"])
    assert "Remaining number of requests 1." in unit.log()


@needs_stand_in
def test_a_stop_beside_a_process_whose_name_is_not_utf8(node):
    unit = Unit(node)
    unit.do("start", "sglang")
    assert until(lambda: "fired up" in unit.log())
    code = "import time; open('/proc/self/comm', 'wb').write(b'\\xff'); print('named', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as odd:
        assert odd.stdout.readline() == b"named\n"
        unit.do("stop", "sglang")
        odd.kill()
    assert "SIGTERM received" in unit.log()


@needs_stand_in
def test_a_start_without_waiting_shows_activating_while_its_guard_runs(node):
    unit = Unit(node, pre="/bin/sleep 1")
    unit.do("start", "--no-block", "sglang")
    assert unit.state() == ["activating", "start"]
    assert until(lambda: unit.state() == ["active", "running"])


@needs_stand_in
def test_a_guard_that_refuses(node):
    unit = Unit(node, pre="/bin/false")
    assert unit.ctl("--user", "start", "sglang").returncode == 1
    assert unit.state()[0] == "failed"
    assert "launcher" not in node.processes()


@needs_stand_in
def test_death_kill_and_reset_failed(node):
    unit = Unit(node)
    unit.do("start", "sglang")
    assert until(lambda: "fired up" in unit.log())
    ranks = [node.processes()[f"scheduler_TP{rank}"][0].pid for rank in (0, 1)]
    unit.do("kill", "--signal=STOP", "--kill-whom=all", "sglang")
    assert all(until(lambda p=pid: pathlib.Path(f"/proc/{p}/stat").read_text().split()[2] == "T") for pid in ranks)
    unit.do("kill", "-s", "SIGKILL", "--kill-whom=main", "sglang")
    assert until(lambda: unit.state()[0] == "failed")
    assert unit.do("show", "sglang", "-p", "MainPID,Result") == "MainPID=0\nResult=exit-code\n"
    assert unit.ctl("--user", "kill", "sglang").returncode == 1
    unit.do("reset-failed", "sglang")
    assert unit.state() == ["inactive", "dead"]
    unit.do("reset-failed", "sglang")


@needs_stand_in
def test_units_and_managers_that_are_not_there(node):
    unit = Unit(node)
    assert unit.do("show", "nosuch.service", "-p", "LoadState,ActiveState,SubState,MainPID") == (
        "LoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\n"
    )
    assert "ssh" not in unit.do("list-unit-files"), "the units of this machine are not the node's"
    for verb in ("start", "stop", "reset-failed"):
        done = unit.ctl("--user", verb, "nosuch")
        assert done.returncode == 5
        assert "nosuch.service" in done.stderr
    done = unit.ctl("show", "sglang")
    assert done.returncode == 1
    assert "add --user" in done.stderr


@needs_stand_in
def test_stop_of_the_node_ends_its_units(node):
    unit = Unit(node)
    unit.do("start", "sglang")
    main = int(unit.do("show", "sglang", "-p", "MainPID", "--value"))
    node.stop()
    assert not os.path.exists(f"/proc/{main}") or "State:\tZ" in pathlib.Path(f"/proc/{main}/status").read_text()
    assert unit.state()[0] == "failed"


@needs_stand_in
def test_a_service_sees_the_managers_environment_only(node):
    unit = Unit(node)
    os.environ["CALLERS_OWN"] = "x"
    try:
        unit.do("start", "sglang")
    finally:
        del os.environ["CALLERS_OWN"]
    main = int(unit.do("show", "sglang", "-p", "MainPID", "--value"))
    environment = pathlib.Path(f"/proc/{main}/environ").read_bytes().decode().split("\0")
    assert f"HOME={node.path}/home" in environment
    assert "CALLERS_OWN=x" not in environment
    os.kill(main, signal.SIGKILL)


def test_without_the_package_the_message_says_what_to_install(node):
    launcher = pathlib.Path(node.path, "bin/systemctl")
    launcher.write_text(launcher.read_text(encoding="utf-8").replace(" -I -B ", " -I -S -B "), encoding="utf-8")
    done = subprocess.run([str(launcher), "--user", "show", "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install docker-systemctl-replacement" in done.stderr
