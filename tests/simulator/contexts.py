# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who really holds GPU memory on a simulated node.

A context is a file NODE/contexts/*.ctx: a JSON header of 4096 bytes, and behind it one byte for each MiB held, so that
one stat gives the amount. Its creator locks it with flock and maps it. The lock belongs to the open file, not to the
process: forks share it, a mapping alone keeps it, exec drops it (the descriptor is close-on-exec), and it ends with
the last of them, also in the living threads of a zombie leader. That is how a real CUDA context behaves.

Kept free of slow imports: the fake nvidia-smi loads this file at each call.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import typing as t

HEADER = 4096
CONTEXT_ONLY_MIB = 4  # what a GPU shows for a process that opened a context and allocated nothing

Release = dict[str, t.Any]


class Context(t.NamedTuple):
    path: str
    gpu: int
    mib: int
    pid: int
    start_time: int
    held: bool
    freed_at: float | None
    release: Release


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_stat(pid: int) -> tuple[str, int, int] | None:
    """(state, parent, start time) of a process, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            fields = handle.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[19])


def is_held(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def freed_at(path: str) -> float:
    """When the last holder ended, as the driver process noted it; if nobody noted it, from now on."""
    note = path[:-4] + ".freed"
    try:
        fd = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        with open(note, encoding="ascii") as handle:
            text = handle.read()
        return float(text) if text else now()
    except OSError:
        return now()
    moment = now()
    os.write(fd, repr(moment).encode())
    os.close(fd)
    return moment


def contexts(folder: str) -> list[Context]:
    found = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".ctx"):
            continue
        path = os.path.join(folder, name)
        try:
            held = is_held(path)
            with open(path, "rb") as handle:
                header = json.loads(handle.read(HEADER).rstrip(b"\0"))
                mib = os.fstat(handle.fileno()).st_size - HEADER
        except (OSError, ValueError):
            continue  # removed meanwhile
        found.append(
            Context(
                path,
                header["gpu"],
                mib,
                header["pid"],
                header["start_time"],
                held,
                None if held else freed_at(path),
                header["release"],
            )
        )
    return found


def never_clears(scenario: t.Mapping[str, t.Any]) -> dict[int, int]:
    """GPUs that keep what their dead held: a list of them, or GPU: MiB (then at least that much, whoever held it)."""
    wanted = scenario.get("never_clears") or {}
    return {int(gpu): int(wanted[gpu]) if isinstance(wanted, dict) else 0 for gpu in wanted}


def still_used(context: Context, scenario: t.Mapping[str, t.Any], moment: float) -> int:
    """MiB that this context occupies at a moment: all while it is held, then what its release curve says."""
    if context.held or context.freed_at is None or context.gpu in never_clears(scenario):
        return context.mib
    if context.mib <= CONTEXT_ONLY_MIB:
        return 0
    release = dict(context.release)
    release.update({key[8:]: value for key, value in scenario.items() if key.startswith("release_")})
    age = moment - context.freed_at
    steps = release.get("curve") or [[context.mib, release.get("delay_s", 0)]]
    for mib, seconds in [*list(steps), release.get("tail") or [0, 0]]:
        if age < seconds:
            return int(mib)
        age -= seconds
    return 0


class Allocation:
    """The holder's side of a context."""

    def __init__(self, node: str, gpu: int, mib: int = CONTEXT_ONLY_MIB, release: Release | None = None) -> None:
        folder = os.path.join(node, "contexts")
        stat = process_stat(os.getpid())
        header = {
            "gpu": gpu,
            "pid": os.getpid(),
            "start_time": stat[2] if stat else 0,
            "release": {"delay_s": 0.25} if release is None else release,
        }
        registry = os.open(os.path.join(folder, ".registry"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(registry, fcntl.LOCK_EX)
            serial = sum(1 for name in os.listdir(folder) if name.startswith(f"gpu{gpu}-{os.getpid()}-"))
            self.path = os.path.join(folder, f"gpu{gpu}-{os.getpid()}-{serial}.ctx")
            self.fd = os.open(self.path + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            os.pwrite(self.fd, json.dumps(header).encode().ljust(HEADER, b"\0"), 0)
            self.grow(mib)
            os.rename(self.path + ".new", self.path)
            start_driver(node)
        finally:
            os.close(registry)

    def grow(self, mib: int) -> None:
        os.ftruncate(self.fd, HEADER + mib)


def start_driver(node: str) -> None:
    """See that one driver process watches this node's contexts (it notes when the last holder of one ended)."""
    lock = os.open(os.path.join(node, "contexts", ".driver"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return
    import subprocess  # slow, and only needed here

    with open(os.path.join(node, "node.json"), encoding="utf-8") as handle:
        python = json.load(handle)["python"]
    environment = dict(os.environ, CLEANSLATE_SIMULATED_NODE=node, PYTHONPYCACHEPREFIX=os.path.join(node, "pycache"))
    here = os.path.dirname(os.path.realpath(__file__))
    # Started through sh that ends at once: the driver is nobody's child, so nobody is left to reap it.
    subprocess.call(
        ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", python, "-S",
         os.path.join(here, "driver.py"), node, str(lock)],
        pass_fds=[lock], env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(lock)
