# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process. Its rules are tested with the core."""

from __future__ import annotations

import pathlib
import re
import subprocess
import time
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

LONG = 120
KEYS = {"verdict", "reason", "unreadable", "lease", "leases", "starting", "displaced", "container_locks", "changed",
        "diff"}  # fmt: skip
LEASE_KEYS = {"run_id", "node", "gpus", "who", "purpose", "since", "age_s", "expires_in_s", "text"}
MARKER_KEYS = {"run_id", "node", "gpus", "who", "until_s", "text"}
GPUS = [f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0f{number}" for number in range(8)]


class Host:
    """Runs the module on a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.path = folder / "cleanslate"
        self.count = 0

    def start(self, **options: t.Any) -> subprocess.Popen[str]:
        return module_process.start("gpu_host_lock", self.folder, {"path": str(self.path), **options})

    @staticmethod
    def answer(process: subprocess.Popen[str]) -> dict[str, t.Any]:
        answer, dummy = module_process.finish(process)
        assert answer.get("failed", True), "a success does not speak of failure"
        assert set(answer) - {"msg", "failed", "invocation"} == KEYS
        return answer

    def run(self, **options: t.Any) -> dict[str, t.Any]:
        return self.answer(self.start(**options))


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_a_lease_lasts_between_executions(host: Host) -> None:
    mine = {"run_id": "run-1", "node": "gpu1", "gpus": GPUS[:4], "who": "anna", "purpose": "relaunch.yml"}
    would = host.run(**mine, _ansible_check_mode=True)
    assert (would["verdict"], would["changed"], host.path.exists()) == ("acquired", True, False)

    taken = host.run(**mine)
    assert (taken["verdict"], taken["changed"]) == ("acquired", True)
    assert taken["diff"]["after"] == f"held by run run-1, node gpu1: GPUs {', '.join(GPUS[:4])}\n"
    assert 890 < taken["lease"]["expires_in_s"] <= 900
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", taken["lease"]["since"])
    assert taken["leases"] == [taken["lease"]]
    assert set(taken["lease"]) == LEASE_KEYS

    refused = host.run(run_id="run-2", node="gpu2", gpus=GPUS[3:])
    assert (refused["failed"], refused["verdict"], refused["changed"]) == (True, "busy", False)
    assert refused["msg"] == refused["reason"]
    assert "run run-1, node gpu1 (anna, relaunch.yml)" in refused["msg"]

    renewed = host.run(**mine)
    assert (renewed["verdict"], renewed["changed"]) == ("renewed", False)

    back = host.run(state="released", run_id="run-1", node="gpu1", marker_ttl=2700)
    assert (back["verdict"], back["changed"], back["lease"]) == ("released", True, None)

    shown = host.run(state="shown")
    assert (shown["verdict"], shown["changed"], shown["leases"]) == ("not_held", False, [])
    assert [one["node"] for one in shown["starting"]] == ["gpu1"]
    assert set(shown["starting"][0]) == MARKER_KEYS


def test_two_nodes_of_one_run_in_turn(host: Host) -> None:
    host.run(run_id="A", node="n1")
    second = host.start(run_id="A", node="n2", wait=LONG)
    time.sleep(1)
    back = host.run(state="released", run_id="A", node="n1")
    assert back["verdict"] == "released", "n2 has waited"
    assert host.answer(second)["verdict"] == "acquired"
    assert [lease["node"] for lease in host.run(state="shown")["leases"]] == ["n2"]


def test_takeover_of_a_file_that_cannot_be_read(host: Host) -> None:
    host.run(run_id="A", node="n1")
    (file,) = host.path.glob("leases-*.json")
    file.write_text("?")
    shown = host.run(state="shown")
    assert (shown["verdict"], shown["unreadable"]) == ("busy", True)
    refused = host.run(run_id="B", node="n1")
    assert (refused["failed"], refused["verdict"], refused["unreadable"]) == (True, "busy", True)
    back = host.run(state="released", run_id="B", node="n1", takeover="corrupt")
    assert (back["verdict"], back["changed"], back["unreadable"]) == ("released", True, False)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "run_id is empty"),
        ({"run_id": "A"}, "node is empty"),
        ({"run_id": "../A\n", "node": "n1"}, "run_id is '../A"),
        ({"run_id": "A", "node": "n1", "path": "/proc/cleanslate"}, "cannot make the folder /proc/cleanslate"),
    ],
)
def test_refusals_return_the_same_keys(host: Host, options: dict[str, t.Any], part: str) -> None:
    refused = host.run(**options)
    assert (refused["failed"], refused["verdict"], refused["changed"]) == (True, "refused", False)
    assert part in refused["msg"]
    assert not host.path.exists()


def test_what_proxmox_has_locked_is_told_beside_the_leases(host: Host) -> None:
    lxc = host.folder / "pve" / "lxc"
    lxc.mkdir(parents=True)
    (lxc / "101.conf").write_text("arch: amd64\nlock: backup\n")
    options = {"state": "shown", "containers": [101], "pve_dir": str(lxc.parent)}
    shown = host.run(**options)
    assert (shown["verdict"], shown["changed"], shown["container_locks"][0]["lock"]) == ("not_held", False, "backup")
    held = host.run(**{**options, "state": "held"}, run_id="r1", node="n1")
    assert held["verdict"] == "acquired", "a person's lease does not ask Proxmox"
    assert host.run(state="shown")["container_locks"] == []
    assert not host.run(state="held", run_id="", containers=[101])["container_locks"][0]["lock"], "nor does a refusal"
