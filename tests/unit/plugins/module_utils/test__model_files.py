# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import builtins
import json
import os
import pathlib
import struct
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._model_files import ModelReading, inspect
from ansible_collections.cleanslate.gpu.tests.simulator import model_folder

INDEX = "model.safetensors.index.json"


def read(path: pathlib.Path, load_format: str = "auto") -> ModelReading:
    return finish(inspect(str(path), load_format))


def finish(steps: t.Generator[str, None, ModelReading]) -> ModelReading:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: ModelReading = end.value
            return found


def told(path: pathlib.Path, load_format: str = "auto") -> list[tuple[str, str]]:
    return [(flaw.kind, flaw.what.replace(str(path), "M")) for flaw in read(path, load_format).flaws]


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    model_folder.make(str(tmp_path / "model"), shards=3)
    return tmp_path / "model"


def test_a_whole_model(model: pathlib.Path) -> None:
    found = read(model)
    assert found.whole is True
    assert found.config["num_attention_heads"] == 64
    assert len(found.weights) == 3
    assert found.bytes == sum(path.stat().st_size for path in model.glob("*.safetensors"))
    assert found.tokenizer
    (model / "tokenizer.json").unlink()
    assert not read(model).tokenizer
    (model / "qwen.tiktoken").write_bytes(b"x")
    assert read(model).tokenizer


def shard(model: pathlib.Path, number: int = 1) -> pathlib.Path:
    return model / f"model-{number:05d}-of-00003.safetensors"


def no_shard(model: pathlib.Path) -> None:
    shard(model, 2).unlink()


def broken_link(model: pathlib.Path) -> None:
    shard(model, 2).unlink()
    shard(model, 2).symlink_to("../blobs/0123456789abcdef")


def cut_short(model: pathlib.Path) -> None:
    content = shard(model).read_bytes()
    shard(model).write_bytes(content[:-1])


def too_long(model: pathlib.Path) -> None:
    shard(model).write_bytes(shard(model).read_bytes() + b"xyz")


def only_a_start(model: pathlib.Path) -> None:
    shard(model).write_bytes(shard(model).read_bytes()[:20])


def no_header(model: pathlib.Path) -> None:
    shard(model).write_bytes(struct.pack("<Q", 4) + b"{{{{")


def zeros(model: pathlib.Path) -> None:
    shard(model).write_bytes(bytes(300))


def huge_header(model: pathlib.Path) -> None:
    shard(model).write_bytes(b"<html><title>404</title>")


def empty(model: pathlib.Path) -> None:
    shard(model).write_bytes(b"")


def lfs_pointer(model: pathlib.Path) -> None:
    shard(model).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5000000000\n")


def a_few_bytes(model: pathlib.Path) -> None:
    shard(model).write_bytes(b"abc")


def one_byte_of_header(model: pathlib.Path) -> None:
    shard(model).write_bytes(struct.pack("<Q", 1) + b"{")


def header_that_lacks_a_byte(model: pathlib.Path) -> None:
    (length,) = struct.unpack("<Q", shard(model).read_bytes()[:8])
    shard(model).write_bytes(shard(model).read_bytes()[: 8 + length - 1])


def link_in_a_circle(model: pathlib.Path) -> None:
    shard(model).unlink()
    shard(model).symlink_to(shard(model).name)


def config_in_a_circle(model: pathlib.Path) -> None:
    (model / "config.json").unlink()
    (model / "config.json").symlink_to("config.json")


def folder_for_a_shard(model: pathlib.Path) -> None:
    shard(model).unlink()
    shard(model).mkdir()


def list_for_a_config(model: pathlib.Path) -> None:
    (model / "config.json").write_text("[]")


def index_of_a_list(model: pathlib.Path) -> None:
    (model / INDEX).write_text('{"weight_map": ["a"]}')


def no_shards_at_all(model: pathlib.Path) -> None:
    for number in (1, 2, 3):
        shard(model, number).unlink()


def no_index_and_no_first(model: pathlib.Path) -> None:
    (model / INDEX).unlink()
    shard(model, 1).unlink()


def no_config(model: pathlib.Path) -> None:
    (model / "config.json").unlink()


def half_a_config(model: pathlib.Path) -> None:
    (model / "config.json").write_text('{"architectures": ["X"')


