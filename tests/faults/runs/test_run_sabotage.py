# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rows that must go red once the guard that they are about is taken out of a copy of the collection."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
from broken_rows import ALONE, BEFORE_LEASE
from broken_runs import VARIABLES, Plan, SmallNode
from fault_rows import not_run
from run_faults import ROWS
from sabotage import INSIDE, sabotaged
from simulated_nodes import Playbooks, simulate

CORE = "plugins/module_utils"
PLAY = """
import json, pathlib, sys
sys.path[:0] = json.loads(sys.argv[1])
import test_faults_of_runs as tests
(row,) = [row for row in tests.ROWS if row.name == sys.argv[2]]
tests.PLAYS[row.play](row, pathlib.Path(sys.argv[3]))
"""


class Sabotage(t.NamedTuple):
    """guard: what is taken out; row: the one that must notice it."""

    guard: str
    row: str
    file: str
    old: str
    new: str


SABOTAGES: tuple[Sabotage, ...] = (
    Sabotage(
        "a link is not followed",
        "wanted state: a symbolic link",
        f"{CORE}/_momentary_lock.py",
        "FLAGS = os.O_NOFOLLOW | ",
        "FLAGS = ",
    ),
    Sabotage(
        "the owner of a file counts",
        "leases: of another user",
        f"{CORE}/_whole_file.py",
        "elif found.st_uid not in (0, os.geteuid()):",
        "elif False:",
    ),
    Sabotage(
        "what cannot be read is not a clean slate",
        "drift's memory: no JSON",
        f"{CORE}/_drift_memory_file.py",
        'if request.state != "reset":',
        "if False:",
    ),
    Sabotage(
        "no file is read whole", "leases: 100 MB", f"{CORE}/_whole_file.py", "file.read(MOST_BYTES + 1)", "file.read()"
    ),
    Sabotage(
        "an allow-list that is no file allows nothing",
        "host's allow-list: a named pipe",
        f"{CORE}/_allow_list.py",
        "if not stat.S_ISREG(info.st_mode):",
        "if False:",
    ),
    Sabotage(
        "a clock that was set confirms nothing",
        "drift's two looks: the date is set forward by ten years",
        f"{CORE}/_drift_memory.py",
        "and not clock_changed(found.last, now)",
        "",
    ),
    Sabotage(
        "nobody writes over what he has not seen",
        "two scheduled looks at once",
        f"{CORE}/_drift_memory_file.py",
        "former.revision != request.revision",
        "False",
    ),
    Sabotage(
        "leases belong to a boot",
        "lease: reboot",
        f"{CORE}/_lease_folder.py",
        'f"leases-{boot_id}.json"',
        '"leases-any.json"',
    ),
    Sabotage(
        "a report is not the server",
        "report of the start guard: full",
        f"{CORE}/_start_guard.py",
        "except OSError as error:",
        "except KeyError as error:",
    ),
)


def plays_row(folder: pathlib.Path, name: str, *first: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """A row in a process of its own, in which the collection is looked for in these folders first."""
    path = [*map(str, first), *(entry for entry in sys.path if entry)]
    place = folder / "row"
    place.mkdir()
    return subprocess.run(
        [sys.executable, "-c", PLAY, json.dumps(path), name, str(place)],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.guard)
def test_without_its_guard_the_row_goes_red(sabotage: Sabotage, tmp_path: pathlib.Path) -> None:
    (row,) = [row for row in ROWS if row.name == sabotage.row]
    if not_run(row):
        pytest.skip(not_run(row))
    copy = sabotaged(tmp_path / "copy", sabotage.file, sabotage.old, sabotage.new)
    done = plays_row(tmp_path, sabotage.row, copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AssertionError" in done.stderr, done.stderr


LOST = (
    Sabotage(
        "a host that is lost reaches the rescue",
        "lease",
        "playbooks/relaunch.yml",
        "must reach rescue and always; each step therefore asserts that it was carried out.\n"
        "      ignore_unreachable: true\n",
        "\n",
    ),
    Sabotage(
        "a lease that was not taken ends the run",
        "lease",
        "roles/gpu_release/tasks/lease.yml",
        "      - gpu_release_lease is not unreachable\n",
        "",
    ),
)


@pytest.mark.parametrize("sabotage", [None, *LOST], ids=lambda sabotage: sabotage.guard if sabotage else "nothing")
def test_lost_connection(sabotage: Sabotage | None, tmp_path: pathlib.Path) -> None:
    """On a node without a server, which is what tells these from the rows themselves: only the words are compared."""
    place = tmp_path / "node1"
    playbook, environment = "relaunch", {}
    if sabotage is not None:
        copy = sabotaged(tmp_path / "copy", sabotage.file, sabotage.old, sabotage.new)
        playbook = copy / INSIDE / "playbooks" / "relaunch.yml"
        environment = {"ANSIBLE_COLLECTIONS_PATH": str(copy)}
    try:
        node = SmallNode(place)
        plan = Plan(tmp_path, kill=False)
        plan.at(node, BEFORE_LEASE, "lose")
        run = Playbooks(tmp_path)(
            playbook, node, variables=VARIABLES, environment={**plan.environment(), **environment}
        )
        assert run.rc in (2, 4), str(run)
        said = [text for text in run.failures(node) if text.lstrip("'\"").startswith(f"{node.name}: ")]
        as_it_should = any(all(piece in text for piece in ALONE.says) for text in said)
        assert as_it_should is (sabotage is None), str(run)
        assert run.verbs(node, "start") == []
    finally:
        simulate("destroy", place, check=False)
