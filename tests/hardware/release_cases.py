# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The release and the gate on real GPUs: real driver, real CUDA holders, the real modules as real processes.

Run on a machine with NVIDIA GPUs on which nothing of value runs:

    python3 tests/hardware/release_cases.py REPORT_FOLDER

It needs Python 3.9 or later and ansible-core importable (only its module_utils are used). It starts its own holders,
ends only those, changes no setting and resets nothing. Writes REPORT_FOLDER/release_cases.json and .md; exit code 1
when a case did not end as it must.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODULES = "ansible_collections.cleanslate.gpu.plugins.modules"
SCAN = {"scope": "own"}


class Failed(Exception):
    """What was expected and what was seen instead."""


def expect(condition: bool, sentence: str, seen: t.Any = None) -> None:
    if not condition:
        raise Failed(f"{sentence}; seen: {json.dumps(seen, default=str)[:1500]}")


class Machine:
    """The modules, and a watcher of memory that is not ours: nvidia-smi asked directly, as fast as it answers."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work = work
        self.children: list[subprocess.Popen[bytes]] = []
        path = work / "collections" / "ansible_collections" / "cleanslate"
        path.mkdir(parents=True)
        (path / "gpu").symlink_to(ROOT)
        known = os.environ.get("PYTHONPATH", "")
        self.environment = {**os.environ, "PYTHONPATH": f"{work / 'collections'}:{known}"}
        self.gpus = len(self.used())

    def used(self) -> list[int]:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return [int(line) for line in subprocess.check_output(query, text=True).split()]

    def module(
        self, name: str, *, within: t.Sequence[str] = (), user: str | None = None, **options: t.Any
    ) -> dict[str, t.Any]:
        """Within: a command that runs the module somewhere else, such as in another namespace."""
        arguments = self.work / f"{name}.json"
        arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": options}))
        ended = subprocess.run(
            [*within, sys.executable, "-m", f"{MODULES}.{name}", str(arguments)],
            capture_output=True, text=True, timeout=300, env=self.environment, check=False, user=user,
        )  # fmt: skip
        try:
            result: dict[str, t.Any] = json.loads(ended.stdout)
        except ValueError:
            raise Failed(f"{name} printed no JSON: {ended.stdout[-500:]} {ended.stderr[-1500:]}") from None
        return result

    def facts(self, **named: t.Any) -> dict[str, t.Any]:
        result = self.module("nvidia_gpu_facts", **{"expected_count": self.gpus, **named})
        fact: dict[str, t.Any] = result["ansible_facts"]["nvidia_gpu"]
        return fact

    def holder(self, gib: float, *flags: str, within: t.Sequence[str] = ()) -> list[int]:
        ready = self.work / f"ready-{time.monotonic_ns()}"
        command = [*within, sys.executable, str(HERE / "cuda_holder.py"), str(ready), str(gib), *flags]
        child = subprocess.Popen(command, start_new_session=True)
        self.children.append(child)
        deadline = time.monotonic() + 60
        while not ready.exists():
            waiting = child.poll() in (None, 0) and time.monotonic() < deadline
            expect(waiting, f"a CUDA process holds {gib} GiB", child.poll())
            time.sleep(0.02)
        return [int(pid) for pid in ready.read_text().split()]

    def alive(self, pid: int) -> bool:
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def end_all(self) -> None:
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                # A group of its own, which an orphan is still in; the number is not reused while anybody is.
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(60)
        self.children.clear()
        deadline = time.monotonic() + 30
        while any(self.used()) and time.monotonic() < deadline:
            time.sleep(0.2)


class Watcher(threading.Thread):
    """Samples memory.used by its own nvidia-smi calls: when it began to fall, when it was 0."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(daemon=True)
        self.machine, self.stopped = machine, threading.Event()
        self.samples: list[tuple[float, int]] = []

    def run(self) -> None:
        while not self.stopped.is_set():
            self.samples.append((time.time(), sum(self.machine.used())))

    def end(self) -> list[tuple[float, int]]:
        self.stopped.set()
        self.join(30)
        return self.samples


def release(machine: Machine, **options: t.Any) -> dict[str, t.Any]:
    """gpu_force_release with its gate, and how long it took by its own clock and by that of a stranger."""
    watcher = Watcher(machine)
    watcher.start()
    began = time.time()
    result = machine.module(
        "gpu_force_release", **SCAN, wait_idle=True, expected_count=machine.gpus, timeout=60, **options
    )
    ended = time.time()
    samples = watcher.end()
    zero = next((moment for moment, used in samples if used == 0), None)
    signalled = result.get("signalled") or []
    expect(not result.get("failed"), "gpu_force_release passes", result.get("msg"))
    expect(result["verdict"] == "released", "the verdict is released", result["verdict"])
    expect(result["gate"]["verdict"] == "idle", "the gate says idle", result["gate"])
    first = signalled[0]["after_s"]
    history = [{"t": point["t"], "mib": sum(point["used_mib"].values())} for point in result["gate"]["history"]]
    return {
        "signalled": signalled,
        "first_signal_to_gate_open_s": round(result["elapsed_s"] - first + result["gate"]["waited_s"], 3),
        "first_signal_to_released_s": round(result["elapsed_s"] - first, 3),
        "module_process_s": round(ended - began, 3),
        "stranger_saw_zero_after_s": None if zero is None else round(zero - began, 3),
        "gate_history": history,
        "gate_looks": result["gate"].get("looks"),
        "msg": result["msg"],
    }


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


