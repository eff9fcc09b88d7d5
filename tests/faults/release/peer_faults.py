# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Defects that other tools for this work have or had, as cases of ours. More of them stand in the other tables: every
row that replays one names the tool as its peer."""

from __future__ import annotations

import functools

from release_row import ReleaseFault

ROOT = ("root",)
OPEN_WITHOUT_ANSWER = "SGLang's killall, soperator, deepops"
Row = functools.partial(ReleaseFault, "Defects of other tools")
IDLE = "eight idle GPUs"

PEER_FAULTS: tuple[ReleaseFault, ...] = (
    Row("only the holders of the last GPU were ended", "GPU 0 is held, GPU 7 is not", "holder_on_gpu_0", "released",
        dies=("worker",), peer="gcm"),
    Row("no nvidia-smi counted as clean", IDLE, "no_program", "unknown", "gate", peer=OPEN_WITHOUT_ANSWER),
    Row("a nvidia-smi that hangs counted as clean", IDLE, "nothing", "unknown", "gate", options={"smi_timeout": 0.5},
        faults=({"effect": "hang"},), asked=1, peer=OPEN_WITHOUT_ANSWER),
    Row("an exit code counted as clean", IDLE, "nothing", "unknown", "gate", peer=OPEN_WITHOUT_ANSWER,
        faults=({"effect": "exit", "code": 255},)),
    Row("an empty answer counted as clean", IDLE, "nothing", "unknown", "gate", peer=OPEN_WITHOUT_ANSWER,
        faults=({"effect": "exit", "code": 0},)),
    Row("seven of eight rows counted as clean", IDLE, "seven_rows", "missing", "gate", peer=OPEN_WITHOUT_ANSWER),
    Row("[N/A] counted as clean", IDLE, "nothing", "unknown", "gate", peer=OPEN_WITHOUT_ANSWER,
        faults=({"effect": "not_available", "gpus": [3]},)),
    Row("a listed process that cannot be seen counted as harmless", "memory whose owner is not in /proc",
        "a_dead_pid_is_listed", "orphaned", "rehearsal", "a child that inherited its GPU context", peer="gcm",
        expects={"failed": True}),
    Row("a match by path missed a second node", "made by mknod, as in a container", "second_node", "released",
        needs=ROOT, dies=("worker",), lives=("stranger",), peer="fuser, lsof"),
    Row("headings were taken for PIDs", "a table instead of lines", "headings_as_processes", "free",
        lives=("stranger",), peer="deepops"),
    Row("a server that loads was taken for a dead one", "its load time is not over", "nothing",
        ("nothing", "report"), "drift", peer="local-llm-setup",
        options={"server": "starting", "load": "within", "wanted": "serving", "frozen": "no", "lease": "no",
                 "memory": "readable", "config": "apply"}),
    Row("it gave up waiting and started anyway, at the gate", "memory that never clears", "nothing",
        ("orphaned", "draining"), "gate", scenario={"never_clears": {"1": 76115}}, peer="ollama"),
    Row("it gave up waiting and started anyway, in the start guard", "memory that never clears", "nothing", "gave_up",
        "guard", scenario={"never_clears": {"1": 76115}}, peer="ollama"),
    Row("its own shell matched the pattern", "the ancestors map a GPU and are called sglang.launch_server",
        "ancestors", "released", dies=("worker",), peer="recipes with pkill -f"),
)  # fmt: skip

# Every defect that is known, and the peer by which its rows name it.
KNOWN_DEFECTS = {
    "only the last GPU's holders are ended": "gcm",
    "no answer counts as clean": OPEN_WITHOUT_ANSWER,
    "a process that cannot be seen counts as harmless": "gcm",
    "UUIDs in the scope mean nothing to do": "SGLang's killall",
    "a match by path misses another node": "fuser, lsof",
    "a mapping without a file is not seen": "scans of open files only",
    "column headings are taken for PIDs": "deepops",
    "another job's process is ended": "deepops, another job",
    "a name that cannot be read leaves it unprotected": "gpu-zombie-reaper",
    "a PID is reused between look and kill": "vllmops",
    "a service is started that never ran": "NVIDIA's reset_gpus",
    "the time for loading is tied to a state that never comes": "local-llm-setup",
    "it gives up and starts anyway": "ollama",
    "it kills or waits without end": "gpustack, llama-swap",
    "success is reported and nothing was done": "mig-parted",
    "its own shell matches the pattern": "recipes with pkill -f",
    "unreadable processes do not show in the exit code": "fuser",
}
