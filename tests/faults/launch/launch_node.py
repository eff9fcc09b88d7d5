# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fake SGLang of a simulated node under a unit that the case plays, and what can be done to it meanwhile.

systemd is played (its properties only), so that a death has the exit status and the restarts that the case says; the
server, its workers, its port, its log and the GPUs are the simulator's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import typing as t

from planted_faults import LoadFault
from simulated_nodes import Node, simulate

from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import UnitStandIn, free_port

TP = 2
QUICK = {
    "load_s": 1.5,
    "warmup_s": 0.2,
    "shards": 64,
    "compile_workers": 0,
    "release_delay_s": 0,
    "release_tail": [0, 0],
}
PATIENCE = 60.0
SCHEDULER = "sglang::scheduler_TP"


def wait_for(what: str, test: t.Callable[[], t.Any]) -> t.Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = test()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} was not reached within {PATIENCE:g} s")


class LaunchNode:
    """One launch that goes wrong, from its start to the end of everything that it started."""

    def __init__(self, node: Node, folder: pathlib.Path, fault: LoadFault) -> None:
        self.node = node
        self.folder = folder
        self.fault = fault
        self.port = free_port()
        self.unit = UnitStandIn(folder)
        self.log = folder / "sglang.log"
        self.log.touch()
        self.guard = folder / "guard.json"
        self.started = self.ended = self.planted = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.prefix: list[str] = []
        self.ends = contextlib.ExitStack()

    def start(self) -> None:
        if self.fault.plant:
            PLANTS[self.fault.plant](self)
        if self.fault.plant == "refuse_by_guard":
            return
        config = {"model-path": "/models/demo", "served-model-name": "demo", "tp-size": TP, "port": self.port}
        file = self.folder / "sglang.yaml"
        file.write_text(
            "".join(f"{key}: {json.dumps(value)}\n" for key, value in {**config, **self.fault.config}.items())
        )
        program = [str(self.node.folder / "bin" / "python"), "-m", "sglang.launch_server", "--config", str(file)]
        environment = {**os.environ, "SIM_SERVER": json.dumps({**QUICK, **self.fault.server})}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.prefix, *program, *self.fault.argv], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, env=environment, cwd="/",
            )  # fmt: skip
        self.started = time.monotonic()
        self.unit.runs(self.process.pid, NRestarts="0")
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """systemd's part: tell how the main process ended."""
        assert self.process is not None
        code = self.process.wait()
        self.ended = time.monotonic()
        how = {
            "LoadState": "loaded", "ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0",
            "NRestarts": "0", "Result": "success" if not code else "signal" if code < 0 else "exit-code",
            "ExecMainCode": "2" if code < 0 else "1", "ExecMainStatus": str(abs(code)),
        }  # fmt: skip
        self.unit.says(**{**how, **self.fault.at_exit})

    def workers(self) -> list[int]:
        """The schedulers of this launch."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                mine = self.process is not None and int(words[1]) == self.process.pid
                if mine and (entry / "cmdline").read_bytes().startswith(SCHEDULER.encode()):
                    found.append(int(entry.name))
        return found

    def beside(self, body: t.Callable[[], None]) -> None:
        """Do something while the module waits."""
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self.ends.callback(thread.join, PATIENCE)

    def event(self) -> float:
        """The moment from which the seconds count; it must have come."""
        kind = self.fault.event
        times = {"exit": self.ended, "start": self.started, "planted": self.planted}
        if kind == "still":
            # The log's last change in monotonic seconds.
            return (
                self.log.stat().st_mtime - time.time() + time.monotonic() + float(self.fault.wait["progress_timeout"])
            )
        if kind in times:
            assert times[kind], f"{kind}: it never came"
            return times[kind]
        assert kind in self.log.read_text(), f"the log never said {kind!r}"
        return self.said.get(kind, 0.0)

    said: t.Mapping[str, float] = {}

    def listen(self) -> None:
        """Note when the log says what the seconds are counted from."""
        kind = self.fault.event
        if kind in ("exit", "start", "planted", "still"):
            return
        said: dict[str, float] = {}
        self.said = said
        end = threading.Event()
        self.ends.callback(end.set)

        def body() -> None:
            while not end.wait(0.05):
                if kind in self.log.read_text():
                    said[kind] = time.monotonic()
                    return

        threading.Thread(target=body, daemon=True).start()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.ends.close()


def kill_a_worker(launch: LaunchNode) -> None:
    def body() -> None:
        wait_for("both workers", lambda: len(launch.workers()) == TP)
        time.sleep(3)  # the wait must have seen both
        os.kill(launch.workers()[1], signal.SIGKILL)
        launch.planted = time.monotonic()

    launch.beside(body)


def stop(launch: LaunchNode) -> None:
    def body() -> None:
        wait_for("both workers", lambda: len(launch.workers()) == TP)
        assert launch.process is not None
        launch.process.terminate()

    launch.beside(body)


def bind_without_listening(launch: LaunchNode) -> None:
    """Such a socket is in no table of listeners, and the address is taken all the same."""
    taken = launch.ends.enter_context(socket.socket())
    taken.bind(("127.0.0.1", launch.port))


def hold_lock(launch: LaunchNode) -> None:
    lock = launch.folder / "all.lock"
    holder = launch.ends.enter_context(lock.open("w"))
    fcntl.flock(holder, fcntl.LOCK_EX)
    launch.prefix = ["flock", "--no-fork", "-n", "-E", "75", str(lock)]


def refuse_by_guard(launch: LaunchNode) -> None:
    launch.unit.says(LoadState="loaded", ActiveState="activating", SubState="start-pre", MainPID="0", NRestarts="0")

    def body() -> None:
        time.sleep(2)
        boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        said = {"verdict": "refused", "reason": "GPU 3 is held by 4711 (python train.py)", "boot_id": boot_id}
        launch.guard.write_text(json.dumps({**said, "started_at": time.time(), "refused_count": 1}))
        launch.unit.says(
            LoadState="loaded", ActiveState="activating", SubState="auto-restart", MainPID="0", NRestarts="1",
            Result="exit-code",
        )  # fmt: skip
        launch.planted = time.monotonic()

    launch.beside(body)


def leave_an_old_server(launch: LaunchNode) -> None:
    config = launch.folder / "old.yaml"
    config.write_text(f"model-path: /models/demo\nserved-model-name: demo\ntp-size: {TP}\nport: {launch.port}\n")
    pid = int(simulate("start-server", launch.node.folder, "--config", config, "--wait", "ready").split()[-1])
    launch.ends.callback(os.killpg, pid, signal.SIGKILL)


PLANTS: dict[str, t.Callable[[LaunchNode], None]] = {
    plant.__name__: plant
    for plant in (kill_a_worker, stop, bind_without_listening, hold_lock, refuse_by_guard, leave_an_old_server)
}
