# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of the modules that look for the holders of GPU devices."""

from __future__ import annotations


class ModuleDocFragment:
    # Every module describes its own scope option, because its default differs.
    DOCUMENTATION = r"""
options:
  devices:
    description:
      - Globs of the GPU device nodes, as absolute paths. A folder among them stands for what lies in it.
      - Holders are found by device number, so that one who opened another node of the same number, as a container has,
        is found too. With the default, every device of the NVIDIA driver counts, whether it has a node here or not.
      - Plain files stand in for nodes only where every glob lies outside C(/dev), and only small ones (one page at
        most) that are no links and lie in a folder of root or of this user which is not writable for everybody. They
        are told apart by inode.
    type: list
    elements: str
    default:
      - /dev/nvidia*
  majors:
    description:
      - The device majors of the nodes. A node of another major is stale. It is reported and never matched.
      - By default those of the entries in C(/proc/devices) whose name starts with C(nvidia).
      - With numbers that are not of the NVIDIA driver, the name of a node says what it is. V(nvidia0) is then a GPU.
    type: list
    elements: int
  units:
    description:
      - The systemd units whose processes, and what these started, may be signalled. Without a suffix,
        C(.service) is added.
      - With O(scope=lxc) these are units inside the containers of O(lxc), and name processes that count as being
        stopped even where they only have a GPU open.
    type: list
    elements: str
    default: []
  containers:
    description:
      - Containers of Docker, Podman and their like whose processes may be signalled, with O(scope=own) and
        O(scope=unit) only.
      - Give the container id, at least its first 12 characters, or the name by which C(docker) or C(podman) knows it. A
        machine of systemd-nspawn goes by its name.
    type: list
    elements: str
    default: []
  lxc:
    description:
      - The VMIDs of the LXC containers whose processes may be signalled, nested containers included, with
        O(scope=lxc) only, on the host that runs these containers.
    type: list
    elements: str
    default: []
  gpus:
    description:
      - UUIDs of the GPUs to which targets are restricted, with O(scope=unit) and O(scope=lxc) only.
      - Only the list of compute processes of C(nvidia-smi) tells which GPU a process uses. A process that is not on it
        follows its nearest ancestor that is, or else its descendants.
      - A process that is in no such family remains a target where it belongs to one of O(units). In a container of
        O(lxc) it remains one only where C(nvidia-smi) still lists a dead process, and lists such on these GPUs only.
    type: list
    elements: str
    default: []
  protect:
    description:
      - Further processes that must not be signalled, by the name or the path of the executable, or by unit.
      - The persistence daemon, DCGM and its exporter, the fabric manager, IMEX, MPS, the vGPU manager, display servers
        and compositors are always protected.
    type: list
    elements: str
    default: []
  allow_protected:
    description:
      - Protected executables or units that may be stopped all the same.
    type: list
    elements: str
    default: []
  allow_foreign:
    description:
      - Whether processes that belong to others may be targets. Needed for O(scope=all), and refused with any other.
    type: bool
    default: false
  scan_timeout:
    description:
      - How many seconds one look at all processes may take.
      - Reading C(/proc) can block for ever on a process that is stuck in the kernel. What does not answer is left out,
        and where that could have been a holder the look counts as incomplete.
    type: float
    default: 30.0
  systemd_scope:
    description:
      - Whose systemd is asked about units and told to stop them.
    type: str
    choices: [system, user]
    default: system
  port:
    description:
      - The port on which the server is to listen. Without it nobody looks who listens where.
      - A process in O(scope) that listens there is a target where it belongs to one of O(units), has a GPU open, or is
        an ancestor or a descendant of a target. That is how the launcher of a server started by hand is found, which
        has the GPUs open without computing on them.
      - Any other process that listens there is never signalled, and keeps the gate shut.
      - With O(scope=lxc) the port is the one inside the containers.
    type: int
  host:
    description:
      - The address on which the server is to listen, with O(port). Who listens on another address is not in its way.
    type: str
    default: 0.0.0.0
"""
