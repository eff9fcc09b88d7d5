# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The draft model of speculative decoding. SGLang looks at it after the whole target was loaded, minutes into the
downtime."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._model_config import ModelConfig, model_config
from ansible_collections.cleanslate.gpu.plugins.module_utils._model_files import ModelReading
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import NO_PROFILE, OVERWRITE, Launch
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_model import (
    TENSOR_CURE,
    effective_context,
    faults_of,
    target_config,
    uneven_heads,
)

_ALWAYS_SEPARATE = ("EAGLE3", "STANDALONE", "DFLASH")
_OF_TARGET = ("EAGLE", "NEXTN")  # from a path, or from the target's own layers
_STEPS = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
_DRAFT = "speculative-draft-model-path"
_PATH_CURE = f"Set {_DRAFT} to the draft model that was made for this target and algorithm."
_OTHER_CURE = "Use a draft model that was made for this target."
_STEPS_CURE = f"Give all three of {', '.join(_STEPS)}, or none of them."
_CONTEXT_CURE = (
    "Set the profile's context-length to {limit} or less, use a draft model with a longer context, or set"
    f" {OVERWRITE}: 1 in the profile's env, with which the draft works beyond what it was made for."
)


def draft_model(context: Context) -> Check:
    """There is one, it is whole, and it fits the target."""
    name = "draft_model"
    launch = context.launch
    if launch is None:
        return not_checked(name, NO_PROFILE)
    algorithm = launch.text("speculative-algorithm").upper()
    if not algorithm or algorithm == "NONE":
        return not_checked(name, "the profile uses no speculative decoding")
    faults = list(_steps(launch, algorithm))
    named = launch.text(_DRAFT)
    path, elsewhere = launch.place(named) if named else ("", "")
    target = _target(launch)
    if path:
        reading = launch.read(path, launch.text("speculative-draft-load-format") or launch.load_format)
        faults += faults_of(reading)
        if reading.config and target is not None:
            faults += _misfits(launch, algorithm, target, reading)
        said = f"{path} is complete and fits the target" if target is not None else ""
        unsure = "" if said else f"{path} is complete, but the target's config.json could not be compared with it"
    else:
        missing, unsure, said = ([], elsewhere, "") if elsewhere else _without_draft(algorithm, target)
        faults += missing
    if faults:
        return failed(name, faults)
    return not_checked(name, unsure) if unsure else passed(name, said)


def _target(launch: Launch) -> ModelConfig | None:
    path = launch.place(launch.model_path)[0]
    if not path:
        return None
    reading = launch.read(path, launch.load_format)
    return target_config(launch, reading) if reading.config else None


def _steps(launch: Launch, algorithm: str) -> t.Iterator[Fault]:
    given = [name for name in _STEPS if name in launch.options]
    if algorithm in (*_OF_TARGET, "EAGLE3", "STANDALONE") and given and len(given) < len(_STEPS):
        lacking = ", ".join(name for name in _STEPS if name not in given)
        yield Fault(f"the profile gives {', '.join(given)} but not {lacking}", _STEPS_CURE)


def _without_draft(algorithm: str, target: ModelConfig | None) -> tuple[list[Fault], str, str]:
    """Faults, or why it cannot be told, or what passed, where the profile names no draft model."""
    if algorithm in _ALWAYS_SEPARATE:
        return [Fault(f"{algorithm} needs a draft model, and the profile names none", _PATH_CURE)], "", ""
    if algorithm not in _OF_TARGET:
        return [], f"what {algorithm} needs is not known here", ""
    if target is None:
        return [], "the target's config.json, which tells whether it drafts for itself, could not be read", ""
    if target.drafts_itself:
        return [], "", f"{target.architecture or 'the target'} drafts with its own layers"
    if algorithm == "EAGLE" or target.own_draft_layers == 0:
        what = f"{target.architecture or 'the target'} has no layer to draft with, and the profile names no draft model"
        return [Fault(what, _PATH_CURE)], "", ""
    return [], f"whether {target.architecture or 'the target'} drafts for itself is not known here", ""


def _misfits(launch: Launch, algorithm: str, target: ModelConfig, reading: ModelReading) -> t.Iterator[Fault]:
    draft = model_config(reading.config)
    path = reading.path
    wanted = effective_context(launch, target)
    limit = draft.longest_context
    if wanted is not None and limit is not None and wanted > limit and not launch.longer_context_allowed:
        what = f"the target runs with a context of {wanted} tokens, more than the {limit} of its draft model {path}"
        yield Fault(what, _CONTEXT_CURE.format(limit=limit))
    if algorithm in (*_ALWAYS_SEPARATE, *_OF_TARGET) and _differ(draft.vocabulary, target.vocabulary):
        what = (
            f"the draft model {path} has a vocabulary of {draft.vocabulary} tokens, the target one of"
            f" {target.vocabulary}"
        )
        yield Fault(what, _OTHER_CURE)
    for what in uneven_heads(launch, draft, f"the draft model {path}"):
        yield Fault(what, TENSOR_CURE)
    hidden = draft.target_hidden_size or draft.hidden_size
    if algorithm in ("EAGLE3", *_OF_TARGET) and _differ(hidden, target.hidden_size):
        what = (
            f"the draft model {path} was made for hidden states of size {hidden}, those of the target have"
            f" {target.hidden_size}"
        )
        yield Fault(what, _OTHER_CURE)


def _differ(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one != other
