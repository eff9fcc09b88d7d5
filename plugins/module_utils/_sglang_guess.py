# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What most likely made a start of SGLang fail, and what to do next: a guess from log lines, exit status and stage."""

from __future__ import annotations

import dataclasses
import re
import typing as t


@dataclasses.dataclass(frozen=True)
class Guess:
    """One sentence that says what it looks like, one that says what to do next."""

    cause: str
    cure: str


# The first that matches any line wins: the specific before the general.
_CAUSES: tuple[tuple[re.Pattern[str], Guess], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), Guess(cause, cure))
    for pattern, cause, cure in (
        (
            r"memory capacity is unbalanced",
            "Some GPUs had less free memory than others: another process still holds part of them.",
            "Run gpu_holders_info on the GPU host, release the holder, then start again.",
        ),
        (
            r"shard file\(?s?\)? missing|references \d+ shard|Cannot find any model weights|Corrupted shard",
            "Files of the model are missing or damaged: an unfinished download, or a wrong model-path.",
            "Compare the model's folder with its model.safetensors.index.json and download what is missing.",
        ),
        (
            r"address already in use|Errno 98\b|EADDRINUSE|error while attempting to bind",
            "A port that the server needs is taken by another process.",
            "Find the owner with ss -ltnp, stop it or choose another port.",
        ),
        (
            r"leave no GPU memory for the KV cache|Not enough memory. Please try to increase --mem-fraction-static",
            "The weights leave no memory for the KV cache under the profile's mem-fraction-static.",
            "See whether all GPUs were at 0 MiB before the start; then raise mem-fraction-static, or use more GPUs.",
        ),
        (
            r"out of memory|OutOfMemoryError|Not enough memory|CUDA_ERROR_OUT_OF_MEMORY",
            "A GPU ran out of memory.",
            "See whether all GPUs were at 0 MiB before the start; then lower mem-fraction-static or context-length.",
        ),
        (
            r"exit code: -9\b|Killed process|oom-kill",
            "A worker was killed with SIGKILL: most often the kernel's (or the container's) out-of-memory killer.",
            "Look for oom-kill in the kernel log of the host and give the container more memory.",
        ),
        (
            (
                r"unrecognized arguments|error: argument|invalid choice|ambiguous option|Unsupported config option"
                r"|the following arguments are required"
            ),
            "This SGLang version does not take one of the profile's arguments.",
            "Correct the argument that the last lines name; what the config file refuses goes to argv.",
        ),
        (
            r"greater than the derived context_length",
            "The context length is larger than what the model (or the draft model) was made for.",
            "Lower context-length, or choose a draft model whose context covers it.",
        ),
        (
            r"trust_remote_code|trust-remote-code",
            "The model brings code of its own and trust-remote-code is not set.",
            "Set trust-remote-code in the profile if you trust the model's folder.",
        ),
        (
            r"No space left on device",
            "A file system is full, most often /dev/shm with segments of killed servers.",
            "See df -h /dev/shm /tmp, and the cache folders; remove what no process has open.",
        ),
        (
            r"Too many open files",
            "The limit of open files is too low.",
            "Raise LimitNOFILE in the unit.",
        ),
        (
            (
                r"driver version is insufficient|no CUDA-capable device|Found no NVIDIA driver|invalid device ordinal"
                r"|CUDA unknown error|system not yet initialized"
            ),
            "CUDA does not see the GPUs it should: device nodes, driver versions or the fabric do not fit.",
            "Run nvidia_gpu_facts on the node with the expected count and compare driver versions of node and host.",
        ),
        (
            r"ncclUnhandledCudaError|ncclSystemError|NCCL error|NCCL WARN|ncclInternalError",
            "NCCL could not set up communication between the GPUs.",
            "Set NCCL_DEBUG=INFO in the profile's env and start once more; see also free space in /dev/shm.",
        ),
        (
            r"illegal memory access|CUDA error|cudaError|device-side assert|Xid",
            "A CUDA call failed on a GPU.",
            "Look for NVRM: Xid in the host's kernel log and at recovery_action in nvidia_gpu_facts.",
        ),
        (
            r"ModuleNotFoundError|ImportError|undefined symbol|is not installed|version mismatch",
            "The Python environment of the server is incomplete or its packages do not fit together.",
            "Start the unit's Python as its user and import sglang.",
        ),
        (
            r"Permission denied|PermissionError",
            "The service user may not read or write something it needs.",
            "Check the owner of the path in the last lines, and the mode of the GPU device nodes.",
        ),
        (
            r"watchdog timeout",
            "A forward pass took longer than the watchdog allows: a GPU or the communication between GPUs hangs.",
            "Look for NVRM: Xid in the host's kernel log; raise watchdog-timeout only if the model is that slow.",
        ),
        (
            r"Capture cuda graph failed",
            "Capturing CUDA graphs failed, most often for lack of memory.",
            "Lower mem-fraction-static or the largest batch size that is captured.",
        ),
        (
            r"warmup error",
            "The server came up but its own first request failed.",
            "The traceback above that line names the cause.",
        ),
    )
)
REFUSED = Guess(
    "The start guard found GPUs that were not idle, so the server was never started.",
    "Release the holder it names (relaunch.yml or release.yml, or end it by hand); each start asks the guard again.",
)
CLEAN_EXIT = Guess(
    "The server ended by itself with exit 0 before it was ready: it was told to, or a part of it ended quietly.",
    "See in the unit's journal who stopped it; else read the log upwards from its end for the first odd line.",
)
_EXITS = {
    2: Guess(
        "The server refused its arguments (exit 2).",
        "The last lines name the argument; compare it with python -m sglang.launch_server --help of this version.",
    ),
    3: Guess(
        "The HTTP server could not bind its port (exit 3).",
        "Find the owner with ss -ltnp, stop it or choose another port.",
    ),
    75: Guess(
        "Another server holds the lock of these GPUs (exit 75).",
        "See which unit or process runs on the same GPUs and stop it first.",
    ),
    200: Guess("systemd could not enter the unit's working directory (exit 200).", "Create it or correct the unit."),
    203: Guess("systemd could not execute the unit's program (exit 203).", "Check the python path of the profile."),
    217: Guess("The unit's user does not exist (exit 217).", "Create the service user or correct the unit."),
}
_AFTER_SHARDS = Guess(
    "Every shard was read and then nothing more was heard: one rank hangs while it prepares its weights, and all wait.",
    "Take a py-spy dump of every scheduler: the odd one out hangs. Look for NVRM: Xid in the host's kernel log.",
)
_STALLS = {
    "guard": Guess(
        "The unit's start guard is still waiting for idle GPUs.",
        "Run gpu_wait_idle or gpu_holders_info to see which GPU is not idle and why.",
    ),
    "launch": Guess(
        "Nothing was heard after the launch: imports from a slow disk, or a compile lock left by a killed server.",
        "See what the process waits for (py-spy dump, or its wchan), and look for old lock files in the JIT caches.",
    ),
    "init_distributed": Guess(
        "The GPUs do not find each other: NCCL or P2P stalls (wrong NCCL_P2P_LEVEL, IOMMU, or a hanging rank).",
        "Start once with NCCL_DEBUG=INFO; NCCL_P2P_DISABLE=1 tells whether P2P is the cause.",
    ),
    "load_weights": Guess(
        "Loading weights stands still: storage that hangs or is very slow.",
        "Read one shard with dd on the node and look at the storage's state.",
    ),
    "load_draft_weights": Guess(
        "Loading the draft model stands still: storage that hangs or is very slow.",
        "Read one shard with dd on the node and look at the storage's state.",
    ),
    "allocate_memory": Guess(
        "Setting up memory and kernels stands still: a compile step that waits, or a collective that hangs.",
        "Look for old lock files in the JIT caches; take a py-spy dump of a scheduler.",
    ),
    "capture_graphs": Guess(
        "Capturing CUDA graphs stands still: a compile step that waits, or a collective that hangs.",
        "Look for old lock files in the JIT caches; take a py-spy dump of a scheduler.",
    ),
    "warm_up": Guess(
        "The port is open but the server's own first request does not come back.",
        "Take a py-spy dump of a scheduler and look for NVRM: Xid in the host's kernel log.",
    ),
}


def from_lines(lines: t.Iterable[str]) -> Guess | None:
    """The most specific cause that any of the lines names."""
    joined = "\n".join(lines)
    for pattern, guess in _CAUSES:
        if pattern.search(joined):
            return guess
    return None


def from_exit(exit_status: int | None, signal: bool) -> Guess | None:
    """What an exit status of the unit's main process means by itself."""
    if exit_status is None:
        return None
    if signal:
        if exit_status == 9:
            return Guess(
                "The server was ended by SIGKILL: its own crash path, or the kernel's out-of-memory killer.",
                "The first error in the log tells which; look for oom-kill in the host's kernel log too.",
            )
        return Guess(f"The server was ended by signal {exit_status}.", "See who sent it: the journal of the unit.")
    return _EXITS.get(exit_status)


def from_stall(stage: str, all_shards: bool = False) -> Guess | None:
    """Why a start may stand still at this stage.

    :param all_shards: the progress bar of the weights has reached its end.
    """
    return _AFTER_SHARDS if all_shards and stage in ("load_weights", "load_draft_weights") else _STALLS.get(stage)