def half_an_index(model: pathlib.Path) -> None:
    (model / INDEX).write_text('{"weight_map": {')


def index_of_nothing(model: pathlib.Path) -> None:
    (model / INDEX).write_text('{"metadata": {}}')


def no_weights(model: pathlib.Path) -> None:
    (model / INDEX).unlink()
    for path in model.glob("*.safetensors"):
        path.unlink()


def no_index_and_a_gap(model: pathlib.Path) -> None:
    (model / INDEX).unlink()
    shard(model, 3).unlink()


S1, S2, S3 = (f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("plant", "kind", "words"),
    [
        (no_shard, "incomplete", f"M lacks {S2}, which {INDEX} names (1 of 3)"),
        (broken_link, "incomplete", f"M lacks {S2} (a symbolic link to nothing), which {INDEX} names (1 of 3)"),
        (cut_short, "broken", f"M/{S1} is cut short: it has "),
        (too_long, "broken", "3 more than its own header says"),
        (only_a_start, "broken", f"M/{S1} is cut short: it has 20 bytes, less than its header of "),
        (no_header, "broken", f"M/{S1} is no safetensors file: its header cannot be read"),
        (zeros, "broken", f"M/{S1} is no safetensors file: its header would have 0 bytes"),
        (huge_header, "broken", f"M/{S1} is no safetensors file: its header would have "),
        (empty, "broken", f"M/{S1} is empty"),
        (lfs_pointer, "broken", f"M/{S1} is a Git LFS pointer of "),
        (a_few_bytes, "broken", f"M/{S1} is cut short: it has 3 bytes, less than its header of "),
        (one_byte_of_header, "broken", f"M/{S1} is no safetensors file: its header would have 1 bytes"),
        (header_that_lacks_a_byte, "broken", "less than its header of "),
        (link_in_a_circle, "broken", f"M/{S1} cannot be read ({os.strerror(40)})"),
        (config_in_a_circle, "broken", f"M/config.json cannot be read ({os.strerror(40)})"),
        (folder_for_a_shard, "broken", f"M/{S1} is no file"),
        (list_for_a_config, "broken", "M/config.json holds no JSON object"),
        (index_of_a_list, "broken", f"M/{INDEX} has no weight_map"),
        (no_shards_at_all, "incomplete", f"M lacks {S1}, {S2}, {S3}, which {INDEX} names (3 of 3)"),
        (no_index_and_no_first, "incomplete", f"M lacks {S1}, which the numbers of the others imply"),
        (no_config, "incomplete", "M has no config.json"),
        (half_a_config, "broken", "M/config.json is no JSON"),
        (half_an_index, "broken", f"M/{INDEX} is no JSON"),
        (index_of_nothing, "broken", f"M/{INDEX} has no weight_map"),
        (no_weights, "incomplete", "M has no weights (*.safetensors, *.bin, *.pt)"),
        (no_index_and_a_gap, "incomplete", f"M lacks {S3}, which the numbers of the others imply"),
    ],
)
def test_what_is_wrong(plant: t.Callable[[pathlib.Path], None], kind: str, words: str, model: pathlib.Path) -> None:
    plant(model)
    found = told(model)
    assert [(one, words in what) for one, what in found] == [(kind, True)], found


def test_a_file_that_the_index_does_not_name_is_left_out(model: pathlib.Path) -> None:
    (model / "consolidated.safetensors").write_bytes(b"whatever")
    assert read(model).whole


def test_one_file_without_an_index(model: pathlib.Path) -> None:
    no_weights(model)
    (model / "model.safetensors").write_bytes(model_folder.shard({"a": 5, "b": 7}))
    assert read(model).whole


def test_a_shard_behind_a_link_as_a_cache_has_it(model: pathlib.Path) -> None:
    blob = model.parent / "blob"
    shard(model).rename(blob)
    shard(model).symlink_to(blob)
    assert read(model).whole


