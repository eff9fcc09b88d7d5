# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nodes and real ansible-playbook processes that work on them.

What a test concludes comes from the simulator, /proc and the node's call log, never from the modules under test.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[3]
SIMULATE = ROOT / "tests" / "simulator" / "simulate.py"
GROUP_VARIABLES = ROOT / "inventory" / "demo" / "group_vars" / "sglang_nodes.yml"
PATIENCE = 300.0  # seconds for one ansible-playbook on a loaded machine; none needs a tenth of it
QUICK = {"load_s": 0.8, "release_delay_s": 0.2, "release_tail": [0, 0], "shards": 8, "compile_workers": 1}
# What each verb of systemctl that changes nothing is called.
ASKING = ("show", "is-active", "is-enabled", "is-failed", "is-system-running", "list-units", "list-unit-files")
# Written by every look: what was asked, not what is.
LOOKED_AT = re.compile(r"(calls\.jsonl|counters/.*|pycache/.*|sglang\.log|run/.*\.lock)")


@dataclasses.dataclass(frozen=True)
class Call:
    time: float
    tool: str
    argv: tuple[str, ...]

    @property
    def verb(self) -> str:
        """systemctl's verb; for nvidia-smi, what is queried."""
        if self.tool == "nvidia-smi":
            return next((word.split("=")[0][2:] for word in self.argv if word.startswith("--query")), "?")
        words = [word for word in self.argv if not word.startswith("-")]
        return words[0] if words else "?"

    @property
    def asks(self) -> bool:
        return self.verb.startswith("query-") if self.tool == "nvidia-smi" else self.verb in ASKING


