# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A row of the tables about release, gate, facts and start guard. What it says to a reader is what is asserted."""

from __future__ import annotations

import dataclasses
import typing as t

# Who is asked, and in which words the page says so.
ASKED = {
    "release": "`gpu_force_release` ends in",
    "check": "`gpu_force_release` in check mode ends in",
    "gate": "the gate ends in",
    "rehearsal": "the gate's rehearsal ends in",
    "facts": "`nvidia_gpu_facts` says",
    "holders": "`gpu_holders_info` says",
    "guard": "the start guard ends in",
    "drift": "drift decides",
}
# The words with which each of them lets things go on.
PASSING = {
    "release": ("free", "released", "foreign", "dying"),
    "check": ("free", "would_release", "foreign"),
    "gate": ("idle",),
    "guard": ("start",),
}


def _names(names: tuple[str, ...], most: int = 6) -> str:
    if len(names) <= most:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} … {names[-1]} ({len(names)} in all)"


@dataclasses.dataclass(frozen=True)
class ReleaseFault:
    """One fault. plant names the function in plants.PLANTS that brings the node into the state before.

    verdict: the word it must end in, or one of several where the moment decides; "options" where the request is to be
    refused before anything is looked at. dies and lives: every process of the case by name, and what must have become
    of each: those that live are the same processes as before and have got no signal. sent: how often the module may
    have sent each signal. asked: how often nvidia-smi may have been asked for the GPUs.
    """

    group: str
    name: str
    before: str
    plant: str
    verdict: str | tuple[str, ...]
    ask: str = "release"
    says: str = ""
    dies: tuple[str, ...] = ()
    lives: tuple[str, ...] = ()
    options: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    faults: tuple[t.Mapping[str, t.Any], ...] = ()  # of the simulated nvidia-smi, before the plant adds its own
    scenario: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    sent: t.Mapping[str, int] | None = None
    asked: int | None = None
    within: float = 20.0
    gpus: int = 8
    expects: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # other fields of the result
    commands: tuple[str, ...] = ()  # what may be asked of managers besides questions
    needs: tuple[str, ...] = ()
    peer: str = ""

    @property
    def verdicts(self) -> tuple[str, ...]:
        return (self.verdict,) if isinstance(self.verdict, str) else self.verdict

    @property
    def must(self) -> str:
        words = " or ".join(f"`{word}`" for word in self.verdicts)
        said = f"{ASKED[self.ask]} {words}" if self.verdict != "options" else "the request is refused as it stands"
        parts = [f"{said} within {self.within:g} s"]
        if self.says:
            parts.append(f"says '{self.says}'")
        if self.dies:
            parts.append(f"ended: {_names(self.dies)}")
        return "; ".join(parts)

    @property
    def must_not(self) -> str:
        parts = []
        if self.lives:
            parts.append(f"a signal to {_names(self.lives)}")
        if (self.sent == {} or not self.dies) and self.ask in ("release", "check"):
            parts.append("any signal")
        if self.ask in ("gate", "facts", "rehearsal") and "idle" not in self.verdicts:
            parts.append("idle")
        if self.ask == "guard" and "start" not in self.verdicts:
            parts.append("a start")
        if self.ask == "drift":
            parts.append("a remedy")
        if self.sent:
            parts.append("more signals than " + ", ".join(f"{count} {name}" for name, count in self.sent.items()))
        if self.asked is not None:
            parts.append(f"more questions to nvidia-smi than {self.asked}")
        return "; ".join(parts) or "a change on the node"
