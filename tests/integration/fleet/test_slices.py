# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A job cut into slices, as AWX and AAP cut it: each slice is a job of its own on its share of the inventory.

CLEANSLATE_FLEET_NODES says how many nodes, CLEANSLATE_FLEET_SLICES how many slices; four and two unless said otherwise.
"""

from __future__ import annotations

import json
import os
import pathlib
import time

import pytest
from simulated_nodes import ROOT

runner = pytest.importorskip("ansible_runner", reason="ansible-runner belongs to the tools of the group fleet")
NODES = int(os.environ.get("CLEANSLATE_FLEET_NODES", "4"))
SLICES = int(os.environ.get("CLEANSLATE_FLEET_SLICES", "2"))


@pytest.mark.parametrize("nodes", [NODES], indirect=True)
def test_each_node_is_relaunched_by_exactly_one_slice(nodes, play, settings, tmp_path, capsys) -> None:
    inventory = play.inventory(nodes, {}, "sglang_nodes")
    hosts = json.loads((inventory / "hosts.yml").read_text())["all"]["children"]["sglang_nodes"]["hosts"]
    began = time.monotonic()
    jobs = [start(number, inventory, dict(list(hosts.items())[number::SLICES]), settings) for number in range(SLICES)]
    for thread, _job in jobs:
        thread.join()
    took = time.monotonic() - began

    assert [job.status for _thread, job in jobs] == ["successful"] * SLICES, said(jobs)
    done = [list(job.stats["ok"]) for _thread, job in jobs]
    assert sorted(name for names in done for name in names) == sorted(hosts)
    assert all(len(node.launchers()) == 1 for node in nodes)
    rows = [row for number in range(SLICES) for row in json.loads((place(inventory, number) / "rows.json").read_text())]
    assert sorted(row["host"] for row in rows) == sorted(hosts)
    assert {row["verdict"] for row in rows} == {"ready"}
    with capsys.disabled():
        print(f"\n  {NODES} nodes in {SLICES} slices: {took:.1f} s")


def place(inventory: pathlib.Path, number: int) -> pathlib.Path:
    return inventory.with_name(f"{inventory.name}-slice{number}")


def start(number: int, inventory: pathlib.Path, hosts: dict[str, object], settings: dict[str, str]):
    share = place(inventory, number) / "inventory"
    share.mkdir(parents=True)
    (share / "group_vars").symlink_to(inventory / "group_vars")
    (share / "hosts.yml").write_text(json.dumps({"all": {"children": {"sglang_nodes": {"hosts": hosts}}}}))
    return runner.run_async(
        private_data_dir=str(place(inventory, number)),
        playbook=str(ROOT / "playbooks" / "relaunch.yml"),
        inventory=str(share),
        extravars={"relaunch_serial": "100%", "relaunch_result_file": str(place(inventory, number) / "rows.json")},
        envvars=settings,
        quiet=True,
    )


def said(jobs) -> str:
    return "\n".join(job.stdout.read()[-3000:] for _thread, job in jobs)
