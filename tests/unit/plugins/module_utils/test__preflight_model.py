# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._model_files import Flaw, ModelReading
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Check, Context
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_launch import NO_PROFILE, OVERWRITE
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_model import (
    context_length,
    faults_of,
    model_files,
    served_model_name,
    tensor_parallel,
    trust_remote_code,
)
from ansible_collections.cleanslate.gpu.tests.simulator import model_folder
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.launch_world import LaunchWorld

CHECKS = (model_files, context_length, tensor_parallel, trust_remote_code, served_model_name)
OF_MODEL = CHECKS[:-1]
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.fixture
def world(tmp_path: pathlib.Path) -> LaunchWorld:
    return LaunchWorld(tmp_path)


@pytest.mark.parametrize("check", CHECKS)
def test_a_good_launch_passes(check: t.Callable[[Context], Check], world: LaunchWorld) -> None:
    found = check(world.context({"context-length": 131072, "served-model-name": "m"}))
    assert (found.ok, found.name) == (True, check.__name__), found


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_profile_nothing_is_checked(check: t.Callable[[Context], Check], world: LaunchWorld) -> None:
    assert check(world.node.context()).ok is None


def test_what_a_whole_model_is(world: LaunchWorld) -> None:
    """Its size in GiB, and who it is that cannot be asked."""
    reading = ModelReading(path="/models/m", config={"x": 1}, weights=("a", "b"), bytes=3 * 2**29, tokenizer=True)
    found = model_files(world.context({"model-path": "/models/m"}, read=lambda path, load_format: reading))
    assert found.detail == "/models/m is complete, 2 files of weights, 1.5 GiB"
    plain = model_files(world.context({"model-path": "/models/m", "load-format": "x"}, read=lambda *given: reading))
    assert plain.detail == "/models/m is there; load-format x: no weights were looked for"
    assert model_files(world.node.context()).detail == NO_PROFILE
    assert model_files(world.context({"model-path": None})).detail == "the profile names no model"
    without = ModelReading(path="/models/m", weights=("a",), tokenizer=True)
    lengths = context_length(world.context({"model-path": "/models/m"}, read=lambda *given: without))
    assert (lengths.ok, lengths.detail) == (None, "there is no config.json of /models/m to look at")


@pytest.mark.parametrize(
    ("flaws", "told"),
    [
        (6, ["f0", "f1", "f2", "f3", "f4", "f5"]),
        (7, ["f0", "f1", "f2", "f3", "f4", "f5", "1 more files of /models/m are at fault"]),
        (9, ["f0", "f1", "f2", "f3", "f4", "f5", "3 more files of /models/m are at fault"]),
    ],
)
def test_many_flaws_are_told_with_the_first_few(flaws: int, told: list[str]) -> None:
    kinds: list[t.Any] = ["incomplete"] * 6 + ["broken", "incomplete", "absent"]
    reading = ModelReading(path="/models/m", flaws=tuple(Flaw(kinds[n], f"f{n}") for n in range(flaws)))
    faults = faults_of(reading)
    assert [fault.what for fault in faults] == told
    assert ("download it again" in faults[-1].cure) is (flaws > 6), "the cure of the first that is not named"


def test_a_tokenizer_elsewhere_that_cannot_be_read(world: LaunchWorld) -> None:
    """The model's own is not asked then."""
    for other, words in (
        (ModelReading(path="/t", blocked="/t does not answer"), "/t does not answer"),
        (ModelReading(path="/t", flaws=(Flaw("closed", "/t is closed"),)), "/t is closed"),
        (ModelReading(path="/t", flaws=(Flaw("incomplete", "/t lacks x"),)), "/t has no tokenizer (none of "),
    ):
        own = ModelReading(path="/m", config={"x": 1}, weights=("a",), tokenizer=True)
        readings = {"/t": other, "/m": own}
        options = {"model-path": "/m", "tokenizer-path": "/t"}
        found = model_files(world.context(options, read=lambda path, load_format, known=readings: known[path]))
        assert (found.ok, found.detail.startswith(words)) == (False, True), found
        assert words[-1] != " " or found.detail.split("none of ")[1].count(", ") == 4


