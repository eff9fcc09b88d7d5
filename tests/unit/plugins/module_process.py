# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module as a process of its own, the way a target runs it."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess
import sys
import typing as t

LONG = 300.0
_NUMBERS = itertools.count()


def import_path() -> str:
    """Where a new process finds the collection, also where only a loader in this process knows (ansible-test)."""
    root, found, dummy = os.path.abspath(__file__).partition(os.sep + "ansible_collections" + os.sep)
    return os.pathsep.join([*([root] if found else []), *(entry for entry in sys.path if entry)])


def start(name: str, folder: pathlib.Path, arguments: dict[str, t.Any], **variables: str) -> subprocess.Popen[str]:
    """The module at work; its arguments stand in a file of their own in the folder."""
    path = folder / f"arguments-{name}-{next(_NUMBERS)}.json"
    path.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", f"ansible_collections.cleanslate.gpu.plugins.modules.{name}", str(path)],
        env={**os.environ, "PYTHONPATH": import_path(), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = LONG) -> tuple[dict[str, t.Any], str]:
    """What it returned, and all that it printed. The exit code must say the same as the result."""
    with process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert out.strip().startswith("{"), f"no result was printed: {out!r} {err!r}"
    result: dict[str, t.Any] = json.loads(out)
    assert (process.returncode != 0) == bool(result.get("failed")), result
    return result, out + err


def run(name: str, folder: pathlib.Path, arguments: dict[str, t.Any], **variables: str) -> dict[str, t.Any]:
    return finish(start(name, folder, arguments, **variables))[0]
