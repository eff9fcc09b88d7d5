# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes of two GPUs for runs that break off: with a systemd that keeps timers, and a controller that can be
killed between any two tasks."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import pickle
import re
import shlex
import subprocess
import typing as t

from simulated_nodes import Call, Node, Playbooks, Run, simulate
from test_lost_hosts import BREAKS

CALLBACK = pathlib.Path(__file__).with_name("callback")
INSTANT = {
    "load_s": 0.2,
    "warmup_s": 0,
    "release_delay_s": 0,
    "release_tail": [0, 0],
    "shards": 2,
    "compile_workers": 0,
}
TP = 2
TTL = 900
ARGS = {
    "model-path": "{{ simulated_node }}/models/demo-397b",
    "served-model-name": "demo",
    "tp-size": TP,
    "port": "{{ (lookup('ansible.builtin.file', simulated_node ~ '/node.json') | from_json).port }}",
}
VARIABLES: dict[str, t.Any] = {
    **BREAKS,
    "gpu_release_lease_ttl": TTL,
    "sglang_server_profile": "base",
    "sglang_server_profiles": [
        {"name": "base", "args": ARGS},
        {"name": "trial", "args": {**ARGS, "context-length": 65536}},
    ],
}
NEW = "context-length"  # in the configuration of trial only
TIMER = """#!/bin/sh
# The timers of this node: they only keep who armed them.
for word; do case "$word" in --description=*) said=${word#--description=} ;; esac; done
[ -n "$said" ] || exit 1
{ printf '%%s\\n' "$said"; awk '{ printf "%%d\\n", $1 * 1000000 }' /proc/uptime; } >%(file)s.new
mv %(file)s.new %(file)s
"""
SYSTEMCTL = """#!/bin/sh
case " $* " in
*cleanslate-dead-man-*)
  case " $* " in
  *" show "*)
    if [ -f %(file)s ]; then
      printf 'LoadState=loaded\\nActiveState=active\\nDescription=%%s\\n' "$(sed -n 1p %(file)s)"
      printf 'ActiveEnterTimestampMonotonic=%%s\\n' "$(sed -n 2p %(file)s)"
    else
      printf 'LoadState=not-found\\nActiveState=inactive\\n'
    fi ;;
  *" stop "*) rm -f %(file)s ;;
  esac
  exit 0 ;;
esac
exec %(real)s "$@"
"""


class TimedNode(Node):
    """A node whose systemd can start the unit again later. Files as a profile's start left them on another node."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.name = folder, folder.name
        simulate("create", folder, "--gpus", str(TP))
        self.port = json.loads((folder / "node.json").read_text())["port"]
        self.script(INSTANT)
        tools = folder / "bin"
        self._normal_systemctl = (tools / "systemctl").read_text()
        (tools / "systemctl").rename(tools / "systemctl.real")
        names = {"file": shlex.quote(str(self.timer)), "real": shlex.quote(str(tools / "systemctl.real"))}
        for tool, text in (("systemd-run", TIMER), ("systemctl", SYSTEMCTL)):
            (tools / tool).write_text(text % names)
            (tools / tool).chmod(0o755)

    @property
    def timer(self) -> pathlib.Path:
        return self.folder / "run" / "dead-man"

    def armed_by(self) -> str:
        """The run that armed the timer; empty where none is armed."""
        found = re.search(r"after run (\S+) armed", self.timer.read_text()) if self.timer.exists() else None
        return found[1] if found else ""

    def systemctl(self, verb: str) -> int:
        """What the timer runs, and what a person does."""
        return subprocess.run(
            [str(self.folder / "bin" / "systemctl"), "--user", verb, "sglang.service"],
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.folder / "run")},
            capture_output=True,
            timeout=120,
            check=False,
        ).returncode

    def leases(self) -> list[dict[str, t.Any]]:
        found = []
        for path in self.folder.glob("run/cleanslate/leases-*.json"):
            found += json.loads(path.read_text())["leases"]
        return found

    def take_files_of(self, other: TimedNode) -> None:
        """What a start of the same profile would write here."""
        for path in (other.unit, other.config):
            place = self.folder / path.relative_to(other.folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text().replace(str(other.folder), str(self.folder))
            place.write_text(text.replace(str(other.port), str(self.port)))
            place.chmod(path.stat().st_mode & 0o777)
        guard = self.folder / "lib" / "sglang.pyz"
        guard.parent.mkdir(exist_ok=True)
        guard.write_bytes((other.folder / "lib" / "sglang.pyz").read_bytes())


def in_a_booted_system(play: Playbooks, *arguments: t.Any, **options: t.Any) -> Run:
    """A run on a machine that systemd seems to have booted. The folder by which that is told is not there everywhere:
    it is made in a mount namespace of the run's own."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out)
            os.unshare(os.CLONE_NEWNS)
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
            os.makedirs("/run/systemd/system")
            run = play(*arguments, **options)
            with os.fdopen(into, "wb") as pipe:
                pickle.dump((run.rc, run.out, run.seconds, _plain(run.calls)), pipe)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    assert data, "the run's own process failed: its error stands above"
    rc, text, seconds, calls = pickle.loads(data)
    return Run(rc, text, seconds, {name: [Call(*one) for one in of] for name, of in calls.items()})


def _plain(calls: t.Mapping[str, list[Call]]) -> dict[str, list[tuple[t.Any, ...]]]:
    return {name: [(call.time, call.tool, call.argv) for call in of] for name, of in calls.items()}


@dataclasses.dataclass
class Plan:
    """What the callback is told: where each host is held or lost."""

    folder: pathlib.Path
    hosts: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    kill: bool = True

    def at(self, node: Node, before: str, do: str) -> None:
        self.hosts[node.name] = {"node": str(node.folder), "before": before, "do": do}

    @property
    def log(self) -> pathlib.Path:
        return self.folder / "moments.jsonl"

    def environment(self) -> dict[str, str]:
        file = self.folder / "plan.json"
        told = {"hosts": self.hosts, "play": "Relaunch", "end": "Write the result file", "kill": self.kill}
        file.write_text(json.dumps({**told, "log": str(self.log)}))
        return {
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACK),
            "ANSIBLE_CALLBACKS_ENABLED": "between_tasks",
            "CLEANSLATE_FAULT_PLAN": str(file),
        }

    def moments(self) -> list[dict[str, t.Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]
