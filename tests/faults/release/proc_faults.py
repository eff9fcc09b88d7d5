# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of /proc: what cannot be read is neither nobody nor ours."""

from __future__ import annotations

import functools

from release_row import ReleaseFault

ROOT = ("root",)
LADDER = [{"signal": "TERM", "wait": 0.3}, {"signal": "KILL", "wait": 1}]
Row = functools.partial(ReleaseFault, "/proc")

PROC_FAULTS: tuple[ReleaseFault, ...] = (
    Row("hidepid=2, and a plain user", "root's process holds a GPU", "hidden_from_a_user", "incomplete", needs=ROOT,
        lives=("worker",), expects={"failed": True}),
    Row("hidepid=2, and a plain user at the gate", "all GPUs read 0 MiB", "hidden_from_a_user", "unknown", "gate",
        needs=ROOT, lives=("worker",)),
    Row("hidepid=invisible, and a plain user", "root's process holds a GPU", "invisible_to_a_user", "incomplete",
        needs=ROOT, lives=("worker",)),
    Row("hidepid=1, and a plain user", "root's process holds a GPU", "noaccess_for_a_user", "incomplete", needs=ROOT,
        lives=("worker",)),
    Row("hidepid=2, and root", "it hides nothing from root", "hidden_and_root", "released", needs=ROOT,
        dies=("worker",)),
    Row("root's tables are closed to a plain user", "root's process holds a GPU", "others_are_unreadable", "incomplete",
        needs=ROOT, lives=("worker",), says="run as root", peer="fuser"),
    Row("root's tables are closed to a plain user at the gate", "all GPUs read 0 MiB", "others_are_unreadable",
        "unknown", "gate", needs=ROOT, lives=("worker",)),
    Row("/proc is that of another PID namespace", "another process has the holder's number",
        "proc_of_another_namespace", "refused", needs=ROOT, lives=("worker",), sent={}, options={"ladder": LADDER}),
    Row("reading mappings blocks", "a GPU is open, and its memory is locked", "maps_block", "foreign", "check",
        "its mappings could not be read", expects={"would_signal": []}),
    Row("reading mappings blocks, at the gate", "all GPUs read 0 MiB", "maps_block", "foreign", "gate",
        "its mappings could not be read"),
    Row("reading mappings blocks, in the start guard", "all GPUs read 0 MiB", "maps_block", "refused", "guard",
        within=30.0),
    Row("reading a state blocks", "one process", "stat_blocks", "incomplete"),
    Row("reading a command line blocks", "one holder", "command_line_blocks", "some", "holders",
        expects={"complete": True}),
    Row("open files cannot be read", "one process, which may hold or not", "files_unreadable", "incomplete"),
    Row("open files cannot be read, at the gate", "all GPUs read 0 MiB", "files_unreadable", "unknown", "gate"),
    Row("mappings cannot be read", "one process, which may hold or not", "maps_unreadable", "incomplete"),
    Row("an executable cannot be read", "it calls itself nv-hostengine and computes", "executable_unreadable", "free",
        "check", expects={"would_signal": []}, peer="gpu-zombie-reaper"),
    Row("a PID namespace cannot be read", "the holder has two PIDs", "namespace_unreadable", "foreign", "check",
        expects={"would_signal": []}),
    Row("a state makes no sense", "one process", "stat_makes_no_sense", "incomplete"),
    Row("state D in the driver, SIGKILL pending", "memory that stays", "state_d_with_a_place", "dying", "gate",
        "uvm_va_space_destroy"),
    Row("/proc is empty", "nobody is seen", "empty_proc", "incomplete", needs=ROOT),
)  # fmt: skip
