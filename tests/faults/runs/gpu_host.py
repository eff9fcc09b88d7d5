# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A GPU host that is played beside a simulated node: what runs on the node stands in the control group of a Proxmox
container, with a container's init beside it, and what is delegated to the host does not. Needs root.

The node itself stays in this machine's PID namespace; its readlink answers with that of the played init.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
import typing as t

from broken_runs import SmallNode, breaks

HIERARCHIES = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
_numbers = itertools.count(1)


class GpuHost:
    """An inventory host with nothing of its own but a way to lose it."""

    def __init__(self, node: SmallNode) -> None:
        self.node = node
        self.name = f"pve{node.number + 100}"
        self.folder = node.folder.parent / self.name
        self.folder.mkdir()
        self.variables = breaks(self.lost, node.number + 101)
        self.vmid = 100_000 + os.getpid() % 100_000 * 100 + next(_numbers)
        root = next(root for root in HIERARCHIES if os.path.exists(f"{root}/cgroup.procs"))
        self._group = pathlib.Path(root, "lxc", str(self.vmid), "ns")
        self._group.mkdir(parents=True)
        enter = f"echo $$ >{self._group}/cgroup.procs"
        inside = node.folder / "bin" / "inside"
        _program(inside, f'{enter}; exec {shlex.quote(sys.executable)} "$@"')
        node.inside = ["sh", "-c", f'{enter}; exec "$@"', "inside"]
        node.variables = {
            **node.variables,
            "ansible_python_interpreter": str(inside),
            "gpu_release_host": self.name,
            "gpu_release_lxc": [self.vmid],
        }
        self._init = subprocess.Popen(["sh", "-c", f"{enter}; exec unshare --pid --fork --kill-child sleep infinity"])
        namespace = self._namespace()
        _program(node.folder / "bin" / "readlink", f"echo {shlex.quote(namespace)}")

    @property
    def lost(self) -> pathlib.Path:
        return self.folder / "lost"

    def calls(self, since: int = 0) -> list[t.Any]:
        return []

    def _namespace(self) -> str:
        children = pathlib.Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        for _try in range(500):
            found = children.read_text().split()
            with contextlib.suppress(OSError):
                if found and os.readlink(f"/proc/{found[0]}/ns/pid") != os.readlink("/proc/self/ns/pid"):
                    return os.readlink(f"/proc/{found[0]}/ns/pid")
            time.sleep(0.02)
        raise AssertionError("the played container has no init")

    def end(self) -> None:
        """After the node's own processes have ended."""
        self._init.send_signal(signal.SIGKILL)
        self._init.wait()
        for place in (self._group, self._group.parent):
            for _try in range(250):
                with contextlib.suppress(OSError):
                    place.rmdir()
                    break
                time.sleep(0.02)


def _program(path: pathlib.Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
