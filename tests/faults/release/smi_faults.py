# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of nvidia-smi over time and in its words. Its recorded states have a table of their own."""

from __future__ import annotations

import functools

from release_row import ReleaseFault

IDLE = "eight idle GPUs"
QUICK = {"smi_timeout": 0.5}
LATER = {"smi_timeout": 1.5}  # where it has to answer first, on a busy machine
Row = functools.partial(ReleaseFault, "nvidia-smi")

TIMES: tuple[ReleaseFault, ...] = (
    Row("hangs on the first call", IDLE, "nothing", "unknown", "gate", "No second one is started", options=QUICK,
        faults=({"effect": "hang", "query": "gpu"},), asked=1),
    Row("hangs on the second call", f"{IDLE}, seen once", "nothing", "unknown", "gate", options=LATER, asked=2,
        faults=({"effect": "hang", "query": "gpu", "from_call": 2},)),
    Row("hangs on the fifth call", "memory falls look by look", "nothing", "unknown", "gate", asked=5,
        faults=({"effect": "used", "gpus": [1], "mib": [9000, 8000, 7000, 6000, 5000], "query": "gpu"},
                {"effect": "hang", "query": "gpu", "from_call": 5}), options={**LATER, "timeout": 10.0}),
    Row("hangs after three of eight rows", IDLE, "nothing", "unknown", "gate", options=QUICK,
        faults=({"effect": "hang", "query": "gpu", "rows": 3},), asked=1),
    Row("hangs when asked for processes", IDLE, "nothing", "unknown", "gate", options=LATER,
        faults=({"effect": "hang", "query": "apps"},)),
    Row("hangs in the start guard", IDLE, "nothing", "gave_up", "guard", options=QUICK,
        faults=({"effect": "hang", "query": "gpu"},)),
    Row("hangs when facts are gathered", IDLE, "nothing", "unknown", "facts", options=QUICK, asked=1,
        faults=({"effect": "hang", "query": "gpu"},)),
    Row("hangs while a holder is released", "one worker holds GPU 1", "held", "released", options=QUICK,
        faults=({"effect": "hang"},), dies=("worker",), expects={"smi_state": "hung"}, asked=1),
    Row("hangs after a release, at its gate", "one worker holds GPU 1", "held", "released", dies=("worker",),
        faults=({"effect": "hang", "from_call": 2},), expects={"gate.verdict": "unknown"},
        options={**LATER, "wait_idle": True, "expected_count": 8, "timeout": 1.0}),
    Row("gets slower until it does not come back", "memory that stays", "nothing", "unknown", "gate", asked=3,
        faults=({"effect": "slow", "seconds": 0.1, "query": "gpu", "to_call": 1},
                {"effect": "slow", "seconds": 0.3, "query": "gpu", "from_call": 2, "to_call": 2},
                {"effect": "slow", "seconds": 3, "query": "gpu", "from_call": 3}),
        scenario={"never_clears": {"1": 5000}}, options={"smi_timeout": 1.2, "timeout": 10.0}),
    Row("gets slower and still answers", IDLE, "nothing", "idle", "gate",
        faults=({"effect": "slow", "seconds": 0.2, "query": "gpu"},
                {"effect": "slow", "seconds": 0.2, "query": "gpu", "from_call": 2})),
    Row("says 0 MiB once, then the truth", "memory that nobody holds", "nothing", ("orphaned", "draining"), "gate",
        faults=({"effect": "used", "gpus": [1], "mib": 0, "to_call": 1, "query": "gpu"},),
        scenario={"never_clears": {"1": 5000}}),
    Row("says 0 MiB once, in the start guard", "memory that nobody holds", "nothing", "gave_up", "guard",
        faults=({"effect": "used", "gpus": [1], "mib": 0, "to_call": 1, "query": "gpu"},),
        scenario={"never_clears": {"1": 5000}}),
    Row("says 0 MiB for ever", "one worker has GPU 1 mapped", "held", "busy", "gate", lives=("worker",),
        faults=({"effect": "used", "gpus": [1], "mib": 0},)),
    Row("says 0 MiB for ever, in the start guard", "one worker has GPU 1 mapped", "held", "refused", "guard",
        lives=("worker",), faults=({"effect": "used", "gpus": [1], "mib": 0},)),
    Row("a GPU vanishes between two looks and returns", IDLE, "nothing", "idle", "gate", expects={"looks": 4},
        faults=({"effect": "hidden", "gpus": [3], "query": "gpu", "from_call": 2, "to_call": 2},)),
    Row("a GPU vanishes between two looks for good", IDLE, "nothing", "missing", "gate",
        faults=({"effect": "hidden", "gpus": [3], "from_call": 2},)),
    Row("a GPU is there only from the third look on", "a node that boots", "all_by_uuid", "idle", "gate",
        faults=({"effect": "hidden", "gpus": [0], "query": "gpu", "to_call": 2},)),
    Row("a GPU is not there yet when the unit starts", "a node that boots", "nothing", "start", "guard",
        faults=({"effect": "hidden", "gpus": [7], "query": "gpu", "to_call": 3},), options={"timeout": 10.0}),
    Row("GPUs are renumbered between two looks", "seven GPUs by UUID", "all_but_the_first_by_uuid", "idle", "gate",
        faults=({"effect": "hidden", "gpus": [0], "from_call": 2},)),
    Row("the GPU in question has another number", "GPU 5 by UUID holds memory, and nvidia-smi calls it 4",
        "the_sixth_by_uuid", ("orphaned", "draining"), "gate", "GPU 4 holds 5000 MiB",
        faults=({"effect": "hidden", "gpus": [0]},), scenario={"never_clears": {"5": 5000}}),
    Row("a GPU falls off the bus", IDLE, "nothing", ("missing", "faulty"), "gate",
        faults=({"effect": "lost", "gpus": [3], "from_call": 2},)),
    Row("a GPU answers for its name only", IDLE, "nothing", ("faulty", "unknown"), "gate",
        faults=({"effect": "lost_fields", "gpus": [3]},)),
    Row("the fabric is ready at the third look", IDLE, "nothing", "idle", "gate",
        faults=({"effect": "fabric_state", "value": ["In Progress", "In Progress", "Completed"]},)),
    Row("the fabric never gets ready", IDLE, "nothing", "fabric_not_ready", "gate", "nvidia-fabricmanager",
        faults=({"effect": "fabric_state", "value": "In Progress"},)),
    Row("the fabric never gets ready, in the start guard", IDLE, "nothing", "gave_up", "guard",
        faults=({"effect": "fabric_state", "value": "In Progress"},)),
    Row("MIG was switched on", IDLE, "nothing", "faulty", "gate", "MIG", faults=({"effect": "mig", "gpus": [2]},)),
    Row("a GPU wants a reset", IDLE, "nothing", "faulty", "gate", "reset",
        faults=({"effect": "recovery_action", "gpus": [2], "value": "Reset"},)),
    Row("4 MiB stand still", "no holder", "nothing", "settled", "rehearsal", "gpu_idle_settled_mib: 4",
        scenario={"never_clears": {"1": 4}}, expects={"failed": True}),
    Row("4 MiB stand still and a person accepts that", "no holder", "nothing", "settled", "rehearsal",
        scenario={"never_clears": {"1": 4}}, options={"settled_mib": 4}, expects={"would_open_after_release": True}),
    Row("65 MiB where a person accepts 100", "no holder", "nothing", "orphaned", "rehearsal",
        scenario={"never_clears": {"1": 65}}, options={"settled_mib": 100}, expects={"failed": True}),
)  # fmt: skip

