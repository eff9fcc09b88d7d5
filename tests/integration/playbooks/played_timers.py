# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Transient timers for a simulated node, whose systemctl plays none: systemd-run, and what systemctl says of them.

They never fire. As a program: played_timers.py NODE TOOL ARGUMENTS.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
import typing as t

TIMER = "cleanslate-dead-man-sglang.timer"
WRAPPER = """#!/bin/sh
case " $* " in
  *' cleanslate-dead-man-'*) exec {player} systemctl "$@" ;;
esac
{real} "$@"
rc=$?
case " $* " in
  *ExecStartPre*) sed -n 's/^ExecStartPre=+*\\(.*\\)/ExecStartPre={{ argv[]=\\1 ; ignore_errors=no }}/p' {unit} ;;
esac
exit $rc
"""


def give_timers(node: t.Any) -> None:
    """As if a systemd of the node's user ran there."""
    manager = node.folder / "run" / "systemd"
    manager.mkdir(parents=True, exist_ok=True)
    (manager / "private").touch()
    (node.folder / "run" / "timers").mkdir()
    tools = node.folder / "bin"
    (tools / "systemctl.played").write_text((tools / "systemctl").read_text())
    player = shlex.join([sys.executable, str(pathlib.Path(__file__).resolve()), str(node.folder)])
    real, unit = shlex.quote(str(tools / "systemctl.played")), shlex.quote(str(node.unit))
    (tools / "systemctl").write_text(WRAPPER.format(player=player, real=real, unit=unit))
    (tools / "systemd-run").write_text(f'#!/bin/sh\nexec {player} systemd-run "$@"\n')
    for tool in ("systemctl.played", "systemd-run"):
        (tools / tool).chmod(0o755)


def armed(node: t.Any) -> list[str]:
    return sorted(path.name for path in (node.folder / "run" / "timers").iterdir())


def leave_timer(node: t.Any, run_id: str) -> None:
    """What a run leaves whose controller has died."""
    words = [
        "--unit=cleanslate-dead-man-sglang",
        f"--description=Start sglang.service again 3600 s after run {run_id} armed this",
    ]
    subprocess.run([str(node.folder / "bin" / "systemd-run"), *words], check=True, timeout=60)
    assert armed(node) == [TIMER]


def _show(timers: pathlib.Path, names: list[str]) -> str:
    blocks = []
    for name in names:
        path = timers / name
        about = json.loads(path.read_text()) if path.exists() else {"LoadState": "not-found", "ActiveState": "inactive"}
        blocks.append("".join(f"{key}={value}\n" for key, value in about.items()))
    return "\n".join(blocks)


def main(node: pathlib.Path, tool: str, argv: list[str]) -> int:
    with (node / "calls.jsonl").open("a") as log:
        log.write(json.dumps({"time": time.time(), "tool": tool, "argv": argv, "pid": os.getpid()}) + "\n")
    timers = node / "run" / "timers"
    words = [word for word in argv if not word.startswith("-")]
    if tool == "systemd-run":
        given = dict(word[2:].split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        about = {"LoadState": "loaded", "ActiveState": "active", "Description": given["description"]}
        about["ActiveEnterTimestampMonotonic"] = str(int(time.monotonic() * 1e6))
        (timers / f"{given['unit']}.timer").write_text(json.dumps(about))
    elif words[0] == "show":
        sys.stdout.write(_show(timers, words[1:]))
    elif words[0] == "stop":
        for name in words[1:]:
            if not (timers / name).exists():
                sys.stderr.write(f"Failed to stop {name}: Unit {name} not loaded.\n")
                return 5
            (timers / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