def simulate(*words: str | os.PathLike[str], check: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, str(SIMULATE), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if check and done.returncode:
        raise AssertionError(f"simulate.py {shlex.join(map(str, words))} ended with {done.returncode}: {done.stderr}")
    return done.stdout


class Node:
    """One simulated node. variables: of its own in the inventory."""

    variables: t.Mapping[str, t.Any] = {}

    def __init__(
        self, folder: pathlib.Path, server: t.Mapping[str, t.Any] | None = None, *, gpus: int = 8, **scenario: t.Any
    ) -> None:
        self.folder = folder
        self.name = folder.name
        simulate("create", folder, "--gpus", str(gpus))
        self.port: int = json.loads((folder / "node.json").read_text())["port"]
        self.script(server, **scenario)
        self._normal_systemctl = (folder / "bin" / "systemctl").read_text()

    def script(self, server: t.Mapping[str, t.Any] | None = None, **scenario: t.Any) -> None:
        """Rewrite scenario.json; the server's behaviour counts from its next start."""
        simulate("script", self.folder, json.dumps({"server": {**QUICK, **(server or {})}, **scenario}))

    def story(self, name: str, *words: str) -> None:
        simulate("story", self.folder, name, *words)

    def hold(self, *words: str) -> int:
        return int(simulate("hold", self.folder, *words))

    def calls(self, since: int = 0) -> list[Call]:
        lines = (self.folder / "calls.jsonl").read_text().splitlines()[since:]
        read = [json.loads(line) for line in lines]
        return [Call(entry["time"], entry["tool"], tuple(entry["argv"])) for entry in read]

    def processes(self) -> dict[int, dict[str, t.Any]]:
        seen = json.loads(simulate("status", self.folder, "--json"))["processes"]
        return {process["pid"]: process for process in seen if process["role"] != "driver"}

    def used_mib(self) -> list[int]:
        return [gpu["used_mib"] for gpu in json.loads(simulate("status", self.folder, "--json"))["gpus"]]

    def launchers(self) -> list[int]:
        return [pid for pid, process in self.processes().items() if process["role"] == "launcher"]

    def of_role(self, role: str) -> list[int]:
        return [pid for pid, process in self.processes().items() if process["role"] == role]

    @property
    def config(self) -> pathlib.Path:
        return self.folder / "etc" / "sglang.yaml"

    @property
    def unit(self) -> pathlib.Path:
        return self.folder / "home" / ".config" / "systemd" / "user" / "sglang.service"

    def snapshot(self) -> dict[str, t.Any]:
        """Processes with their start times, and every file that a mere look does not touch."""
        files = {}
        for path in sorted(self.folder.rglob("*")):
            inside = path.relative_to(self.folder).as_posix()
            if path.is_file() and not LOOKED_AT.fullmatch(inside):
                about = path.stat()
                files[inside] = (hashlib.sha256(path.read_bytes()).hexdigest(), oct(about.st_mode), about.st_uid)
        # A query that is just ending is not part of the node.
        processes = {(pid, started(pid)): process["comm"] for pid, process in self.processes().items()}
        return {"files": files, "processes": processes}

    def wrap_systemctl(self, after: t.Mapping[str, str], before: t.Mapping[str, str] | None = None) -> None:
        """Run a line of shell after, or before, each call of systemctl with one of these verbs."""
        real = self.folder / "bin" / "systemctl.real"
        real.write_text(self._normal_systemctl)
        real.chmod(0o755)

        def case(lines: t.Mapping[str, str]) -> str:
            return (
                'case " $* " in\n' + "".join(f"  *' {verb} '*) {line} ;;\n" for verb, line in lines.items()) + "esac\n"
            )

        wrapper = self.folder / "bin" / "systemctl"
        call = f'{shlex.quote(str(real))} "$@"\nrc=$?\n'
        wrapper.write_text(f"#!/bin/sh\n{case(before or {})}{call}{case(after)}exit $rc\n")
        wrapper.chmod(0o755)

    def end_processes(self) -> None:
        simulate("stop", self.folder)

    def unwrap_systemctl(self) -> None:
        (self.folder / "bin" / "systemctl").write_text(self._normal_systemctl)


def started(pid: int) -> int | None:
    """The start time of a process, which makes a pid unique."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def alive(pid: int) -> bool:
    """Does any thread of this process still run?"""
    try:
        states = [
            (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return False
    return any(state not in (b"Z", b"X") for state in states)


@dataclasses.dataclass(frozen=True)
class Run:
    """What one ansible-playbook did."""

    rc: int
    out: str
    seconds: float
    calls: t.Mapping[str, list[Call]]

    def of(self, node: Node) -> list[Call]:
        return self.calls[node.name]

    def verbs(self, node: Node, *wanted: str) -> list[str]:
        """The calls in order, reduced to the verbs asked for."""
        return [call.verb for call in self.of(node) if call.verb in wanted]

    @property
    def text(self) -> str:
        """The output with its line breaks taken out: a message may be folded anywhere."""
        return re.sub(r"\s+", " ", self.out)

    def failures(self, node: Node) -> list[str]:
        """The message of each failed task of one host, without the line breaks."""
        found = []
        for part in self.out.split(f"\nfatal: [{node.name}")[1:]:
            lines = part.splitlines()[1:]
            end = next((n for n, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
            text = re.sub(r"\s+", " ", " ".join(lines[:end]))
            found.append(text.partition("msg: ")[2] or text)
        return found

    def last_word(self, node: Node) -> str:
        """What the rescue says about one node, which it does once."""
        said = [text for text in self.failures(node) if text.lstrip("'\"").startswith(f"{node.name}: ")]
        assert len(said) == 1, str(self)
        return said[0]

    def __str__(self) -> str:
        return f"rc {self.rc} after {self.seconds:.1f} s\n{self.out}"


class Playbooks:
    """Runs the playbooks of this checkout on nodes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.runs = 0

    def inventory(self, nodes: t.Sequence[Node], variables: t.Mapping[str, t.Any], group: str) -> pathlib.Path:
        self.runs += 1
        place = self.folder / f"inventory-{self.runs}-{os.urandom(3).hex()}"
        (place / "group_vars").mkdir(parents=True)
        (place / "group_vars" / "sglang_nodes.yml").symlink_to(GROUP_VARIABLES)
        hosts = {
            node.name: {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "simulated_node": str(node.folder),
                "gpu_release_ladder": [{"signal": "TERM", "wait": 3}, {"signal": "KILL", "wait": 30}],
                "gpu_idle_timeout": 20,
                "sglang_server_settle": 0,
                **variables,
                **node.variables,
            }
            for node in nodes
        }
        # Written as JSON, which is YAML too.
        groups = {"sglang_nodes": {}, group: {"hosts": hosts}}
        (place / "hosts.yml").write_text(json.dumps({"all": {"children": groups}}))
        return place

    def __call__(
        self,
        playbook: str | pathlib.Path,
        nodes: Node | t.Sequence[Node],
        *words: str,
        variables: t.Mapping[str, t.Any] | None = None,
        group: str = "sglang_nodes",
        environment: t.Mapping[str, str] | None = None,
        **extra: t.Any,
    ) -> Run:
        """Run a playbook. variables: of each host, in the inventory; extra: with -e, which wins over everything."""
        nodes = [nodes] if isinstance(nodes, Node) else list(nodes)
        if isinstance(playbook, str):
            playbook = ROOT / "playbooks" / f"{playbook}.yml"
        command = [
            str(pathlib.Path(sys.executable).with_name("ansible-playbook")),
            *("-i", str(self.inventory(nodes, variables or {}, group))), str(playbook), *words,
        ]  # fmt: skip
        if extra:
            command += ["-e", json.dumps(extra)]
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "CLEANSLATE_"))}
        own |= {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections"),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_SHOW_CUSTOM_STATS": "true",
            "ANSIBLE_NOCOLOR": "true",
            "COLUMNS": "200",
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            **(environment or {}),
        }
        before = {node.name: len(node.calls()) for node in nodes}
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=self.folder, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        calls = {node.name: node.calls(before[node.name]) for node in nodes}
        return Run(done.returncode, done.stdout, time.monotonic() - began, calls)
