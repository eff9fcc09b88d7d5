# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real timer: it fires on its own, mends a hang, keeps quiet while all is well, mends a second one; then it goes.

102 plays the controller. Its timer runs the very unit that the role wrote; the program in it is a stand-in that has the
command carried out by this test, since there is no Ansible in the container.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
import typing as t

import commands
import layout
import pytest
import serving
from evidence import unit_state
from inside import Inside, end_holders
from playing import Play, play

ASKED = os.path.join(layout.NODE, "contexts", ".schedule")  # the one folder that host and containers share
PROXY = "/usr/local/bin/ansible-playbook"
SCRIPT = f"""#!/bin/sh
[ "$1" = --version ] && exit 0
id=$(date +%s%N)
printf '%s\\n' "$@" > {ASKED}/$id.new && mv {ASKED}/$id.new {ASKED}/$id.ask
while [ ! -e {ASKED}/$id.rc ]; do sleep 0.2; done
exit "$(cat {ASKED}/$id.rc)"
"""
SCHEDULE = [
    {"hosts": "ct102", "gather_facts": False, "roles": [{"role": "cleanslate.gpu.drift_schedule"}]},
]
VARIABLES = {
    "drift_schedule_calendar": "*:*:0/15",
    "drift_schedule_jitter": 0,
    "drift_schedule_ansible_playbook": PROXY,
    "drift_schedule_inventory": ["/etc/ansible/gpu"],
    "drift_schedule_directory": "/",
    "drift_schedule_metrics_dir": "/var/lib/metrics",
}
POLICY = {"gpu_drift_mode": "remediate", "gpu_drift_confirm_after": 3, "gpu_drift_max_remediations": 5,
          "gpu_drift_backoff": 1}  # fmt: skip


class Controller:
    """Carries out what the timer asks for, one run after the other."""

    def __init__(self) -> None:
        self.rows: list[dict[str, t.Any]] = []
        self.argv: list[list[str]] = []
        self.at_once = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._end.set()
        self._thread.join(120)

    def _serve(self) -> None:
        while not self._end.wait(0.2):
            asked = sorted(name for name in os.listdir(ASKED) if name.endswith(".ask"))
            self.at_once = max(self.at_once, len(asked))
            for name in asked:
                with open(os.path.join(ASKED, name), encoding="utf-8") as handle:
                    self.argv.append(handle.read().splitlines())
                os.unlink(os.path.join(ASKED, name))
                layout.write(os.path.join(ASKED, name[:-4] + ".rc"), f"{self._run().code}\n")

    def _run(self) -> Play:
        path = os.path.join(layout.STATE, "log", "scheduled.json")
        played = play("drift.yml", "ct101", extra={**POLICY, "gpu_drift_result_file": path})
        with open(path, encoding="utf-8") as handle:
            self.rows += json.load(handle)
        return played

    def mended(self) -> int:
        return sum(row["outcome"] == "ready" for row in self.rows)

    def wait_for(self, what: str, condition: t.Callable[[], bool]) -> None:
        commands.wait_for(what, condition, 150, 0.5)


def schedule(state: str = "present") -> Play:
    path = os.path.join(layout.STATE, "log", "schedule.json")
    layout.write(path, json.dumps(SCHEDULE))
    return play(path, "ct102", extra={**VARIABLES, "drift_schedule_state": state})


@pytest.fixture
def served(scene: tuple[Inside, Inside]) -> tuple[Inside, Inside]:
    end_holders()
    node, controller = scene
    serving.behave(node)
    node.pct(
        "sh",
        "-c",
        "rm -rf /etc/sglang /etc/systemd/system/sglang.service* /var/lib/cleanslate; systemctl daemon-reload",
    )
    played = play("relaunch.yml", "ct101")
    assert played.code == 0, played.why()
    os.makedirs(ASKED, exist_ok=True)
    os.chmod(ASKED, 0o777)
    controller.put(PROXY, SCRIPT, "755")
    controller.pct("mkdir", "-p", "/var/lib/metrics")
    return scene


def hang(node: Inside) -> None:
    node.pct("sh", "-c", "pkill -STOP -f '^sglang::scheduler'")


def metrics(controller: Inside) -> dict[str, str]:
    text = controller.pct("sh", "-c", "cat /var/lib/metrics/*.prom 2>/dev/null || true")
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))


def test_a_timer_mends_two_hangs_and_nothing_else(served: tuple[Inside, Inside]) -> None:
    node, controller = served
    with Controller() as runs:
        installed = schedule()
        assert installed.code == 0, installed.why()
        try:
            runs.wait_for("it looked on its own", lambda: len(runs.rows) >= 1)
            assert runs.rows[0]["action"] == "nothing", runs.rows
            for number in (1, 2):
                hang(node)
                runs.wait_for(f"hang {number} is mended", lambda number=number: runs.mended() == number)
                assert serving.answers(node)
                seen = len(runs.rows)
                runs.wait_for("it keeps quiet", lambda seen=seen: len(runs.rows) >= seen + 1)
                assert runs.rows[-1]["action"] == "nothing", runs.rows[-1]
            before = unit_state(node)
            metric = metrics(controller)
            assert metric['cleanslate_schedule_last_run_success{name="cleanslate-drift"}'] == "1", metric
        finally:
            removed = schedule("absent")
        assert removed.code == 0, removed.why()
        seen = len(runs.argv)
        time.sleep(20)
        assert len(runs.argv) <= seen + 1, "no run begins after the schedule is gone"
    assert runs.mended() == 2
    assert runs.at_once == 1, "never two at a time"
    assert runs.argv[0] == ["cleanslate.gpu.drift", "--inventory", "/etc/ansible/gpu"], shlex.join(runs.argv[0])
    assert unit_state(node).shown["InvocationID"] == before.shown["InvocationID"]
    paths = "/etc/systemd/system/cleanslate-drift.service /etc/systemd/system/cleanslate-drift.timer"
    assert controller.pct("sh", "-c", f"ls {paths} 2>/dev/null || true") == ""
