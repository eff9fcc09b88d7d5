# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-playbook on simulated nodes, with what it cost: seconds, each task's part, memory of the controller."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import typing as t

from measuring import COLLECTIONS, HERE, ROOT, CouldNotRun, use_collection

use_collection()

from simulated_nodes import Node, Playbooks  # noqa: E402

PLAIN = HERE / "peers" / "plain_relaunch.yml"
PINGS = 10
# Stops at once, gives its memory back at once, loads at once.
INSTANT = {
    "load_s": 0,
    "warmup_s": 0,
    "shards": 1,
    "compile_workers": 0,
    # SGLang's own times: it notices a stop after at most 0.1 s, and its ranks have 0.4 s to answer.
    "time_scale": 0.02,
    "release_delay_s": 0,
    "release_tail": [0, 0],
}


@dataclasses.dataclass(frozen=True)
class Played:
    """One ansible-playbook. memory_mib: of the controller's processes together, at its highest."""

    rc: int
    out: str
    seconds: float
    tasks: tuple[dict[str, t.Any], ...]
    memory_mib: float

    def profile(self, most: int = 15) -> list[dict[str, t.Any]]:
        """The tasks that cost most, and all others in one line."""
        rows: dict[str, list[float]] = {}
        for task in self.tasks:
            module = task["action"].rpartition(".")[2]
            name = f"{task['task']} ({module}{', skipped' if task['status'] == 'skipped' else ''})"
            rows.setdefault(name, []).append(task["seconds"])
        ordered = sorted(((sum(costs), len(costs), name) for name, costs in rows.items()), reverse=True)
        shown = [{"seconds": round(s, 2), "times": n, "task": name} for s, n, name in ordered[:most]]
        rest = ordered[most:]
        if rest:
            shown.append({"seconds": round(sum(s for s, *dummy in rest), 2), "times": sum(n for dummy, n, name in rest),
                          "task": f"{len(rest)} other tasks"})  # fmt: skip
        outside = self.seconds - sum(task["seconds"] for task in self.tasks)
        return [*shown, {"seconds": round(outside, 2), "times": 1, "task": "start and end of ansible-playbook itself"}]


def pss_mib(pid: int) -> float:
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("Pss:")), 0.0)


def controllers(session: int) -> list[int]:
    """ansible-playbook and its forks; the modules of a local connection are not among them."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == session and b"ansible-playbook" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, IndexError):
            continue
    return found


class Controller:
    """Runs playbooks as a person would, with the settings of a checkout."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # Where the connections are that Ansible keeps open.
        self.connections = folder / "cp"
        self._inventories = Playbooks(folder)
        self._runs = 0

    def environment(self, costs: pathlib.Path) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "CLEANSLATE_"))}
        return {
            **own,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.connections),
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
            "ANSIBLE_CALLBACKS_ENABLED": "task_costs",
            "CLEANSLATE_TASK_COSTS": str(costs),
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def play(
        self,
        playbook: str | pathlib.Path,
        nodes: t.Sequence[Node],
        *,
        variables: t.Mapping[str, t.Any] | None = None,
        environment: t.Mapping[str, str] | None = None,
        under: t.Sequence[str] = (),
        memory: bool = False,
        **extra: t.Any,
    ) -> Played:
        """under: a program that runs ansible-playbook (strace). CouldNotRun if it does not end with 0."""
        self._runs += 1
        path = playbook if isinstance(playbook, pathlib.Path) else ROOT / "playbooks" / f"{playbook}.yml"
        costs, output = self.folder / f"costs-{self._runs}.jsonl", self.folder / f"out-{self._runs}.txt"
        inventory = self._inventories.inventory(nodes, variables or {}, "sglang_nodes")
        command = [*under, str(pathlib.Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory),
                   str(path), *(("-e", json.dumps(extra)) if extra else ())]  # fmt: skip
        highest = [0.0]
        with output.open("w", encoding="utf-8") as out:
            began = time.monotonic()
            process = subprocess.Popen(
                command, cwd=self.folder, env={**self.environment(costs), **(environment or {})},
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            watcher = threading.Thread(target=self._watch, args=(process, highest)) if memory else None
            if watcher:
                watcher.start()
            try:
                rc = process.wait(timeout=3600)
            except BaseException:
                process.kill()
                process.wait()
                raise
            seconds = time.monotonic() - began
            if watcher:
                watcher.join()
        text = output.read_text(encoding="utf-8", errors="replace")
        lines = costs.read_text(encoding="utf-8").splitlines() if costs.exists() else []
        if rc or not lines:
            raise CouldNotRun(f"{path.name} on {len(nodes)} nodes ended with {rc}:\n{text[-6000:]}")
        return Played(rc, text, seconds, tuple(json.loads(line) for line in lines), highest[0])

    @staticmethod
    def _watch(process: subprocess.Popen[bytes], highest: list[float]) -> None:
        while process.poll() is None:
            highest[0] = max(highest[0], sum(pss_mib(pid) for pid in controllers(process.pid)))
            time.sleep(1)

    def ping(self, nodes: t.Sequence[Node], times: int = PINGS, **options: t.Any) -> float:
        """The wall time of one bare ansible.builtin.ping for all of these nodes: a play of several, divided."""
        page = self.folder / f"pings-{times}.yml"
        tasks = [{"name": f"Ping {n}", "ansible.builtin.ping": {}} for n in range(times)]
        page.write_text(json.dumps([{"name": "Ping", "hosts": "sglang_nodes", "gather_facts": False,
                                     "environment": "{{ cleanslate_environment }}", "tasks": tasks}]))  # fmt: skip
        return self.play(page, nodes, **options).seconds / times
