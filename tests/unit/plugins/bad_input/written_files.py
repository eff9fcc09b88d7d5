# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that the core writes on a machine, written for real into a folder that plays its root."""

from __future__ import annotations

import os
import pathlib

from ansible_collections.cleanslate.gpu.plugins.module_utils import (
    _drift_memory_file,
    _evidence,
    _gpu_locks,
    _lease,
    _run_recording,
    _start_guard_record,
    _start_times,
    _unit_files,
    _wanted_state,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import BootClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._run_records import Origin

UNIT = "sglang.service"
FOLDERS = ("run", "var/lib", "var/log", "metrics")
ORIGIN = Origin(1.0, "gpu1", "boot")


def make_root(root: pathlib.Path) -> pathlib.Path:
    for name in FOLDERS:
        (root / name).mkdir(parents=True)
    return root


def leases(root: pathlib.Path) -> str:
    request = _lease.LeaseRequest(state="held", run_id="run-1", node="gpu1")
    return _lease.lease(request, f"{root}/run/cleanslate", "boot", BootClock()).reason


def wanted(root: pathlib.Path) -> str:
    request = _wanted_state.WantedRequest(state="stopped", unit=UNIT)
    return _wanted_state.write(request, f"{root}/var/lib/cleanslate/wanted.json", SystemClock()).reason


def drift(root: pathlib.Path) -> str:
    request = _drift_memory_file.MemoryRequest(state="noted", unit=UNIT, revision=0, key="hung")
    path = f"{root}/var/lib/cleanslate/drift.json"
    return _drift_memory_file.change(request, path, "boot", BootClock()).reason


def starts(root: pathlib.Path) -> str:
    return _start_times.remember(f"{root}/var/lib/cleanslate/starts.json", "kimi", {"load_weights": 1.0}, 1.0)


def record(root: pathlib.Path) -> str:
    keeping = _run_recording.Keeping(f"{root}/var/log/cleanslate", 1 << 20, 3, f"{root}/metrics")
    fields = {"run_id": "run-1", "playbook": "stop.yml", "node": "gpu1", "verdict": "stopped"}
    return _run_recording.append_run("ended", fields, keeping, ORIGIN, SystemClock()).reason


def evidence(root: pathlib.Path) -> str:
    request = _evidence.Request("RUN", UNIT, f"{root}/var/log/cleanslate", 3, 1 << 20, 10.0)
    part = _evidence.Part(
        "log", "the log", 1.0, lambda seconds: _evidence.Found((_evidence.Piece("log.txt", f"{seconds:g}"),))
    )
    return _evidence.take_evidence(request, [part], SystemClock()).reason


def guard(root: pathlib.Path) -> str:
    folder = _start_guard_record.GuardFolder(f"{root}/run/cleanslate-guard", UNIT)
    try:
        folder.prepare()
        folder.write(_start_guard_record.GuardRecord(UNIT, "idle", "", "boot", "", 1, 1.0, 1.0))
        folder.write_environment("0,1")
    except (_start_guard_record.FolderRefused, OSError) as error:
        return str(error)
    return ""


def locks(root: pathlib.Path) -> str:
    try:
        _gpu_locks.prepare(_gpu_locks.gpu_locks(f"{root}/run/cleanslate-gpus", []), os.getgid())
    except _gpu_locks.LockRefused as error:
        return str(error)
    return ""


def server_log(root: pathlib.Path) -> str:
    folder = _unit_files.UnitFolder(f"{root}/var/log/sglang", 0o750, log="NAME.log")
    return ", ".join(_unit_files.make_folders([folder]))


WRITERS = {
    "leases": leases,
    "wanted": wanted,
    "drift": drift,
    "starts": starts,
    "record": record,
    "evidence": evidence,
    "guard": guard,
    "locks": locks,
    "server_log": server_log,
}
