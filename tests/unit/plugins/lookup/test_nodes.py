# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible import context
from ansible.errors import AnsibleError
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader

from ansible_collections.cleanslate.gpu.plugins.lookup import nodes as nodes_lookup
from ansible_collections.cleanslate.gpu.plugins.lookup.nodes import LookupModule

FILTERS = pathlib.Path(nodes_lookup.__file__).parents[1] / "filter"
GROUPS = {"all": ["gpu1", "gpu2", "pve"], "ungrouped": [], "sglang_nodes": ["gpu1", "gpu2"], "proxmox_hosts": ["pve"]}


def nodes(groups: dict[str, list[str]], limit: str | None = None, *terms: str) -> list[str]:
    variables: dict[str, t.Any] = {"groups": groups, **({"ansible_limit": limit} if limit else {})}
    return LookupModule(loader=DataLoader()).run(list(terms) or ["sglang_nodes"], variables)


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict())


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ["gpu1", "gpu2"]),
        ("gpu2", ["gpu2"]),
        ("gpu2,pve", ["gpu2"]),
        ("all:!gpu1", ["gpu2"]),
        ("sglang_nodes", ["gpu1", "gpu2"]),
        ("gpu*", ["gpu1", "gpu2"]),
    ],
)
def test_the_group_within_the_limit(limit: str | None, expected: list[str]) -> None:
    assert nodes(GROUPS, limit) == expected


def test_the_filters_are_loaded_before_any_worker_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(filter_loader, "get", asked.append)
    nodes(GROUPS)
    (name,) = asked
    collection, _dot, filter_name = name.rpartition(".")
    assert collection == "cleanslate.gpu"
    assert (FILTERS / f"{filter_name}.py").is_file()


def test_filters_that_cannot_be_loaded_are_not_its_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_loader, "get", lambda name: {}[name])
    assert nodes(GROUPS) == ["gpu1", "gpu2"]


def test_a_host_of_two_groups_comes_once() -> None:
    assert nodes({**GROUPS, "more": ["gpu2"]}, None, "sglang_nodes", "more") == ["gpu1", "gpu2"]


@pytest.mark.parametrize(
    ("groups", "limit", "words"),
    [
        (GROUPS, "pve", "--limit pve leaves none of the 2 hosts of the group sglang_nodes"),
        ({"all": ["localhost"]}, None, "no host in the group sglang_nodes; give the right one with -i"),
        ({"all": [], "sglang_nodes": []}, None, "no host in the group"),
    ],
)
def test_no_host_is_an_error_that_says_why(groups: dict[str, list[str]], limit: str | None, words: str) -> None:
    with pytest.raises(AnsibleError, match=words):
        nodes(groups, limit)


def test_a_syntax_check_needs_no_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(syntax=True))
    assert nodes({}) == ["localhost"]
