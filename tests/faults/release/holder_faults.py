# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of those who hold the GPUs."""

from __future__ import annotations

import functools

from plants_holders import STORM
from release_row import ReleaseFault

ROOT = ("root",)
WORKER = ("worker",)
SHORT = {"ladder": [{"signal": "TERM", "wait": 0.4}, {"signal": "KILL", "wait": 10}]}
Row = functools.partial(ReleaseFault, "Holders")
Moment = functools.partial(ReleaseFault, "Holders that change while they are looked at")
Name = functools.partial(ReleaseFault, "Hostile names")

HOLDERS: tuple[ReleaseFault, ...] = (
    Row("a mapping without an open file", "the file was closed after mmap", "mapping_only", "released", dies=WORKER,
        peer="scans of open files only"),
    Row("a thread has files of its own", "the leader's table does not show the GPU", "thread_with_own_files",
        "released", dies=WORKER),
    Row("a zombie leader with a living thread", "its own tables are empty", "zombie_leader", "released", dies=WORKER),
    Row("a fork inherited the context of a dead parent", "compute-apps names the dead parent", "inheritor", "released",
        dies=WORKER),
    Row("killed, and still giving memory back", "state Z, no files, memory is up", "unreaped", "dying", "rehearsal",
        expects={"would_open_after_release": True}),
    Row("ignores TERM", "one holder", "ignores_term", "released", dies=WORKER, sent={"TERM": 1, "KILL": 1},
        options=SHORT),
    Row("a launcher with workers", "all of them map the GPU", "a_tree", "released",
        dies=("launcher", "launcher.1", "launcher.2", "launcher.3"), sent={"TERM": 1, "KILL": 3}),
    Row("forks when it gets TERM", "its child ignores TERM", "forks_on_term", "released", dies=WORKER,
        sent={"TERM": 2, "KILL": 1}, options=SHORT),
    Row(f"a storm of {STORM} forks", "all inherited files and mappings", "fork_storm", "released", within=240.0,
        dies=("launcher", *(f"worker {number}" for number in range(1, STORM + 1))), sent={"TERM": 1, "KILL": STORM}),
    Row("state D that ends with the signal", "waits for a vfork", "state_d", "released", dies=WORKER),
    Row("state D that no signal ends", "a frozen group", "frozen", ("survivors", "dying"), lives=WORKER, needs=ROOT,
        options={"ladder": [{"signal": "TERM", "wait": 0.3}, {"signal": "KILL", "wait": 1}]},
        sent={"TERM": 1, "KILL": 1}, peer="gpustack, llama-swap"),
    Row("stopped (state T)", "TERM does not reach it", "stopped", "released", dies=WORKER,
        options=SHORT),
    Row("traced by a debugger", "stopped, state t", "traced", "released", dies=WORKER, lives=("debugger",),
        options=SHORT),
    Row("held through another name", "a hard link and a link to it", "through_another_name", "released", dies=WORKER),
    Row("held in another mount namespace", "a bind mount under another name", "in_another_mount_namespace", "released",
        dies=WORKER, needs=ROOT),
    Row("in another PID namespace", "it computes there", "in_another_pid_namespace", "foreign", lives=("stranger",),
        needs=ROOT),
    Row("in another PID namespace, at the gate", "it computes there", "in_another_pid_namespace", "foreign", "gate",
        lives=("stranger",), needs=ROOT),
    Row("in another PID namespace, in the start guard", "it computes there", "in_another_pid_namespace", "refused",
        "guard", lives=("stranger",), needs=ROOT),
    Row("PID 1 of another PID namespace, with every right", "scope all", "first_of_another_pid_namespace", "foreign",
        lives=("init",), needs=ROOT, options={"scope": "all", "allow_foreign": True}),
    Row("started again by a shell loop", "one holder", "started_again", "respawned", says="sh", dies=WORKER,
        lives=("loop",), options={"respawn_watch": 5}, expects={"failed": True}),
    Row("check mode", "one holder", "held", "would_release", "check", lives=WORKER, expects={"signalled": []}),
)  # fmt: skip

MOMENTS: tuple[ReleaseFault, ...] = (
    Moment("born while another is being ended", "one holder that ignores TERM", "born_during_the_ladder", "released",
           dies=("worker", "late"), options=SHORT),
    Moment("becomes another program before the signal", "the GPU is let go by exec", "execs_before_the_signal",
           ("free", "released"), lives=("stranger",), sent={}),
    Moment("becomes a protected daemon before the signal", "the files survive exec", "execs_a_daemon_before_the_signal",
           ("free", "released"), lives=("daemon",), sent={}),
    Moment("lets go before the signal", "one holder", "lets_go_before_the_signal", ("free", "released"),
           lives=("stranger",), sent={}),
    Moment("stops computing before the signal", "the file stays open", "stops_computing_before_the_signal",
           ("free", "released"), lives=("stranger",), sent={}),
    Moment("its PID is another's before it is aimed at", "the new one holds nothing", "pid_reused_before_the_aim",
           ("free", "released"), dies=WORKER, lives=("successor",), sent={}, needs=ROOT, peer="vllmops"),
    Moment("its PID is another's between aim and signal", "the new one holds nothing", "pid_reused_after_the_aim",
           ("free", "released"), dies=WORKER, lives=("successor",), sent={}, needs=ROOT),
    Moment("its PID is another holder's", "the new one computes in a container",
           "pid_reused_by_a_holder_of_another_unit", ("free", "released", "foreign"), dies=WORKER, lives=("successor",),
           sent={}, needs=ROOT),
    Moment("a process maps a GPU between two samples", "all read 0 MiB", "opens_between_two_samples", "busy", "gate",
           lives=WORKER, options={"timeout": 0.3}),
)  # fmt: skip

NAMES: tuple[ReleaseFault, ...] = (
    Name("calls itself nv-hostengine", "it computes", "named_like_a_daemon", "released", dies=("pretender",)),
    Name("calls itself sglang::scheduler", "one holds nothing, one has a file open only", "named_like_a_server", "free",
         lives=("stranger", "monitor")),
    Name("brackets, line breaks and escapes in names", "one holds, one does not", "names_that_confuse", "released",
         dies=WORKER, lives=("stranger",)),
    Name("a copy of a program under a daemon's name", "anybody may write to its folder", "a_copy_under_a_daemons_name",
         "released", dies=("pretender",)),
    Name("a real daemon calls itself python3", "it is in compute-apps", "a_real_daemon", "free", lives=("daemon",)),
    Name("a real daemon calls itself python3, with every right", "scope all", "a_real_daemon", "free",
         lives=("daemon",), options={"scope": "all", "allow_foreign": True}),
    Name("memory of a protected daemon at the gate", "300 MiB", "a_real_daemon", ("orphaned", "draining", "foreign"),
         "gate", lives=("daemon",)),
)  # fmt: skip

HOLDER_FAULTS: tuple[ReleaseFault, ...] = (*HOLDERS, *MOMENTS, *NAMES)
