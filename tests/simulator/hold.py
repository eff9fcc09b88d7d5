# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plain holder: a process that does nothing but hold a GPU of a simulated node, as a CUDA process would."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import contexts
import kernel
import processes


def open_all(node: str, but: str = "") -> dict:
    """Every node of the folder, as a CUDA process opens them, whichever GPU it computes on."""
    fds = {}
    for folder, prefix in (("dev", ""), ("dev/nvidia-caps", "nvidia-caps/")):
        for name in sorted(os.listdir(os.path.join(node, folder))):
            path = os.path.join(node, folder, name)
            if name != but and not os.path.isdir(path):
                fds[prefix + name] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return fds


def map_gpu(fds: dict, gpu: int) -> None:
    """The mappings of a CUDA process; the one of uvm is not inherited by forks (measured)."""
    kernel.map_shared(fds[f"nvidia{gpu}"])
    kernel.map_shared(fds["nvidiactl"])
    kernel.map_shared(fds["nvidia-uvm"], inherit=False)


def hold(node: str, options: dict) -> None:
    gpu = options["gpu"]
    own = f"nvidia{gpu}"
    fds = open_all(node, but=own if options["second_node"] else "")
    if options["second_node"]:
        # Another node of the same device: a hard link is the same inode under another path.
        fds[own] = os.open(options["second_node"], os.O_RDWR | os.O_CLOEXEC)
    if options["no_map"]:
        return  # a monitor
    map_gpu(fds, gpu)
    release = {} if options["release_delay"] is None else {"release": {"delay_s": options["release_delay"]}}
    allocation = contexts.Allocation(node, gpu, options["mib"], **release)
    if options["map_only"]:
        kernel.map_shared(allocation.fd)
        for fd in [*list(fds.values()), allocation.fd]:
            os.close(fd)


def keep_unreaped(node: str, child: int) -> None:
    """The parent of a holder that does not collect it while its memory is up: state Z, no files, GPU still in use."""
    processes.register(node, "parent that does not reap")
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    folder = os.path.join(node, "contexts")
    while any(context.pid == child for context in contexts.contexts(folder)):
        time.sleep(0.05)
    os.waitpid(child, 0)
    os._exit(0)


def leave_a_child(node: str, ready: int) -> None:
    """Returns in a child that inherited everything; the parent is killed. The everyday stuck GPU."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.read(reader, 1)
        os.write(ready, b"%d" % child)
        os.kill(os.getpid(), signal.SIGKILL)
    processes.register(node, "inheritor")
    os.write(writer, b".")


def main() -> None:
    node, ready, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    if "unreaped" in options["shape"]:
        child = os.fork()
        if child:
            os.close(ready)
            keep_unreaped(node, child)
    processes.register(node, "holder")
    if options["ignore_term"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hold(node, options)
    if "child" in options["shape"]:
        leave_a_child(node, ready)
    else:
        os.write(ready, b"%d" % os.getpid())
    if options["name"]:
        kernel.set_title(options["name"])
    os.close(ready)  # the caller waits for this: everything is in place
    if "zombie" in options["shape"]:
        threading.Thread(target=processes.rest, args=(node,)).start()
        kernel.exit_this_thread()
    processes.rest(node)


if __name__ == "__main__":
    main()
