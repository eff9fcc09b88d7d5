# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the real modules, each in a process of its own, without importing Ansible anew for each.

It imports everything once and forks for each request, a JSON line on stdin; the answer is {"pid"} and, at the end,
{"rc"}. A request says where the process runs (user, mounts, PID namespace, which /proc) and where it pauses: right
before the n-th call of a function it tells so and waits. What runs is the module as it is.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import mmap
import os
import signal
import sys
import traceback
import typing as t

PLUGINS = "ansible_collections.cleanslate.gpu.plugins"
MODULES = ("nvidia_gpu_facts", "gpu_holders_info", "gpu_force_release", "gpu_wait_idle")
GUARD = "_start_guard_program"


def core(name: str) -> t.Any:
    return importlib.import_module(f"{PLUGINS}.module_utils.{name}")


def pause_before(module: str, dotted: str, call: int, said: str, go: str) -> None:
    """Stop before the call-th call of a function of the core, tell through one pipe, go on when the other says so."""
    owner: t.Any = core(module)
    *outer, name = dotted.split(".")
    for part in outer:
        owner = getattr(owner, part)
    real = getattr(owner, name)
    done = 0

    def wrapped(*arguments: t.Any, **options: t.Any) -> t.Any:
        nonlocal done
        done += 1
        if done == call:
            with open(said, "w", encoding="ascii") as pipe:
                pipe.write("paused")
            with open(go, encoding="ascii") as pipe:
                pipe.read()
        return real(*arguments, **options)

    setattr(owner, name, wrapped)


def enter(request: t.Mapping[str, t.Any]) -> None:
    """The place it runs in."""
    libc = ctypes.CDLL(None, use_errno=True)
    if request.get("hidepid"):
        os.unshare(os.CLONE_NEWNS)
        mount(libc, b"none", b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
        mount(libc, b"proc", b"/proc", b"proc", 0, request["hidepid"].encode())
    if request.get("empty_proc"):
        os.unshare(os.CLONE_NEWNS)
        mount(libc, b"none", b"/", None, 0x44000, None)
        mount(libc, b"none", b"/proc", b"tmpfs", 0, None)
    if request.get("uid"):
        os.setgroups([])
        os.setgid(request["uid"])
        os.setuid(request["uid"])
        libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as a process that was started by this user
    for module, dotted, call in request.get("pauses", ()):
        pause_before(module, dotted, call, request["said"], request["go"])
    if request.get("proc_root"):
        core("_scan_arguments").scan_request.__defaults__ = (request["proc_root"],)


def mount(libc: t.Any, source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
    if libc.mount(source, target, kind, flags, data):
        code = ctypes.get_errno()
        raise OSError(code, f"mount {target.decode()}: {os.strerror(code)}")


def run(request: t.Mapping[str, t.Any]) -> int:
    os.environ.clear()
    os.environ.update(request["environment"])
    enter(request)
    if request["module"] == GUARD:
        return int(core(GUARD).main(request["argv"]))
    sys.argv = [request["module"], request["arguments"]]
    importlib.import_module(f"{PLUGINS}.modules.{request['module']}").main()
    return 0


def below(request: t.Mapping[str, t.Any]) -> None:
    """Come back in a child. holding: the parent has these files open and mapped. new_pid_namespace: the child is the
    first process of a PID namespace, with /proc still that of the old one."""
    if request.get("holding"):
        areas = []
        for path in request["holding"]:
            handle = os.open(path, os.O_RDONLY)
            areas.append(mmap.mmap(handle, 4096, prot=mmap.PROT_READ))
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("sglang.launch_s")
    if request.get("new_pid_namespace"):
        os.unshare(os.CLONE_NEWPID)
    if request.get("holding") or request.get("new_pid_namespace"):
        child = os.fork()
        if child:
            _pid, status = os.waitpid(child, 0)
            os._exit(os.waitstatus_to_exitcode(status) % 256)
    if request.get("twin"):
        twin(request["twin"], request["twin_log"])


def twin(pid: int, log: str) -> None:
    """A process of this PID namespace that has this number here; it writes down whether it gets TERM."""
    with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
        file.write(str(pid - 1))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, lambda number, frame: void(os.write(os.open(log, os.O_WRONLY), b"TERM")))
        os.write(writer, b"x")
        while True:
            signal.pause()
    assert child == pid, f"the twin got PID {child}, not {pid}"
    os.read(reader, 1)


def void(value: object) -> None:
    """A handler returns nothing."""


def answer(request: t.Mapping[str, t.Any]) -> t.NoReturn:
    code = 70
    try:
        os.setsid()
        for stream, path, flags in ((0, os.devnull, os.O_RDONLY), (1, request["out"], os.O_WRONLY),
                                    (2, request["err"], os.O_WRONLY)):  # fmt: skip
            os.dup2(os.open(path, flags), stream)
        below(request)
        code = run(request)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 the only way out of a fork
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for name in MODULES:
        importlib.import_module(f"{PLUGINS}.modules.{name}")
    core(GUARD)
    print(json.dumps({"ready": core("_holders").__file__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            answer(request)
        print(json.dumps({"pid": child}), flush=True)
        _pid, status = os.waitpid(child, 0)
        print(json.dumps({"rc": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
