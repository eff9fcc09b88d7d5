# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The processes below the launcher: schedulers, detokenizer, compile workers, and those that are left behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
import typing as t

import contexts
import hold
import kernel
import processes

from sglang.behaviour import STAGES, Behaviour


class Plan(t.NamedTuple):
    """What launcher and ranks agree on before the fork."""

    node: str
    behaviour: Behaviour
    started: float

    def share(self) -> float:
        """How much of the load is done; stands still at the stage that hangs."""
        done = (time.monotonic() - self.started) / max(self.behaviour.load_s, 0.001)
        hang = self.behaviour.hang_at
        return min(done, 1.0, STAGES[hang] if hang else 1.0)

    def mib(self, gpu: int) -> int:
        """Memory grows with the weights to 60 %, jumps with the KV cache to 95 %, ends after the graphs at 100 %."""
        done = self.share()
        if done < STAGES["weights"]:
            part = 0.0
        elif done < STAGES["kv_cache"]:
            part = 0.6 * (done - STAGES["weights"]) / (STAGES["kv_cache"] - STAGES["weights"])
        else:
            part = 0.95 if done < 1.0 else 1.0
        return max(contexts.CONTEXT_ONLY_MIB, int(self.behaviour.mib(gpu) * part))


class Worker(t.NamedTuple):
    pid: int
    name: str
    rank: int | None
    line: socket.socket | None


def fork_child() -> int:
    """Fork with the launcher's signal handling undone in the child."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
    return pid


def run_child(body: t.Callable[[], None]) -> None:
    try:
        body()
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into the launcher's code
        sys.stderr.write(f"simulated SGLang worker: {error!r}\n")
    finally:
        os._exit(1)


def start_scheduler(plan: Plan, rank: int, others: t.Sequence[Worker]) -> Worker:
    parent = os.getpid()
    ours, theirs = socket.socketpair()
    pid = fork_child()
    if pid == 0:
        ours.close()
        for other in others:
            if other.line is not None:
                other.line.close()
        run_child(lambda: scheduler(plan, rank, parent, theirs))
    theirs.close()
    ours.setblocking(False)
    return Worker(pid, f"scheduler_{rank}", rank, ours)


def gpu_of(rank: int) -> int:
    """The device of a rank. Numbers only: SGLang turns each entry into one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return int(visible.split(",")[rank]) if visible else rank


def scheduler(plan: Plan, rank: int, parent: int, line: socket.socket) -> None:
    behaviour = plan.behaviour
    gpu = gpu_of(rank)
    kernel.set_title(f"sglang::scheduler_TP{rank}")
    if behaviour.leave_zombie == rank:
        kernel.outlive_parent()
    else:
        kernel.die_with_parent(parent)
    processes.register(plan.node, f"scheduler_TP{rank}")
    fds = hold.open_all(plan.node)
    hold.map_gpu(fds, gpu)
    allocation = contexts.Allocation(plan.node, gpu, release=behaviour.release())
    kernel.map_shared(allocation.fd)
    if behaviour.leave_worker == rank:
        leave_worker(plan)
    if rank == 0:
        for dummy in range(behaviour.compile_workers):
            compile_worker(plan)
    mib = 0
    while True:
        if plan.mib(gpu) != mib:
            mib = plan.mib(gpu)
            allocation.grow(mib)
        try:
            ready = select.select([line], [], [], 0.05 if plan.share() < 1.0 else 0.5)[0]
            if ready:
                word = line.recv(64)
                if not word or os.getppid() != parent:
                    break
                time.sleep(behaviour.generation_s)
                line.send(word)
        except OSError:
            break
    if behaviour.leave_zombie == rank:
        become_zombie_leader(plan)
    os._exit(0)


def become_zombie_leader(plan: Plan) -> None:
    if plan.behaviour.left_over_ignores_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=processes.rest, args=(plan.node,)).start()
    processes.register(plan.node, "zombie leader")
    kernel.exit_this_thread()


def leave_worker(plan: Plan) -> None:
    """A fork that does nothing but inherit the context, and that no death signal reaches."""
    if fork_child() == 0:
        run_child(lambda: _left_over(plan))


def _left_over(plan: Plan) -> None:
    if plan.behaviour.left_over_ignores_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kernel.set_title("python3 torch/_inductor/compile_worker/__main__.py --workers=32", "python3")
    processes.register(plan.node, "left-over")
    processes.rest(plan.node)


def compile_worker(plan: Plan) -> None:
    """One of those that each rank forks while it starts; they inherit every descriptor, and here end with the rank."""
    parent = os.getpid()
    if fork_child() == 0:

        def body() -> None:
            kernel.die_with_parent(parent)
            kernel.set_title("python3 torch/_inductor/compile_worker/__main__.py --workers=32", "python3")
            processes.register(plan.node, "compile worker")
            processes.rest(plan.node)

        run_child(body)


def start_detokenizer(plan: Plan, others: t.Sequence[Worker]) -> Worker:
    parent = os.getpid()
    pid = fork_child()
    if pid == 0:

        def body() -> None:
            for other in others:
                if other.line is not None:
                    other.line.close()
            kernel.set_title("sglang::detokenizer")
            kernel.die_with_parent(parent)
            processes.register(plan.node, "detokenizer")
            processes.rest(plan.node)

        run_child(body)
    return Worker(pid, "detokenizer", None, None)


def round_trip(workers: t.Sequence[Worker], timeout: float) -> bool:
    """One generation: every rank must answer in time (tensor parallel: one silent rank stalls all)."""
    deadline = time.monotonic() + timeout
    word = b"%f" % time.monotonic()
    waiting = []
    for worker in workers:
        if worker.line is not None:
            try:
                worker.line.send(word)
            except OSError:
                pass
            waiting.append(worker.line)
    while waiting:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        for line in select.select(waiting, [], [], left)[0]:
            data = line.recv(4096)
            if not data:
                time.sleep(max(0.0, deadline - time.monotonic()))
                return False
            if data.endswith(word):
                waiting.remove(line)
    return True