def test_what_is_used_where_no_length_is_asked_for(world: LaunchWorld) -> None:
    assert "(262144)" in context_length(world.context()).detail
    model_folder.make(str(world.model), max_position_embeddings=None)
    assert "(not told)" in context_length(world.context()).detail


@pytest.mark.parametrize("check", OF_MODEL)
@pytest.mark.parametrize("path", ["moonshotai/Kimi-K2.5", "s3://models/x", "", "./model"])
def test_a_model_elsewhere_cannot_be_told(check: t.Callable[[Context], Check], path: str, world: LaunchWorld) -> None:
    found = check(world.context({"model-path": path}))
    assert found.ok is None
    assert path in found.detail


def test_an_incomplete_model(world: LaunchWorld) -> None:
    world.shards()[1].unlink()
    world.shards()[0].write_bytes(world.shards()[0].read_bytes()[:-4])
    found = model_files(world.context())
    assert found.ok is False
    assert f"{world.model} lacks model-00002-of-00002.safetensors" in found.detail
    assert "model-00001-of-00002.safetensors is cut short: it has" in found.detail
    assert "Finish the download" in found.cure
    assert "download it again" in found.cure


def test_a_model_that_is_not_there_fails_once(world: LaunchWorld) -> None:
    context = world.context({"model-path": "/models/nowhere"})
    assert model_files(context).ok is False
    assert [check(context).ok for check in OF_MODEL[1:]] == [None, None, None]


def test_no_weights_are_needed_for_dummies(world: LaunchWorld) -> None:
    for path in world.shards():
        path.unlink()
    assert model_files(world.context()).ok is False
    assert model_files(world.context({"load-format": "dummy"})).ok is True


@pytest.mark.parametrize(
    ("options", "ok"),
    [
        ({}, False),
        ({"skip-tokenizer-init": True}, True),
        ({"tokenizer-path": "org/tokenizer"}, True),
        ({"tokenizer-path": "OTHER"}, True),
        ({"tokenizer-path": "/models/nowhere"}, False),
    ],
)
def test_the_tokenizer(options: dict[str, t.Any], ok: bool, world: LaunchWorld, tmp_path: pathlib.Path) -> None:
    (world.model / "tokenizer.json").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tiktoken.model").write_text("")
    options = {name: str(tmp_path / "other") if value == "OTHER" else value for name, value in options.items()}
    assert model_files(world.context(options)).ok is ok


@pytest.mark.parametrize(
    ("wanted", "environment", "ok"),
    [
        (None, {}, True),
        (262144, {}, True),
        (262145, {}, False),
        ("256Ki", {}, True),
        ("263k", {}, False),
        ("0.2M", {}, True),
        (262145, {OVERWRITE: "1"}, True),
        (262145, {OVERWRITE: "0"}, False),
        ("a lot", {}, None),
    ],
)
def test_context_length(wanted: t.Any, environment: dict[str, str], ok: bool | None, world: LaunchWorld) -> None:
    options = {} if wanted is None else {"context-length": wanted}
    found = context_length(world.context(options, environment=environment))
    assert found.ok is ok, found
    if ok is False:
        assert "262144 tokens" in found.detail
        assert OVERWRITE in found.cure


def test_a_length_that_config_json_does_not_tell(world: LaunchWorld) -> None:
    model_folder.make(str(world.model), max_position_embeddings=None)
    assert context_length(world.context({"context-length": 1})).ok is None


