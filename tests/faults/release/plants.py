# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the states before are reached: one function each, by the name that a row gives."""

from __future__ import annotations

import os
import typing as t

from plants_devices import DEVICE_PLANTS
from plants_holders import HOLDER_PLANTS
from plants_proc import PROC_PLANTS
from plants_scope import SCOPE_PLANTS
from scene import Scene

from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import FULL_QUERY

CSV = "--format=csv,noheader,nounits"


def nothing(scene: Scene) -> None:
    pass


def held(scene: Scene) -> None:
    scene.hold("worker")


def all_by_uuid(scene: Scene) -> None:
    scene.params["expected_uuids"] = [scene.uuid(gpu) for gpu in range(len(scene.node.about["gpus"]))]


def all_but_the_first_by_uuid(scene: Scene) -> None:
    scene.params["expected_uuids"] = [scene.uuid(gpu) for gpu in range(1, len(scene.node.about["gpus"]))]


def the_sixth_by_uuid(scene: Scene) -> None:
    scene.params["expected_uuids"] = [scene.uuid(5)]


def _own_words(scene: Scene, code: int, change: t.Callable[[list[str]], list[str]] = lambda lines: lines) -> None:
    """What nvidia-smi would say of an idle node, with another end."""
    done = scene.node.smi(f"--query-gpu={','.join(FULL_QUERY)}", CSV)
    lines = change(done.stdout.decode().splitlines(True))
    scene.faults({"effect": "exit", "query": "gpu", "code": code, "stdout": "".join(lines)})


def good_rows_and_exit_1(scene: Scene) -> None:
    _own_words(scene, 1)


def good_rows_and_a_crash(scene: Scene) -> None:
    _own_words(scene, -11)


def one_row_twice(scene: Scene) -> None:
    _own_words(scene, 0, lambda lines: [*lines[:7], lines[0]])


def nine_rows(scene: Scene) -> None:
    _own_words(scene, 0, lambda lines: [*lines, lines[0]])


def seven_rows(scene: Scene) -> None:
    _own_words(scene, 0, lambda lines: lines[:7])


def a_row_cut_off(scene: Scene) -> None:
    _own_words(scene, 0, lambda lines: [*lines[:7], lines[7][:40]])


def headings_before_the_rows(scene: Scene) -> None:
    _own_words(scene, 0, lambda lines: [", ".join(FULL_QUERY) + "\n", *lines])


def _own_program(scene: Scene, text: str, mode: int = 0o755) -> None:
    path = scene.folder / "nvidia-smi"
    path.write_text(text)
    path.chmod(mode)
    scene.params["nvidia_smi"] = str(path)


def no_program(scene: Scene) -> None:
    scene.params["nvidia_smi"] = str(scene.folder / "no-such-nvidia-smi")


def not_executable(scene: Scene) -> None:
    _own_program(scene, "#!/bin/sh\n", 0o644)


def no_interpreter(scene: Scene) -> None:
    _own_program(scene, "#!/no/such/interpreter\n")


def a_flood(scene: Scene) -> None:
    _own_program(scene, "#!/bin/sh\nexec yes 0, GPU-0, 0, 0\n")


def a_child_keeps_the_pipe(scene: Scene) -> None:
    """nvidia-smi has ended, and something that it started still has its standard output open."""
    _own_program(scene, "#!/bin/sh\nsleep 5 &\nexit 0\n")


def binary_noise(scene: Scene) -> None:
    _own_program(scene, "#!/bin/sh\nexec head -c 65536 /dev/urandom\n")


def nobody_who_is_listed_holds(scene: Scene) -> None:
    """compute-apps names processes that have no GPU device open."""
    scene.play("stranger")
    scene.adopt("the test itself", os.getpid())
    lines = [scene.app_line(1, pid) for pid in (1, os.getpid(), scene.cast["stranger"].pid)]
    scene.faults(scene.listed(*lines))


def a_dead_pid_is_listed(scene: Scene) -> None:
    scene.faults(scene.listed(scene.app_line(1, 4194304, name="[Not Found]")), never_clears={"1": 5000})


def headings_as_processes(scene: Scene) -> None:
    """The words above the columns of a table, where PIDs are looked for."""
    scene.play("stranger")
    heading = "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
    scene.faults(scene.listed(heading, "gpu_uuid, gpu_bus_id, pid, process_name, used_memory\n",
                              scene.app_line(1, "Idx"), scene.app_line(1, "-1"), scene.app_line(1, "0")))  # fmt: skip


PLANTS: dict[str, t.Callable[[Scene], None]] = {
    **{
        plant.__name__: plant
        for plant in (
            nothing, held, all_by_uuid, all_but_the_first_by_uuid, the_sixth_by_uuid, good_rows_and_exit_1,
            good_rows_and_a_crash, one_row_twice, nine_rows, seven_rows, a_row_cut_off, headings_before_the_rows,
            no_program, not_executable, no_interpreter, a_flood, a_child_keeps_the_pipe, binary_noise,
            nobody_who_is_listed_holds, a_dead_pid_is_listed, headings_as_processes,
        )
    },
    **DEVICE_PLANTS,
    **HOLDER_PLANTS,
    **PROC_PLANTS,
    **SCOPE_PLANTS,
}  # fmt: skip
