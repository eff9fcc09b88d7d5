# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process, over every recorded output of nvidia-smi."""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import FULL_QUERY
from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

RECORDINGS = pathlib.Path(__file__).resolve().parents[3] / "recordings" / "nvidia-smi"
INDEX = json.loads((RECORDINGS / "index.json").read_text(encoding="utf-8"))
GPU_QUERIES = [entry for entry in INDEX["fixtures"] if entry["query"] not in ("apps", "list")]
APPS_QUERIES = [entry for entry in INDEX["fixtures"] if entry["query"] == "apps"]
# replay passes these on as they are, with other columns than those that were asked for: their rows are not believed.
NOT_PROJECTED = ("hang-partial.csv", "inforom-warning.csv")

UUIDS = tuple(f"GPU-0d951c95-602f-417c-2d01-7e07fc10d0f{number}" for number in range(8))
LONG = 120

KEYS = {
    "verdict",
    "reason",
    "state",
    "exit_code",
    "driver_version",
    "count",
    "used_mib_total",
    "gpus",
    "processes",
    "processes_verdict",
    "problems",
    "faulty",
    "hung_pid",
    "query_seconds",
    "collected_at",
    "boot_id",
}
GPU_KEYS = {
    "index",
    "uuid",
    "bus_id",
    "minor",
    "name",
    "total_mib",
    "used_mib",
    "reserved_mib",
    "utilization_pct",
    "mig",
    "persistence",
    "compute_mode",
    "recovery_action",
    "fabric_state",
    "problems",
}