def test_the_launch_can_override_the_length(world: LaunchWorld) -> None:
    options = {"context-length": 300000, "json-model-override-args": '{"max_position_embeddings": 300000}'}
    assert context_length(world.context(options)).ok is True


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        ({}, {"tp-size": 8}, ""),
        ({}, {"tp-size": 6}, "64 attention heads cannot be spread evenly over tp-size 6"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, {"tp-size": None}, ""),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, {"tp-size": 0}, ""),
        ({"moe_intermediate_size": 7}, {"tp-size": None}, ""),
        ({"moe_intermediate_size": 4}, {"tp-size": 8}, "size 4 cannot be cut into 8 pieces"),
        ({"moe_intermediate_size": 4}, {"tp-size": 8, "ep-size": 0}, "size 4 cannot be cut into 8 pieces"),
        ({"num_key_value_heads": 16}, {"tp-size": 8}, ""),
        ({"num_key_value_heads": 6}, {"tp-size": 8}, "6 key-value heads neither divide tp-size 8"),
        ({"num_attention_heads": 60}, {"tp-size": 8, "enable-dp-attention": True}, ""),
        ({"moe_intermediate_size": 1500}, {"tp-size": 8}, "size 1500 cannot be cut into 8 pieces"),
        ({"moe_intermediate_size": 1500}, {"tp-size": 8, "ep-size": 8}, ""),
        ({"moe_intermediate_size": 1500}, {"tp-size": 8, "moe-a2a-backend": "deepep"}, ""),
        ({}, {"tp-size": 8, "ep-size": 3}, "no multiple of ep-size 3"),
        ({"quantization_config": FP8}, {"tp-size": 8}, "is 192 (tp-size / ep-size = 8), no multiple of the FP8 block"),
        ({"quantization_config": FP8}, {"tp-size": 8, "ep-size": 2}, ""),
        ({"moe_intermediate_size": None, "num_attention_heads": None}, {"tp-size": 8}, None),
    ],
)
def test_tensor_parallel(
    config: dict[str, t.Any], options: dict[str, t.Any], words: str | None, world: LaunchWorld
) -> None:
    model_folder.make(str(world.model), **config)
    found = tensor_parallel(world.context(options))
    assert found.ok is (None if words is None else not words), found
    assert (words or "") in found.detail


@pytest.mark.parametrize(
    ("config", "options", "ok"),
    [
        ({"auto_map": {"AutoConfig": "a.B"}, "model_type": "kimi_k2"}, {}, False),
        ({"auto_map": {"AutoConfig": "a.B"}, "model_type": "kimi_k2"}, {"trust-remote-code": False}, False),
        ({"auto_map": {"AutoConfig": "a.B"}, "model_type": "kimi_k2"}, {"trust-remote-code": True}, True),
        ({"auto_map": {"AutoConfig": "a.B"}, "model_type": "deepseek_v3"}, {}, None),
        ({"auto_map": {}}, {}, True),
    ],
)
def test_code_of_the_model(
    config: dict[str, t.Any], options: dict[str, t.Any], ok: bool | None, world: LaunchWorld
) -> None:
    model_folder.make(str(world.model), **config)
    assert trust_remote_code(world.context(options)).ok is ok


@pytest.mark.parametrize(
    ("options", "ok"),
    [
        ({"served-model-name": "kimi:latest"}, False),
        ({"model-path": "/models/a:b"}, False),
        ({"model-path": "/models/a:b", "served-model-name": "ab"}, True),
        ({"model-path": "s3://bucket/a"}, True),
    ],
)
def test_the_served_name(options: dict[str, t.Any], ok: bool, world: LaunchWorld) -> None:
    assert served_model_name(world.context(options)).ok is ok


@pytest.mark.parametrize(
    ("volumes", "path", "ok"),
    [
        (["HERE:/models:ro"], "/models/model", True),
        (["HERE:/"], "/model", True),
        (["/srv:/models", "HERE/model:/models/kimi"], "/models/kimi", True),
        (["HERE:/models"], "/models/other", False),
        (["models:/models"], "/models/model", None),
        ([], "/models/model", None),
    ],
)
def test_a_container_sees_models_elsewhere(volumes: list[str], path: str, ok: bool | None, world: LaunchWorld) -> None:
    here = tuple(volume.replace("HERE", str(world.folder)) for volume in volumes)
    assert model_files(world.context({"model-path": path}, volumes=here)).ok is ok
