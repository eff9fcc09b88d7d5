# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Device nodes that are not what they seem.

Real ones are unused virtual consoles, which nobody else has open; those that belong to another driver are console
memory (major 7). A case that could hit the whole machine, were the module wrong, runs in check mode.
"""

from __future__ import annotations

import os
import pathlib
import socket
import stat
import sys
import typing as t

from scene import Scene

OTHER_DRIVER = 7  # vcs: the memory of a console


def _foreign_node(scene: Scene, name: str) -> str:
    path = pathlib.Path(scene.devices).parent / name
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(OTHER_DRIVER, 1))
    return str(path)


def stale_node(scene: Scene) -> None:
    """Left in /dev by an earlier driver; its major is another driver's by now, and somebody uses that."""
    scene.real_nodes()
    scene.play("stranger", open=[_foreign_node(scene, "nvidia-uvm")])


def computing_stranger_on_a_stale_node(scene: Scene) -> None:
    stale_node(scene)
    scene.faults(scene.listed(scene.app_line(0, scene.cast["stranger"].pid)))


def null_as_a_gpu(scene: Scene) -> None:
    """nvidia0 has the number of /dev/null, which every process on the machine has open."""
    folder = scene.folder / "dev"
    folder.mkdir()
    os.mknod(folder / "nvidia0", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    scene.devices = f"{folder}/nvidia*"


def link_to_null(scene: Scene) -> None:
    folder = scene.folder / "dev"
    folder.mkdir()
    (folder / "nvidia0").symlink_to("/dev/null")
    scene.devices = f"{folder}/nvidia*"


def dangling_link(scene: Scene) -> None:
    folder = scene.folder / "dev"
    folder.mkdir()
    (folder / "nvidia0").symlink_to(scene.folder / "nowhere")
    scene.devices = f"{folder}/nvidia*"


def odd_files(scene: Scene) -> None:
    """A pipe, a socket and a folder between the nodes; the holder of the pipe is nobody's business."""
    folder = scene.folder / "dev"
    folder.mkdir()
    os.link(scene.dev("nvidia1"), folder / "nvidia1")
    os.mkfifo(folder / "nvidia2")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "nvidia3"))
    (folder / "nvidia-caps").mkdir()
    scene.devices = f"{folder}/nvidia*"
    scene.play("stranger", open=[str(folder / "nvidia2")])
    scene.play("worker", map=[str(folder / "nvidia1")])


def plain_file_among_devices(scene: Scene) -> None:
    """With a glob below /dev a plain file of that name is no node, whoever has it mapped."""
    name = f"/dev/nvidia-cleanslate-{os.getpid()}"
    pathlib.Path(name).write_bytes(b"\0" * 4096)
    scene.ends.callback(os.unlink, name)
    scene.devices = name
    scene.play("stranger", map=[name])


def real_dev(scene: Scene) -> None:
    """The real /dev of this machine, all of it."""
    scene.devices = "/dev/*"


def whole_root(scene: Scene) -> None:
    scene.devices = "/*"


def greedy_glob(scene: Scene) -> None:
    """Everything in the folder; console memory, a note and a log lie there as well."""
    folder = scene.real_nodes()
    (folder / "notes").write_text("x" * 4096)
    scene.devices = f"{folder}/*"
    scene.play("reader", map=[str(folder / "notes")])
    scene.play("stranger", open=[_foreign_node(scene, "vcs")])
    worker = scene.play("worker", open=[str(folder / "nvidia0")])
    scene.faults(scene.listed(scene.app_line(0, worker.pid)))


def greedy_glob_of_files(scene: Scene) -> None:
    """As a simulated node has it: everything in the folder plays a node, but only nvidiaN a GPU."""
    folder = scene.folder / "dev"
    folder.mkdir()
    os.link(scene.dev("nvidia1"), folder / "nvidia1")
    (folder / "notes").write_text("x" * 4096)
    scene.devices = f"{folder}/*"
    scene.play("reader", map=[str(folder / "notes")])
    scene.play("worker", map=[str(folder / "nvidia1")])


LIBRARY = next(line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "libc" in line)


def link_to_a_library(scene: Scene) -> None:
    """nvidia0 is a link to the C library, which every process of the machine has mapped."""
    folder = scene.folder / "dev"
    folder.mkdir()
    (folder / "nvidia0").symlink_to(LIBRARY)
    scene.devices = f"{folder}/nvidia*"


def hard_link_to_a_program(scene: Scene) -> None:
    """nvidia0 is the very file that a stranger runs."""
    folder = scene.folder / "dev"
    folder.mkdir()
    program = scene.program("their-python")
    os.link(program, folder / "nvidia0")
    scene.devices = f"{folder}/nvidia*"
    scene.play("stranger", executable=program, environment={"PYTHONHOME": sys.base_prefix})


