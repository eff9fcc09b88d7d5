# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at nodes as status.yml collects them, for tests and for the picture of the status page."""

from __future__ import annotations

import typing as t

TOTAL = 143771
Look = dict[str, t.Any]


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-602f-417c-2d01-7e07fc10d0f9"


def holder(pid: int, comm: str, disposition: str, **more: t.Any) -> Look:
    defaults = {
        "target": "belongs to sglang.service",
        "foreign": "computes, and its owner is not this node's",
        "monitor": "has devices open and does not compute",
        "protected": "is a service of the GPUs",
    }
    return {
        "pid": pid,
        "ns_pid": pid,
        "comm": comm,
        "cmdline": comm,
        "user": "sglang",
        "unit": None,
        "container": None,
        "gpus": [],
        "computes": disposition in ("target", "foreign"),
        "dying": False,
        "age_s": 7980.4,
        "disposition": disposition,
        "reason": defaults[disposition],
        **more,
    }


def gpus(used: t.Sequence[int | None], pids: t.Mapping[int, int], problems: t.Mapping[int, str] | None = None) -> Look:
    """What nvidia_gpu_facts returns. pids: who is listed on which GPU."""
    known = [mib for mib in used if mib is not None]
    problems = problems or {}
    verdict = "busy" if any(known) else "unknown" if problems or len(known) < len(used) else "idle"
    holding = [f"GPU {index} holds {mib} MiB" for index, mib in enumerate(used) if mib]
    reason = f"{'; '.join(holding[:2])}{f'; and {len(holding) - 2} more' if len(holding) > 2 else ''} (allowed: 0 MiB)."
    if verdict != "busy":
        reason = f"All {len(used)} GPUs report 0 MiB." if verdict == "idle" else "; ".join(problems.values())
    fact = {
        "verdict": verdict,
        "reason": reason,
        "driver_version": "580.159.04",
        "used_mib_total": sum(known) if len(known) == len(used) else None,
        "gpus": [
            {
                "index": index,
                "uuid": uuid(index),
                "name": "NVIDIA H200",
                "used_mib": mib,
                "total_mib": None if mib is None else TOTAL,
                "utilization_pct": 0,
                "problems": [problems[index]] if index in problems else [],
            }
            for index, mib in enumerate(used)
        ],
        "processes": [
            {"gpu_uuid": uuid(index), "pid": pid, "name": "python3", "used_mib": used[index]}
            for index, pid in pids.items()
        ],
    }
    return {"ansible_facts": {"nvidia_gpu": fact}}


def server(verdict: str, reason: str, **more: t.Any) -> Look:
    requests = {"running": None, "queued": None, "progress": None}
    return {
        "verdict": verdict,
        "reason": reason,
        "stage": None,
        "since": None,
        "restarts": 0,
        "requests": requests,
        "log_tail": [],
        **more,
    }


def look(host: str, **more: t.Any) -> Look:
    """A node that serves and has nothing to complain of; more replaces any part."""
    return {
        "host": host,
        "gpu_host": host,
        "unit": "sglang.service",
        "profile": "kimi",
        "expected_uuids": [],
        "reached": True,
        "unreached_reason": None,
        "health": server(
            "ready",
            "sglang.service on 127.0.0.1:30000: serves kimi-k2.5; 8 of 8 workers are alive",
            stage="ready",
            since="2026-11-29T15:02:11Z",
            requests={"running": 12, "queued": 0, "progress": True},
        ),
        "gpu": gpus([131072] * 8, {index: 4800 + index for index in range(8)}),
        "holders": {
            "verdict": "some",
            "incomplete_reason": "",
            "holders": [
                holder(
                    4800 + index,
                    f"sglang::schedul_TP{index}"[:15],
                    "target",
                    unit="sglang.service",
                    gpus=[uuid(index)],
                    cmdline=f"sglang::scheduler_TP{index}",
                )
                for index in range(8)
            ]
            + [
                holder(
                    1402,
                    "nvidia-persiste",
                    "protected",
                    user="root",
                    unit="nvidia-persistenced.service",
                    cmdline="/usr/bin/nvidia-persistenced --user nvpd",
                )
            ],
        },
        "lock": {"verdict": "not_held", "reason": "", "unreadable": False, "leases": [], "starting": []},
        **more,
    }


def stuck(host: str, **more: t.Any) -> Look:
    """A node whose server is dead and whose GPU 1 is still held by a worker that was left behind."""
    left = holder(
        5310,
        "python3",
        "target",
        user="anna",
        gpus=[uuid(1)],
        age_s=24100.0,
        reason="on this node, in no other active service",
        cmdline="python3 -m sglang.launch_server --model-path /models/Kimi-K2.5 --tp-size 8 --api-key ***",
    )
    return look(
        host,
        health=server(
            "failed",
            "sglang.service on 127.0.0.1:30000: the unit is failed (exit code 1)",
            since="2026-11-29T17:40:02Z",
            log_tail=[
                "[2026-11-29 17:39:58 TP1] Scheduler hit an exception: Traceback (most recent call last):",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            ],
        ),
        gpu=gpus([0, 76115, 0, 0, 0, 0, 0, 0], {1: 5310}),
        holders={
            "verdict": "some",
            "incomplete_reason": "",
            "holders": [left, holder(6120, "nvtop", "monitor", user="ben")],
        },
        **more,
    )


def gone(host: str) -> Look:
    return {
        "host": host,
        "gpu_host": host,
        "unit": "sglang.service",
        "profile": "kimi",
        "reached": False,
        "unreached_reason": f"Failed to connect to the host via ssh: connect to host {host} port 22: No route to host",
    }