def second_node(machine: Machine) -> dict[str, t.Any]:
    """The same device under another inode, as an LXC container has it: `fuser /dev/nvidia0` does not see the holder."""
    node = machine.work / "second-node"
    os.mknod(node, 0o020666, os.stat("/dev/nvidia0").st_rdev)
    node.chmod(0o666)
    script = f'mount --bind {node} /dev/nvidia0 && exec "$@"'
    (pid,) = machine.holder(5, "--orphan", within=["unshare", "--mount", "sh", "-c", script, "sh"])
    own = os.stat("/dev/nvidia0").st_ino
    opened = {os.stat(f"/proc/{pid}/fd/{fd}").st_ino for fd in os.listdir(f"/proc/{pid}/fd") if is_node(pid, fd)}
    expect(own not in opened, "it has another inode open than this side's", sorted(opened))
    result = release(machine)
    expect(not machine.alive(pid), "the holder is gone")
    return {"inode_here": own, "inodes_there": sorted(opened), **result}


def is_node(pid: int, fd: str) -> bool:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/fd/{fd}").st_rdev == os.stat("/dev/nvidia0").st_rdev
    return False


def kill_only(machine: Machine, gib: float) -> dict[str, t.Any]:
    """What the release adds to the driver's own time, in the same run and one after the other."""
    own = drivers_own_time(machine, gib)["first_signal_to_gate_open_s"]
    machine.end_all()
    (pid,) = machine.holder(gib, "--orphan")
    result = release(machine, ladder=[{"signal": "KILL", "wait": 60}])
    expect(not machine.alive(pid), "the holder is gone")
    return {"drivers_own_s": own, "added_s": round(result["first_signal_to_gate_open_s"] - own, 3), **result}


def workers(machine: Machine) -> dict[str, t.Any]:
    """A launcher that was killed, with the 70 compile workers that inherited its context."""
    parent, *children = machine.holder(20, "--orphan", "--fork=70")
    os.kill(parent, signal.SIGKILL)
    result = release(machine, ladder=[{"signal": "KILL", "wait": 60}])
    alive = [pid for pid in children if machine.alive(pid)]
    expect(not alive, "all workers are gone", alive)
    result["signalled"] = len(result["signalled"])
    return result


def plain_holder(machine: Machine, gib: float, *flags: str) -> dict[str, t.Any]:
    """An orphan, so that there is no parent which might start it again and would have to be watched."""
    (pid,) = machine.holder(gib, "--orphan", *flags)
    fact = machine.facts()
    expect(fact["verdict"] == "busy", "a GPU with memory is busy", fact["reason"])
    seen = machine.module("gpu_holders_info", **SCAN)
    (holder,) = [holder for holder in seen["holders"] if holder["pid"] == pid]
    expect(holder["computes"] and holder["disposition"] == "target", "the holder is a target that computes", holder)
    expect(bool(holder["gpus"]), "compute-apps names its GPU", holder)
    ladder = [{"signal": "TERM", "wait": 1}, {"signal": "KILL", "wait": 60}]
    result = release(machine, ladder=ladder)
    expect(not machine.alive(pid), "the holder is gone")
    return {"facts": fact["reason"], "line": seen["lines"][0], **result}


def inheritor(machine: Machine) -> dict[str, t.Any]:
    parent, child = machine.holder(20, "--orphan", "--fork")
    os.kill(parent, signal.SIGKILL)
    time.sleep(3)
    fact = machine.facts()
    expect(fact["verdict"] == "busy", "memory outlives the process that took it", fact["reason"])
    seen = machine.module("gpu_holders_info", **SCAN)
    computing = [holder["pid"] for holder in seen["holders"] if holder["computes"]]
    expect(computing == [child], "only the child computes", seen["lines"])
    result = release(machine)
    expect(not machine.alive(child), "the child is gone")
    told = {"facts": fact["reason"], "processes": fact["processes"], "lines": seen["lines"]}
    return {"dead_parent": parent, **told, **result}


def monitor_lives(machine: Machine) -> dict[str, t.Any]:
    monitor = subprocess.Popen(["nvidia-smi", "-l", "1"], stdout=subprocess.DEVNULL, start_new_session=True)
    machine.children.append(monitor)
    time.sleep(1.5)
    (pid,) = machine.holder(5, "--orphan")
    seen = machine.module("gpu_holders_info", **SCAN)
    found = {holder["pid"]: holder["disposition"] for holder in seen["holders"]}
    expect(found.get(monitor.pid) == "monitor", "nvidia-smi -l is a monitor", seen["lines"])
    result = release(machine)
    expect(machine.alive(monitor.pid), "the monitor lives")
    expect(not machine.alive(pid), "the holder is gone")
    return {"dispositions": found, "lines": seen["lines"], **result}


