# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Proof that a node is the container it is said to be: its PID namespace is that of the container's init on the host.

Equal for the right container, different for any other (measured on LXC). boot_id proves nothing: it is the host's in
every container.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._ownership import owner_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc

_NAMESPACE = re.compile(r"pid:\[[0-9]+\]")


@dataclasses.dataclass(frozen=True)
class ContainerInit:
    """The first process of a running container, as the host sees it."""

    vmid: str
    pid: int
    namespace: str


def is_namespace(text: str) -> bool:
    """Whether this is what `readlink /proc/1/ns/pid` prints, such as pid:[4026532177]."""
    return _NAMESPACE.fullmatch(text) is not None


def container_inits(vmids: t.Collection[str], proc: Proc) -> tuple[ContainerInit, ...]:
    """The init of each of these Proxmox containers that runs. Processes that vanish or cannot be read are none."""
    init, own = proc.cgroup(1), proc.cgroup("self")
    found = []
    for pid in proc.pids():
        try:
            owner = owner_of(proc.cgroup(pid), init, own)
            container = owner.container
            if container is None or container.kind != "lxc" or container.id not in vmids or owner.nested is not None:
                continue
            # Deeper ones are somebody's own namespaces inside of the container, and not the container.
            if proc.status(pid).ns_pids[1:] == (1,):
                found.append(ContainerInit(container.id, pid, proc.pid_namespace(pid)))
        except (OSError, ValueError):
            continue
    return tuple(found)


def refusal(namespace: str, vmids: t.Sequence[str], proc: Proc) -> str | None:
    """Why a node with this PID namespace is not proved to be one of these containers; None when it is."""
    listed = ", ".join(vmids)
    try:
        inits = container_inits(set(vmids), proc)
    except OSError as exc:
        return f"The cgroup of PID 1 cannot be read on the GPU host ({exc}): container {listed} cannot be proved."
    if any(init.namespace == namespace for init in inits):
        return None
    if not inits:
        return (
            f"No container {listed} runs on this GPU host: no init with a PID 1 of its own in cgroup /lxc/{vmids[0]}."
            " Check gpu_release_lxc against `pct list`, and that gpu_release_host is the right host."
            " Nothing was touched."
        )
    seen = "; ".join(f"container {init.vmid} has {init.namespace} (pid {init.pid} here)" for init in inits)
    return (
        f"The node's PID namespace is {namespace}, but {seen}: this node is not container {listed} of this host."
        " Correct gpu_release_lxc (see `pct list`) or gpu_release_host. Nothing was touched."
    )
