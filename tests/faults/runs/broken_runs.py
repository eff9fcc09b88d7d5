# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes of two GPUs for runs that break off between two tasks."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import typing as t

from played_timers import TIMER, armed, give_timers
from simulated_nodes import Node, simulate

CALLBACK = pathlib.Path(__file__).with_name("callback")
INSTANT = {"load_s": 0.2, "warmup_s": 0, "release_delay_s": 0, "shards": 2, "compile_workers": 0}
TP = 2
TTL = 900
ARGS = {
    "model-path": "{{ simulated_node }}/models/demo-397b",
    "served-model-name": "demo",
    "tp-size": TP,
    "port": "{{ (lookup('ansible.builtin.file', simulated_node ~ '/node.json') | from_json).port }}",
}
NEW = "context-length"  # in the configuration of trial only
VARIABLES: dict[str, t.Any] = {
    "gpu_release_lease_ttl": TTL,
    "sglang_server_profile": "base",
    "sglang_server_profiles": [
        {"name": "base", "args": ARGS},
        {"name": "trial", "args": {**ARGS, NEW: 65536}},
    ],
}


def breaks(lost: pathlib.Path, number: int) -> dict[str, t.Any]:
    """Inventory variables of a host that is unreachable as soon as the file is there. Spelt out for each host, since
    a host to which a task is delegated has its variables rendered with those of the other."""
    return {
        "ansible_connection": f"{{{{ 'ssh' if '{lost}' is file else 'local' }}}}",
        # Another address for each: one with the same address would be taken for a second server of one machine.
        "ansible_host": f"127.0.0.{number}",
        "ansible_port": 1,
        "ansible_ssh_retries": 0,
    }


class SmallNode(Node):
    """Two GPUs, which cost less than eight, and played timers, whose time comes when a test says so."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder, INSTANT, gpus=TP)
        give_timers(self)
        self.number = int("".join(filter(str.isdigit, self.name)))
        self.variables = breaks(self.lost, self.number + 1)
        self.said = ""  # by the last tool that was called
        self.inside: list[str] = []  # what leads a command into the node's container, where it has one

    @property
    def lost(self) -> pathlib.Path:
        """While it is there, nobody reaches this host."""
        return self.folder / "lost"

    @property
    def new_files(self) -> bool:
        return self.config.exists() and NEW in self.config.read_text()

    def systemctl(self, verb: str, unit: str = "sglang.service") -> int:
        return self._tool("systemctl", "--user", verb, unit)

    def time_comes(self) -> bool:
        """What the timer's systemd would do now, with the command that it was armed with; whether one was armed."""
        if TIMER not in armed(self):
            return False
        arming = [call for call in self.calls() if call.tool == "systemd-run"][-1]
        command = list(arming.argv)
        while command[0].startswith("-"):
            command.pop(0)
        (self.folder / "run" / "timers" / TIMER).unlink()
        self._tool(pathlib.Path(command[0]).name, *command[1:])
        return True

    def _tool(self, tool: str, *words: str) -> int:
        done = subprocess.run(
            [*self.inside, str(self.folder / "bin" / tool), *words],
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.folder / "run"), "HOME": str(self.folder / "home")},
            stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False, text=True,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        return done.returncode

    def leases(self) -> list[dict[str, t.Any]]:
        """Those that nobody has taken over."""
        found: list[dict[str, t.Any]] = []
        for path in self.folder.glob("run/cleanslate/leases-*.json"):
            found += json.loads(path.read_text())["leases"]
        return [lease for lease in found if not lease["taken_by"]]

    def take_files_of(self, other: SmallNode) -> None:
        """What a start of the same profile would write here."""
        for top in ("etc", "home/.config", "lib", "state"):
            for path in (other.folder / top).rglob("*"):
                place = self.folder / path.relative_to(other.folder)
                if path.is_symlink() or not path.is_file():
                    continue
                place.parent.mkdir(parents=True, exist_ok=True)
                content = path.read_bytes()
                if path.suffix != ".pyz":
                    content = content.replace(str(other.folder).encode(), str(self.folder).encode())
                    content = content.replace(str(other.port).encode(), str(self.port).encode())
                place.write_bytes(content)
                place.chmod(path.stat().st_mode & 0o777)


@dataclasses.dataclass
class Plan:
    """What the callback is told: where each host is held or lost."""

    folder: pathlib.Path
    hosts: dict[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    kill: bool = True
    plays: tuple[str, ...] = ("Relaunch",)
    end: str = "Write the result file"

    def at(self, node: SmallNode, before: str, do: str, nth: int = 1, lost: pathlib.Path | None = None) -> None:
        told = {"node": str(node.folder), "before": before, "nth": nth, "do": do, "lost": str(lost or node.lost)}
        self.hosts[node.name] = told

    @property
    def log(self) -> pathlib.Path:
        return self.folder / "moments.jsonl"

    def environment(self) -> dict[str, str]:
        file = self.folder / "plan.json"
        told = {"hosts": self.hosts, "plays": self.plays, "end": self.end, "kill": self.kill, "log": str(self.log)}
        file.write_text(json.dumps(told))
        return {
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACK),
            "ANSIBLE_CALLBACKS_ENABLED": "between_tasks",
            "CLEANSLATE_FAULT_PLAN": str(file),
        }

    def moments(self, node: SmallNode) -> list[dict[str, t.Any]]:
        lines = map(json.loads, self.log.read_text().splitlines())
        return [line for line in lines if line["host"] == node.name]


def executions(moments: t.Sequence[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """What a run did on the node or the GPU host, in order, each with how things stood before it."""
    found: list[dict[str, t.Any]] = []
    before: dict[tuple[str, int], t.Mapping[str, t.Any]] = {}
    first = last = None
    for moment in moments:
        if "task" in moment:
            before[moment["task"], moment["nth"]] = moment
            first = first or moment
            continue
        then = before[moment["ran"], moment["nth"]]
        pid = then["main_pid"]
        changed = [part for part, value in then["parts"].items() if last and last["parts"][part] != value]
        entry = {
            "task": moment["ran"],
            "nth": moment["nth"],
            "where": "GPU HOST" if moment["where"].startswith("pve") else "NODE",
            "server": "down" if pid is None else "old" if first and pid == first["main_pid"] else "new",
            "lease": any(not lease["taken_by"] for lease in then["leases"]),
            "starting": bool(then["starting"]),
            "timer": bool(then["timer"]),
        }
        kept = ("server", "lease", "starting")
        changed += [name for name in kept if found and found[-1][name] != entry[name]]
        found.append({**entry, "changed": changed})
        last = then
    return found


def destroy(folder: pathlib.Path) -> None:
    simulate("destroy", folder, check=False)
