# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write recorded_runs.json: what a relaunch does, execution by execution, on a node alone and on one with a GPU host.

    PYTHON tests/faults/runs/record_runs.py

The rows about broken runs are made from it. As root, after a change of the playbook; the rows fail until it is done.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FILE = HERE / "recorded_runs.json"

if __name__ == "__main__":
    places = (HERE, HERE.parent, ROOT / "tests" / "integration" / "playbooks", ROOT / ".ansible" / "collections")
    sys.path[:0] = map(str, places)

from broken_runs import VARIABLES, Plan, SmallNode, destroy, executions  # noqa: E402
from gpu_host import GpuHost  # noqa: E402
from simulated_nodes import Playbooks  # noqa: E402


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        alone, guest = SmallNode(folder / "node1"), SmallNode(folder / "node2")
        host = GpuHost(guest)
        try:
            play, hosts, of_nodes = Playbooks(folder), [alone, guest, host], ("-l", "node1,node2")
            serial = {"variables": VARIABLES, "relaunch_serial": "100%"}
            begun = play("start", hosts, *of_nodes, **serial)
            assert begun.rc == 0, str(begun)
            plan = Plan(folder, kill=False)
            plan.at(alone, "", "stay")
            plan.at(guest, "", "stay")
            run = play(
                "relaunch", hosts, *of_nodes, environment=plan.environment(), sglang_server_profile="trial", **serial
            )
            assert run.rc == 0, str(run)
            told = {"alone": executions(plan.moments(alone)), "gpu host": executions(plan.moments(guest))}
        finally:
            for node in (alone, guest):
                destroy(node.folder)
            host.end()
    lines = [
        f"{json.dumps(kind)}: [\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in entries) + "\n]"
        for kind, entries in told.items()
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{FILE.name}: {', '.join(f'{len(entries)} of {kind}' for kind, entries in told.items())}")


if __name__ == "__main__":
    main()
