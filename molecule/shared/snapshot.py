# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Did a look change the node? snapshot.py take|compare NODE FILE.

Compares, by the simulator's own means, every process (pid, start time, name) and every file (hash, mode, owner) of a
simulated node with what was noted before, and reads in the call log that the node was only asked.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import sys
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parents[1] / "tests" / "simulator"))

import processes  # noqa: E402

# Written by every look: what was asked, not what is.
LOOKED_AT = re.compile(r"(calls\.jsonl|counters/.*|pycache/.*|sglang\.log|run/.*\.lock)")
ASKING = {"show", "is-active", "is-enabled", "is-failed", "is-system-running", "list-units", "list-unit-files"}


def files(node: pathlib.Path) -> dict[str, str]:
    found = {}
    for path in sorted(node.rglob("*")):
        inside = path.relative_to(node).as_posix()
        if path.is_file() and not LOOKED_AT.fullmatch(inside):
            about = path.stat()
            found[inside] = f"{hashlib.sha256(path.read_bytes()).hexdigest()} {about.st_mode:o} {about.st_uid}"
    return found


def calls(node: pathlib.Path) -> list[dict[str, t.Any]]:
    return [json.loads(line) for line in (node / "calls.jsonl").read_text().splitlines()]


def take(node: pathlib.Path) -> dict[str, t.Any]:
    alive = {f"{p.pid} started {p.start_time}": p.comm for p in processes.belonging(str(node))}
    return {"processes": alive, "files": files(node), "calls": len(calls(node))}


def only_asks(call: t.Mapping[str, t.Any]) -> bool:
    if call["tool"] == "nvidia-smi":
        return any(word.startswith("--query-") for word in call["argv"])
    words = [word for word in call["argv"] if not word.startswith("-")]
    return bool(words) and words[0] in ASKING


def differences(before: t.Mapping[str, t.Any], node: pathlib.Path) -> list[str]:
    now = take(node)
    found = []
    for what in ("processes", "files"):
        for name in sorted(set(before[what]) | set(now[what])):
            old, new = before[what].get(name), now[what].get(name)
            if old != new:
                found.append(f"{what}: {name}: {old or 'was not there'} -> {new or 'is gone'}")
    asked = calls(node)[before["calls"] :]
    found += [f"call: {call['tool']} {' '.join(call['argv'])}" for call in asked if not only_asks(call)]
    if not any(call["tool"] == "nvidia-smi" for call in asked):
        found.append("call: nvidia-smi was not asked at all, so nothing was checked")
    return found


def main() -> int:
    verb, node, note = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])
    if verb == "take":
        note.write_text(json.dumps(take(node), indent=2))
        return 0
    found = differences(json.loads(note.read_text()), node)
    print("\n".join(found) or "nothing changed, and the node was only asked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
