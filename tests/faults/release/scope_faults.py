# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose a holder is, and who is asked to stop it."""

from __future__ import annotations

import functools

from plants_scope import HEX
from release_row import ReleaseFault
from scene import UNIT

ROOT = ("root",)
Row = functools.partial(ReleaseFault, "Scope", needs=ROOT)
Manager = functools.partial(ReleaseFault, "Managers")
NEIGHBOUR = ("neighbour",)
MANY = tuple(f"neighbour {number}" for number in range(4))

SCOPE: tuple[ReleaseFault, ...] = (
    Row("another active service computes", "scope own", "another_service", "foreign", lives=NEIGHBOUR,
        peer="deepops, another job"),
    Row("another active service computes, at the gate", "scope own", "another_service", "foreign", "gate",
        lives=NEIGHBOUR),
    Row("another active service computes, in the start guard", "scope own", "another_service", "refused", "guard",
        lives=NEIGHBOUR),
    Row("whether another service is active cannot be told", "systemctl fails", "service_that_cannot_be_asked",
        "foreign", lives=NEIGHBOUR),
    Row("a service that ended left a worker behind", "scope own", "ended_service", "released", dies=("worker",)),
    Row("a service of a user", "scope own", "user_service", "foreign", lives=NEIGHBOUR),
    Row("a docker container", "scope own", "docker_container", "foreign", lives=NEIGHBOUR),
    Row("a control group of unknown kind", "scope own", "group_of_unknown_kind", "foreign", lives=NEIGHBOUR),
    Row("a login session", "scope own", "login_session", "released", dies=("worker",)),
    Row("units with names alike", "scope unit", "names_alike", "released", dies=("worker",), lives=MANY),
    Row("a unit of the same name in a container", "scope unit", "same_unit_in_a_container", "foreign", lives=NEIGHBOUR),
    Row("VMIDs that look alike", "scope lxc", "vmids_alike", "released", dies=("worker", "nested"),
        lives=("neighbour 0", "neighbour 1", "monitor of it")),
    Row("the container is not that of the node", "scope lxc", "node_of_another_container", "refused",
        lives=("worker", "nested", "neighbour 0", "neighbour 1", "monitor of it"), expects={"failed": True}),
    Row("a container by four characters of its id", "scope own", "short_container_id", "options", lives=NEIGHBOUR,
        says="at least 12 characters"),
)  # fmt: skip

MANAGERS: tuple[ReleaseFault, ...] = (
    Manager("the unit was stopped before", "a worker by hand holds a GPU", "unit_stopped_before", "released",
            dies=("worker",), commands=(), peer="NVIDIA's reset_gpus"),
    Manager("systemctl stop says yes and does nothing", "a unit that restarts itself", "manager_without_effect",
            ("survivors", "released"), needs=ROOT, dies=(), lives=("worker",), commands=(f"systemctl stop -- {UNIT}",),
            expects={"failed": True}),
    Manager("docker stop says yes and does nothing", "the container is named", "runtime_without_effect", "released",
            needs=ROOT, dies=NEIGHBOUR, commands=(f"docker stop -t 15 {HEX[:12]}",), peer="mig-parted"),
)  # fmt: skip

SCOPE_FAULTS: tuple[ReleaseFault, ...] = (*SCOPE, *MANAGERS)
