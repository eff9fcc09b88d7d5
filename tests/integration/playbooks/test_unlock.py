# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""unlock.yml shows the leases of the GPU hosts, each once, and takes over none but the one that is named."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _lease
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._left_behind import boot_id

GPUS = tuple(f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0f{number}" for number in range(2))


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """The folder of a GPU host on which a dead run and a live one hold a GPU each."""
    path = tmp_path / "leases"
    for run, gpu in zip(("dead", "alive"), GPUS, strict=True):
        request = _lease.LeaseRequest("held", run, "gpu1", (gpu,), who="anna", purpose="relaunch.yml")
        assert _lease.lease(request, str(path), boot_id(), BootClock()).verdict == "acquired"
    return path


def runs(folder: pathlib.Path) -> list[str]:
    """Whose leases have not been ended by somebody else."""
    (file,) = folder.glob("leases-*.json")
    return [lease["run_id"] for lease in json.loads(file.read_text())["leases"] if not lease["taken_by"]]


def test_it_shows_and_takes_over_by_run_id(make_node, play, folder) -> None:
    nodes = [make_node(), make_node()]
    host = {"gpu_release_host": nodes[0].name, "gpu_release_lxc": [101], "gpu_release_lease_dir": str(folder)}

    shown = play("unlock", nodes, variables=host)
    assert shown.rc == 0, str(shown)
    assert shown.text.count("held by run dead, node gpu1 (anna, relaunch.yml)") == 1, "one host, asked once"
    assert "held by run alive" in shown.text, str(shown)

    wrong = play("unlock", nodes, variables=host, unlock_run_id="deaf")
    assert wrong.rc == 2, str(wrong)
    assert "No lease of run deaf stands on node1. Leases stand there of: dead, alive." in wrong.text, str(wrong)
    rehearsed = play("unlock", nodes, "--check", variables=host, unlock_run_id="dead")
    assert rehearsed.rc == 0, str(rehearsed)
    assert runs(folder) == ["dead", "alive"]

    right = play("unlock", nodes, variables=host, unlock_run_id="dead")
    assert right.rc == 0, str(right)
    assert f"given back: GPU {GPUS[0]}: held by run dead, node gpu1 (anna, relaunch.yml)" in right.text, str(right)
    assert runs(folder) == ["alive"]


def test_it_throws_away_a_file_that_cannot_be_read(make_node, play, folder) -> None:
    node = make_node()
    (file,) = folder.glob("leases-*.json")
    file.write_text("?")
    path = {"gpu_release_lease_dir": str(folder)}
    shown = play("unlock", node, variables=path)
    assert shown.rc == 0, str(shown)
    assert "unreadable lease" in shown.text, str(shown)
    assert file.read_text() == "?"
    thrown = play("unlock", node, variables=path, unlock_run_id="corrupt")
    assert thrown.rc == 0, str(thrown)
    assert runs(folder) == []
