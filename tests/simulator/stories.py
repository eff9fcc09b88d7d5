# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""States that a node can be brought into, each reached for real: by starting, killing and waiting."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import typing as t

import contexts
import node as nodes
import processes

MIB = 76115


class Failed(nodes.NodeError):
    pass


def memory(node: str) -> list[dict[str, t.Any]]:
    """MiB on each GPU, read from the contexts, not from nvidia-smi and its faults."""
    about = nodes.read(node)
    scenario = read_scenario(node)
    used = {gpu["minor"]: contexts.never_clears(scenario).get(gpu["minor"], 0) for gpu in about["gpus"]}
    held: dict[int, int] = {}
    for context in contexts.contexts(os.path.join(node, "contexts")):
        held[context.gpu] = held.get(context.gpu, 0) + contexts.still_used(context, scenario, contexts.now())
    return [dict(gpu, used_mib=max(used[gpu["minor"]], held.get(gpu["minor"], 0))) for gpu in about["gpus"]]


def read_scenario(node: str) -> dict[str, t.Any]:
    try:
        with open(os.path.join(node, "scenario.json"), encoding="utf-8") as handle:
            return t.cast("dict[str, t.Any]", json.load(handle))
    except FileNotFoundError:
        return {}


def check_scenario(scenario: t.Mapping[str, t.Any]) -> None:
    import faults

    known = {"faults", "server", "never_clears", "release_delay_s", "release_curve", "release_tail", "driver_tick_s"}
    odd = set(scenario) - known
    if odd:
        raise Failed("unknown in a scenario: {} (known: {})".format(", ".join(sorted(odd)), ", ".join(sorted(known))))
    for fault in scenario.get("faults", []):
        faults.check(fault)
    sys.path.insert(0, os.path.join(nodes.HERE, "fake_sglang"))
    from sglang import behaviour

    behaviour.from_settings(scenario.get("server", {}))


def wait_for(what: str, test: t.Callable[[], t.Any], timeout: float = 60.0) -> t.Any:
    deadline = time.monotonic() + timeout
    while True:
        result = test()
        if result:
            return result
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not reached within {timeout:.0f} s")
        time.sleep(0.02)


def start_holder(node: str, **options: t.Any) -> int:
    about = nodes.read(node)
    reader, writer = os.pipe()
    environment = dict(
        os.environ, CLEANSLATE_SIMULATED_NODE=node, PYTHONPYCACHEPREFIX=os.path.join(node, "pycache")
    )  # fmt: skip
    log = os.path.join(node, "holders.log")
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [about["python"], "-S", os.path.join(nodes.HERE, "hold.py"), node, str(writer), json.dumps(options)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[writer], start_new_session=True,
            env=environment, cwd="/",
        )  # fmt: skip
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    if not answer:
        process.wait()
        raise Failed(f"the holder did not start (exit code {process.returncode}); see {log}")
    if "child" in options["shape"]:
        process.wait()
    pid = int(answer)
    if "zombie" in options["shape"]:
        wait_for(f"pid {pid} is a zombie leader", lambda: (contexts.process_stat(pid) or "?")[0] == "Z")
    return pid


def start_server(
    node: str, config: str | None, arguments: t.Sequence[str], wait: str, timeout: float,
    settings: t.Mapping[str, t.Any] | None = None,
) -> int:  # fmt: skip
    """A server started by hand, as from tmux: own session, no unit. Returns the launcher's pid."""
    about = nodes.read(node)
    if config is None:
        config = os.path.join(node, "by-hand.yaml")
        if not os.path.exists(config):
            text = "model-path: /models/by-hand\nserved-model-name: by-hand\ntp-size: %d\nhost: 127.0.0.1\nport: %d\n"
            nodes.write_atomically(config, text % (len(about["gpus"]), about["port"]), 0o600)
    environment = dict(os.environ)
    if settings:
        environment["SIM_SERVER"] = json.dumps(settings)
    log = os.path.join(node, "sglang.log")
    with open(log, "ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [os.path.join(node, "bin", "python"), "-m", "sglang.launch_server", "--config", config, *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment, cwd="/",
        )  # fmt: skip
    lines = {
        "forked": b"Init parallel begin",
        "loaded": b"Memory pool end",
        "ready": b"The server is fired up and ready to roll!",
    }

    def said() -> bool:
        with open(log, "rb") as handle:
            handle.seek(begin)
            text = handle.read()
        if lines[wait] in text:
            return True
        if process.poll() is not None:
            raise Failed(f"the server ended with {process.returncode} before it was {wait}; see {log}")
        return False

    wait_for(f"server {wait}", said, timeout)
    return process.pid


