# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The release and the gate on real GPUs: real driver, real CUDA holders, the real modules as real processes.

Run as root on a machine with NVIDIA GPUs on which nothing of value runs:

    python3 tests/hardware/release_cases.py REPORT_FOLDER [--only WORD,WORD]

It needs Python 3.9 or later and ansible-core importable (only its module_utils are used). It starts its own holders,
ends only those, changes no setting and resets nothing. Writes REPORT_FOLDER/release_cases.json and .md; exit code 1
when a case did not end as it must.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing as t

from real_gpus import SITE, Failed, Machine, expect, release
from release_shapes import SHAPES, beside_the_driver, killall_for_a_plain_holder, typed_for_a_plain_holder


class NotRun(Exception):
    """What is missing on this machine for the case."""


def idle(machine: Machine) -> dict[str, t.Any]:
    fact = machine.facts()
    expect(fact["verdict"] == "idle", "an idle machine is idle", fact)
    return {key: fact[key] for key in ("verdict", "reason", "driver_version", "count", "query_seconds")}


def one_short(machine: Machine) -> dict[str, t.Any]:
    fact = machine.facts(expected_count=machine.gpus + 1)
    expect(fact["verdict"] == "unknown", "a GPU short is never idle", fact)
    return {"reason": fact["reason"]}


def hidden(machine: Machine) -> dict[str, t.Any]:
    """One node out of sight, as in a container that was given too few: what is left may be renumbered."""
    within = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /dev/nvidia0 && exec "$@"', "sh"]
    fact = machine.facts(within=within)
    expect(fact["verdict"] == "unknown", "a hidden GPU is never idle", fact)
    return {key: fact[key] for key in ("verdict", "reason", "state", "exit_code", "count")}


def last_one_busy(machine: Machine) -> dict[str, t.Any]:
    """One holder, on the last GPU only: that GPU is named, and no other."""
    (pid,) = machine.holder(3, "--orphan", f"--gpus={machine.gpus - 1}")
    fact = machine.facts()
    expect(fact["verdict"] == "busy", "it is busy", fact["reason"])
    loaded = [gpu["index"] for gpu in fact["gpus"] if gpu["used_mib"] > 1000]
    expect(loaded == [machine.gpus - 1], "the GPU with memory is the last one", fact["gpus"])
    (holder,), lines = machine.holders(pid)
    return {"reason": fact["reason"], "holder_gpus": holder["gpus"], "lines": lines}


def plain_user(machine: Machine) -> dict[str, t.Any]:
    """Whether GPUs are idle can be told without root; it is no less true while somebody else's process holds one."""
    idle_fact = machine.facts(user="nobody")
    expect(idle_fact["verdict"] == "idle", "an idle machine is idle for a plain user", idle_fact)
    machine.holder(3, "--orphan")
    busy = machine.facts(user="nobody")
    expect(busy["verdict"] == "busy", "a busy one is busy", busy)
    return {"idle": idle_fact["reason"], "reason": busy["reason"], "processes": busy["processes"]}


def other_pid_namespace(machine: Machine) -> dict[str, t.Any]:
    """The holder has no number there: an empty list of processes must not look like idle GPUs."""
    machine.holder(3, "--orphan")
    fact = machine.facts(within=["unshare", "--pid", "--fork", "--mount-proc"])
    expect(fact["verdict"] == "busy", "memory is seen where no process is", fact)
    return {key: fact[key] for key in ("verdict", "reason", "processes", "processes_verdict")}


def check_mode_touches_nobody(machine: Machine) -> dict[str, t.Any]:
    (pid,) = machine.holder(5, "--orphan")
    result = machine.module(
        "gpu_force_release", scope="own", wait_idle=True, expected_count=machine.gpus, _ansible_check_mode=True
    )
    expect(result["verdict"] == "would_release", "check mode says would_release", result)
    expect([entry["pid"] for entry in result["would_signal"]] == [pid], "it names whom", result["would_signal"])
    expect(machine.alive(pid) and sum(machine.used()) > 5000, "nobody was touched")
    return {"msg": result["msg"]}


