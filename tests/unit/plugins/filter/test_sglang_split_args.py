# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter around the core."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_split_args import FilterModule, sglang_split_args


def test_both_parts() -> None:
    assert sglang_split_args({"tp-size": 8, "disable_cuda_graph": True}) == {
        "config": {"tp-size": 8},
        "argv": ["--disable-cuda-graph"],
    }


def test_the_lists_override() -> None:
    assert sglang_split_args({"a": 1, "disable-cuda-graph": True}, ["a"], ["disable-cuda-graph"]) == {
        "config": {"disable-cuda-graph": True},
        "argv": ["--a", "1"],
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (({}, "a"), "to_argv must be a list"),
        (({}, [], "a"), "to_config must be a list"),
        (({"a b": 1},), "not the name"),
        (({"api-key": "k"}, ["api-key"]), "must not stand on the command line"),
    ],
)
def test_bad_input_gets_a_sentence(arguments: tuple[t.Any, ...], sentence: str) -> None:
    with pytest.raises(AnsibleFilterError, match=sentence):
        sglang_split_args(*arguments)


def test_the_filter_is_offered() -> None:
    assert FilterModule().filters() == {"sglang_split_args": sglang_split_args}
