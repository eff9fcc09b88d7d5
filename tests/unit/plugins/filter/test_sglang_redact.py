# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Masking in text and in structures."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_redact import FilterModule, sglang_redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK

KEY = "sk-PLANTED-4711-secret"


@pytest.mark.parametrize(
    "value",
    [
        f"python -m sglang.launch_server --api-key {KEY} --port 1",
        f"server_args=ServerArgs(api_key='{KEY}', admin_api_key='{KEY}')",
        {"api_key": KEY},
        {"admin-api-key": KEY},
        {"server_args": {"api_key": KEY, "port": 1}},
        {"argv": ["python", "--api-key", KEY, "--port", "1"]},
        {"argv": ["python", f"--api-key={KEY}"]},
        {"env": {"HF_TOKEN": KEY}},
        {"env": [f"HF_TOKEN={KEY}"]},
        [[{"x": f"Authorization: Bearer {KEY}"}]],
        (f"api_key: {KEY}",),
        {"password": [KEY]},
    ],
)
def test_secrets_are_masked_in_any_depth(value: t.Any) -> None:
    masked = sglang_redact(value)
    assert KEY not in json.dumps(masked)
    assert MASK in json.dumps(masked)


def test_what_is_no_secret_stays() -> None:
    value = {
        "max_tokens": 5, "port": 30000, "argv": ["--port", "1", "--tp-size", "8"], "x": None, "y": True,
        "api_key": None, "enable_api_key": False, "text": "token usage: 0.5", "list": ["a", 1, 2.5],
    }  # fmt: skip
    assert sglang_redact(value) == value


def test_given_secrets_are_masked_wherever_they_stand() -> None:
    assert sglang_redact([f"odd {KEY} place", {f"x {KEY} y": 1}], [KEY, ""]) == [
        f"odd {MASK} place",
        {f"x {MASK} y": 1},
    ]


@pytest.mark.parametrize("secrets", [KEY, b"x", 4, None])
def test_bad_input_gets_a_sentence_without_the_secret(secrets: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="must be a list") as caught:
        sglang_redact("x", secrets)
    assert KEY not in str(caught.value)


def test_the_filter_is_offered() -> None:
    assert FilterModule().filters() == {"sglang_redact": sglang_redact}
