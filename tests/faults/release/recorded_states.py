# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every recorded state of nvidia-smi at each of the three places where it is asked: facts, gate, start guard.

Recordings of GPUs are played as they are: a place may call the node idle only where the recording's own page says so.
Recordings of compute processes are played beside memory on GPU 1: whatever they say, that is never idle.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from release_row import ReleaseFault

INDEX = pathlib.Path(__file__).parents[2] / "recordings" / "nvidia-smi" / "index.json"
PLACES = {"facts": "facts", "gate": "gate", "guard": "start guard"}
ONE_LOOK = {"timeout": 0.0, "samples": 1}
SHUT = (
    "busy", "foreign", "dying", "draining", "orphaned", "missing", "faulty", "fabric_not_ready", "unknown", "settled",
)  # fmt: skip
NOT_STARTED = ("refused", "gave_up")


def _rows() -> t.Iterator[ReleaseFault]:
    for entry in json.loads(INDEX.read_text(encoding="utf-8"))["fixtures"]:
        kind = {"apps": "apps", "list": "list"}.get(entry["query"], "gpu")
        if kind == "list":
            continue  # a question that is asked nowhere
        file, about = entry["file"], entry["expected"]
        idle = kind == "gpu" and about["verdict"] == "idle"
        passing = {"facts": ("idle",), "gate": ("idle",), "guard": ("start",)}
        other = {"facts": (about["verdict"],) if kind == "gpu" else ("busy",), "gate": SHUT, "guard": NOT_STARTED}
        for ask, place in PLACES.items():
            options: dict[str, t.Any] = {**(ONE_LOOK if ask != "facts" else {}), "smi_timeout": 15.0}
            options["expected_count"] = entry.get("gpus_in_box", 8)
            if entry.get("timed_out"):
                options["smi_timeout"] = 0.5
            yield ReleaseFault(
                "Recorded states of nvidia-smi",
                f"{file}, in the {place}",
                entry["condition"],
                "nothing",
                passing[ask] if idle else other[ask],
                ask,
                faults=({"effect": "replay", "file": file, "query": kind},),
                scenario={} if kind == "gpu" else {"never_clears": {"1": 5000}},
                options=options,
            )


ROWS: tuple[ReleaseFault, ...] = tuple(_rows())