class Machine:
    """Runs the module against a recording."""

    def __init__(self, folder):
        self.folder = folder
        self.calls_file = folder / "calls.jsonl"
        # The recordings may have lost their mode on the way here, so replay is started by the Python of the tests.
        self.nvidia_smi = folder / "nvidia-smi"
        self.nvidia_smi.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{RECORDINGS / "replay"}" "$@"\n', encoding="utf-8"
        )
        self.nvidia_smi.chmod(0o755)

    def run(self, recording="", apps="", check_mode=False, **options):
        arguments = {"nvidia_smi": str(self.nvidia_smi), "_ansible_check_mode": check_mode, **options}
        result = module_process.run(
            "nvidia_gpu_facts",
            self.folder,
            arguments,
            NVIDIA_SMI_FIXTURE=recording,
            NVIDIA_SMI_APPS_FIXTURE=apps,
            NVIDIA_SMI_CALLS=str(self.calls_file),
            XDG_RUNTIME_DIR=str(self.folder),
        )
        assert result["changed"] is False
        assert set(result["ansible_facts"]) == {"nvidia_gpu"}
        assert set(result["ansible_facts"]["nvidia_gpu"]) == KEYS
        return result

    def look(self, *args, **options):
        result = self.run(*args, **options)
        assert "failed" not in result, result
        fact = result["ansible_facts"]["nvidia_gpu"]
        assert all(set(gpu) == GPU_KEYS for gpu in fact["gpus"])
        return fact

    def calls(self):
        if not self.calls_file.exists():
            return []
        return [json.loads(line) for line in self.calls_file.read_text(encoding="utf-8").splitlines()]

    def record(self, *rows):
        """A recording of a current driver, which refuses none of the fields."""
        index = {
            "queries": {"full": {"fields": list(FULL_QUERY)}},
            "fixtures": [{"file": "own.csv", "query": "full", "exit_code": 0, "stderr": ""}],
        }
        (self.folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
        lines = [", ".join(str(row[field]) for field in FULL_QUERY) for row in rows]
        (self.folder / "own.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(self.folder / "own.csv")


def row(index, count=8, **cells):
    return {
        "count": count,
        "index": index,
        "uuid": UUIDS[index],
        "pci.bus_id": f"00000000:0{index}:00.0",
        "name": "NVIDIA H200",
        "memory.total": 143771,
        "memory.used": 0,
        "memory.free": 143156,
        "utilization.gpu": 0,
        "compute_mode": "Default",
        "persistence_mode": "Enabled",
        "driver_version": "580.159.04",
        "mig.mode.current": "Disabled",
        "memory.reserved": 616,
        "fabric.state": "Completed",
        "gpu_recovery_action": "None",
        **{name.replace("__", "."): value for name, value in cells.items()},
    }


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("entry", GPU_QUERIES, ids=[entry["file"] for entry in GPU_QUERIES])
def test_every_recorded_gpu_query(machine, entry):
    expected = entry["expected"]
    fact = machine.look(
        entry["file"],
        expected_count=entry.get("gpus_in_box", 8),
        smi_timeout=5 if entry.get("timed_out") else LONG,
    )
    assert fact["verdict"] == expected["verdict"], fact["reason"]
    assert fact["faulty"] == expected["faulty"]
    assert fact["exit_code"] == entry["exit_code"]
    assert (fact["state"] == "hung") is bool(entry.get("timed_out"))
    assert fact["reason"].endswith((".", ".)"))
    if entry["file"] not in NOT_PROJECTED:
        used = {gpu["index"]: gpu["used_mib"] for gpu in fact["gpus"]}
        assert [used.get(index) for index in range(len(expected["used_mib"]))] == expected["used_mib"]
        assert [gpu["index"] for gpu in fact["gpus"] if gpu["mig"]] == expected.get("mig", [])
    known = bool(fact["gpus"]) and None not in expected["used_mib"] and entry["expected"]["verdict"] != "unknown"
    if known:
        assert fact["used_mib_total"] == sum(expected["used_mib"])
    if None in expected["used_mib"] or not fact["gpus"]:
        assert fact["used_mib_total"] is None


@pytest.mark.parametrize("entry", APPS_QUERIES, ids=[entry["file"] for entry in APPS_QUERIES])
def test_every_recorded_process_query(machine, entry):
    fact = machine.look("idle-8.csv", entry["file"], expected_count=8)
    assert fact["processes_verdict"] == entry["expected"]["verdict"]
    assert fact["verdict"] == ("idle" if entry["expected"]["verdict"] == "none" else "unknown"), "only adds suspicion"
    assert fact["faulty"] == entry["expected"].get("faulty", [])
    index = {gpu["uuid"]: gpu["index"] for gpu in fact["gpus"]}
    if "processes" in entry["expected"]:
        processes = [
            {
                "gpu": index[process["gpu_uuid"]],
                "pid": process["pid"],
                "name": process["name"],
                "used_mib": process["used_mib"],
            }
            for process in fact["processes"]
        ]
        assert processes == entry["expected"]["processes"]


def test_one_look_costs_two_processes(machine):
    fact = machine.look(machine.record(*(row(index) for index in range(8))), expected_count=8)
    assert fact["verdict"] == "idle"
    assert [call[0].partition("=")[0] for call in machine.calls()] == ["--query-gpu", "--query-compute-apps"]


def test_without_the_process_query_one_look_costs_one(machine):
    fact = machine.look(machine.record(row(0, 1)), expected_count=1, processes=False)
    assert (fact["verdict"], fact["processes_verdict"]) == ("idle", "unknown")
    assert len(machine.calls()) == 1


def test_after_a_query_that_hung_there_is_no_second_one(machine):
    machine.look("hang-partial.csv", expected_count=8, smi_timeout=5)
    assert len(machine.calls()) == 1


def test_the_whole_fact(machine):
    rows = [row(0, 2), row(1, 2, memory__used=76115, utilization__gpu=3)]
    fact = machine.look(machine.record(*rows), expected_count=2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", fact.pop("collected_at"))
    assert fact.pop("query_seconds") > 0
    assert len(fact.pop("boot_id") or "0" * 36) == 36
    gpus = fact.pop("gpus")
    assert fact == {
        "verdict": "busy",
        "reason": "GPU 1 holds 76115 MiB (allowed: 0 MiB). gpu_holders_info shows who has the devices open.",
        "state": "ok",
        "exit_code": 0,
        "driver_version": "580.159.04",
        "count": 2,
        "used_mib_total": 76115,
        "processes": [],
        "processes_verdict": "unknown",
        "problems": [],
        "faulty": [],
        "hung_pid": None,
    }
    gpus[1].pop("minor")
    assert gpus[1] == {
        "index": 1,
        "uuid": UUIDS[1],
        "bus_id": "00000000:01:00.0",
        "name": "NVIDIA H200",
        "total_mib": 143771,
        "used_mib": 76115,
        "reserved_mib": 616,
        "utilization_pct": 3,
        "mig": False,
        "persistence": "Enabled",
        "compute_mode": "Default",
        "recovery_action": "None",
        "fabric_state": "Completed",
        "problems": [],
    }


def test_check_mode_says_the_same(machine):
    recording = machine.record(*(row(index) for index in range(8)))
    looks = [machine.look(recording, expected_count=8, check_mode=check_mode) for check_mode in (False, True)]
    for look in looks:
        look.pop("query_seconds")
        look.pop("collected_at")
    assert looks[0] == looks[1]


@pytest.mark.parametrize(
    ("cells", "options", "verdict"),
    [
        ({}, {"expected_uuids": list(UUIDS[:2])}, "idle"),
        ({"memory__used": 5}, {"expected_uuids": list(UUIDS[:2])}, "idle"),
        ({"memory__used": 5}, {"expected_uuids": [UUIDS[2]]}, "busy"),
        ({"memory__used": "[GPU is lost]"}, {"expected_uuids": list(UUIDS[:2])}, "idle"),
        ({}, {"expected_uuids": [UUIDS[7]]}, "unknown"),
        ({"memory__used": 5}, {"expected_count": 3}, "busy"),
        ({"memory__used": 5}, {"expected_count": 3, "max_used_mib": 5}, "idle"),
        ({"gpu_recovery_action": "Reset"}, {"expected_count": 3}, "unknown"),
        ({}, {"expected_count": 4}, "unknown"),
        ({}, {"expected_count": 2}, "unknown"),
    ],
)
def test_expectations(machine, cells, options, verdict):
    recording = machine.record(row(0, 3), row(1, 3), row(2, 3, **cells))
    assert machine.look(recording, **options)["verdict"] == verdict


@pytest.mark.skipif(os.path.isdir("/proc/driver/nvidia/gpus"), reason="this machine has NVIDIA GPUs")
def test_without_an_expectation_nothing_is_idle_where_the_kernel_does_not_count(machine):
    fact = machine.look(machine.record(row(0, 1)))
    assert fact["verdict"] == "unknown"
    assert "Pass expected_count or expected_uuids" in fact["reason"]


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("absent", "no_tool", "was not found"),
        ("not-executable", "blocked", "may not start"),
        ("nvidia-smi-that-fails", "error", "ended with 42"),
    ],
)
def test_a_tool_that_does_not_work_is_no_failure(machine, name, state, words):
    (machine.folder / "not-executable").write_text("#!/bin/sh\n", encoding="utf-8")
    failing = machine.folder / "nvidia-smi-that-fails"
    failing.write_text("#!/bin/sh\nexit 42\n", encoding="utf-8")
    failing.chmod(0o755)
    fact = machine.look(nvidia_smi=str(machine.folder / name), expected_count=8)
    assert (fact["verdict"], fact["state"], fact["gpus"], fact["used_mib_total"]) == ("unknown", state, [], None)
    assert words in fact["reason"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expected_count": 0}, ["expected_count is 0"]),
        ({"expected_count": -3}, ["expected_count is -3"]),
        ({"expected_count": 8, "expected_uuids": list(UUIDS)}, ["expected_count (8)", "expected_uuids"]),
        ({"expected_uuids": []}, ["expected_uuids is empty"]),
        ({"expected_uuids": ["GPU-0"]}, ["'GPU-0'", "no GPU UUID"]),
        ({"expected_uuids": [UUIDS[0], UUIDS[0]]}, ["more than once"]),
        ({"smi_timeout": 0}, ["smi_timeout is 0"]),
        ({"smi_timeout": -1}, ["smi_timeout is -1"]),
        ({"max_used_mib": -1}, ["max_used_mib is -1"]),
        ({"nvidia_smi": ""}, ["nvidia_smi is ''"]),
    ],
)
def test_options_that_contradict_themselves_fail_before_anything_is_run(machine, options, words):
    result = machine.run("idle-8.csv", **options)
    assert result["failed"] is True
    assert [word for word in words if word not in result["msg"]] == []
    assert result["ansible_facts"]["nvidia_gpu"]["verdict"] == "unknown"
    assert result["msg"] in result["ansible_facts"]["nvidia_gpu"]["reason"]
    assert machine.calls() == []
