# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter around the core: keys apart from the arguments, and Ansible's own error."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_config import FilterModule, sglang_config


def test_keys_are_written_when_given() -> None:
    assert sglang_config({"tp_size": 8}, "k1", "k2") == 'admin-api-key: "k2"\napi-key: "k1"\ntp-size: 8\n'
    assert sglang_config({"tp_size": 8}, "") == "tp-size: 8\n"
    assert sglang_config({"api-key": "k"}) == 'api-key: "k"\n'
    assert sglang_config({}) == ""


@pytest.mark.parametrize(
    ("args", "keys", "sentence"),
    [
        ({"api_key": "a"}, ("b",), "given both"),
        ({"tp-size": 8, "tensor-parallel-size": 8}, (), "same SGLang option"),
        ({"x": "a\nb"}, (), "newline"),
        ({}, ("schlüssel",), "printable ASCII"),
        ([], (), "must be a mapping"),
        (None, ("k",), "must be a mapping"),
    ],
)
def test_bad_input_gets_a_sentence_of_the_filter(args: t.Any, keys: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(AnsibleFilterError, match=sentence) as caught:
        sglang_config(args, *keys)
    assert str(caught.value).startswith("sglang_config: ")
    assert not any(key in str(caught.value) for key in keys if len(key) > 3)


def test_the_filter_is_offered() -> None:
    assert FilterModule().filters() == {"sglang_config": sglang_config}