def kill_launcher(pid: int) -> None:
    """SIGKILL to the launcher alone; whoever started it reaps it."""
    os.kill(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass


def left_over(node: str, role: str) -> processes.Process | None:
    """The only process of the node that is left (the driver aside), once it is that one."""
    left = [p for p in processes.belonging(node) if p.role != "driver"]
    return left[0] if len(left) == 1 and left[0].role == role else None


def killed_server(node: str, gpu: int, mib: int, ignore_term: bool, how: str) -> processes.Process:
    settings = {
        "load_s": 0.6, "gpu_mib": mib, how: gpu, "left_over_ignores_term": ignore_term,
        "release_delay_s": 0.3, "release_tail": [4, 0.3],
    }  # fmt: skip
    pid = start_server(node, None, (), "ready", 60, settings)
    kill_launcher(pid)
    role = "left-over" if how == "leave_worker" else "zombie leader"
    left = wait_for(f"only the {role} is left", lambda: left_over(node, role))
    expected = {gpu: mib}
    wait_for(
        f"GPU {gpu} holds {mib} MiB and the others nothing",
        lambda: all(seen["used_mib"] == expected.get(seen["minor"], 0) for seen in memory(node)),
    )
    return t.cast(processes.Process, left)


def stuck_gpu(node: str, gpu: int, mib: int, ignore_term: bool) -> str:
    left = killed_server(node, gpu, mib, ignore_term, "leave_worker")
    return f"GPU {gpu} holds {mib} MiB through pid {left.pid}, a worker that outlived its killed server"


def zombie_leader(node: str, gpu: int, mib: int, ignore_term: bool) -> str:
    left = killed_server(node, gpu, mib, ignore_term, "leave_zombie")
    wait_for(f"pid {left.pid} is a zombie leader", lambda: (contexts.process_stat(left.pid) or "?")[0] == "Z")
    return f"GPU {gpu} holds {mib} MiB through a living thread of pid {left.pid}, whose leader is a zombie"


def serving(node: str, gpu: int, mib: int, ignore_term: bool) -> str:
    pid = start_server(node, None, (), "ready", 60, {"load_s": 0.6, "gpu_mib": mib, "ignore_term": ignore_term})
    return f"a server started by hand serves on port {nodes.read(node)['port']}, launcher pid {pid}"


def loading(node: str, gpu: int, mib: int, ignore_term: bool) -> str:
    pid = start_server(node, None, (), "loaded", 60, {"load_s": 1.0, "gpu_mib": mib, "hang_at": "bind",
                                                      "ignore_term": ignore_term})  # fmt: skip
    return f"a server started by hand has loaded and never binds its port, launcher pid {pid}"


def never_clears(node: str, gpu: int, mib: int, ignore_term: bool) -> str:
    scenario = dict(read_scenario(node), never_clears={str(gpu): mib})
    nodes.write_atomically(os.path.join(node, "scenario.json"), json.dumps(scenario, indent=2) + "\n")
    return f"GPU {gpu} holds {mib} MiB through nobody, for ever"


STORIES: dict[str, t.Callable[[str, int, int, bool], str]] = {
    "stuck_gpu": stuck_gpu,
    "zombie_leader": zombie_leader,
    "serving": serving,
    "hangs_after_load": loading,
    "never_clears": never_clears,
}


def tell(node: str, story: str, *, gpu: int, mib: int, ignore_term: bool) -> str:
    if gpu >= len(nodes.read(node)["gpus"]):
        raise Failed(f"--gpu {gpu}: the node has no such GPU")
    return STORIES[story](node, gpu, mib, ignore_term)
