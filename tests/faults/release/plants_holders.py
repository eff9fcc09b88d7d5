# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Holders that are hard to find, hard to end, or become others while they are looked at."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import typing as t

from scene import Actor, Scene, until

AIM = ("_signalling", "KernelSignaller.aim")
SEND = ("_gpu_release", "hold_again")
SCAN = ("_gpu_world", "look_for_holders")
NS_LAST_PID = "/proc/sys/kernel/ns_last_pid"
STORM = 1000


def holder_on_gpu_0(scene: Scene) -> None:
    scene.hold("worker", gpu=0)


def mapping_only(scene: Scene) -> None:
    scene.play("worker", map=[scene.dev("nvidia1")], close=True)


def thread_with_own_files(scene: Scene) -> None:
    scene.play("worker", own_table=[scene.dev("nvidia1")])


def zombie_leader(scene: Scene) -> None:
    scene.play("worker", map=[scene.dev("nvidia1")], zombie=True)


def inheritor(scene: Scene) -> None:
    scene.adopt("worker", scene.node.hold(1, 5000, shape=["child"]))


def unreaped(scene: Scene) -> None:
    """Killed, state Z, no files, and its memory is still up: another signal helps nobody."""
    pid = scene.node.hold(1, 5000, shape=["unreaped"], release_delay=30.0)
    os.kill(pid, signal.SIGKILL)
    until("a zombie", lambda: b") Z " in pathlib.Path(f"/proc/{pid}/stat").read_bytes())


def ignores_term(scene: Scene) -> None:
    scene.play("worker", map=[scene.dev("nvidia1")], on_term="ignore")


def a_tree(scene: Scene) -> None:
    scene.play("launcher", map=[scene.dev("nvidia1")], children=3)


def forks_on_term(scene: Scene) -> None:
    scene.play("worker", map=[scene.dev("nvidia1")], on_term="fork")


def fork_storm(scene: Scene) -> None:
    """A launcher with a thousand workers that inherited its files and mappings."""
    scene.play("launcher", map=[scene.dev("nvidia1")])
    for number, pid in enumerate(scene.cast["launcher"].tell(f"fork {STORM}"), 1):
        scene.adopt(f"worker {number}", pid)


def state_d(scene: Scene) -> None:
    scene.play("worker", map=[scene.dev("nvidia1")], vfork=True)


def frozen(scene: Scene) -> None:
    """In a frozen group of version 1 even SIGKILL waits: state D, for as long as somebody wants."""
    worker = scene.play("worker", map=[scene.dev("nvidia1")])
    place = f"/sys/fs/cgroup/freezer/cleanslate-{os.getpid()}"
    scene.put_into(worker, place)
    state = pathlib.Path(place, "freezer.state")
    state.write_text("FROZEN")
    scene.first_ends.callback(state.write_text, "THAWED")
    until("a frozen worker", lambda: state.read_text().strip() == "FROZEN")


def stopped(scene: Scene) -> None:
    worker = scene.play("worker", map=[scene.dev("nvidia1")])
    os.kill(worker.pid, signal.SIGSTOP)
    until("state T", lambda: b") T " in pathlib.Path(f"/proc/{worker.pid}/stat").read_bytes())


