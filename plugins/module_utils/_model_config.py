# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What a model's config.json means to SGLang: which part of it is the language model, how long a context it has.

A number that is not in the file is None: the class of the model may have a default of its own.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

# The first that is there is the language model of a multimodal one.
_TEXT_CONFIGS = ("thinker_config", "llm_config", "language_config", "text_config")
# The first that is there is the length.
_LENGTHS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
_MOST = 1e15  # of anything that a model has
_OWN_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers")
# Architectures for which SGLang makes the draft model out of the target itself.
_OWN_DRAFT = re.compile(
    r"(BailingMoe|DeepseekV3|DeepseekV4|Ernie4_5_Moe|ExaoneM|GigaChat35|Glm4Moe|Glm5Next|GlmMoeDsa|GlmOcr|HYV[34]|Inkling"
    r"|InternS2|LongcatFlash|MiMo|MistralLarge3|NemotronH|Pixtral|Qwen3Moe|Qwen3Next|Qwen3_5|Qwen4Exp|Step3p)"
)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The numbers that a launch depends on."""

    architecture: str
    context: int | None
    # Where rope scaling leaves room for doubt, the longest that SGLang could take it for.
    longest_context: int | None
    heads: int | None
    kv_heads: int | None
    hidden_size: int | None
    vocabulary: int | None
    moe_intermediate_size: int | None
    fp8_block: int | None
    custom_code: bool
    target_hidden_size: int | None
    own_draft_layers: int | None

    @property
    def drafts_itself(self) -> bool:
        if self.own_draft_layers is not None:
            return self.own_draft_layers > 0
        return _OWN_DRAFT.match(self.architecture) is not None


def model_config(config: t.Mapping[str, t.Any], overrides: t.Mapping[str, t.Any] | None = None) -> ModelConfig:
    """config: the content of config.json. overrides: those of the launch, which replace entries of it."""
    top = {**config, **(overrides or {})}
    architectures = top.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    text = _text_config(top, architecture)
    context = _number(text, *_LENGTHS)
    return ModelConfig(
        architecture=architecture,
        context=context,
        longest_context=None if context is None else int(context * _rope_factor(text)),
        heads=_number(text, "num_attention_heads"),
        kv_heads=_number(text, "num_key_value_heads"),
        hidden_size=_number(text, "hidden_size"),
        vocabulary=_number(text, "vocab_size"),
        moe_intermediate_size=_number(text, "moe_intermediate_size"),
        fp8_block=_fp8_block(top, text),
        custom_code=isinstance(top.get("auto_map"), dict) and bool(top["auto_map"]),
        target_hidden_size=_number(text, "target_hidden_size"),
        own_draft_layers=_number({**top, **text}, *_OWN_LAYERS),
    )


def _text_config(top: t.Mapping[str, t.Any], architecture: str) -> t.Mapping[str, t.Any]:
    if architecture.startswith("Llava") and architecture.endswith("ForCausalLM"):
        return top
    for name in _TEXT_CONFIGS:
        part = top.get(name)
        if isinstance(part, dict) and part:
            inner = part.get("text_config")
            return inner if name == "thinker_config" and isinstance(inner, dict) else part
    return top


def _number(config: t.Mapping[str, t.Any], *names: str) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MOST:
            return int(value)
    return None


def _rope_factor(text: t.Mapping[str, t.Any]) -> float:
    """What SGLang multiplies the length by; with original_max_position_embeddings it is already the long one."""
    scaling = text.get("rope_scaling")
    if not isinstance(scaling, dict):
        return 1.0
    if "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3":
        return 1.0
    factor = scaling.get("factor", 1)
    known = isinstance(factor, (int, float)) and not isinstance(factor, bool) and 0 < factor < _MOST
    return float(factor) if known else 1.0


def _fp8_block(top: t.Mapping[str, t.Any], text: t.Mapping[str, t.Any]) -> int | None:
    for part in (top, text):
        found = part.get("quantization_config")
        if isinstance(found, dict) and found.get("quant_method") == "fp8":
            block = found.get("weight_block_size")
            if isinstance(block, list) and block and isinstance(block[0], int):
                return block[0]
    return None