def monitor_lives(machine: Machine) -> dict[str, t.Any]:
    monitor = subprocess.Popen(["nvidia-smi", "-l", "1"], stdout=subprocess.DEVNULL, start_new_session=True)
    machine.children.append(monitor)
    time.sleep(1.5)
    (pid,) = machine.holder(5, "--orphan")
    seen, lines = machine.holders()
    found = {holder["pid"]: holder["disposition"] for holder in seen}
    expect(found.get(monitor.pid) == "monitor", "nvidia-smi -l is a monitor", lines)
    result = release(machine)
    expect(machine.alive(monitor.pid), "the monitor lives")
    expect(not machine.alive(pid), "the holder is gone")
    return {"dispositions": found, "lines": lines, **result}


def mappings_alone(machine: Machine) -> dict[str, t.Any]:
    """A child of a dead holder that has closed every device node: whether its mappings alone keep the memory."""
    parent, child = machine.holder(20, "--orphan", "--fork=1", "--close-nodes")
    os.kill(parent, signal.SIGKILL)
    time.sleep(3)
    (holder,), lines = machine.holders(child)
    expect(holder["via"] == ["map"], "it is seen by its mappings", holder)
    fact, used = machine.facts(), machine.used()
    expect(fact["verdict"] == ("busy" if any(used) else "idle"), "the verdict is what memory says", fact["reason"])
    return {"mib": used, "reason": fact["reason"], "lines": lines}


def a_parent_that_might_restart_it(machine: Machine) -> dict[str, t.Any]:
    """The holder's parent lives and is no target: the release keeps watching for 10 s."""
    (pid,) = machine.holder(5)
    result = release(machine)
    expect(not machine.alive(pid), "the holder is gone")
    expect("Watched" in result["msg"], "it says that it watched", result["msg"])
    return result


def killall(machine: Machine) -> dict[str, t.Any]:
    if not pathlib.Path(SITE, "sglang").is_dir():
        raise NotRun(f"SGLang is not installed in {SITE}")
    return killall_for_a_plain_holder(machine)


