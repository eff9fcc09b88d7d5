# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""python -m sglang.launch_server of a simulated node.

Played after SGLang 0.5.23 (0.5.12 and 0.5.15 where they stop differently): the launcher forks one scheduler for each
rank and a detokenizer, opens the node's devices as CUDA processes do, loads for a while with the real log lines, binds
its port last, warms up, serves, drains.

Not imitated: a model; pp, dp and ep sizes; multiprocessing spawn (ranks are forked, so a rank that has not yet taken
its title looks like the launcher, not like "python -c from multiprocessing.spawn"); the 99 to 146 threads of each
process and the 35 compile workers of each rank (two, of rank 0); resource_tracker; files left in /dev/shm and /tmp;
NCCL, zmq and gated ports; core dumps and py-spy. SGLang's fixed times are multiplied by time_scale (0.05).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import typing as t

import processes

from sglang import arguments, behaviour, http_front, workers


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


class Launcher:
    def __init__(self, argv: t.Sequence[str]) -> None:
        self.node = os.environ[processes.VARIABLE]
        self.behaviour = behaviour.load(self.node, os.environ)
        self.arguments = arguments.resolve(argv)
        self.below: list[workers.Worker] = []
        self.stopping = False  # a plain flag: a lock may not be taken inside a signal handler
        self.up = False

    def log(self, text: str, rank: int | None = None) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        alone = int(self.arguments.tp_size) == 1  # recorded: a single rank writes no name
        sys.stderr.write("[{}{}] {}\n".format(stamp, "" if rank is None or alone else f" TP{rank}", text))
        sys.stderr.flush()

    # ---- loading

    def run(self) -> None:
        processes.register(self.node, "launcher")
        shown = ", ".join("{}={!r}".format(*item) for item in sorted(vars(self.arguments).items()))
        self.log(f"server_args=ServerArgs({shown})")
        self.reach("arguments")
        self.plan = workers.Plan(self.node, self.behaviour, time.monotonic())
        for rank in range(int(self.arguments.tp_size)):
            self.below.append(workers.start_scheduler(self.plan, rank, self.below))
        self.below.append(workers.start_detokenizer(self.plan, self.below))
        self.load()
        self.serve()

    def reach(self, stage: str) -> None:
        """Wait until a stage's time has come; here it hangs, dies, or loses a worker if it is told to."""
        if stage != "arguments":
            begin = self.plan.started + behaviour.STAGES[stage] * self.behaviour.load_s
            while time.monotonic() < begin:
                self.look_after_workers(loading=True)
                time.sleep(min(0.05, max(0.0, begin - time.monotonic())))
        told = self.behaviour.worker_dies_at
        if told and told["stage"] == stage:
            os.kill(self.below[int(told.get("rank", 0))].pid, int(told.get("signal", signal.SIGKILL)))
        if self.behaviour.die_at and self.behaviour.die_at["stage"] == stage:
            self.die(self.behaviour.die_at)
        while self.behaviour.hang_at == stage:
            self.look_after_workers(loading=True)
            time.sleep(0.1)

    def load(self) -> None:
        gib = self.behaviour.mib(0) / 1024
        self.reach("init")
        what = "parallel" if self.behaviour.version == "0.5.23" else "torch distributed"
        self.log(f"Init {what} begin.", 0)
        self.log(f"Init {what} ends. elapsed=0.41 s, mem usage=0.47 GB", 0)
        self.log("Memory baseline taken. mem usage=0.47 GB", 0)
        self.reach("weights")
        self.log("Load weight begin. avail mem=94.50 GB", 0)
        self.show_shards()
        self.reach("loaded")
        self.log(
            f"Load weight end. elapsed={0.6 * self.behaviour.load_s:.2f} s, type=SimulatedForCausalLM, "
            f"avail mem={94.5 - 0.6 * gib:.2f} GB, mem usage={0.6 * gib:.2f} GB.",
            0,
        )
        self.reach("kv_cache")
        self.log("KV Cache is allocated. #tokens: 524288, K size: 13.00 GB, V size: 13.00 GB", 0)
        self.log(f"Memory pool end. avail mem={94.5 - 0.95 * gib:.2f} GB", 0)
        self.reach("graph")
        if self.behaviour.version == "0.5.12":
            self.log("Capture cuda graph begin. This can take up to several minutes. avail mem=9.81 GB", 0)
        else:
            self.log("Capture target decode CUDA graph begin. backend=full, avail mem=9.81 GB", 0)
        self.reach("bind")
        if self.behaviour.version == "0.5.12":
            self.log("Capture cuda graph end. Time elapsed: 1.20 s. mem usage=0.50 GB. avail mem=9.31 GB.", 0)
        else:
            self.log("Capture target decode CUDA graph end. elapsed=1.20 s, mem usage=0.50 GB, avail mem=9.31 GB", 0)
        self.log(
            "max_total_num_tokens=524288, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            "max_running_requests=2048, context_len=131072, available_gpu_mem=9.31 GB",
            0,
        )

    def show_shards(self) -> None:
        """tqdm: updates separated by carriage returns, one newline at the end."""
        total = self.behaviour.shards
        first, last = behaviour.STAGES["weights"], behaviour.STAGES["kv_cache"] - 0.02
        for shard in range(total + 1):
            moment = self.plan.started + (first + (last - first) * shard / total) * self.behaviour.load_s
            while time.monotonic() < moment:
                self.look_after_workers(loading=True)
                time.sleep(min(0.05, max(0.0, moment - time.monotonic())))
            done = time.monotonic() - self.plan.started
            speed = shard / max(done, 0.01)
            left = (total - shard) / max(speed, 0.01)
            sys.stderr.write(
                f"\rMulti-thread loading shards: {100 * shard / total:3.0f}% Completed | {shard}/{total} "
                f"[{clock(done)}<{clock(left)}, {speed:5.2f}it/s]"
            )
            sys.stderr.flush()
        sys.stderr.write("\n")

    # ---- serving

    def serve(self) -> None:
        state = http_front.State(self.behaviour, self.arguments, self.below)
        self.uvicorn(f"Started server process [{os.getpid()}]")
        self.uvicorn("Waiting for application startup.")
        self.uvicorn("Application startup complete.")
        address = (self.arguments.host, int(self.arguments.port))
        try:
            server = http_front.bind(state, self.log)
        except OSError as error:
            why = (error.strerror or "").lower()
            self.uvicorn(
                f"[Errno {error.errno}] error while attempting to bind on address {address!r}: {why}", "ERROR:   "
            )
            self.uvicorn("Waiting for application shutdown.")
            self.end_workers()
            os._exit(3)
        if self.behaviour.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGTERM, self.stop_soon)
        signal.signal(signal.SIGINT, self.interrupted)
        signal.signal(signal.SIGQUIT, lambda *_: self.crash("SIGQUIT received."))
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 2 * self.behaviour.watch_s}, daemon=True
        ).start()
        self.uvicorn(f"Uvicorn running on http://{address[0]}:{address[1]} (Press CTRL+C to quit)")
        self.reach("warmup")
        time.sleep(self.behaviour.warmup_s)
        if not self.arguments.skip_server_warmup and not state.generate():
            self.log("Initialization failed. warmup error: the schedulers do not answer")
            self.kill_tree()
        state.status = "Up"
        state.ready_at = time.monotonic()
        self.up = True
        self.log("The server is fired up and ready to roll!")
        self.reach("ready")
        self.watch(state, time.monotonic())

    def uvicorn(self, text: str, level: str = "INFO:    ") -> None:
        sys.stderr.write(f"{level} {text}\n")
        sys.stderr.flush()

    def watch(self, state: http_front.State, ready: float) -> None:
        told = self.behaviour
        hung = killed = False
        while True:
            time.sleep(told.watch_s)
            if self.stopping:
                self.drain(state)
            age = time.monotonic() - ready
            if told.hung_after_s is not None and age >= told.hung_after_s and not hung:
                hung = True
                for worker in self.below:
                    if worker.rank is not None:
                        os.kill(worker.pid, signal.SIGSTOP)
            if told.worker_dies_after_s is not None and age >= told.worker_dies_after_s and not killed:
                killed = True
                os.kill(self.below[0].pid, signal.SIGKILL)
            if told.die_after_s is not None and age >= told.die_after_s:
                self.die(told.die)
            self.look_after_workers(loading=False)

    def look_after_workers(self, loading: bool) -> None:
        """SGLang's subprocess watchdog: an exit code other than 0 of a child is a crash."""
        if not processes.is_wanted(self.node):
            self.kill_tree()
        for worker in list(self.below):
            try:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
            except ChildProcessError:
                continue
            if not pid or status == 0:
                continue
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if self.behaviour.healthy_without_worker:
                continue
            if loading:
                self.log(
                    f"Rank {worker.rank} scheduler died during initialization (exit code: {code}). "
                    "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer."
                )
                self.log("Received sigquit from a child process. It usually means the child failed.")
                self.kill_tree()
            self.crash(
                f"Subprocess {worker.name} (pid={worker.pid}) crashed with exit code {code}. "
                "Triggering SIGQUIT for cleanup..."
            )

    # ---- ends

    def drain(self, state: http_front.State) -> None:
        state.draining = True
        began = time.monotonic()
        self.log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        finish = self.behaviour.requests_finish_s
        while True:
            time.sleep(5 * self.behaviour.time_scale)
            if finish is not None and time.monotonic() - began >= finish:
                state.running = 0
            if state.status == "UnHealthy":
                self.log("Signal SIGTERM received while health check failed. Force exiting.")
                break
            self.log(f"Gracefully exiting... Remaining number of requests {state.running}.")
            if not state.running:
                break
        if self.behaviour.version != "0.5.23":
            self.kill_tree()
        self.end_workers()
        self.uvicorn("Shutting down")
        self.uvicorn(f"Finished server process [{os.getpid()}]")
        os._exit(0)

    def stop_soon(self, *_: t.Any) -> None:
        self.stopping = True

    def interrupted(self, *_: t.Any) -> None:
        self.end_workers()
        os._exit(130)

    def crash(self, why: str) -> None:
        """Dumps first, and keeps its processes for 65 s (scaled), then kills the tree and itself."""
        self.log(why)
        if self.up:
            time.sleep(65 * self.behaviour.time_scale)
        self.kill_tree()

    def die(self, how: t.Mapping[str, t.Any]) -> None:
        if "signal" in how:
            os.kill(os.getpid(), int(how["signal"]))
            time.sleep(1)
        code = int(how.get("exit_code", 1))
        words = how.get("says", f"Scheduler hit an exception: simulated death with exit code {code}")
        self.log(words, 0 if self.below else None)
        self.end_workers()
        os._exit(code)

    def end_workers(self) -> None:
        for worker in self.below:
            try:
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass

    def kill_tree(self) -> None:
        if self.behaviour.version == "0.5.15":
            pid = os.getpid()
            self.log(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
        for worker in self.below:
            try:
                os.kill(worker.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)


if __name__ == "__main__":
    if processes.VARIABLE not in os.environ:
        sys.exit("sglang.launch_server of the simulator: run it as NODE/bin/python -m sglang.launch_server")
    Launcher(sys.argv[1:]).run()
