# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record docs/progress.svg: the demo's relaunch of a stuck node in a terminal, with a server that takes its time.

Run it with the environment of the tests: .nox/venvs/runtime/bin/python tests/tooling/record_progress.py
A first relaunch is not recorded: it is the last start from which the second one's remaining time is estimated.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing as t

import environments
import stage
import terminal_recording

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "progress.svg"
COLUMNS, LINES = 134, 24
LOADS = 40.0  # seconds
DEADLINE = 300.0
SIMULATE = ROOT / "tests" / "simulator" / "simulate.py"


def simulate(*words: str | os.PathLike[str]) -> None:
    subprocess.run([sys.executable, str(SIMULATE), *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    binaries = pathlib.Path(sys.executable).parent
    changes = environments.variables(ROOT, binaries, stage.link(ROOT))
    environment = {name: value for name, value in os.environ.items() if name not in changes}
    environment |= {name: value for name, value in changes.items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="cleanslate-recording-") as name:
        node = pathlib.Path(name) / "node"
        environment |= {"CLEANSLATE_NODE": str(node), "TERM": "xterm-256color", "ANSIBLE_HOME": f"{name}/ansible"}
        command = [
            str(binaries / "ansible-playbook"), "-i", str(ROOT / "inventory" / "demo"),
            str(ROOT / "playbooks" / "relaunch.yml"),
        ]  # fmt: skip
        simulate("create", node)
        simulate("script", node, json.dumps({"server": {"load_s": LOADS, "warmup_s": 2}}))
        try:
            subprocess.run(command, check=True, cwd=name, env=environment, stdin=subprocess.DEVNULL, timeout=DEADLINE)
            simulate("stop", node)
            simulate("story", node, "stuck_gpu")
            # Where this checkout and the node lie means nothing to a reader.
            called = {name: "/srv/demo", str(ROOT): "~/cleanslate.gpu"}
            size: dict[str, t.Any] = {"columns": COLUMNS, "lines": LINES}
            frames, status = terminal_recording.record(
                command, every=0.5, deadline=DEADLINE, cwd=name, environment=environment, called=called, **size
            )
        finally:
            simulate("destroy", node)
    if status:
        sys.exit(f"The recorded relaunch ended with {status}; nothing was written.")
    title = "ansible-playbook relaunch.yml: preflight, release, gate, and the progress of the start"
    picture = terminal_recording.as_svg(frames, title=title, **size)
    PAGE.write_text(picture, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(frames)} frames, {len(picture) // 1024} KiB")


if __name__ == "__main__":
    main()
