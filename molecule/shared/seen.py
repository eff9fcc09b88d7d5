# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What verify looks with: the simulator's status, /proc, HTTP, files and the call log; never the modules under test."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t
import urllib.error
import urllib.request

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
SIMULATE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "simulator" / "simulate.py"
KEY = "demo-key-0123456789abcdef"  # of inventory/demo


class Node:
    """One node of the scenario after its plays."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = EPHEMERAL / "nodes" / name
        self.config = self.folder / "etc" / "sglang.yaml"
        self.unit = self.folder / "home" / ".config" / "systemd" / "user" / "sglang.service"

    def note(self, moment: str) -> t.Any:
        """What the plays kept: before, first, second, bystanders, ..."""
        return json.loads((self.folder.parent / f"{self.name}.{moment}.json").read_text())

    def status(self) -> dict[str, t.Any]:
        command = [sys.executable, str(SIMULATE), "status", str(self.folder), "--json"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def calls(self) -> list[dict[str, t.Any]]:
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]

    def ask(self, path: str, *, key: str | None = KEY, data: t.Any = None) -> tuple[int, t.Any]:
        """Status and body of one HTTP request."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.status()['port']}{path}")
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(data).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                body = answer.read()
                return answer.status, json.loads(body) if body else None
        except urllib.error.HTTPError as error:
            return error.code, None


def of_role(seen: t.Mapping[str, t.Any], role: str) -> list[int]:
    return [process["pid"] for process in seen["processes"] if process["role"] == role]


def alive(pid: int) -> bool:
    """Does any thread of this process run?"""
    for task in pathlib.Path("/proc").glob(f"{pid}/task/*/stat"):
        try:
            if task.read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                return True
        except OSError:
            continue
    return False


def verb(call: t.Mapping[str, t.Any]) -> str:
    """What was asked of nvidia-smi (query-gpu, query-compute-apps), or systemctl's verb."""
    if call["tool"] == "nvidia-smi":
        return next((word.split("=")[0][2:] for word in call["argv"] if word.startswith("--query")), "?")
    return next((word for word in call["argv"] if not word.startswith("-")), "?")


def order_is_right(calls: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """Why the order of the calls is not: stop (where there is one), looks at the GPUs, start. Empty when it is."""
    looks, starts = 0, 0
    for call in calls:
        if verb(call) == "stop":
            looks = 0
            if starts:
                return "stopped after the start"
        elif verb(call) == "query-gpu":
            looks += 1
        elif verb(call) in ("start", "restart"):
            starts += 1
            if looks < 2:
                return f"started after {looks} looks at the GPUs"
    return "" if starts == 1 else f"{starts} starts"


def command_lines() -> t.Iterator[str]:
    for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
