# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.cleanslate.gpu.plugins.lookup import wrong_options

ROLES = sorted(path.name for path in wrong_options.ROLES.iterdir() if path.is_dir())


def wrong(role: str, variables: dict[str, t.Any], **options: t.Any) -> list[str]:
    loader = DataLoader()
    lookup = wrong_options.LookupModule(loader=loader, templar=Templar(loader, variables=variables))
    return lookup.run([role], variables, **options)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_what_it_compares_with(role: str) -> None:
    options = wrong_options.specification(role)["argument_specs"]["validate"]["options"]
    assert not [name for name, option in options.items() if option.get("required")], "a missing one would not be told"
    assert wrong(role, {}) == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"sglang_stop_drian": 1}, "sglang_stop_drain"),
        ({"sglang_stop_drain": "soon"}, "sglang_stop_drain"),
        ({"sglang_stop_drain": float("nan")}, "no number"),
        ({"sglang_stop_systemd_scope": "all"}, "must be one of"),
        ({"sglang_stop_unit": "a.service\nExecStart=/bin/sh"}, "no unit name"),
        ({"sglang_stop_unit": "system.slice"}, "system.slice"),
    ],
)
def test_each_kind_of_fault_is_told(variables: dict[str, t.Any], said: str) -> None:
    (sentence,) = wrong("sglang_stop", variables, units=["sglang_stop_unit"])
    assert said in sentence
    assert next(iter(variables)) in sentence
    assert sentence[-1] in ".?"


def test_faults_of_both_kinds_are_told_together() -> None:
    found = wrong("sglang_stop", {"sglang_stop_drian": 1, "sglang_stop_drain": "soon"})
    assert len(found) == 2


def test_names_that_only_look_like_an_option() -> None:
    options = {"like": "gpu_", "known": ["gpu_idle_timeuot"]}
    assert wrong("gpu_idle", {"gpu_idle_timeuot": 1}, **options) == []
    assert wrong("gpu_idle", {"gpu_idle_timeuot": 1}, like="gpu_")
    assert wrong("gpu_idle", {"gpu_idle_timeuot": 1}, like="run_") == []


def test_only_the_options_that_are_asked_for() -> None:
    variables = {"gpu_idle_timeout": "soon", "gpu_idle_timeuot": 1, "gpu_idle_expected_uuids": "GPU-1"}
    (sentence,) = wrong("gpu_idle", variables, only=["gpu_idle_expected_uuids"])
    assert "gpu_idle_expected_uuids" in sentence
    assert "list" in sentence


def test_a_role_that_is_none() -> None:
    with pytest.raises(AnsibleError, match="no role gpu_other"):
        wrong("gpu_other", {})
