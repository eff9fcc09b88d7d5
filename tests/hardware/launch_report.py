# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of launch_cases.py leaves behind: a report for people, the same as JSON, small logs."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import time
import typing as t

from real_gpus import SITE
from real_plays import KEY
from systemd_node import Node

# Written from the log itself, not from the collection's own table: which line each stage begins with.
LINES = {
    "launch": r"server_args=", "init_distributed": r"Init torch distributed begin",
    "load_weights": r"Load weight begin", "allocate_memory": r"Load weight end",
    "open_port": r"max_total_num_tokens=", "warm_up": r"Uvicorn running on",
    "ready": r"The server is fired up and ready to roll",
}  # fmt: skip
KEPT = ("/var/log/sglang/sglang.log", "/var/log/cleanslate/runs.jsonl")
_STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: [A-Z]+\d+)*)")


def stages_in_log(text: str) -> dict[str, float]:
    """Seconds from the first line of the last start in the log to the first line of each stage."""
    begins = [found.start() for found in re.finditer(r"^.*server_args=", text, re.MULTILINE)]
    found: dict[str, float] = {}
    first = last = None
    for line in text[begins[-1] if begins else 0 :].splitlines():
        stamp = _STAMP.match(line)
        if stamp and (not stamp.group(2) or re.fullmatch(r"( [A-Z]+0)+", stamp.group(2))):
            last = time.mktime(time.strptime(stamp.group(1), "%Y-%m-%d %H:%M:%S"))
            first = last if first is None else first
        for name, pattern in LINES.items():
            if name not in found and first is not None and last is not None and re.search(pattern, line):
                found[name] = last - first
    return found


def describe_machine(site: pathlib.Path) -> dict[str, t.Any]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,persistence_mode", "--format=csv,noheader"]
    versions = {}
    for name, place in (("sglang", SITE), ("ansible-core", str(site)), ("torch", None)):
        places = [place] if place else sys.path
        found = [one for one in importlib.metadata.distributions(path=places) if one.name == name]
        versions[name] = found[0].version if found else "unknown"
    return {
        "gpus": subprocess.check_output(query, text=True).strip().splitlines(), "kernel": platform.release(),
        "python": platform.python_version(), **versions, "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }  # fmt: skip


def files_with(key: str, node: Node, work: pathlib.Path) -> list[str]:
    """Where the server's key can be read, the places made for it aside."""
    root = f"/proc/{node.init}/root"
    places = [f"{root}/var/log", f"{root}/var/lib/cleanslate", f"{root}/run/cleanslate-guard", str(work / "plays")]
    ended = subprocess.run(["grep", "-rlF", key, *places], capture_output=True, text=True, check=False)
    return [line.replace(root, "") for line in ended.stdout.splitlines()]


def keep_logs(node: Node, work: pathlib.Path, folder: pathlib.Path) -> None:
    """Logs as one archive, without the key: SGLang's, the journal, the plays' outputs, the record."""
    logs = work / "logs"
    logs.mkdir(exist_ok=True)
    texts = {name.rpartition("/")[2]: node.read(name) for name in KEPT}
    if node.init:
        texts["journal.log"] = node.run("journalctl", "--no-pager", "-o", "short-precise").stdout
    texts["boot.log"] = (work / "boot.log").read_text(errors="replace") if (work / "boot.log").exists() else ""
    for place in sorted((work / "plays").glob("*")) if (work / "plays").exists() else ():
        for name in ("output", "steps.jsonl"):
            if (place / name).exists():
                texts[f"{place.name}.{name}"] = (place / name).read_text(errors="replace")
    with tarfile.open(folder / "logs.tar.xz", "w:xz") as archive:
        for name, text in texts.items():
            (logs / name).write_text(text.replace(KEY, "***"))
            archive.add(logs / name, arcname=name)


def _seconds(values: t.Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items()) or "-"


def _case(name: str, case: t.Mapping[str, t.Any]) -> list[str]:
    lines = ["", f"## {name}: {case['result']}", ""]
    if case.get("error"):
        return [*lines, f"- {case['error']}", *_plays(case)]
    for key, value in case.items():
        if key in ("result", "plays", "nvidia_smi", "seen_by_a_stranger", "stages_said", "stages_in_log", "downtime"):
            continue
        lines.append(f"- {key}: {value if isinstance(value, (str, int, float)) else json.dumps(value, default=str)}")
    if case.get("stages_said"):
        lines.append(f"- stages by the wait (s each): {_seconds(case['stages_said'])}")
        lines.append(f"- stages by the log (s after its first line): {_seconds(case['stages_in_log'])}")
    if case.get("downtime"):
        lines.append(f"- seconds after the stop began: {_seconds(case['downtime'])}")
    return [*lines, *_plays(case)]


def _plays(case: t.Mapping[str, t.Any]) -> list[str]:
    lines = []
    for play in case["plays"]:
        slow = "; ".join(f"{task} {seconds:g}" for task, seconds in play["steps"] if seconds >= 1)
        lines.append(
            f"- {play['playbook']}.yml: exit code {play['code']}, {play['seconds']:g} s. Steps of 1 s and more: {slow}"
        )
    seen = case["seen_by_a_stranger"]
    lines.append(f"- /health by a stranger: {'; '.join(f'{at:g} s {said}' for at, said in seen['health'][:24])}")
    moments = [f"{at:g} s {'/'.join(map(str, used))}" for at, used in seen["memory_mib"]]
    lines.append(
        f"- memory.used (MiB): {'; '.join(moments[:6] + (['…'] if len(moments) > 18 else []) + moments[6:][-12:])}"
    )
    if seen["zombie_schedulers"]:
        zombies = [f"{at:g} s {states} {used} MiB" for at, states, used in seen["zombie_schedulers"]]
        lines.append(f"- schedulers that are zombies, and what the GPUs held then: {'; '.join(zombies[:12])}")
    return lines


def as_markdown(report: t.Mapping[str, t.Any]) -> str:
    lines = ["# Relaunch on real GPUs with real SGLang and systemd", ""]
    lines += [
        f"- {key}: {value if isinstance(value, str) else '; '.join(value)}" for key, value in report["machine"].items()
    ]
    lines += ["", "| case | result | s | playbooks |", "|---|---|---|---|"]
    for name, case in report["cases"].items():
        plays = ", ".join(f"{play['playbook']} {play['seconds']:g} s" for play in case["plays"])
        lines.append(f"| {name} | {case['result']} | {case['seconds']:g} | {plays} |")
    for name, case in report["cases"].items():
        lines += _case(name, case)
    if "key_found_in" in report:
        lines += [
            "",
            f"Files that show the server's key, its own configuration aside: {report['key_found_in'] or 'none'}",
        ]
    return "\n".join(lines).replace(KEY, "***") + "\n"


def write(report: t.Mapping[str, t.Any], folder: pathlib.Path) -> None:
    text = json.dumps(report, indent=1, default=str).replace(KEY, "***")
    (folder / "launch_cases.json").write_text(text + "\n")
    (folder / "launch_cases.md").write_text(as_markdown(report))
