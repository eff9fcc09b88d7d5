# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._model_config import model_config

TEXT = {"num_attention_heads": 64, "max_position_embeddings": 262144, "hidden_size": 7168, "vocab_size": 163840}


@pytest.mark.parametrize(
    "config",
    [
        TEXT,
        {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": TEXT, "vocab_size": 1},
        {"llm_config": TEXT, "text_config": {"num_attention_heads": 1}},
        {"language_config": TEXT, "text_config": {"num_attention_heads": 1}},
        {"thinker_config": {"text_config": TEXT}, "text_config": {"num_attention_heads": 1}},
        {"thinker_config": TEXT},
        {"thinker_config": TEXT, "llm_config": {"num_attention_heads": 1}},
        {**TEXT, "architectures": ["LlavaLlamaForCausalLM"], "text_config": {"max_position_embeddings": 4096}},
        {"architectures": ["LlavaQwenForConditionalGeneration"], "text_config": TEXT, "num_attention_heads": 1},
        {"architectures": ["LlamaForCausalLM"], "text_config": TEXT, "num_attention_heads": 1},
        {**TEXT, "text_config": {}},
        {**TEXT, "text_config": "none of it"},
    ],
)
def test_which_part_is_the_language_model(config: dict[str, t.Any]) -> None:
    found = model_config(config)
    assert (found.heads, found.context, found.hidden_size, found.vocabulary) == (64, 262144, 7168, 163840)


@pytest.mark.parametrize(
    ("config", "context", "longest"),
    [
        ({}, None, None),
        ({"max_position_embeddings": 4096}, 4096, 4096),
        ({"model_max_length": 8192, "max_position_embeddings": 4096}, 8192, 8192),
        ({"max_sequence_length": 1, "seq_length": 2, "max_seq_len": 3}, 1, 1),
        ({"max_position_embeddings": 4096, "rope_scaling": None}, 4096, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 4.0}}, 4096, 16384),
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {"factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
            163840,
        ),
        ({"max_position_embeddings": 8192, "rope_scaling": {"factor": 8, "rope_type": "llama3"}}, 8192, 8192),
        ({"max_position_embeddings": "long"}, None, None),
        ({"max_position_embeddings": 1e15}, None, None),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic"}}, 4096, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 0.5}}, 4096, 2048),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 0}}, 4096, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": -0.5}}, 4096, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": "4.0"}}, 4096, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": True}}, 4096, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 1e15}}, 4096, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": float("nan")}}, 4096, 4096),
    ],
)
def test_how_long_a_context_is(config: dict[str, t.Any], context: int | None, longest: int | None) -> None:
    found = model_config(config)
    assert (found.context, found.longest_context) == (context, longest)


@pytest.mark.parametrize(
    ("architectures", "name"),
    [(["A", "B"], "A"), ([], ""), (None, ""), ("ForCausalLM", ""), ({"0": "A"}, "")],
)
def test_the_first_architecture_counts(architectures: t.Any, name: str) -> None:
    assert model_config({**TEXT, "architectures": architectures}).architecture == name


@pytest.mark.parametrize(
    ("block", "found"),
    [([128, 64], 128), ([128, 0.5], 128), ([128], 128), ([0.5, 128], None), ([], None), (None, None), ("128", None)],
)
def test_the_block_of_fp8_weights_is_its_first_number(block: t.Any, found: int | None) -> None:
    config = {**TEXT, "quantization_config": {"quant_method": "fp8", "weight_block_size": block}}
    assert model_config(config).fp8_block == found


def test_the_launch_can_change_it() -> None:
    assert model_config(TEXT, {"max_position_embeddings": 131072}).context == 131072


@pytest.mark.parametrize(
    ("config", "own"),
    [
        ({"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1}, True),
        ({"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 0}, False),
        ({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": TEXT}, True),
        ({"architectures": ["X"], "text_config": {**TEXT, "mtp_num_hidden_layers": 1}}, True),
        ({"architectures": ["LlamaForCausalLM"]}, False),
        ({}, False),
    ],
)
def test_whether_it_drafts_for_itself(config: dict[str, t.Any], own: bool) -> None:
    assert model_config(config).drafts_itself is own


def test_what_else_is_read() -> None:
    found = model_config(
        {
            **TEXT,
            "auto_map": {"AutoConfig": "a.B"},
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "num_key_value_heads": 8,
            "moe_intermediate_size": 2048,
        }
    )
    assert (found.custom_code, found.fp8_block, found.kv_heads, found.moe_intermediate_size) == (True, 128, 8, 2048)
