# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's options as config file and command line, read back by SGLang's own rules."""

from __future__ import annotations

import argparse
import json
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import (
    CANONICAL,
    REFUSED_BY_CONFIG,
    SWITCHES,
    canonical_args,
    config_text,
    split_args,
)

yaml = pytest.importorskip("yaml", reason="PyYAML reads the config file back")

ARGS: dict[str, t.Any] = {
    "model_path": "/models/Kimi K2.5",
    "tp-size": 8,
    "mem-fraction-static": 0.85,
    "trust-remote-code": True,
    "enable-metrics": False,
    "quantization": None,
    "bucket-time-to-first-token": [1, 2, 4],
    "lora-target-modules": [],
    "json-model-override-args": {"b": [1, {"c": "d e"}], "a": 'q"q'},
    "served-model-name": "yes",
    "chat-template": 'it\'s 50% \\ "$HOME" # not a comment: {x}',
}


def as_sglang_reads(text: str, flags: t.Collection[str] = ()) -> list[str]:
    """SGLang's ConfigArgumentMerger._convert_config_to_args, written down anew."""
    argv: list[str] = []
    for key, value in yaml.safe_load(text).items():
        if isinstance(value, bool):
            if key in flags:
                argv += [f"--{key}"] if value else []
            else:
                argv += [f"--{key}", str(value).lower()]
        elif isinstance(value, list):
            argv += [f"--{key}", *(str(item) for item in value)] if value else []
        else:
            argv += [f"--{key}", str(value)]
    return argv


def test_the_config_file_says_what_was_given() -> None:
    argv = as_sglang_reads(config_text(ARGS), {"trust-remote-code", "enable-metrics"})
    parser = argparse.ArgumentParser()
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--bucket-time-to-first-token", type=int, nargs="+")
    parser.add_argument("--json-model-override-args", type=json.loads)
    for name in ("model-path", "tp-size", "mem-fraction-static", "served-model-name", "chat-template"):
        parser.add_argument(f"--{name}")
    read = vars(parser.parse_args(argv))
    assert read == {
        "model_path": "/models/Kimi K2.5",
        "tp_size": "8",
        "mem_fraction_static": "0.85",
        "trust_remote_code": True,
        "bucket_time_to_first_token": [1, 2, 4],
        "json_model_override_args": ARGS["json-model-override-args"],
        "served_model_name": "yes",
        "chat_template": ARGS["chat-template"],
    }


def test_the_bytes_are_stable() -> None:
    text = config_text(ARGS)
    assert text == config_text(dict(reversed(list(ARGS.items()))))
    assert config_text({"x": {"a": 1, "b": 2}}) == config_text({"x": {"b": 2, "a": 1}})
    keys = [line.split(":")[0] for line in text.splitlines()]
    assert keys == sorted(keys)
    assert all("_" not in key for key in keys)
    assert text.endswith("\n")
    assert "quantization" not in text
    assert "lora-target-modules" not in text


