# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose a holder is: real control groups, in the places where systemd, LXC and docker put them."""

from __future__ import annotations

import os
import typing as t

from scene import UNIT, Scene

HEX = "ab" * 32
VMID = str(900_000_000 + os.getpid())  # no container of this machine
INACTIVE = "echo Id=x; echo LoadState=loaded; echo ActiveState=inactive; echo Restart=no\n"
ACTIVE = "echo Id=x; echo LoadState=loaded; echo ActiveState=active; echo Restart=always\n"


def _mapping(scene: Scene, name: str, group: str) -> None:
    scene.group(scene.play(name, map=[scene.dev("nvidia1")]), group)


def another_service(scene: Scene) -> None:
    _mapping(scene, "neighbour", "system.slice/neighbour.service")
    scene.tool_says("systemctl", ACTIVE)


def service_that_cannot_be_asked(scene: Scene) -> None:
    """systemctl is there and fails."""
    _mapping(scene, "neighbour", "system.slice/neighbour.service")


def ended_service(scene: Scene) -> None:
    _mapping(scene, "worker", "system.slice/neighbour.service")
    scene.tool_says("systemctl", INACTIVE)


def names_alike(scene: Scene) -> None:
    """Units whose names begin or end like the one that is being stopped."""
    scene.params.update(scope="unit", units=[UNIT])
    _mapping(scene, "worker", f"system.slice/{UNIT}")
    for number, unit in enumerate(("fault2.service", "x-fault.service", "fault.service.d.service", "fault@1.service")):
        _mapping(scene, f"neighbour {number}", f"system.slice/{unit}")


def same_unit_in_a_container(scene: Scene) -> None:
    scene.params.update(scope="unit", units=[UNIT])
    _mapping(scene, "neighbour", f"lxc.payload.{VMID}/system.slice/{UNIT}")


def docker_container(scene: Scene) -> None:
    _mapping(scene, "neighbour", f"system.slice/docker-{HEX}.scope")


def user_service(scene: Scene) -> None:
    _mapping(scene, "neighbour", "user.slice/user-4242.slice/user@4242.service/app.slice/train.service")


def group_of_unknown_kind(scene: Scene) -> None:
    _mapping(scene, "neighbour", f"some-runtime-{os.getpid()}/x")


def login_session(scene: Scene) -> None:
    _mapping(scene, "worker", f"user.slice/user-4242.slice/session-{os.getpid()}.scope")


def vmids_alike(scene: Scene) -> None:
    """101 is named; 1010 and 10 are others."""
    scene.params.update(scope="lxc", lxc=[VMID])
    _mapping(scene, "worker", f"lxc/{VMID}/ns/system.slice/sglang.service")
    _mapping(scene, "nested", f"lxc/{VMID}/ns/docker/{HEX}")
    _mapping(scene, "neighbour 0", f"lxc/{VMID}0/ns/system.slice/sglang.service")
    _mapping(scene, "neighbour 1", f"lxc/{VMID[:-1]}/ns/system.slice/sglang.service")
    _mapping(scene, "monitor of it", f"lxc.monitor/{VMID}")


def node_of_another_container(scene: Scene) -> None:
    """The node says which PID namespace is its own; the container that is named has another one."""
    vmids_alike(scene)
    scene.params["node_pid_namespace"] = "pid:[4026599999]"


def short_container_id(scene: Scene) -> None:
    docker_container(scene)
    scene.params["containers"] = [HEX[:4]]


def unit_stopped_before(scene: Scene) -> None:
    """The unit that is named does not run and never did; a worker by hand holds a GPU."""
    scene.hold("worker")
    scene.params.update(units=[UNIT])
    scene.tool_says("systemctl", INACTIVE)


def manager_without_effect(scene: Scene) -> None:
    """systemctl stop says yes, and nothing is stopped."""
    scene.params.update(scope="unit", units=[UNIT])
    _mapping(scene, "worker", f"system.slice/{UNIT}")
    scene.tool_says("systemctl", f'case " $* " in *" stop "*) exit 0;; esac\n{ACTIVE}')


def runtime_without_effect(scene: Scene) -> None:
    """docker stop says yes, and nothing is stopped."""
    docker_container(scene)
    scene.params["containers"] = [HEX[:12]]
    scene.tool_says("docker", 'case " $* " in *" inspect "*) echo no;; esac\nexit 0\n')


SCOPE_PLANTS: dict[str, t.Callable[[Scene], None]] = {
    plant.__name__: plant
    for plant in (
        another_service, service_that_cannot_be_asked, ended_service, names_alike, same_unit_in_a_container,
        docker_container, user_service, group_of_unknown_kind, login_session, vmids_alike, node_of_another_container,
        short_container_id, unit_stopped_before, manager_without_effect, runtime_without_effect,
    )
}  # fmt: skip