def traced(scene: Scene) -> None:
    """A debugger has stopped it. The debugger holds nothing."""
    worker = scene.play("worker", map=[scene.dev("nvidia1")])
    code = (
        "import ctypes, os, sys, time\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.ptrace(16, int(sys.argv[1]), None, None) == 0, os.strerror(ctypes.get_errno())\n"
        "print('attached', flush=True)\n"
        "while True:\n"
        "    try:\n"
        "        os.waitpid(int(sys.argv[1]), 0x40000000)\n"
        "    except ChildProcessError:\n"
        "        time.sleep(300)\n"
    )
    debugger = subprocess.Popen(
        [sys.executable, "-S", "-c", code, str(worker.pid)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    scene.ends.callback(debugger.wait)
    scene.ends.callback(debugger.kill)
    assert debugger.stdout is not None
    assert debugger.stdout.readline() == "attached\n"
    scene.ends.callback(debugger.stdout.close)
    scene.adopt("debugger", debugger.pid, process=debugger)
    until("state t", lambda: b") t " in pathlib.Path(f"/proc/{worker.pid}/stat").read_bytes())


def through_another_name(scene: Scene) -> None:
    """A hard link, and a link to that: neither is what the globs find."""
    link = scene.folder / "render"
    os.link(scene.dev("nvidia1"), link)
    (scene.folder / "symbolic").symlink_to(link)
    scene.play("worker", map=[str(scene.folder / "symbolic")])


def in_another_mount_namespace(scene: Scene) -> None:
    """Bind-mounted under a name that exists only there."""
    inside = scene.folder / "inside"
    inside.touch()
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    wrapper = ("unshare", "-m", "sh", "-c", script, "sh", scene.dev("nvidia1"), str(inside))
    scene.play("worker", wrapper=wrapper, map=[str(inside)])


def in_another_pid_namespace(scene: Scene) -> None:
    scene.play("stranger", wrapper=("unshare", "-pf", "--kill-child", "sh", "-c", '"$@" & wait', "sh"),
               map=[scene.dev("nvidia1")])  # fmt: skip


def first_of_another_pid_namespace(scene: Scene) -> None:
    scene.play("init", wrapper=("unshare", "-pf", "--kill-child"), map=[scene.dev("nvidia1")])


# -- names ------------------------------------------------------------------------------------------------------------


def named_like_a_daemon(scene: Scene) -> None:
    scene.play("pretender", comm="nv-hostengine", title="/usr/bin/nv-hostengine", map=[scene.dev("nvidia1")])


def named_like_a_server(scene: Scene) -> None:
    scene.play("stranger", comm="sglang::schedul", title="sglang::scheduler_TP0")
    scene.play("monitor", comm="sglang::schedul", title="sglang::scheduler_TP1", open=[scene.dev("nvidia1")])


def names_that_confuse(scene: Scene) -> None:
    """Brackets and line breaks where /proc has its own, and a terminal's escape."""
    scene.play("stranger", comm="x) S 1 1 1\n0", title="python\n\x1b[2J\npid 1")
    scene.play("worker", comm=") Z 1 (\n", title="a\nb\x1b]0;c", map=[scene.dev("nvidia1")])


def _daemon(scene: Scene, folder_mode: int = 0o755) -> pathlib.Path:
    """A program with a daemon's name, in a folder that only we may write to."""
    folder = scene.folder / "sbin"
    folder.mkdir()
    folder.chmod(folder_mode)
    daemon = folder / "nv-hostengine"
    shutil.copy2(os.path.realpath(shutil.which("sleep") or "/bin/sleep"), daemon)
    return daemon


def a_real_daemon(scene: Scene) -> None:
    """By its executable; it calls itself python3."""
    _start_daemon(scene, "daemon", _daemon(scene))


def a_copy_under_a_daemons_name(scene: Scene) -> None:
    """Where anybody may put such a file, its name says nothing."""
    _start_daemon(scene, "pretender", _daemon(scene, 0o777))


def _start_daemon(scene: Scene, name: str, daemon: pathlib.Path) -> None:
    handle = os.open(scene.dev("nvidia1"), os.O_RDONLY)
    process = subprocess.Popen(["python3", "300"], executable=str(daemon), pass_fds=[handle], start_new_session=True)
    os.close(handle)
    scene.ends.callback(process.wait)
    scene.ends.callback(process.kill)
    scene.adopt(name, process.pid)
    scene.faults(scene.listed(scene.app_line(1, process.pid)), {"effect": "used", "gpus": [1], "mib": 300})


def ancestors(scene: Scene) -> None:
    """Whoever started the module has the GPU mapped and is called sglang.launch_server: what pkill -f would hit."""
    scene.request["holding"] = [scene.dev("nvidia1")]
    scene.hold("worker")


def started_again(scene: Scene) -> None:
    """A shell loop starts it again."""
    pids = scene.folder / "pids"
    script = (
        "import mmap, os, sys, time; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 4096, prot=mmap.PROT_READ);"
        " os.write(1, b'%d\\n' % os.getpid()); time.sleep(300)"
    )
    loop = f'while :; do "{sys.executable}" -S -c "{script}" "{scene.dev("nvidia1")}" >> "{pids}"; sleep 0.1; done'
    process = subprocess.Popen(["sh", "-c", loop], start_new_session=True)
    scene.ends.callback(process.wait)
    scene.ends.callback(os.killpg, process.pid, signal.SIGKILL)
    scene.adopt("loop", process.pid, process=None)
    first = until("a holder", lambda: pids.exists() and pids.read_text().split())
    scene.adopt("worker", int(first[0]))


# -- while it is looked at --------------------------------------------------------------------------------------------


def born_during_the_ladder(scene: Scene) -> None:
    scene.play("worker", map=[scene.dev("nvidia1")], on_term="ignore")
    scene.pauses.append((*SCAN, 2, lambda: void(scene.play("late", map=[scene.dev("nvidia2")], on_term="ignore"))))


def void(actor: Actor) -> None:
    """A pause wants nothing back."""


def execs_before_the_signal(scene: Scene) -> None:
    """Between the look and the signal it becomes a program that has no GPU."""
    stranger = scene.play("stranger", map=[scene.dev("nvidia1")])

    def act() -> None:
        stranger.tell("exec /bin/sleep 300")
        until("the other program", lambda: os.readlink(f"/proc/{stranger.pid}/exe").endswith(("sleep", "busybox")))

    scene.pauses.append((*AIM, 1, act))


def execs_a_daemon_before_the_signal(scene: Scene) -> None:
    """Between the look and the signal it becomes a protected daemon that kept the files."""
    daemon = _daemon(scene)
    stranger = scene.play("daemon", map=[scene.dev("nvidia1")], inherit=True)

    def act() -> None:
        stranger.tell(f"exec {daemon} 300")
        until("the other program", lambda: os.readlink(f"/proc/{stranger.pid}/exe") == str(daemon))

    scene.pauses.append((*SEND, 1, act))


def lets_go_before_the_signal(scene: Scene) -> None:
    stranger = scene.play("stranger", map=[scene.dev("nvidia1")])

    def act() -> None:
        stranger.tell("unmap")
        stranger.tell("close")

    scene.pauses.append((*SEND, 1, act))


def stops_computing_before_the_signal(scene: Scene) -> None:
    """It unmaps the GPU and keeps the file open: a monitor from then on."""
    stranger = scene.play("stranger", map=[scene.dev("nvidia1")])
    scene.pauses.append((*SEND, 1, lambda: void_list(stranger.tell("unmap"))))


def void_list(pids: list[int]) -> None:
    """A pause wants nothing back."""


def _take_over(scene: Scene, pid: int, name: str, mapped: str | None) -> None:
    """Start a player that gets exactly this PID: the kernel counts on from the number written here."""
    for _attempt in range(500):
        pathlib.Path(NS_LAST_PID).write_text(str(pid - 1))
        child = os.fork()
        if child == 0:
            if os.getpid() == pid:
                log = scene.folder / f"{name}.signals"
                options = json.dumps({"map": [mapped] if mapped else []})
                script = pathlib.Path(__file__).with_name("player.py")
                os.setsid()
                os.dup2(os.open(os.devnull, os.O_RDWR), 0)
                os.dup2(os.open(str(scene.folder / f"{name}.out"), os.O_CREAT | os.O_WRONLY), 1)
                os.execv(sys.executable, [sys.executable, "-S", "-E", str(script), str(log), options])
            os._exit(0)
        if child == pid:
            until("the new process", lambda: (scene.folder / f"{name}.out").exists()
                  and (scene.folder / f"{name}.out").read_text())  # fmt: skip
            scene.adopt(name, pid, log=scene.folder / f"{name}.signals")
            scene.ends.callback(_reap, pid)
            return
        os.waitpid(child, 0)
    raise AssertionError(f"PID {pid} could not be had again")


def _reap(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def _reused(scene: Scene, where: tuple[str, str], mapped: str | None) -> None:
    worker = scene.play("worker", map=[scene.dev("nvidia1")])
    assert worker.process is not None
    process = worker.process

    def act() -> None:
        time.sleep(0.02)  # so that the start times differ, which count in hundredths of a second
        process.kill()
        process.wait()
        _take_over(scene, worker.pid, "successor", mapped)

    scene.pauses.append((*where, 1, act))


def pid_reused_before_the_aim(scene: Scene) -> None:
    _reused(scene, AIM, None)


def pid_reused_after_the_aim(scene: Scene) -> None:
    _reused(scene, SEND, None)


def pid_reused_by_a_holder_of_another_unit(scene: Scene) -> None:
    """Its successor has the same PID and the GPU mapped, in a container."""
    worker = scene.play("worker", map=[scene.dev("nvidia1")])
    assert worker.process is not None
    process = worker.process

    def act() -> None:
        time.sleep(0.02)
        process.kill()
        process.wait()
        _take_over(scene, worker.pid, "successor", scene.dev("nvidia1"))
        scene.group(scene.cast["successor"], f"system.slice/docker-{'ab' * 32}.scope")

    scene.pauses.append((*AIM, 1, act))


def opens_between_two_samples(scene: Scene) -> None:
    """The GPUs read 0 MiB; a process maps one after the gate's first look."""
    actor = scene.play("worker")
    scene.pauses.append(("_gpu_world", "look", 2, lambda: void_list(actor.tell(f"map {scene.dev('nvidia1')}"))))


HOLDER_PLANTS: dict[str, t.Callable[[Scene], None]] = {
    plant.__name__: plant
    for plant in (
        holder_on_gpu_0, mapping_only, thread_with_own_files, zombie_leader, inheritor, unreaped, ignores_term, a_tree,
        forks_on_term, fork_storm, state_d, frozen, stopped, traced, through_another_name, in_another_mount_namespace,
        in_another_pid_namespace, first_of_another_pid_namespace, named_like_a_daemon, named_like_a_server,
        names_that_confuse, a_real_daemon,
        a_copy_under_a_daemons_name, ancestors, started_again, born_during_the_ladder, execs_before_the_signal,
        execs_a_daemon_before_the_signal, lets_go_before_the_signal, stops_computing_before_the_signal,
        pid_reused_before_the_aim, pid_reused_after_the_aim, pid_reused_by_a_holder_of_another_unit,
        opens_between_two_samples,
    )
}  # fmt: skip
