# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from sglang import arguments, config_file

KIMI = """\
---
# a profile
model-path: /models/Kimi-K2.5
served-model-name: "kimi-k2.5"   # quoted
tp-size: 8
mem-fraction-static: 0.93
trust-remote-code: true
enable-metrics: false
json-model-override-args: '{"a": "b # c"}'
model-loader-extra-config: "{\\"num_threads\\": 8}"
cuda-graph-bs-decode:
  - 1
  - 2
numa-node: [0, 1]
preferred-sampling-params: {"temperature": 0.6}
host: 0.0.0.0
api-key: 'it''s'
"""


def test_what_profiles_need():
    assert config_file.parse(KIMI, "f.yaml") == {
        "model-path": "/models/Kimi-K2.5", "served-model-name": "kimi-k2.5", "tp-size": 8, "mem-fraction-static": 0.93,
        "trust-remote-code": True, "enable-metrics": False, "json-model-override-args": '{"a": "b # c"}',
        "model-loader-extra-config": '{"num_threads": 8}', "cuda-graph-bs-decode": [1, 2], "numa-node": [0, 1],
        "preferred-sampling-params": {"temperature": 0.6}, "host": "0.0.0.0", "api-key": "it's",
    }  # fmt: skip


@pytest.mark.parametrize(("text", "value"), [
    ("a: [x, y]", ["x", "y"]), ("a: []", []), ("a: null", None), ("a:", None), ("a: -1", -1), ("a: 1e3", 1000.0),
    ("a: x#y", "x#y"), ("a: \"x # y\"", "x # y"), ("a:\n- 1\n- b", [1, "b"]),
    ("a:\n  b: 1\n  c: d", {"b": 1, "c": "d"}),
    ('{"a": [1]}', [1]), ('"a": 1', 1), ("a: http://x:1/y", "http://x:1/y"),
])  # fmt: skip
def test_values(text, value):
    assert config_file.parse(text, "f.yaml") == {"a": value}


@pytest.mark.parametrize(("text", "words"), [
    ("a: |\n  x", "line 1: not read"), ("a: &x 1", "line 1: not read"), ("a: 'x", "unfinished"),
    ("a: 1\na: 2", "line 2: a is there twice"), ("a: {b: 1}", "must be JSON"), ("- 1", "root level"),
    ("", "root level"),
    ("a: b: c", "needs quotes"), ("a: 1\n  b: 2", "unexpected indentation"), ("just words", "neither"),
    ("a:\n\t- 1", "tab"), ('{"a": ', "f.yaml"),
])  # fmt: skip
def test_what_is_not_read_is_said(text, words):
    with pytest.raises(config_file.ConfigError, match=words):
        config_file.parse(text, "f.yaml")


def test_words_of_a_config():
    words = arguments.words_of({"trust-remote-code": True, "enable-metrics": False, "numa-node": [0, 1], "x": {"a": 1},
                                "speculative-algorithm": None, "host": True, "cuda-graph-bs-decode": []})  # fmt: skip
    assert words == ["--trust-remote-code", "--numa-node", "0", "1", "--x", '{"a": 1}', "--speculative-algorithm",
                     "None",
                     "--host", "true"]  # fmt: skip


@pytest.mark.parametrize(("name", "words", "code"), [
    ("nosuch.yaml", "Config file not found", 1), ("file.json", "must be YAML format", 1),
])  # fmt: skip
def test_the_config_argument(tmp_path, capsys, name, words, code):
    (tmp_path / "file.json").write_text("{}", encoding="ascii")
    with pytest.raises(SystemExit) as end:
        arguments.resolve(["--config", str(tmp_path / name)])
    assert end.value.code == code
    assert words in capsys.readouterr().err


def test_model_path_is_required(capsys):
    with pytest.raises(SystemExit) as end:
        arguments.resolve(["--tp", "8"])
    assert end.value.code == 2
    assert "--model-path" in capsys.readouterr().err
