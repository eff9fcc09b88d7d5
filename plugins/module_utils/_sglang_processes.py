# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The processes of one SGLang server, read from /proc.

A worker is known by its command line (`sglang::scheduler_TP3`): the kernel cuts the short name, and a worker that died
but was not reaped has an empty command line, so it is not counted as alive.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._ownership import owner_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import (
    Listener,
    listening_sockets,
    may_answer,
    owners_in_order,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._text_table import printable

WORKER = re.compile(r"^sglang::scheduler")
_RANK = re.compile(r"_(TP|PP|DP)(\d+)")
# Client → what the cgroups of its containers are called (_ownership).
_CONTAINER_RUNNERS = {"docker": "docker", "podman": "podman", "nerdctl": "containerd"}
# Root's own program that passes a published port on into a container.
_FORWARDER = "docker-proxy"
_OF_A_USER = re.compile(r"^/user\.slice/user-(\d+)\.slice(/|$)")
_CONTAINER_CLIENTS = {*_CONTAINER_RUNNERS, "conmon"}


@dataclasses.dataclass(frozen=True)
class Process:
    """One process. start_time, in clock ticks since boot, makes the pid an identity; cpu_ticks: user and system."""

    pid: int
    ppid: int
    start_time: int
    state: str
    cpu_ticks: int
    cmdline: str = ""

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"

    def started_after_boot(self) -> float:
        """Seconds between boot and its start."""
        return self.start_time / os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class ServerProcesses:
    """What belongs to the server. main is None where there is no main process (any more).

    listeners is None where the kernel's table of sockets could not be read; ours says whether the server itself is
    among them (None: cannot be told). foreign is somebody else whom a request could reach. outside is True for a unit
    whose main process is a container's runner: the server is then no child of it, and is looked for in the containers
    that this runner can have started.
    """

    main: Process | None = None
    members: tuple[int, ...] = ()
    workers: tuple[Process, ...] = ()
    listeners: tuple[Listener, ...] | None = None
    ours: bool | None = None
    foreign: Listener | None = None
    outside: bool = False
    cpu_ticks: int = 0

    def worker_ranks(self) -> tuple[str, ...]:
        """The rank of each worker, in the order of the workers."""
        return tuple(rank(worker) for worker in self.workers)


def rank(worker: Process) -> str:
    """The name of a worker's rank, as in TP3."""
    found = _RANK.findall(worker.cmdline.split(None, 1)[0])
    return "_".join(kind + number for kind, number in found) or str(worker.pid)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(65536)


def read_process(pid: int, proc_root: str = "/proc") -> Process | None:
    """One process from its stat file; None where it is gone."""
    try:
        text = _text(f"{proc_root}/{pid}/stat")
        fields = text[text.rindex(")") + 2 :].split()
        return Process(pid, int(fields[1]), int(fields[19]), fields[0], int(fields[11]) + int(fields[12]))
    except (OSError, ValueError, IndexError):
        return None


def cmdline(pid: int, proc_root: str = "/proc") -> str:
    try:
        return printable(_text(f"{proc_root}/{pid}/cmdline").replace("\0", " ").strip())
    except OSError:
        return ""


def _program(line: str) -> str:
    return os.path.basename(line.split(" ", maxsplit=1)[0])


def all_processes(proc_root: str = "/proc") -> dict[int, Process]:
    try:
        names = os.listdir(proc_root)
    except OSError:
        return {}
    found = (read_process(int(name), proc_root) for name in names if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def seconds_since_boot() -> float:
    """On the clock that start times are counted on; a container's own /proc may show another one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _in_group(pid: int, group: str, proc_root: str) -> bool:
    try:
        lines = _text(f"{proc_root}/{pid}/cgroup").splitlines()
    except OSError:
        return False
    for line in lines:
        _number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers in ("", "name=systemd") and (path == group or path.startswith(group + "/")):
            return True
    return False


def members_of(
    main_pid: int | None, control_group: str, processes: t.Mapping[int, Process], proc_root: str = "/proc"
) -> set[int]:
    """The main process, everything that descends from it, and what is in the unit's own control group."""
    members = {main_pid} if main_pid in processes else set()
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process.pid)
    waiting = list(members)
    while waiting:
        for child in children.get(waiting.pop() or 0, ()):
            if child not in members:
                members.add(child)
                waiting.append(child)
    if control_group.strip("/"):
        members.update(pid for pid in processes if _in_group(pid, control_group, proc_root))
    return {pid for pid in members if pid}


def _in_containers(main: Process, processes: t.Mapping[int, Process], proc_root: str) -> set[int]:
    """Who is in a container of the engine whose client main is, the system's or that of main's own user.

    Anybody may bind the port before the server does, and give his processes the titles of workers.
    """
    program = _program(main.cmdline)
    kind, user = _CONTAINER_RUNNERS[program], _uid(main.pid, proc_root)
    init = _cgroup(1, proc_root) or ""
    found = set()
    for pid in processes:
        owner = owner_of(_cgroup(pid, proc_root), init, "")
        of_a_user = _OF_A_USER.match(owner.path)
        if owner.container is not None and owner.container.kind == kind:
            if of_a_user is None or int(of_a_user.group(1)) == user:
                found.add(pid)
        elif program == "docker" and _uid(pid, proc_root) == 0 and _program(cmdline(pid, proc_root)) == _FORWARDER:
            found.add(pid)
    return found


def _uid(pid: int, proc_root: str) -> int | None:
    try:
        return os.stat(f"{proc_root}/{pid}").st_uid
    except OSError:
        return None


def _cgroup(pid: int, proc_root: str) -> str | None:
    try:
        return _text(f"{proc_root}/{pid}/cgroup")
    except OSError:
        return None


def look_at_processes(
    main_pid: int | None, control_group: str, host: str, port: int, *, unit: bool = True, proc_root: str = "/proc"
) -> ServerProcesses:
    """The server's processes and the owner of its port.

    :param main_pid: the unit's main process; without a unit, None: then whoever listens on the port is the server.
    :param control_group: the unit's control group as systemd names it, may be empty.
    :param unit: False where there is no unit to compare with.
    """
    processes = all_processes(proc_root)
    sockets = listening_sockets(host, port, proc_root)
    members = members_of(main_pid, control_group, processes, proc_root)
    order = sorted(members) + sorted(set(processes) - members)
    owners, unreadable = owners_in_order(sockets or {}, order, proc_root)
    listeners = tuple(dataclasses.replace(one, cmdline=cmdline(one.pid or 0, proc_root)) for one in owners)
    if not unit:
        main_pid = next((listener.pid for listener in listeners if listener.pid is not None), None)
        members = members_of(main_pid, "", processes, proc_root)
    main = processes.get(main_pid or 0)
    if main is not None:
        main = dataclasses.replace(main, cmdline=cmdline(main.pid, proc_root))
    outside = main is not None and _program(main.cmdline) in _CONTAINER_RUNNERS
    # A podman container without a group of its own lives in that of the unit, beside its monitor.
    outside = outside and not any(
        _program(cmdline(pid, proc_root)) not in _CONTAINER_CLIENTS for pid in members - {main_pid}
    )
    server = members | _in_containers(main, processes, proc_root) if outside and main is not None else members
    workers = []
    for pid in sorted(server):
        line = cmdline(pid, proc_root)
        if WORKER.match(line) and processes[pid].alive:
            workers.append(dataclasses.replace(processes[pid], cmdline=line))
    foreign = None
    ours: bool | None = None
    if listeners:
        ours = any(listener.pid in server for listener in listeners)
        others = [listener for listener in listeners if listener.pid not in server]
        if ours and unit:
            foreign = next((one for one in others if one.pid is not None and may_answer(one.address, host)), None)
        elif unit:
            # An owner that cannot be seen is somebody else only if every process of the unit could be read.
            known = [listener for listener in others if listener.pid is not None]
            if known or not (unreadable & server):
                foreign = (known or others)[0]
            else:
                ours = None
    return ServerProcesses(
        main=main,
        members=tuple(sorted(members)),
        workers=tuple(workers),
        listeners=None if sockets is None else listeners,
        ours=ours,
        foreign=foreign,
        outside=outside,
        cpu_ticks=sum(processes[pid].cpu_ticks for pid in members if pid in processes),
    )
