# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Checks of the model that is about to be served: what SGLang finds out only while it loads, some of it minutes in."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._model_config import ModelConfig, model_config
from ansible_collections.cleanslate.gpu.plugins.module_utils._model_files import PATTERNS, TOKENIZERS, ModelReading
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import NO_PROFILE, OVERWRITE, Launch

_CURES = {
    "absent": "Correct the path in the profile, or bring the model there (in a container: see that it is mounted).",
    "closed": "Let the service user read the folder and all that is in it (chmod -R a+rX, or a group of that user).",
    "incomplete": "Finish the download (`hf download` takes up where it stopped), or copy what is missing.",
    "broken": "Delete that file and download it again; then compare sizes or checksums with the source.",
}
_BLOCKED_CURE = (
    "See whether the mount answers (`stat` and `df` on it, `dmesg`); where reading a model really takes this long,"
    " raise sglang_server_model_timeout."
)
_CONTEXT_CURE = (
    f"Lower context-length, or leave it out; {OVERWRITE}: 1 in the profile's env lets SGLang go beyond what the model"
    " was made for."
)
TENSOR_CURE = "Choose a tp-size that divides the heads, or give more ranks to dp-size, pp-size or ep-size."
_TRUST_CURE = (
    "Set trust-remote-code: true in the profile's args if the code in the model's folder is to be run by the server."
)
# Types whose published models bring code that transformers has long had itself.
_KNOWN_TYPES = ("deepseek_v2", "deepseek_v3", "llama", "mistral", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe")


def _of_model(check: t.Callable[[Launch, ModelReading], Check]) -> t.Callable[[Context], Check]:
    """A check that needs the model, which may be where nobody can look."""
    name = check.__name__

    @functools.wraps(check)
    def asked(context: Context) -> Check:
        launch = context.launch
        if launch is None:
            return not_checked(name, NO_PROFILE)
        if not launch.model_path:
            return not_checked(name, "the profile names no model")
        path, why = launch.place(launch.model_path)
        if not path:
            return not_checked(name, why)
        return check(launch, launch.read(path, launch.load_format))

    return asked


def _of_config(
    check: t.Callable[[Launch, ModelReading, ModelConfig], Check],
) -> t.Callable[[Context], Check]:
    """A check that needs the model's config.json; that it is missing is told by model_files."""

    @functools.wraps(check)
    def asked(launch: Launch, reading: ModelReading) -> Check:
        if not reading.config:
            return not_checked(check.__name__, f"there is no config.json of {reading.path} to look at")
        return check(launch, reading, target_config(launch, reading))

    return _of_model(asked)


def target_config(launch: Launch, reading: ModelReading) -> ModelConfig:
    return model_config(reading.config, launch.overrides)


@_of_model
def model_files(launch: Launch, reading: ModelReading) -> Check:
    """Everything that the load needs is there, and whole."""
    name = "model_files"
    faults = faults_of(reading)
    if not faults and not launch.flag("skip-tokenizer-init"):
        faults = _tokenizer(launch, reading)
    if faults:
        return failed(name, faults)
    if launch.load_format not in PATTERNS:
        return passed(name, f"{reading.path} is there; load-format {launch.load_format}: no weights were looked for")
    size = reading.bytes / 2**30
    return passed(name, f"{reading.path} is complete, {len(reading.weights)} files of weights, {size:.1f} GiB")


def _tokenizer(launch: Launch, model: ModelReading) -> list[Fault]:
    """In the model's folder, or where the profile says. One on a hub cannot be looked at."""
    other = launch.text("tokenizer-path")
    path = launch.place(other)[0] if other else model.path
    if not path:
        return []
    reading = launch.read(path, "") if other else model
    if reading.blocked or any(flaw.kind in ("absent", "closed") for flaw in reading.flaws):
        return faults_of(reading)
    if reading.tokenizer:
        return []
    return [Fault(f"{path} has no tokenizer (none of {', '.join(TOKENIZERS[:4])}, …)", _CURES["incomplete"])]


def faults_of(reading: ModelReading) -> list[Fault]:
    """The flaws of a folder. Many broken shards are told with the first few."""
    if reading.blocked:
        return [Fault(reading.blocked, _BLOCKED_CURE)]
    faults = [Fault(flaw.what, _CURES[flaw.kind]) for flaw in reading.flaws[:6]]
    if len(reading.flaws) > len(faults):
        more = reading.flaws[len(faults) :]
        faults.append(Fault(f"{len(more)} more files of {reading.path} are at fault", _CURES[more[0].kind]))
    return faults


def effective_context(launch: Launch, config: ModelConfig) -> int | None:
    """The length with which the target will run, and which its draft model must have too."""
    return launch.count("context-length", config.context)


@_of_config
def context_length(launch: Launch, reading: ModelReading, config: ModelConfig) -> Check:
    """The model has the context that is asked for."""
    name = "context_length"
    wanted = launch.count("context-length")
    if wanted is None:
        if "context-length" in launch.options:
            return not_checked(name, f"context-length {launch.text('context-length')} is no number of tokens")
        return passed(name, f"the profile asks for none, so the model's own is used ({config.context or 'not told'})")
    if config.longest_context is None:
        return not_checked(name, f"config.json of {reading.path} does not tell its context length")
    if wanted <= config.longest_context:
        return passed(name, f"{wanted} tokens of {config.longest_context}")
    if launch.longer_context_allowed:
        return passed(name, f"{wanted} tokens, more than the model's {config.longest_context}, as {OVERWRITE} allows")
    what = f"context-length {wanted} is more than the {config.longest_context} tokens of {reading.path}"
    return failed(name, [Fault(what, _CONTEXT_CURE)])


@_of_config
def tensor_parallel(launch: Launch, reading: ModelReading, config: ModelConfig) -> Check:
    """The model can be cut into so many pieces."""
    name = "tensor_parallel"
    ranks = launch.count("tp-size", 1) or 1
    if config.heads is None:
        return not_checked(name, f"config.json of {reading.path} does not tell its attention heads")
    uneven = [*uneven_heads(launch, config, "the model"), *_experts(launch, config, ranks)]
    if uneven:
        return failed(name, [Fault(what, TENSOR_CURE) for what in uneven])
    return passed(name, f"{config.heads} attention heads over {ranks} ranks")


def uneven_heads(launch: Launch, config: ModelConfig, whose: str) -> t.Iterator[str]:
    """Why the attention of a model cannot be cut into tp-size pieces."""
    ranks = launch.count("tp-size", 1) or 1
    spread = any(launch.options.get(name) for name in ("enable-dp-attention", "attn-dp-size", "attn-cp-size"))
    if spread or config.heads is None:
        return  # attention is then cut into fewer pieces, by rules of each version
    if config.heads % ranks:
        yield f"{whose}'s {config.heads} attention heads cannot be spread evenly over tp-size {ranks}"
    kv_heads = config.kv_heads
    if kv_heads and kv_heads % ranks and ranks % kv_heads:
        yield f"{whose}'s {kv_heads} key-value heads neither divide tp-size {ranks} nor are divided by it"


def _experts(launch: Launch, config: ModelConfig, ranks: int) -> t.Iterator[str]:
    size = config.moe_intermediate_size
    if not size or launch.text("moe-a2a-backend") not in ("", "none"):
        return  # these back ends give each rank whole experts
    whole = launch.count("ep-size", 1) or 1
    if ranks % whole:
        yield f"tp-size {ranks} is no multiple of ep-size {whole}"
        return
    pieces = ranks // whole
    if size % pieces:
        yield f"the experts' intermediate size {size} cannot be cut into {pieces} pieces (tp-size / ep-size)"
    elif config.fp8_block and (size // pieces) % config.fp8_block:
        yield (
            f"a piece of the experts' intermediate size is {size // pieces} (tp-size / ep-size = {pieces}), no multiple"
            f" of the FP8 block {config.fp8_block}"
        )


@_of_config
def trust_remote_code(launch: Launch, reading: ModelReading, config: ModelConfig) -> Check:
    """A model that brings code of its own needs leave to run it."""
    name = "trust_remote_code"
    if not config.custom_code:
        return passed(name, "the model brings no code of its own")
    if launch.flag("trust-remote-code"):
        return passed(name, "the model brings code of its own, and the profile allows it")
    kind = str(reading.config.get("model_type", ""))
    if kind in _KNOWN_TYPES:
        return not_checked(name, f"the model brings code of its own, which is not needed where {kind} is built in")
    what = f"config.json of {reading.path} names code of its own (auto_map), which the profile does not allow"
    return failed(name, [Fault(what, _TRUST_CURE)])


def served_model_name(context: Context) -> Check:
    """A colon separates the name of a model from that of an adapter."""
    name = "served_model_name"
    if context.launch is None:
        return not_checked(name, NO_PROFILE)
    served = context.launch.text("served-model-name") or context.launch.model_path
    if ":" not in served or "://" in served:  # the address of an object store is no name with an adapter
        return passed(name, served)
    cure = "Give served-model-name without a colon."
    return failed(name, [Fault(f"the model would be served as {served}, and SGLang takes no name with a colon", cure)])
