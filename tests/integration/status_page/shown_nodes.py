# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes that the status page is shown with."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._fleet_status import fleet_status
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_page import status_page
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fleet_looks import (
    gone,
    gpus,
    holder,
    look,
    stuck,
    uuid,
)

NOW = "2026-11-29T18:40:12Z"
EVIL = "<script>window.hurt = 1</script>"
EVIL_ATTRIBUTE = "\"><img src=x onerror='window.hurt = 2'>"


def run(number: int, playbook: str, verdict: str, began: str, ended: str, **more: t.Any) -> dict[str, t.Any]:
    return {
        "run_id": f"20261129T1{number}0000Z-k3x9qa", "playbook": playbook, "who": "anna", "verdict": verdict,
        "began_at": f"2026-11-{began}Z", "ended_at": f"2026-11-{ended}Z", "interrupted": False, **more,
    }  # fmt: skip


SERVED = [
    run(1, "drift.yml", "relaunched", "27T03:12:00", "27T03:19:41", who="schedule", reason="hung twice, 300 s apart"),
    run(2, "relaunch.yml", "ready", "29T15:01:50", "29T15:09:12"),
]
BROKE = [
    run(1, "relaunch.yml", "ready", "28T09:20:00", "28T09:27:30"),
    run(
        2,
        "relaunch.yml",
        "failed",
        "29T17:31:00",
        "29T17:40:11",
        reason="the server ended with exit code 1 while it loaded",
    ),
]


def three_nodes() -> str:
    """One that serves, one that is stuck, one that is gone."""
    looks = [
        look("gpu1", runs={"runs": SERVED, "problem": None}),
        stuck("gpu2", runs={"runs": BROKE, "problem": None}),
        gone("gpu3"),
    ]
    return status_page(fleet_status(looks, NOW))


def worst_node() -> str:
    """Everything at once: hostile names in every place, unread GPUs, words that cannot be broken."""
    evil = holder(
        99, EVIL, "foreign", user=EVIL_ATTRIBUTE, unit=EVIL, container={"kind": "docker", "id": EVIL}, gpus=[uuid(0)],
        cmdline=EVIL_ATTRIBUTE + "x" * 300, reason=EVIL,
    )  # fmt: skip
    lock = {"verdict": "busy", "reason": EVIL, "leases": [{"text": EVIL}], "starting": [{"text": "y" * 200}]}
    runs = [run(1, EVIL, EVIL_ATTRIBUTE, "29T17:31:00", "29T17:40:11", reason="z" * 300)]
    node = stuck(
        "gpu-with-a-very-long-name.rack-17.datacentre-north.example.invalid",
        profile=EVIL,
        runs={"runs": runs, "problem": EVIL},
    ) | {
        "gpu": gpus([None, 143771, 1, 0], {0: 99, 1: 98}, {0: EVIL_ATTRIBUTE}),
        "holders": {"verdict": "incomplete", "incomplete_reason": EVIL, "holders": [evil]},
        "lock": lock,
        "host": "gpu-with-a-very-long-name.rack-17.datacentre-north.example.invalid" + EVIL,
    }
    node["health"] = {**node["health"], "log_tail": [EVIL, "w" * 400], "reason": EVIL}
    return status_page(fleet_status([node], NOW))
