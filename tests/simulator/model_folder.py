# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole model of a few hundred bytes: what a look at config.json, index and headers of a real one finds."""

from __future__ import annotations

import json
import os
import struct
import typing as t

CONFIG: dict[str, t.Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "max_position_embeddings": 262144,
    "vocab_size": 151936,
}


def shard(tensors: t.Mapping[str, int]) -> bytes:
    """The bytes of a safetensors file with tensors of so many bytes."""
    header: dict[str, t.Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def make(folder: str, shards: int = 2, **changes: t.Any) -> None:
    """changes: entries of config.json; None takes one out."""
    os.makedirs(folder, exist_ok=True)
    weights = {f"model-{number + 1:05d}-of-{shards:05d}.safetensors": f"layer.{number}" for number in range(shards)}
    config = {name: value for name, value in {**CONFIG, **changes}.items() if value is not None}
    index = {"metadata": {}, "weight_map": {tensor: name for name, tensor in weights.items()}}
    contents = {
        "config.json": json.dumps(config).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "tokenizer.json": b"{}",
        **{name: shard({tensor: 16}) for name, tensor in weights.items()},
    }
    for name, content in contents.items():
        with open(os.path.join(folder, name), "wb") as handle:
            handle.write(content)
