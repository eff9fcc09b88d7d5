# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the fake server is to behave: NODE/scenario.json (server: {...}), over it SIM_SERVER (JSON), over it SIM_NAME."""

from __future__ import annotations

import dataclasses
import json
import os
import typing as t

# In start order, each with the share of the loading time at which it begins.
STAGES: dict[str, float] = {
    "arguments": 0.0,
    "init": 0.02,
    "weights": 0.10,
    "loaded": 0.69,  # all shards are read
    "kv_cache": 0.70,
    "graph": 0.80,
    "bind": 1.0,
    "warmup": 1.0,
    "ready": 1.0,
}
VERSIONS = ("0.5.12", "0.5.15", "0.5.23")


@dataclasses.dataclass(frozen=True)
class Behaviour:
    version: str = "0.5.23"  # 0.5.12 and 0.5.15 end a stop by SIGKILL to themselves, 0.5.23 by exit 0
    load_s: float = 6.0
    warmup_s: float = 0.2
    shards: int = 64
    gpu_mib: t.Any = 76115  # a number, or {"GPU": MiB}
    # SGLang's own times (drain poll 5 s, health poll 1 s, health timeout 20 s, crash dump wait 60 s) are multiplied.
    time_scale: float = 0.05
    release_delay_s: float = 0.8
    release_curve: t.Sequence[t.Sequence[float]] | None = None
    release_tail: t.Sequence[float] = (4, 1.0)
    watch_s: float = 0.05  # between its looks at its workers; more for many nodes on one machine
    compile_workers: int = 2
    served_model: str | None = None  # answers with another name than the configured one
    key_refusal: int = 401  # the status for a wrong key; a proxy in front of the real one says 403
    generation_s: float = 0.0
    requests_running: int = 0
    requests_finish_s: float | None = None  # they end this long after SIGTERM; never without
    hang_at: str | None = None  # a stage
    die_at: t.Mapping[str, t.Any] | None = None  # {"stage": ..., "exit_code": n} or {"stage", "signal": n}
    die_after_s: float | None = None  # after ready; the end is that of die (default exit code 0: a crash as exit 0)
    die: t.Mapping[str, t.Any] = dataclasses.field(default_factory=lambda: {"exit_code": 0})
    worker_dies_at: t.Mapping[str, t.Any] | None = None  # {"stage": ..., "rank": n}
    worker_dies_after_s: float | None = None  # after ready, rank 0
    healthy_without_worker: bool = False  # /health stays 200, nobody notices the death
    ignore_term: bool = False
    hung_after_s: float | None = None  # after ready the schedulers stop answering
    overloaded_s: float = 0.0  # for so long from ready on: too busy for a sign of life, while tokens come
    leave_worker: int | None = None  # this GPU's rank forks a worker that outlives the launcher
    leave_zombie: int | None = None  # this GPU's rank outlives the launcher as a zombie leader
    left_over_ignores_term: bool = False

    def mib(self, gpu: int) -> int:
        if isinstance(self.gpu_mib, dict):
            return int(self.gpu_mib.get(str(gpu), 76115))
        return int(self.gpu_mib)

    def release(self) -> dict[str, t.Any]:
        return {"delay_s": self.release_delay_s, "curve": self.release_curve, "tail": list(self.release_tail)}


def from_settings(settings: t.Mapping[str, t.Any]) -> Behaviour:
    names = {field.name for field in dataclasses.fields(Behaviour)}
    odd = sorted(set(settings) - names)
    if odd:
        raise ValueError("unknown server behaviour {}; known: {}".format(", ".join(odd), ", ".join(sorted(names))))
    behaviour = Behaviour(**settings)
    stages = [behaviour.hang_at, (behaviour.die_at or {}).get("stage"), (behaviour.worker_dies_at or {}).get("stage")]
    for stage in stages:
        if stage is not None and stage not in STAGES:
            raise ValueError("unknown stage {!r}; known: {}".format(stage, ", ".join(STAGES)))
    if behaviour.version not in VERSIONS:
        raise ValueError("unknown version {!r}; known: {}".format(behaviour.version, ", ".join(VERSIONS)))
    return behaviour


def load(node: str, environment: t.Mapping[str, str]) -> Behaviour:
    with open(os.path.join(node, "scenario.json"), encoding="utf-8") as handle:
        settings = dict(json.load(handle).get("server", {}))
    settings.update(json.loads(environment.get("SIM_SERVER") or "{}"))
    for field in dataclasses.fields(Behaviour):
        text = environment.get("SIM_" + field.name.upper())
        if text is not None:
            try:
                settings[field.name] = json.loads(text)
            except ValueError:
                settings[field.name] = text
    return from_settings(settings)
