# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A /proc that hides, refuses, blocks, or is that of others.

Where the real one cannot be made to do so it is a folder of files; its processes have PIDs that no kernel gives.
"""

from __future__ import annotations

import os
import typing as t

from scene import Scene

from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc

NOBODY = 65534
FAR = 5_000_000  # above the highest PID of Linux
NAMESPACE = "pid:[1]"


def _as_nobody(scene: Scene) -> None:
    """The module runs as a user that owns nothing, on nodes that anybody may open."""
    scene.real_nodes()
    scene.request["uid"] = NOBODY
    os.chmod(f"{scene.node.path}/calls.jsonl", 0o666)


def hidden_from_a_user(scene: Scene) -> None:
    _as_nobody(scene)
    scene.request["hidepid"] = "hidepid=2"
    scene.play("worker", open=[scene.devices.replace("*", "0")])


def invisible_to_a_user(scene: Scene) -> None:
    hidden_from_a_user(scene)
    scene.request["hidepid"] = "hidepid=invisible"


def noaccess_for_a_user(scene: Scene) -> None:
    hidden_from_a_user(scene)
    scene.request["hidepid"] = "hidepid=1"


def hidden_and_root(scene: Scene) -> None:
    scene.request["hidepid"] = "hidepid=2"
    scene.hold("worker")


def others_are_unreadable(scene: Scene) -> None:
    """Without any option: the tables of root's processes are closed to a user."""
    _as_nobody(scene)
    scene.play("worker", open=[scene.devices.replace("*", "0")])


def proc_of_another_namespace(scene: Scene) -> None:
    """PIDs in this /proc are not those that a signal goes by: there another process has the worker's number."""
    worker = scene.hold("worker")
    log = scene.folder / "twin.signals"
    log.touch()
    scene.request.update(new_pid_namespace=True, twin=worker.pid, twin_log=str(log))
    scene.unharmed.append(log)
    scene.params.update(scope="all", allow_foreign=True)


def _far(scene: Scene, number: int = 0, **options: t.Any) -> tuple[FakeProc, int]:
    """A /proc with a holder that does not exist, which maps GPU 1."""
    proc = FakeProc(scene.folder / "proc", cgroup="0::/")
    pid = FAR + number
    proc.add(pid, maps=[scene.dev("nvidia1")], opens=[scene.dev("nvidia1")], namespace=NAMESPACE, **options)
    scene.request["proc_root"] = proc.root
    return proc, pid


def maps_block(scene: Scene) -> None:
    """Reading its mappings never comes back: its memory lock is held by a task that is stuck in the kernel."""
    proc, pid = _far(scene)
    proc.block(pid, "maps")
    scene.params["scan_timeout"] = 1.0


def stat_blocks(scene: Scene) -> None:
    proc, pid = _far(scene)
    proc.block(pid, "stat")
    scene.params["scan_timeout"] = 1.0


def command_line_blocks(scene: Scene) -> None:
    proc, pid = _far(scene)
    proc.block(pid, "cmdline")
    scene.params["scan_timeout"] = 10.0


def files_unreadable(scene: Scene) -> None:
    """Its table of open files is there and cannot be read; nothing else is known about what it holds."""
    proc = FakeProc(scene.folder / "proc", cgroup="0::/")
    proc.add(FAR, namespace=NAMESPACE)
    proc.make_unreadable(FAR, "fd")
    scene.request["proc_root"] = proc.root


def maps_unreadable(scene: Scene) -> None:
    proc = FakeProc(scene.folder / "proc", cgroup="0::/")
    proc.add(FAR, namespace=NAMESPACE)
    proc.make_unreadable(FAR, "maps")
    scene.request["proc_root"] = proc.root


def executable_unreadable(scene: Scene) -> None:
    """Its executable cannot be read, and it calls itself nv-hostengine."""
    _far(scene, comm="nv-hostengine", exe=None)
    scene.faults(scene.listed(scene.app_line(1, FAR)))


def state_d_with_a_place(scene: Scene) -> None:
    """Stuck in the driver for ever: SIGKILL is pending, and it maps the GPU."""
    proc, pid = _far(scene, state="D", pending=0x100)
    proc.write(f"{pid}/task/{pid}/wchan", "uvm_va_space_destroy")
    scene.faults(scene.listed(scene.app_line(1, pid)), never_clears={"1": 5000})


def namespace_unreadable(scene: Scene) -> None:
    """In which PID namespace it lives cannot be read, and its number has two forms: it is somebody else's."""
    proc = FakeProc(scene.folder / "proc", cgroup="0::/")
    proc.add(FAR, maps=[scene.dev("nvidia1")], namespace=None, ns_pids=(FAR, 7))
    scene.request["proc_root"] = proc.root


def stat_makes_no_sense(scene: Scene) -> None:
    proc, pid = _far(scene)
    proc.write(f"{pid}/stat", b"\xff\x00 no stat at all")


def empty_proc(scene: Scene) -> None:
    """As in a bare chroot."""
    scene.request["empty_proc"] = True


PROC_PLANTS: dict[str, t.Callable[[Scene], None]] = {
    plant.__name__: plant
    for plant in (
        hidden_from_a_user, invisible_to_a_user, noaccess_for_a_user, hidden_and_root, others_are_unreadable,
        proc_of_another_namespace, maps_block, stat_blocks, command_line_blocks, files_unreadable, maps_unreadable,
        executable_unreadable, state_d_with_a_place, namespace_unreadable, stat_makes_no_sense, empty_proc,
    )
}  # fmt: skip
