# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""How long the last good starts of each profile took on this node, and what that says about the one that is going on.

The file is a convenience: where it is missing or spoilt there is no estimate, and nothing else depends on it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
import tempfile
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._file_errors import told
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import Unreadable, read_document

KEPT = 5  # starts of each profile
_VERSION = 1
_PROFILES = 200  # that a file of ours may name; the longest unused go first


@dataclasses.dataclass(frozen=True)
class Start:
    """One start that ended in a serving server: when, and the seconds of its stages in their order."""

    ended: float
    stages: t.Mapping[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())


@dataclasses.dataclass(frozen=True)
class Estimate:
    """left: seconds that are still to come, last: what the last start took."""

    left: float
    last: float

    def as_dict(self) -> dict[str, float]:
        return {"left_s": round(self.left, 1), "last_s": round(self.last, 1)}


History = t.Mapping[str, t.Sequence[Start]]


def _start(entry: t.Any) -> Start:
    stages = {str(name): float(seconds) for name, seconds in entry["stages"].items()}
    if not stages or not all(math.isfinite(seconds) and seconds >= 0 for seconds in stages.values()):
        raise ValueError("a stage has no sensible number of seconds")
    return Start(float(entry["ended"]), stages)


def read(path: str) -> tuple[dict[str, tuple[Start, ...]], str]:
    """What the file knows, and why it knows nothing (empty where it is good, or not there yet)."""
    try:
        data = read_document(path)
        if data is None:
            return {}, ""
        if data["version"] != _VERSION:
            raise ValueError(f"its version is {data['version']}, not {_VERSION}")
        return {str(name): tuple(map(_start, entries)) for name, entries in data["profiles"].items()}, ""
    except Unreadable as error:
        return {}, f"{path}: {error}; it is ignored"
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        return {}, f"{path} is not what was written there ({type(error).__name__}: {error}); it is ignored"


def remember(path: str, profile: str, stages: t.Mapping[str, float], now: float) -> str:
    """Add a start that went well. Returns why it could not be kept, empty where it was."""
    history, dummy = read(path)
    known = history.get(profile, ())
    # Of a server that was up long before the wait began the log may not tell how it started, or tell it once more.
    if "load_weights" not in stages or (known and dict(known[-1].stages) == dict(stages)):
        return ""
    history[profile] = (*known, Start(now, dict(stages)))[-KEPT:]
    newest = sorted(history, key=lambda name: history[name][-1].ended if history[name] else 0.0)[-_PROFILES:]
    data = {
        "version": _VERSION,
        "profiles": {name: [dataclasses.asdict(start) for start in history[name]] for name in sorted(newest)},
    }
    temporary = ""
    try:
        folder, name = os.path.split(path)
        os.makedirs(folder, mode=0o755, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            try:
                os.unlink(temporary)
            except OSError:
                pass  # it was never made, or has its name already
        return f"the seconds of this start could not be kept in {path}: {told(error)}"
    return ""


def estimate(starts: t.Sequence[Start], stage: str | None, stages: t.Mapping[str, float]) -> Estimate | None:
    """How long it will still take, when it goes as the last starts went.

    :param stage: the stage that is going on.
    :param stages: seconds of this start's stages, the one that is going on up to now.
    """
    if not starts:
        return None
    last = starts[-1]
    # One start from a cold disk cache must not speak for all; the order is the last one's.
    usual = {name: statistics.median(start.stages.get(name, 0.0) for start in starts) for name in last.stages}
    if stage in usual:
        names = list(usual)
        later = sum(usual[name] for name in names[names.index(stage) + 1 :])
        left = later + max(0.0, usual[stage] - stages.get(stage, 0.0))
    else:
        left = max(0.0, sum(usual.values()) - sum(stages.values()))
    return Estimate(left, last.seconds)