def a_parent_that_might_restart_it(machine: Machine) -> dict[str, t.Any]:
    """The holder's parent lives and is no target: the release keeps watching for 10 s."""
    (pid,) = machine.holder(5)
    result = release(machine)
    expect(not machine.alive(pid), "the holder is gone")
    expect("Watched" in result["msg"], "it says that it watched", result["msg"])
    return result


def drivers_own_time(machine: Machine, gib: float) -> dict[str, t.Any]:
    """SIGKILL by hand, and nvidia-smi asked without a pause: how long the driver takes, with nothing of ours."""
    (pid,) = machine.holder(gib, "--orphan")
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    looks = 0
    while sum(machine.used()):
        looks += 1
        expect(time.monotonic() - began < 60, "the driver gives the memory back", machine.used())
    return {
        "first_signal_to_gate_open_s": round(time.monotonic() - began, 3),
        "gate_looks": looks,
        "msg": "SIGKILL by hand",
    }


def check_mode_touches_nobody(machine: Machine) -> dict[str, t.Any]:
    (pid,) = machine.holder(5)
    result = machine.module(
        "gpu_force_release", **SCAN, wait_idle=True, expected_count=machine.gpus, _ansible_check_mode=True
    )
    expect(result["verdict"] == "would_release", "check mode says would_release", result)
    expect([entry["pid"] for entry in result["would_signal"]] == [pid], "it names whom", result["would_signal"])
    expect(machine.alive(pid) and sum(machine.used()) > 5000, "nobody was touched")
    return {"msg": result["msg"]}


CASES: dict[str, t.Callable[[Machine], dict[str, t.Any]]] = {
    "idle": idle,
    "one GPU more expected than there is": one_short,
    "a GPU node hidden from the caller": hidden,
    "asked by a plain user": plain_user,
    "asked from another PID namespace": other_pid_namespace,
    "check mode touches nobody": check_mode_touches_nobody,
    "KILL only, 1 GiB, beside the driver's own time": lambda machine: kill_only(machine, 1),
    "KILL only, 40 GiB, beside the driver's own time": lambda machine: kill_only(machine, 40),
    "KILL only, 120 GiB, beside the driver's own time": lambda machine: kill_only(machine, 120),
    "holder of 1 GiB": lambda machine: plain_holder(machine, 1),
    "holder of 40 GiB": lambda machine: plain_holder(machine, 40),
    "holder of 120 GiB": lambda machine: plain_holder(machine, 120),
    "holder of 40 GiB that ignores TERM": lambda machine: plain_holder(machine, 40, "--ignore-term"),
    "inheritor of 20 GiB whose parent is dead": inheritor,
    "70 workers of a dead launcher": workers,
    "holder through a second device node": second_node,
    "a monitor lives": monitor_lives,
    "a holder whose parent might restart it": a_parent_that_might_restart_it,
}


def describe_machine() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,persistence_mode", "--format=csv,noheader"]
    return {
        "gpus": subprocess.check_output(query, text=True).strip(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def as_markdown(report: dict[str, t.Any]) -> str:
    lines = ["# Release and gate on real GPUs", "", f"{report['machine']['date']}; {report['machine']['gpus']}", ""]
    lines += ["| case | result | first signal → gate open | the driver's own time | module process | what it said |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, case in report["cases"].items():
        times = [case.get(key) for key in ("first_signal_to_gate_open_s", "drivers_own_s", "module_process_s")]
        said = case.get("error") or case.get("msg") or case.get("reason") or ""
        seconds = ["" if value is None else f"{value} s" for value in times]
        lines.append(f"| {name} | {case['result']} | {' | '.join(seconds)} | {said.replace('|', '/')[:300]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, t.Any] = {"machine": describe_machine(), "cases": {}}
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)  # a plain user looks too
        machine = Machine(pathlib.Path(work))
        if any(machine.used()):
            print(f"These GPUs are in use ({machine.used()} MiB): nothing was touched.", file=sys.stderr)
            return 2
        for name, case in CASES.items():
            try:
                report["cases"][name] = {"result": "passed", **case(machine)}
            except Exception as problem:  # noqa: BLE001 - the other cases still say something
                report["cases"][name] = {"result": "FAILED", "error": f"{type(problem).__name__}: {problem}"}
            finally:
                machine.end_all()
            print(name, json.dumps(report["cases"][name], default=str)[:900], flush=True)
    (folder / "release_cases.json").write_text(json.dumps(report, indent=1, default=str) + "\n")
    (folder / "release_cases.md").write_text(as_markdown(report))
    results = [case["result"] for case in report["cases"].values()]
    print(f"{results.count('passed')} passed, {results.count('FAILED')} failed")
    return 1 if "FAILED" in results else 0


if __name__ == "__main__":
    sys.exit(main())
