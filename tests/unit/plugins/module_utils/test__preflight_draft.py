# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Check
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_draft import draft_model
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import OVERWRITE
from ansible_collections.cleanslate.gpu.tests.simulator import model_folder
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.launch_world import LaunchWorld

PATH = "speculative-draft-model-path"


@pytest.fixture
def world(tmp_path: pathlib.Path) -> LaunchWorld:
    world = LaunchWorld(tmp_path)
    world.make_draft()
    return world


def look(world: LaunchWorld, algorithm: str, options: dict[str, t.Any] | None = None, **changes: t.Any) -> Check:
    asked = {"speculative-algorithm": algorithm, PATH: str(world.draft), **(options or {})}
    return draft_model(world.context({name: value for name, value in asked.items() if value is not None}, **changes))


@pytest.mark.parametrize("algorithm", ["EAGLE3", "eagle3", "STANDALONE", "EAGLE", "NEXTN"])
def test_a_draft_model_that_fits(algorithm: str, world: LaunchWorld) -> None:
    found = look(world, algorithm)
    assert found.ok is True
    assert found.detail == f"{world.draft} is complete and fits the target"


def test_the_everyday_case(world: LaunchWorld) -> None:
    """131072 of the draft model, 262144 of the target: refused by SGLang after the whole target was loaded."""
    world.make_draft(max_position_embeddings=131072)
    found = look(world, "EAGLE3")
    assert found.ok is False
    assert f"a context of 262144 tokens, more than the 131072 of its draft model {world.draft}" in found.detail
    assert "context-length to 131072 or less" in found.cure
    assert look(world, "EAGLE3", {"context-length": 131072}).ok is True
    assert look(world, "EAGLE3", {"context-length": "128Ki"}).ok is True
    assert look(world, "EAGLE3", environment={OVERWRITE: "true"}).ok is True


@pytest.mark.parametrize(
    ("algorithm", "config", "words"),
    [
        ("EAGLE3", {"vocab_size": 32000}, "a vocabulary of 32000 tokens, the target one of 151936"),
        ("STANDALONE", {"vocab_size": 32000}, "a vocabulary of 32000 tokens"),
        ("EAGLE3", {"vocab_size": 151936, "draft_vocab_size": 32000}, ""),
        ("EAGLE3", {"hidden_size": 1024}, "made for hidden states of size 1024, those of the target have 4096"),
        ("EAGLE3", {"hidden_size": 1024, "target_hidden_size": 4096}, ""),
        ("EAGLE", {"hidden_size": 1024}, "made for hidden states of size 1024"),
        ("STANDALONE", {"hidden_size": 1024}, ""),
        ("STANDALONE", {"num_attention_heads": 14}, "'s 14 attention heads cannot be spread evenly over tp-size 8"),
        ("NGRAM", {"hidden_size": 1024, "vocab_size": 1}, ""),
    ],
)
def test_a_draft_model_of_another_target(
    algorithm: str, config: dict[str, t.Any], words: str, world: LaunchWorld
) -> None:
    world.make_draft(**config)
    found = look(world, algorithm)
    assert found.ok is not bool(words), found
    assert words in found.detail


def test_a_draft_model_that_is_not_whole(world: LaunchWorld) -> None:
    next(iter(sorted(world.draft.glob("*.safetensors")))).unlink()
    found = look(world, "EAGLE3")
    assert found.ok is False
    assert f"{world.draft} lacks model-00001-of-00002.safetensors" in found.detail
    assert look(world, "EAGLE3", {"speculative-draft-load-format": "dummy"}).ok is True


@pytest.mark.parametrize(
    ("algorithm", "config", "ok", "words"),
    [
        ("EAGLE3", {}, False, "EAGLE3 needs a draft model, and the profile names none"),
        ("STANDALONE", {}, False, "STANDALONE needs a draft model"),
        ("NEXTN", {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1}, True, "own layers"),
        ("NEXTN", {"architectures": ["Qwen3_5MoeForConditionalGeneration"]}, True, "own layers"),
        ("NEXTN", {"architectures": ["KimiK25ForConditionalGeneration"], "num_nextn_predict_layers": 0}, False, "no l"),
        ("EAGLE", {"architectures": ["LlamaForCausalLM"]}, False, "LlamaForCausalLM has no layer to draft with"),
        ("NEXTN", {"architectures": ["NewForCausalLM"]}, None, "not known here"),
        ("NGRAM", {}, None, "what NGRAM needs is not known here"),
    ],
)
def test_no_draft_model(
    algorithm: str, config: dict[str, t.Any], ok: bool | None, words: str, world: LaunchWorld
) -> None:
    model_folder.make(str(world.model), **config)
    found = look(world, algorithm, {PATH: None})
    assert found.ok is ok, found
    assert words in found.detail


@pytest.mark.parametrize(
    ("options", "ok"),
    [
        ({"speculative-num-steps": 3}, False),
        ({"speculative-num-steps": 3, "speculative-eagle-topk": 1}, False),
        ({"speculative-num-steps": 3, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4}, True),
    ],
)
def test_the_three_numbers_come_together(options: dict[str, t.Any], ok: bool, world: LaunchWorld) -> None:
    assert look(world, "EAGLE3", options).ok is ok


def test_what_cannot_be_told(world: LaunchWorld) -> None:
    assert draft_model(world.node.context()).ok is None
    assert draft_model(world.context()).ok is None
    assert look(world, "EAGLE3", {PATH: "org/draft"}).ok is None
    assert look(world, "EAGLE3", {"model-path": "org/target"}).ok is None


@pytest.mark.parametrize("algorithm", ["", "none", "NONE"])
def test_without_speculative_decoding_a_draft_model_is_not_looked_at(algorithm: str, world: LaunchWorld) -> None:
    found = look(world, algorithm, {PATH: "/models/nowhere"})
    assert (found.ok, found.detail) == (None, "the profile uses no speculative decoding")


def test_which_of_the_three_numbers_is_lacking(world: LaunchWorld) -> None:
    found = look(world, "EAGLE3", {"speculative-num-steps": 3})
    lacking = "speculative-eagle-topk, speculative-num-draft-tokens"
    assert found.detail.startswith(f"the profile gives speculative-num-steps but not {lacking}")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1},
            "DeepseekV3ForCausalLM drafts with",
        ),
        ({"architectures": ["NewForCausalLM"]}, "whether NewForCausalLM drafts for itself is not known here"),
        ({"architectures": None}, "whether the target drafts for itself is not known here"),
    ],
)
def test_whose_own_layers(config: dict[str, t.Any], words: str, world: LaunchWorld) -> None:
    model_folder.make(str(world.model), **config)
    assert words in look(world, "NEXTN", {PATH: None}).detail
