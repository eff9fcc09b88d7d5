# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What holds back an action that the decision table asks for: policy, latch, back-off, budget, time window, a second
look, and on the whole fleet the breaker."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_memory, _time_windows
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_decision import Action, decide
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_evidence import Evidence, gather
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import Limits
from ansible_collections.cleanslate.gpu.plugins.module_utils._lease_records import age_words
from ansible_collections.cleanslate.gpu.plugins.module_utils._moments import elapsed, iso
from ansible_collections.cleanslate.gpu.plugins.module_utils._wanted_state import UNIT

HeldBack = t.Literal["mode", "opt_out", "gave_up", "backoff", "budget", "window", "confirmation"]
MemoryStep = t.Literal["none", "noted", "cleared"]
_AGE_SLACK = 5.0  # seconds; dates are rounded to one, and the look and the note are not the same moment


@dataclasses.dataclass(frozen=True)
class Policy:
    """What a person allows drift to do on one host."""

    unit: str
    mode: t.Literal["report", "remediate"] = "report"
    config: t.Literal["report", "apply"] = "report"
    enabled: bool = True
    windows: tuple[_time_windows.TimeWindow, ...] = ()
    load_budget: float = 2700.0
    gpus: tuple[str, ...] = ()
    run_id: str = ""
    limits: Limits = dataclasses.field(default_factory=Limits)


_LIMITS = tuple(field.name for field in dataclasses.fields(Limits))
POLICY_FIELDS = tuple(field.name for field in dataclasses.fields(Policy) if field.name != "limits") + _LIMITS


def policy_of(fields: t.Any) -> Policy:
    """Raises ValueError with a sentence."""
    if not isinstance(fields, t.Mapping):
        raise ValueError("the policy is no mapping")
    unknown = sorted(str(name) for name in fields if name not in POLICY_FIELDS)
    if unknown:
        raise ValueError(f"the policy has {', '.join(unknown)}; known are {', '.join(POLICY_FIELDS)}")
    values = {str(name): _plain(name, value) for name, value in fields.items()}
    limits = Limits(**{name: values.pop(name) for name in _LIMITS if name in values})
    wrong = limits.fault()
    if wrong:
        raise ValueError(wrong)
    for name, allowed in {
        "mode": ("report", "remediate"),
        "config": ("report", "apply"),
        "enabled": (True, False),
    }.items():
        if name in values and values[name] not in allowed:
            raise ValueError(f"{name} is {values[name]!r}; it must be one of {', '.join(map(str, allowed))}")
    if not UNIT.fullmatch(str(values.get("unit", ""))):
        raise ValueError(f"unit is {values.get('unit')!r}: give its name with the suffix, as in sglang.service")
    budget = values.get("load_budget", Policy.load_budget)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 < budget < 7 * 86400:
        raise ValueError(f"load_budget is {budget!r}: it must be above 0 and below 604800 seconds")
    values["windows"] = _time_windows.parse_all(_texts(values.get("windows", ()), "windows"))
    values["gpus"] = _texts(values.get("gpus", ()), "gpus")
    return Policy(limits=limits, **values)


def _plain(name: t.Any, value: t.Any) -> t.Any:
    """A number or a truth that a template made text of."""
    if not isinstance(value, str):
        return value
    if name == "enabled":
        return {"true": True, "false": False}.get(value.lower(), value)
    if name == "load_budget" or name in _LIMITS:
        try:
            return int(value) if name == "max_remediations" else float(value)
        except ValueError:
            return value
    return str(value)


def _texts(value: t.Any, name: str) -> tuple[str, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, t.Sequence):
        raise ValueError(f"{name} is {value!r}; it must be a list")
    return tuple(str(one) for one in value)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """would: what the table asks for. action: what is left of it; report where something holds an action back."""

    action: Action
    would: Action
    row: str
    reasons: tuple[str, ...]
    key: str
    needs_confirmation: bool
    confirmed: bool
    held_back: HeldBack | None
    remember: MemoryStep
    evidence: Evidence

    def as_dict(self) -> dict[str, t.Any]:
        situation = self.evidence.situation
        return {
            "action": self.action,
            "would": self.would,
            "row": self.row,
            "reasons": list(self.reasons),
            "key": self.key,
            "needs_confirmation": self.needs_confirmation,
            "confirmed": self.confirmed,
            "held_back": self.held_back,
            "profile": self.evidence.profile,
            "situation": dataclasses.asdict(situation),
            "memory": {"state": self.remember, "key": self.key, "revision": self.evidence.memory.revision},
        }


