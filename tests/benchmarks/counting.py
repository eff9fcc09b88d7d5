# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many processes were started, by strace's account: every fork, threads left out, and every program executed."""

from __future__ import annotations

import pathlib
import re
import subprocess
import typing as t

from measuring import until

CALLS = "clone,clone3,fork,vfork,execve"
# Of a call that another line interrupted, the end carries the result, and the flags stand in its beginning.
LINE = re.compile(r"^(?P<pid>\d+) +(?:<\.\.\. )?(?P<call>clone3?|v?fork|execve)\b(?P<rest>.*)$", re.MULTILINE)


def tracing(output: pathlib.Path, *, aside: bool = False) -> list[str]:
    """What to put before a command. It ends at a SIGTERM, and then lets go of what it traces. aside: it is no parent of
    the command, so nobody waits for what that left behind, as an ssh that keeps its connection."""
    return [
        "strace",
        *(["-D"] if aside else []),
        "-I",
        "2",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-s",
        "1",
        "-e",
        f"trace={CALLS}",
        "-e",
        "signal=none",
        "-o",
        str(output),
    ]


def ended(output: pathlib.Path) -> None:
    """Wait until strace has written all of it."""
    until(
        f"the end of strace on {output.name}",
        lambda: subprocess.run(["fuser", "-s", str(output)], stderr=subprocess.DEVNULL, check=False).returncode != 0,
        pause=0.1,
    )


def count(text: str) -> dict[str, int]:
    """Processes (successful forks that made no thread) and programs (successful execve)."""
    processes = programs = 0
    threads: dict[str, bool] = {}
    for found in LINE.finditer(text):
        pid, call, rest = found["pid"], found["call"], found["rest"]
        if "(" in rest and "resumed" not in rest:
            threads[pid] = "CLONE_THREAD" in rest
        result = re.search(r"= (-?\d+)(?: |$)", rest)
        if not result:
            continue
        if call == "execve":
            programs += result[1] == "0"
        elif int(result[1]) > 0 and not threads.get(pid, False):
            processes += 1
    return {"processes": processes, "programs": programs}


def counted(output: pathlib.Path) -> dict[str, t.Any]:
    return count(output.read_text(encoding="utf-8", errors="replace"))