WORDS: tuple[ReleaseFault, ...] = (
    Row("all rows are good and the exit code is 1", IDLE, "good_rows_and_exit_1", "unknown", "gate"),
    Row("all rows are good and it died of a signal", IDLE, "good_rows_and_a_crash", "unknown", "gate"),
    Row("one GPU is listed twice, another not", IDLE, "one_row_twice", ("unknown", "missing"), "gate"),
    Row("nine rows for eight GPUs", IDLE, "nine_rows", "unknown", "gate"),
    Row("the last row is cut off", IDLE, "a_row_cut_off", ("unknown", "missing"), "gate"),
    Row("headings although none were asked for", IDLE, "headings_before_the_rows", ("unknown", "idle"), "gate"),
    Row("binary noise", IDLE, "binary_noise", "unknown", "gate"),
    Row("a line without end", IDLE, "a_flood", "unknown", "gate", options={"smi_timeout": 1}),
    Row("it cannot be executed", IDLE, "not_executable", "unknown", "gate"),
    Row("its interpreter is gone", IDLE, "no_interpreter", "unknown", "gate"),
    Row("it is gone when a holder is released", "one worker holds GPU 1", "held", "released", dies=("worker",),
        options={"nvidia_smi": "/no/such/nvidia-smi"}, expects={"smi_state": "no_tool"}),
    Row("a child of it keeps its pipe open", IDLE, "a_child_keeps_the_pipe", "unknown", "gate",
        options={"smi_timeout": 1}),
    *(
        Row(f"memory.used reads {text!r}", IDLE, "nothing", ("unknown", "faulty"), "gate",
            faults=({"effect": "set", "gpus": [3], "fields": {"memory.used": text}},))
        for text in ("", "-1", "0 MiB", "0.0", "1e3", "0x0", "\u0660", "None", "[Unknown Error]")
    ),
    Row("memory.used reads '[N/A]', in the start guard", IDLE, "nothing", "gave_up", "guard",
        faults=({"effect": "not_available", "gpus": [3]},)),
    Row("compute-apps fails while memory reads 0", IDLE, "nothing", "unknown", "gate",
        faults=({"effect": "exit", "query": "apps", "code": 9, "stderr": "Unknown Error\n"},)),
    Row("compute-apps is empty, as in another PID namespace", "memory on GPU 1", "nothing", "orphaned", "rehearsal",
        faults=({"effect": "pid_namespace"},), scenario={"never_clears": {"1": 5000}}),
    Row("compute-apps names processes that hold nothing", "PID 1, the test and a stranger are listed",
        "nobody_who_is_listed_holds", "free", lives=("stranger", "the test itself")),
)  # fmt: skip

SMI_FAULTS: tuple[ReleaseFault, ...] = (*TIMES, *WORDS)
