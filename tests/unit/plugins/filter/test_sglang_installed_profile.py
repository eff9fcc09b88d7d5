# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed, read back from the files."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_config import sglang_config
from ansible_collections.cleanslate.gpu.plugins.filter.sglang_installed_profile import sglang_installed_profile
from ansible_collections.cleanslate.gpu.plugins.filter.sglang_profile import sglang_profile
from ansible_collections.cleanslate.gpu.plugins.filter.sglang_split_args import sglang_split_args

UNIT = """# Written by cleanslate.gpu.sglang_server for profile {name}; changes are lost at the next relaunch.
[Service]
ExecStart="/usr/bin/flock" "python" "--config" "/etc/sglang/sglang.yaml" {argv}
"""
SAME = ("name", "host", "port", "served_model_name", "workers", "gpus", "api_key", "admin_api_key")


def installed(profile: dict[str, t.Any]) -> tuple[str, str]:
    """Unit and configuration as they are written for a resolved profile."""
    split = sglang_split_args(profile["args"])
    keys = {"api-key": profile["api_key"], "admin-api-key": profile["admin_api_key"]}
    config = sglang_config({**split["config"], **{name: key for name, key in keys.items() if key}})
    argv = " ".join(f'"{word}"' for word in split["argv"])
    return UNIT.format(name=profile["name"], argv=argv), "# a comment\n" + config


@pytest.mark.parametrize(
    "profile",
    [
        {"name": "k2-5", "args": {"model-path": "/m/K 2.5", "port": 31000, "host": "0.0.0.0"}, "api_key": "k~1+/="},
        {"name": "a", "args": {"model-path": "/m", "served-model-name": "x", "tp-size": 4, "pp-size": 2}},
        {"name": "dp", "args": {"model-path": "/m", "tp-size": 8, "dp-size": 8, "enable-dp-attention": True}},
        {"name": "dp2", "args": {"model-path": "/m", "tp-size": 4, "dp-size": 2}, "api_key": "a", "admin_api_key": "b"},
    ],
    ids=lambda profile: str(profile["name"]),
)  # fmt: skip
def test_it_is_what_was_rendered(profile: dict[str, t.Any]) -> None:
    resolved = sglang_profile([profile], profile["name"])
    found = sglang_installed_profile(*installed(resolved))
    assert {name: found[name] for name in SAME} == {name: resolved[name] for name in SAME}


@pytest.mark.parametrize(
    ("unit", "config", "sentence"),
    [
        ("[Service]\nExecStart=python", "model-path: /m", "was not written by this collection"),
        (UNIT.format(name="a", argv=""), "api-key: [SECRET\nb", r"is no YAML, line 2$"),
        (UNIT.format(name="a", argv=""), "- SECRET", "is no mapping of options$"),
        (UNIT.format(name="a", argv=""), "port: 1", "has no model-path"),
    ],
)
def test_bad_files_get_a_sentence_without_their_text(unit: str, config: str, sentence: str) -> None:
    with pytest.raises(AnsibleFilterError, match=sentence) as told:
        sglang_installed_profile(unit, config)
    assert "SECRET" not in str(told.value)