def mps(machine: Machine) -> dict[str, t.Any]:
    """A client of an MPS server: the server is protected, so no release promises a gate that it keeps shut."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise NotRun("nvidia-cuda-mps-control is not installed here")
    pipes = machine.work / "mps"
    pipes.mkdir()
    places = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(pipes)}
    daemon = subprocess.Popen(
        [control, "-f"], env={**os.environ, **places}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    machine.children.append(daemon)
    deadline = time.monotonic() + 10
    while not (pipes / "control").exists():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise NotRun(f"nvidia-cuda-mps-control did not start here: exit code {daemon.poll()}")
        time.sleep(0.05)
    try:
        (pid,) = machine.holder(5, "--orphan", **places)
    except Failed as problem:
        logs = " ".join(" ".join(path.read_text(errors="replace").split())[-400:] for path in pipes.glob("*.log"))
        raise NotRun(f"no client reached an MPS server here: {problem}; its logs: {logs}") from None
    apps = subprocess.check_output(
        ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv"], text=True
    )
    seen, lines = machine.holders()
    kinds = {holder["comm"]: holder["disposition"] for holder in seen}
    servers = [holder["pid"] for holder in seen if holder["comm"].startswith("nvidia-cuda-mps")]
    told: dict[str, t.Any] = {"lines": lines, "compute_apps": apps, "dispositions": kinds}
    expect(servers, "the MPS server is seen", told)
    expect(all(kinds[name] == "protected" for name in kinds if name.startswith("nvidia-cuda-mps")), "protected", told)
    named: dict[str, t.Any] = {"scope": "own", "wait_idle": True, "expected_count": machine.gpus, "timeout": 15}
    rehearsal = machine.module("gpu_force_release", **named, _ansible_check_mode=True)
    told["rehearsal"] = [rehearsal["verdict"], (rehearsal.get("gate") or {}).get("verdict"), rehearsal["msg"]]
    plain = machine.module("gpu_force_release", **named)
    told["plain_release"] = [plain["verdict"], (plain.get("gate") or {}).get("verdict"), plain["msg"]]
    expect(not machine.alive(pid), "the client is gone", told)
    expect(all(machine.alive(server) for server in servers), "the MPS server lives", told)
    allowed = ["nvidia-cuda-mps-server", "nvidia-cuda-mps-control"]
    machine.holder(5, "--orphan", **places)
    ended = release(machine, allow_protected=allowed)
    expect(not any(machine.alive(server) for server in servers), "once it is allowed, the server ends", told)
    return {**told, **ended}


Case = t.Callable[[Machine], dict[str, t.Any]]
REPEATED = ("40 GiB", "70 workers of a dead launcher, 20 GiB", "16 GiB of pinned host memory")
CASES: dict[str, Case] = {
    "idle": idle,
    "one GPU more expected than there is": one_short,
    "a GPU node hidden from the caller": hidden,
    "one holder on the last GPU": last_one_busy,
    "asked by a plain user": plain_user,
    "asked from another PID namespace": other_pid_namespace,
    "check mode touches nobody": check_mode_touches_nobody,
    **{
        name: functools.partial(beside_the_driver, shape=shape, rounds=3 if name in REPEATED else 1)
        for name, shape in SHAPES.items()
    },
    "what people type, for 40 GiB": typed_for_a_plain_holder,
    "python -m sglang.cli.killall, for 40 GiB": killall,
    "child of a dead holder, with mappings alone": mappings_alone,
    "a monitor lives": monitor_lives,
    "a holder whose parent might restart it": a_parent_that_might_restart_it,
    "an MPS server and its client": mps,
}


def describe_machine() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,persistence_mode", "--format=csv,noheader"]
    return {
        "gpus": "; ".join(subprocess.check_output(query, text=True).strip().splitlines()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


COLUMNS = {
    "first signal → gate open": "first_signal_to_gate_open_s",
    "the driver's own time": "drivers_own_s",
    "of which until 0 MiB": "driver_memory_0_s",
    "added": "added_s",
    "default ladder": "default_ladder_s",
    "gate after memory was 0": "gate_opened_after_memory_was_zero_s",
    "module process": "module_process_s",
}


def as_markdown(report: dict[str, t.Any]) -> str:
    machine = report["machine"]
    lines = ["# Release and gate on real GPUs", "", f"{machine['date']}; {machine['gpus']}; kernel {machine['kernel']}"]
    lines += ["", f"| case | result | {' | '.join(COLUMNS)} | what it said |", f"|{'---|' * (len(COLUMNS) + 3)}"]
    for name, case in report["cases"].items():
        times = ["" if case.get(key) is None else f"{case[key]} s" for key in COLUMNS.values()]
        said = case.get("error") or case.get("msg") or case.get("reason") or ""
        lines.append(f"| {name} | {case['result']} | {' | '.join(times)} | {said.replace('|', '/')[:300]} |")
    return "\n".join(lines) + "\n"


def try_case(machine: Machine, case: Case) -> dict[str, t.Any]:
    try:
        found = {"result": "passed", **case(machine)}
    except NotRun as why:
        found = {"result": "not run", "error": str(why)}
    except Exception as problem:  # noqa: BLE001 - the other cases still say something
        found = {"result": "FAILED", "error": f"{type(problem).__name__}: {problem}"}
    with contextlib.suppress(subprocess.TimeoutExpired):
        machine.end_all()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--only", default="", help="words, one of which a case's name must have")
    options = parser.parse_args()
    options.report.mkdir(parents=True, exist_ok=True)
    words = [word for word in options.only.split(",") if word]
    report: dict[str, t.Any] = {"machine": describe_machine(), "cases": {}}
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)  # a plain user looks too
        machine = Machine(pathlib.Path(work))
        if any(machine.used()):
            print(f"These GPUs are in use ({machine.used()} MiB): nothing was touched.", file=sys.stderr)
            return 2
        for name, case in CASES.items():
            if words and not any(word in name for word in words):
                continue
            began = time.monotonic()
            found = report["cases"][name] = try_case(machine, case)
            found["seconds"] = round(time.monotonic() - began, 1)
            print(time.strftime("%H:%M:%S"), name, json.dumps(found, default=str)[:900], flush=True)
            (options.report / "release_cases.json").write_text(json.dumps(report, indent=1, default=str) + "\n")
            (options.report / "release_cases.md").write_text(as_markdown(report))
    results = [case["result"] for case in report["cases"].values()]
    print(", ".join(f"{results.count(word)} {word}" for word in ("passed", "FAILED", "not run")))
    return 1 if "FAILED" in results or not results else 0


if __name__ == "__main__":
    sys.exit(main())
