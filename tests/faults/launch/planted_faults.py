# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every planted fault of a launch, in one place: how it is planted, and what must come of it.

LOAD: faults that show only while the server loads. Each runs a fake SGLang of the simulated node under a unit that the
case plays, and one real wait for it. REFUSED: faults that can be known before anything is stopped. Each runs
relaunch.yml on a simulated node whose old server must still be there afterwards, with the same PID, and nothing but
questions may have been asked there.
"""

from __future__ import annotations

import dataclasses
import typing as t

WITHIN = 10.0  # seconds from the planted event to the verdict


@dataclasses.dataclass(frozen=True)
class LoadFault:
    """One way in which a start goes wrong, and what the wait must make of it."""

    name: str
    verdict: str
    says: str  # must be in the message: the cause as a person is told it
    # From when on the seconds are counted: "exit" of the launcher, "start" of it, "planted" by the case's own hand,
    # "still": the last sign of life (progress_timeout is added), or a piece of the log.
    event: str = "exit"
    stage: str | None = None
    server: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # behaviour of the fake SGLang
    plant: str = ""  # function of launch_node.PLANTS that does something beside it
    at_exit: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # properties of the unit once it has ended
    argv: t.Sequence[str] = ()
    config: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    wait: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # options of the module


def dies(stage: str, **how: t.Any) -> dict[str, t.Any]:
    return {"die_at": {"stage": stage, **how}}


LIMITED = {"progress_timeout": 4}
LOCKED = {"api-key": "another-key-0815"}
UP = "The server is fired up"

LOAD: tuple[LoadFault, ...] = (
    # It stands still.
    LoadFault("hang after all shards", "no_progress", "Every shard was read", "still", "load_weights",
              {"hang_at": "loaded"}, wait=LIMITED),
    LoadFault("NCCL stalls", "no_progress", "NCCL or P2P stalls", "still", "init_distributed",
              {"hang_at": "weights"}, wait=LIMITED),
    LoadFault("hang in graph capture", "no_progress", "Capturing CUDA graphs stands still", "still", "capture_graphs",
              {"hang_at": "bind"}, wait=LIMITED),
    LoadFault("hang before the first rank", "no_progress", "Nothing was heard after the launch", "still", "launch",
              {"hang_at": "arguments"}, wait=LIMITED),
    # It dies.
    LoadFault("crash in graph capture", "failed", "Capturing CUDA graphs failed", stage="capture_graphs",
              server=dies("bind", exit_code=1, says="Capture cuda graph failed: the planted reason")),
    LoadFault("GPU out of memory", "failed", "lower mem-fraction-static", stage="allocate_memory",
              server=dies("graph", exit_code=1, says="Scheduler hit an exception: torch.OutOfMemoryError: CUDA out of "
                                                     "memory. Tried to allocate 2.00 GiB.")),
    LoadFault("other process on a GPU", "failed", "another process still holds part of them",
              server=dies("weights", exit_code=1, says="Scheduler hit an exception: ValueError: The memory capacity is "
                                                       "unbalanced. Some GPUs may be occupied by other processes.")),
    LoadFault("shard lost under the server", "failed", "Files of the model are missing or damaged",
              server=dies("kv_cache", exit_code=1, says="Scheduler hit an exception: RuntimeError: Cannot find any "
                                                        "model weights with `/models/demo`")),
    LoadFault("no room in /dev/shm", "failed", "See df -h /dev/shm",
              server=dies("weights", exit_code=1, says="Scheduler hit an exception: OSError: [Errno 28] No space left "
                                                       "on device")),
    LoadFault("draft model's context too short", "failed", "draft model whose context covers it",
              server=dies("kv_cache", exit_code=1, says="Scheduler hit an exception: ValueError: User-specified "
                          "context_length (262144) is greater than the derived context_length (131072).")),
    LoadFault("killed for memory (exit 137)", "failed", "ended by SIGKILL",
              server={**dies("kv_cache", signal=9), "load_s": 5}, stage="allocate_memory"),
    LoadFault("crash with exit 0", "failed", "ended by itself with exit 0",
              server=dies("graph", exit_code=0, says="Shutting down")),
    LoadFault("worker dies, the launcher notices", "failed", "scheduler died during initialization",
              server={"worker_dies_at": {"stage": "kv_cache", "rank": 1}}),
    LoadFault("worker dies, nobody notices", "failed", "1 of 2 workers are left", "planted",
              server={"healthy_without_worker": True, "load_s": 600}, plant="kill_a_worker"),
    LoadFault("warm-up fails", "failed", "its own first request failed",
              server={"worker_dies_at": {"stage": "warmup", "rank": 1, "signal": 19}}),
    LoadFault("unknown option (exit 2)", "failed", "does not take one of the profile's arguments",
              argv=("--no-such-option",), wait={"expected_workers": 2}),
    LoadFault("option that the file refuses (exit 1)", "failed", "what the config file refuses goes to argv",
              config={"disable-cuda-graph": True}),
    LoadFault("port lost in the last moment (exit 3)", "failed", "A port that the server needs is taken",
              plant="bind_without_listening"),
    LoadFault("GPUs locked by another server (exit 75)", "failed", "holds the lock of these GPUs", plant="hold_lock"),
    # systemd's part.
    LoadFault("guard refuses", "failed", "its start guard did not let it start: GPU 3 is held by 4711", "planted",
              plant="refuse_by_guard"),
    LoadFault("crash loop", "crash_looping", " 2 times", server=dies("init", exit_code=1),
              at_exit={"NRestarts": "2"}),
    LoadFault("systemd gives up", "crash_looping", "start-limit-hit", server=dies("init", exit_code=1),
              at_exit={"ActiveState": "failed", "SubState": "failed", "Result": "start-limit-hit"}),
    LoadFault("stopped by somebody", "stopped", "inactive", plant="stop",
              at_exit={"ActiveState": "inactive", "SubState": "dead", "Result": "success"}, server={"load_s": 600}),
    LoadFault("unit removed", "absent", "there is no unit", plant="stop", server={"load_s": 600},
              at_exit={"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}),
    # It answers, and is not what was started.
    LoadFault("port taken by an old server that answers", "port_taken", "which is not part of sglang.service", "start",
              server={"load_s": 600}, plant="leave_an_old_server"),
    LoadFault("wrong model served", "wrong_model", "serves other", UP, "ready", {"served_model": "other"}),
    LoadFault("key refused with 401", "unauthorized", "refuses the API key", UP, config=LOCKED),
    LoadFault("key refused with 403", "unauthorized", "refuses the API key", UP, None, {"key_refusal": 403},
              config=LOCKED),
    # No fault at all: these must not be ended early.
    LoadFault("503 for 60 s, then fine", "ready", "", UP, server={"warmup_s": 60}, wait={"progress_timeout": 120}),
    LoadFault("good start", "ready", "", UP),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Refusal:
    """One fault that preflight must name while the old server serves. Those of one group are planted together, in one
    relaunch: all must be named at once."""

    name: str
    group: str
    says: str
    args: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # of the profile
    profile: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # other fields of it
    variables: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    plant: str = ""  # function of refused_launch.PLANTS


REFUSED: tuple[Refusal, ...] = (
    Refusal("unknown option", "one", "unrecognized arguments: --no-such-option", {"no-such-option": "x"}),
    Refusal("truncated shard", "one", "model-00002-of-00002.safetensors", plant="truncate_a_shard"),
    Refusal("context too long", "one", "context-length 524288 is more than the 262144 tokens",
            {"context-length": 524288}),
    Refusal("code of its own without trust", "one", "names code of its own (auto_map)", plant="bring_own_code"),
    Refusal("no room on the disk", "one", "MiB left, at least 999999999 are wanted",
            variables={"sglang_server_min_free_mib": 999999999}),
    Refusal("port of a stranger", "one", "is taken by", plant="listen_on_another_port"),
    Refusal("bad choice", "two", "invalid choice: 'fp7'", {"kv-cache-dtype": "fp7"}),
    Refusal("missing shard", "two", "model-00001-of-00002.safetensors", plant="remove_a_shard"),
    Refusal("draft model's context", "two", "a context of 262144 tokens, more than the 131072 of its draft model",
            {"speculative-algorithm": "EAGLE3"}, plant="make_a_short_draft"),
    Refusal("heads not divisible", "two", "the model's 60 attention heads cannot be spread evenly over tp-size 8",
            plant="take_away_heads"),
    Refusal("no room in /dev/shm", "two", "MiB left, at least 99999999 MiB are wanted",
            variables={"sglang_server_min_shm_mib": 99999999}),
    Refusal("missing model", "three", "no-such-model", plant="name_no_model"),
    Refusal("device node missing", "three", "nvidia7", plant="hide_a_node"),
    Refusal("name with a colon", "three", "takes no name with a colon", {"served-model-name": "kimi:latest"}),
    Refusal("draft model's vocabulary", "four", "a vocabulary of 32000 tokens, the target one of 151936",
            {"speculative-algorithm": "STANDALONE"}, plant="make_a_foreign_draft"),
    Refusal("no such Python", "four", "/opt/no-such-environment/bin/python",
            variables={"sglang_server_python": "/opt/no-such-environment/bin/python"}),
    Refusal("expectation that cannot be read", "five", "profile 'broken', expectation 1: query 'server_info.['",
            profile={"expect": [{"query": "server_info.[", "equals": 8}]}),
)  # fmt: skip
