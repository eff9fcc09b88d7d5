# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether Proxmox has locked a container, since a backup, a snapshot or a migration is at work on it. Reads only.

The lock stands as `lock: backup` in the container's file, before the first [section]: those are earlier states of the
container, each with the lock that it was made under.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

_VMID = re.compile(r"[1-9][0-9]{0,9}")
_LOCK = re.compile(r"lock:\s*(\S+)\s*")
_MOST = 1 << 20  # bytes; such a file has a few hundred


@dataclasses.dataclass(frozen=True)
class ContainerLock:
    """lock: Proxmox's word for what is at work, None where nothing is. problem: why that cannot be told."""

    container: str
    lock: str | None = None
    problem: str | None = None

    def as_dict(self) -> dict[str, t.Any]:
        return {**dataclasses.asdict(self), "text": self.words()}

    def words(self) -> str:
        if self.problem is not None:
            return f"whether Proxmox has locked container {self.container} cannot be told: {self.problem}"
        return f"container {self.container} is {f'locked by Proxmox: {self.lock}' if self.lock else 'not locked'}"


def container_locks(containers: t.Sequence[str], pve_dir: str = "/etc/pve") -> tuple[ContainerLock, ...]:
    """The lock of each. A host without pve_dir is none of Proxmox's, and nothing is locked there."""
    if not os.path.lexists(pve_dir):
        return tuple(ContainerLock(one) for one in containers)
    return tuple(_lock_of(one, pve_dir) for one in containers)


def _lock_of(container: str, pve_dir: str) -> ContainerLock:
    if not _VMID.fullmatch(container):
        return ContainerLock(container, problem="its name is no VMID")
    path = os.path.join(pve_dir, "lxc", f"{container}.conf")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST)
    except OSError as error:
        # Without its cluster service Proxmox's folder is empty.
        return ContainerLock(container, problem=f"{path}: {error.strerror or error}")
    for line in text.splitlines():
        if line.startswith("["):
            break
        found = _LOCK.fullmatch(line)
        if found is not None:
            return ContainerLock(container, lock=found.group(1)[:40])
    return ContainerLock(container)