def test_weights_of_torch(model: pathlib.Path) -> None:
    no_weights(model)
    index = {"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}}
    (model / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (model / "pytorch_model-00001-of-00002.bin").write_bytes(b"PK")
    assert told(model) == [
        (
            "incomplete",
            "M lacks pytorch_model-00002-of-00002.bin, which pytorch_model.bin.index.json names (1 of 2)",
        )
    ]


@pytest.mark.parametrize("load_format", ["dummy", "remote", "sharded_state"])
def test_formats_that_read_no_such_files(load_format: str, model: pathlib.Path) -> None:
    no_weights(model)
    found = read(model, load_format)
    assert (found.whole, found.weights, found.bytes) == (True, (), 0)


def test_every_flaw_of_a_folder_is_told_and_what_is_missing_does_not_hide_the_rest(model: pathlib.Path) -> None:
    no_shard(model)
    link_in_a_circle(model)
    shard(model, 3).write_bytes(b"")
    assert [kind for kind, dummy in told(model)] == ["broken", "broken", "incomplete"]


def test_of_many_missing_files_three_are_named(tmp_path: pathlib.Path) -> None:
    model_folder.make(str(tmp_path / "model"), shards=5)
    for number in (1, 2, 4, 5):
        (tmp_path / f"model/model-{number:05d}-of-00005.safetensors").unlink()
    (flaw,) = told(tmp_path / "model")
    first, second, third = (f"model-{number:05d}-of-00005.safetensors" for number in (1, 2, 4))
    assert f"M lacks {first}, {second}, {third} and 1 more," in flaw[1]


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"a": None},
        {"a": {}},
        {"a": {"data_offsets": None}},
        {"a": {"data_offsets": [0]}},
        {"a": {"data_offsets": [0, "x"]}},
    ],
)
def test_a_header_of_another_shape_is_told(model: pathlib.Path, header: t.Any) -> None:
    text = json.dumps(header).encode()
    shard(model).write_bytes(struct.pack("<Q", len(text)) + text)
    assert told(model) == [("broken", f"M/{S1} is no safetensors file: its header cannot be read")]


@pytest.mark.parametrize(("rest", "flaws"), [(b"", 0), (b"x", 1)])
def test_a_shard_without_tensors_is_its_header(model: pathlib.Path, rest: bytes, flaws: int) -> None:
    shard(model).write_bytes(struct.pack("<Q", 2) + b"{}" + rest)
    assert [what for dummy, what in told(model)] == [f"M/{S1} has 11 bytes, 1 more than its own header says"][:flaws]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(5, "x"), "broken", f"cannot be read ({os.strerror(5)})"),
        (OSError(13, "x"), "closed", f"may not be read ({os.strerror(13)})"),
        (OSError(1, "x"), "closed", f"may not be read ({os.strerror(1)})"),
        (OSError("the disk is on fire"), "broken", "cannot be read (the disk is on fire)"),
    ],
)
def test_a_file_that_cannot_be_opened_is_told_with_the_kernels_words(
    model: pathlib.Path, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: str, words: str
) -> None:
    gguf = model.parent / "a.gguf"
    gguf.write_bytes(b"GGUF rest")
    real = builtins.open

    def fails(path: t.Any, *given: t.Any, **named: t.Any) -> t.Any:
        if str(path) in (str(shard(model)), str(gguf)):
            raise error
        return real(path, *given, **named)

    monkeypatch.setattr(builtins, "open", fails)
    assert told(model) == [(kind, f"M/{S1} {words}")]
    assert told(gguf) == [(kind, f"M {words}")]


def test_a_gguf_file_is_a_model(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF rest")
    (tmp_path / "b.gguf").write_bytes(b"other")
    found = read(tmp_path / "a.gguf")
    assert (found.whole, found.bytes, found.tokenizer) == (True, 9, True), "its tokenizer is inside"
    assert read(tmp_path / "b.gguf").flaws[0].kind == "absent"


def test_a_folder_that_is_not_there(tmp_path: pathlib.Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert told(tmp_path / "no") == [("absent", "M does not exist")]
    nothing = read(tmp_path / "no")
    assert (nothing.whole, nothing.bytes, nothing.tokenizer) == (False, 0, False)
    assert told(tmp_path / "link") == [("absent", "M does not exist, a symbolic link to nothing")]


def test_each_file_is_named_before_it_is_touched(model: pathlib.Path) -> None:
    steps = inspect(str(model), "auto")
    assert next(steps) == str(model)
    assert [next(steps) for dummy in range(3)] == [str(model / "config.json"), str(model / INDEX), str(shard(model))]
    shard(model).unlink()
    assert next(steps) == str(shard(model, 2))
    assert "lacks" in finish(steps).flaws[0].what