def judge(parts: t.Any, policy: Policy, wall: float) -> Verdict:
    """The whole way from a look to what is done about it.

    :param parts: results of the look's modules.
    :param wall: seconds since the epoch where this runs; only time windows are told by it.
    """
    evidence = gather(
        parts,
        unit=policy.unit,
        config=policy.config,
        gpus=policy.gpus,
        load_budget=policy.load_budget,
        run_id=policy.run_id,
    )
    decision = decide(evidence.situation)
    row = decision.row
    said = [evidence.said.get(row.about, ""), row.why]
    if row.about != "server":
        said.append(evidence.said["server"])
    told = tuple(text for text in said if text)
    if not decision.acts:
        remember: MemoryStep = "cleared" if evidence.memory.suspicions and _may_write(policy, evidence) else "none"
        return Verdict(decision.action, decision.action, row.name, told, "", False, False, None, remember, evidence)
    key = f"{row.name}: {policy.unit}, {evidence.subject}" if row.kills else f"{row.name}: {policy.unit}"
    confirmed = not decision.needs_confirmation or _is_confirmed(evidence, key, policy.limits)
    held = _held_back(evidence, policy, wall, confirmed, key)
    remember = "noted" if held and decision.needs_confirmation and _may_write(policy, evidence) else "none"
    if held is None:
        return Verdict(
            decision.action, decision.action, row.name, told, key, row.kills, confirmed, None, remember, evidence
        )
    told = (*told, f"No {decision.action}: {held[1]}.")
    return Verdict("report", decision.action, row.name, told, key, row.kills, confirmed, held[0], remember, evidence)


def _may_write(policy: Policy, evidence: Evidence) -> bool:
    """A host that is only reported on is left exactly as it is, and so is a file that could not be read."""
    return policy.mode == "remediate" and policy.enabled and evidence.situation.memory == "readable"


def _is_confirmed(evidence: Evidence, key: str, limits: Limits) -> bool:
    """An earlier look saw the same of the same processes."""
    now, found = evidence.now, evidence.memory.suspicion(key)
    if now is None or found is None or not _drift_memory.is_confirmed(found, limits, now):
        return False
    if evidence.situation.alive != "yes":
        return True
    # A process id comes back after a restart, and in a container it often is the same one.
    return evidence.age is not None and evidence.age + _AGE_SLACK >= elapsed(found.first, now)


def _held_back(
    evidence: Evidence, policy: Policy, wall: float, confirmed: bool, key: str
) -> tuple[HeldBack, str] | None:
    """The first thing that speaks against acting now, with the rest of a sentence."""
    limits, now = policy.limits, evidence.now
    if policy.mode == "report":
        return "mode", "the policy is to report"
    if not policy.enabled:
        return "opt_out", "remedies are switched off for this host"
    if now is None:
        return "confirmation", "the time on the node is not known"
    held = _drift_memory.hold_back(evidence.memory, limits, now)
    if held is not None:
        return held
    if policy.windows and not any(window.contains(wall) for window in policy.windows):
        allowed = "; ".join(window.text for window in policy.windows)
        return "window", f"it is {iso(wall)}, outside the times that are allowed here: {allowed}"
    if not confirmed:
        found = evidence.memory.suspicion(key)
        since = f"since {found.first.date} ({found.looks} looks)" if found is not None else "in this look alone"
        return "confirmation", (
            f"seen {since}; it takes a second look at the same processes, {age_words(limits.confirm_after)} or more and"
            f" {age_words(limits.confirm_within)} at most after the one before, without a reboot or a changed clock"
        )
    return None


@dataclasses.dataclass(frozen=True)
class Breaker:
    tripped: bool
    reason: str
    hosts: tuple[str, ...]
    allowed: int


# Whoever waits for a second look, a window or a back-off is in the same trouble; whoever is left alone for good is not.
_COUNTED = (None, "mode", "confirmation", "window", "backoff", "budget")


def breaker(verdicts: t.Mapping[str, t.Any], share: float, most: int | None) -> Breaker:
    """Whether so many hosts are in trouble at once that the cause is not theirs. One host is always allowed.

    :param verdicts: host → as_dict(), or None for one that could not be looked at, which does not count as well.
    :param share: of the hosts that were looked at, above 0 and up to 1.
    :param most: hosts, None for no such limit.
    """
    looked_at = {host: one for host, one in verdicts.items() if isinstance(one, t.Mapping)}
    hosts = tuple(
        sorted(
            host
            for host, one in looked_at.items()
            if one.get("would") in ("release", "relaunch") and one.get("held_back") in _COUNTED
        )
    )
    allowed = max(1, int(share * len(looked_at) + 1e-9))
    if most is not None:
        allowed = min(allowed, most)
    told = f"{len(hosts)} of {len(looked_at)} hosts would be acted on, {allowed} at most may be"
    if len(hosts) <= allowed:
        return Breaker(False, f"{told}.", hosts, allowed)
    reason = (
        f"{told}: {', '.join(hosts)}. Nothing is done on any of them. When so many fail at once, look at what they"
        " share: network, storage, a new image or driver, this controller."
    )
    return Breaker(True, reason, hosts, allowed)