def folder_of_everybody(scene: Scene) -> None:
    """Where anybody may put a file: it could be one that others use."""
    folder = scene.folder / "dev"
    folder.mkdir()
    os.link(scene.dev("nvidia1"), folder / "nvidia1")
    folder.chmod(0o777)
    scene.devices = f"{folder}/nvidia*"
    scene.play("stranger", map=[scene.dev("nvidia1")])


def no_node_at_all(scene: Scene) -> None:
    scene.devices = f"{scene.folder}/nothing/nvidia*"


def second_node(scene: Scene) -> None:
    """A node of the same number that a container got by mknod; the one next to it has another number."""
    folder = scene.real_nodes()
    worker = scene.play("worker", open=[scene.twin(folder / "nvidia0", "nvidia7")])
    other = scene.folder / "elsewhere" / "other"
    os.mknod(other, stat.S_IFCHR | 0o666, os.makedev(OTHER_DRIVER, 1))
    stranger = scene.play("stranger", open=[str(other)])
    scene.faults(scene.listed(scene.app_line(0, worker.pid), scene.app_line(0, stranger.pid)))


def node_made_anew(scene: Scene) -> None:
    """The node that it opened was removed, and another one of the same number made in its place."""
    folder = scene.real_nodes()
    worker = scene.play("worker", open=[str(folder / "nvidia0")])
    number = (folder / "nvidia0").stat().st_rdev
    (folder / "nvidia0").unlink()
    os.mknod(folder / "nvidia0", stat.S_IFCHR | 0o666, number)
    scene.faults(scene.listed(scene.app_line(0, worker.pid)))


def node_in_another_mount_namespace(scene: Scene) -> None:
    """Made by mknod on a tmpfs that only its process sees."""
    folder = scene.real_nodes()
    place = scene.folder / "private"
    place.mkdir()
    number = (folder / "nvidia0").stat().st_rdev
    script = (
        f"mount -t tmpfs none '{place}' && mknod '{place}/gpu' c {os.major(number)} {os.minor(number)} && exec \"$@\""
    )
    worker = scene.play("worker", wrapper=("unshare", "-m", "sh", "-c", script, "sh"), open=[f"{place}/gpu"])
    scene.faults(scene.listed(scene.app_line(0, worker.pid)))


def two_of_two_users(scene: Scene) -> None:
    """Two servers of one unit's cgroup, on GPU 1 and GPU 5; the first is asked for."""
    for name, gpu in (("worker", 1), ("neighbour", 5)):
        scene.group(scene.hold(name, gpu=gpu), "system.slice/fault.service")
    scene.params.update(scope="unit", units=["fault.service"], gpus=[scene.uuid(1)])


def subset_that_nobody_uses(scene: Scene) -> None:
    two_of_two_users(scene)
    scene.params["gpus"] = [scene.uuid(7)]


def subset_by_index(scene: Scene) -> None:
    scene.hold("worker")
    scene.params.update(scope="unit", units=["fault.service"], gpus=["1"])


def subset_by_bus_id(scene: Scene) -> None:
    scene.hold("worker")
    scene.params.update(scope="unit", units=["fault.service"], gpus=[scene.node.about["gpus"][1]["bus_id"]])


def subset_that_is_not_there(scene: Scene) -> None:
    scene.group(scene.hold("worker"), "system.slice/fault.service")
    scene.params.update(scope="unit", units=["fault.service"], gpus=["GPU-00000000-dead-beef-0000-000000000000"])


def neighbours_beside_the_subset(scene: Scene) -> None:
    """Ten GPUs; eight are expected by UUID, and somebody works on the other two."""
    scene.params["expected_uuids"] = [scene.uuid(gpu) for gpu in range(8)]
    scene.params.update(scope="unit", units=["fault.service"])
    scene.hold("neighbour", gpu=9)


DEVICE_PLANTS: dict[str, t.Callable[[Scene], None]] = {
    plant.__name__: plant
    for plant in (
        stale_node, computing_stranger_on_a_stale_node, null_as_a_gpu, link_to_null, dangling_link, odd_files,
        plain_file_among_devices, link_to_a_library,
        hard_link_to_a_program, folder_of_everybody, real_dev,
        whole_root, greedy_glob, greedy_glob_of_files, no_node_at_all, second_node,
        node_made_anew, node_in_another_mount_namespace, two_of_two_users, subset_that_nobody_uses, subset_by_index,
        subset_by_bus_id, subset_that_is_not_there, neighbours_beside_the_subset,
    )
}  # fmt: skip