@pytest.mark.parametrize(
    "value",
    [
        "no",
        "null",
        "~",
        "123",
        "1e3",
        "0x10",
        "2026-11-29",
        "12:30:45",
        "a: b",
        "- a",
        "#",
        "&a",
        "*a",
        "!x",
        "%x",
        "@x",
        "`",
        "{a}",
        "[a]",
        "'",
        '"',
        "\\",
        "\\n",
        " lead",
        "trail ",
        "",
        "é",
        "模型",
        "🦙",
        "a\u200db",
        "=",
        "<<",
        "|",
        ">",
    ],
)
def test_text_stays_text(value: str) -> None:
    if value.startswith("-"):
        value = "x" + value
    assert yaml.safe_load(config_text({"x": value})) == {"x": value}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"x": "a\nb"}, "x contains a newline"),
        ({"x": "a\0b"}, "x contains a NUL"),
        ({"x": "a\rb"}, "a carriage return"),
        ({"x": "a\tb"}, "a tab"),
        ({"x": "a\u2028b"}, "U\\+2028"),
        ({"x": "a\x85b"}, "U\\+0085"),
        ({"x": "a\ufeffb"}, "U\\+FEFF"),
        ({"x": ["a\nb"]}, "x contains a newline"),
        ({"x": ["a", None]}, "a null or another list"),
        ({"x": [["a"]]}, "a null or another list"),
        ({"x": "--tp-size"}, "begins with a dash"),
        ({"x": ["--tp-size"]}, "begins with a dash"),
        ({"x": float("nan")}, "no number"),
        ({"x": {"a": float("inf")}}, "cannot be written as JSON"),
        ({"x": {"a": object()}}, "cannot be written as JSON"),
        ({"x": object()}, "x is a object"),
        ({"x": b"a"}, "x is a bytes"),
        ({"a b": 1}, "not the name of an SGLang option"),
        ({"": 1}, "not the name"),
        ({"x\n": 1}, "not the name"),
        ({"-x": 1}, "not the name"),
        ({"x=y": 1}, "not the name"),
        ({"X": 1}, "not the name"),
        ({1: 1}, "not the name"),
        ({"tp-size": 8, "tp_size": 8}, "same SGLang option"),
        ({"tp-size": 8, "tensor-parallel-size": 8}, "same SGLang option"),
        ({"model": "a", "model-path": "b"}, "same SGLang option"),
        ({"config": "/x"}, "cannot name another"),
        ({"admin-api-key": "a"}, "without an api-key"),
        ({"api-key": "schlüssel"}, "api-key must be printable ASCII"),
        ({"api-key": 4711}, "api-key must be printable ASCII"),
        ({"disable-cuda-graph": True}, "refuses disable-cuda-graph"),
        ([], "must be a mapping"),
        ("x", "must be a mapping"),
        (None, "must be a mapping"),
    ],
)
def test_bad_input_gets_a_sentence(args: t.Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        config_text(args)


def test_negative_numbers_are_values() -> None:
    assert as_sglang_reads(config_text({"chunked-prefill-size": -1, "x": "-1"})) == [
        "--chunked-prefill-size",
        "-1",
        "--x",
        "-1",
    ]


def test_keys_are_written_and_a_key_may_begin_with_a_dash() -> None:
    assert config_text({"api-key": "-k", "admin_api_key": 'a"b'}) == 'admin-api-key: "a\\"b"\napi-key: "-k"\n'


def test_other_spellings_are_written_as_the_one() -> None:
    assert canonical_args({"tensor_parallel_size": 8, "--model": "m"}) == {"model-path": "m", "tp-size": 8}
    assert not set(CANONICAL) & set(CANONICAL.values())


def test_splitting() -> None:
    config, argv = split_args(
        {
            "tp-size": 8,
            "disable_cuda_graph": True,
            "enable-dp-attention": False,
            "enable-tf32-matmul": False,
            "lora-strict-loading": True,
            "cuda-graph-max-bs": 64,
            "cuda-graph-bs": [1, 2],
            "lora-paths": ["a=/x y", {"lora_name": "b"}],
        }
    )
    assert config == {"tp-size": 8}
    assert argv == [
        "--cuda-graph-bs",
        "1",
        "2",
        "--cuda-graph-max-bs",
        "64",
        "--disable-cuda-graph",
        "--no-enable-tf32-matmul",
        "--lora-paths",
        "a=/x y",
        '{"lora_name": "b"}',
        "--lora-strict-loading",
    ]


def test_splitting_can_be_overridden() -> None:
    config, argv = split_args(
        {"tp": 8, "cuda-graph-max-bs": 4}, to_argv=["tensor_parallel_size"], to_config=["cuda_graph_max_bs"]
    )
    assert config == {"cuda-graph-max-bs": 4}
    assert argv == ["--tp-size", "8"]
    with pytest.raises(ValueError, match="both"):
        split_args({}, to_argv=["x"], to_config=["x"])


def test_a_key_never_goes_to_the_command_line() -> None:
    with pytest.raises(ValueError, match="must not stand on the command line"):
        split_args({"api-key": "k"}, to_argv=["api_key"])
    config, argv = split_args({"api-key": "k", "disable-cuda-graph": True})
    assert config == {"api-key": "k"}
    assert argv == ["--disable-cuda-graph"]


def test_the_tables_fit_each_other() -> None:
    assert SWITCHES < REFUSED_BY_CONFIG
    assert {"disable-cuda-graph", "enable-dp-attention", "enable-tf32-matmul"} <= REFUSED_BY_CONFIG
    assert "tp-size" not in REFUSED_BY_CONFIG


class Vaulted:
    """As older ansible-core hands on a vaulted value."""

    __ENCRYPTED__ = True

    def __str__(self) -> str:
        return "plain text"


def test_a_vaulted_value_is_read() -> None:
    assert config_text({"x": Vaulted(), "y": {"z": Vaulted()}}) == 'x: "plain text"\ny: "{\\"z\\": \\"plain text\\"}"\n'
