# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a profile expects of its running server, with the real JMESPath."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter import unmet_expectations as plugin
from ansible_collections.cleanslate.gpu.plugins.filter.unmet_expectations import (
    FilterModule,
    unmet_expectations,
    wrong_expectations,
)

KEY = "PLANTED-4711"
DATA = {
    "server_info": {
        "tp_size": 8,
        "version": "0.5.23",
        "enable_metrics": True,
        "context_length": None,
        "internal_states": [{"max_running": 2048, "speculative": {"accept": 2.5}}],
        "note": f"api_key={KEY}",
    },
    "models": {"data": [{"id": "kimi", "max_model_len": 131072}]},
    "nvidia_gpu": {"gpus": [{"used_mib": 100}, {"used_mib": 200}]},
}


@pytest.mark.parametrize(
    "entry",
    [
        {"query": "server_info.tp_size", "equals": 8},
        {"query": "server_info.tp_size", "equals": "8"},
        {"query": "server_info.tp_size", "equals": 8.0},
        {"query": "server_info.enable_metrics", "equals": True},
        {"query": "server_info.enable_metrics", "equals": "True"},
        {"query": "server_info.context_length", "equals": None},
        {"query": "server_info.internal_states[0].max_running", "at_least": 2048},
        {"query": "server_info.internal_states[0].speculative.accept", "at_least": "2.5"},
        {"query": "models.data[].id", "contains": "kimi"},
        {"query": "models.data[0].id", "contains": "im"},
        {"query": "server_info.version", "matches": r"^0\.5\."},
        {"query": "length(nvidia_gpu.gpus)", "equals": 2},
        {"query": "max(nvidia_gpu.gpus[].used_mib)", "at_most": 200},
    ],
    ids=lambda entry: str(sorted(entry.items())),
)
def test_what_holds(entry: dict[str, t.Any]) -> None:
    assert unmet_expectations(DATA, [entry]) == []


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"query": "server_info.tp_size", "equals": 4}, "server_info.tp_size must be 4; found 8."),
        ({"query": "server_info.enable_metrics", "equals": 1}, "must be 1; found true."),
        ({"query": "server_info.version", "equals": 0.5}, 'must be 0.5; found "0.5.23".'),
        ({"query": "server_info.context_length", "at_least": 1}, "must be at least 1; found nothing there."),
        ({"query": "server_info.tp_sise", "equals": 8}, "must be 8; found nothing there."),
        ({"query": "models.data[0].max_model_len", "at_least": 262144}, "must be at least 262144; found 131072."),
        ({"query": "models.data[].id", "contains": "kim"}, 'must contain "kim"; found ["kimi"].'),
        ({"query": "server_info.version", "matches": r"^0\.4"}, "; found"),
        ({"query": "length(server_info.tp_size)", "equals": 1}, "the query failed: "),
        ({"query": "nvidia_gpu.gpus[0].used_mib", "at_most": 10}, "must be at most 10; found 100."),
    ],
)
def test_what_does_not_hold_says_what_was_found(entry: dict[str, t.Any], sentence: str) -> None:
    (said,) = unmet_expectations(DATA, [entry])
    assert sentence in said
    assert said.startswith("Expectation 1: ")


def test_the_person_s_own_words_come_first_and_positions_count_from_one() -> None:
    good, bad = {"query": "server_info.tp_size", "equals": 8}, {"query": "server_info.tp_size", "at_most": 4}
    (said,) = unmet_expectations(DATA, [good, {**bad, "says": "Four GPUs are for others."}])
    assert said == "Four GPUs are for others. Expectation 2: server_info.tp_size must be at most 4; found 8."


@pytest.mark.parametrize("data", [{}, {"server_info": None}, {"server_info": {}}])
@pytest.mark.parametrize("wanted", [8, None])
def test_what_could_not_be_had_is_never_met(data: dict[str, t.Any], wanted: object) -> None:
    (said,) = unmet_expectations(data, [{"query": "server_info.tp_size", "equals": wanted}])
    assert "server_info could not be had" in said


def test_no_key_is_shown() -> None:
    (said,) = unmet_expectations(DATA, [{"query": "server_info", "equals": f"api_key={KEY}"}])
    assert KEY not in said


def test_long_values_are_cut() -> None:
    (said,) = unmet_expectations({"models": {"data": ["x" * 5000]}}, [{"query": "models.data", "contains": "y"}])
    assert len(said) < 400


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("server_info.tp_size == 8", "it is a str, not a mapping"),
        ({"query": "server_info.tp_size", "eqals": 8}, "unknown fields eqals"),
        ({"equals": 8}, "query must be a JMESPath expression"),
        ({"query": "server_info.tp_size"}, "exactly one of"),
        ({"query": "server_info.tp_size", "equals": 8, "at_most": 9}, "not equals and at_most"),
        ({"query": "server_info.tp_size", "at_least": "many"}, "at_least must be a number, not 'many'"),
        ({"query": "server_info.version", "matches": "("}, "matches is no regular expression"),
        ({"query": "server_info.[", "equals": 8}, "is no JMESPath expression"),
        ({"query": "nosuch(server_info.tp_size", "equals": 8}, "is no JMESPath expression"),
        ({"query": "serverinfo.tp_size", "equals": 8}, "looks at none of server_info, models, nvidia_gpu"),
        ({"query": "server_info.tp_size", "equals": 8, "says": 1}, "says must be a sentence"),
    ],
)
def test_a_wrong_one_is_named_by_profile_and_position(entry: t.Any, why: str) -> None:
    good = {"query": "server_info.tp_size", "equals": 8}
    (said,) = wrong_expectations([{"name": "plain"}, {"name": "nextn", "expect": [good, entry]}])
    assert said.startswith("profile 'nextn', expectation 2: ")
    assert why in said
    with pytest.raises(AnsibleFilterError, match="expectation 2: "):
        unmet_expectations(DATA, [good, entry])


def test_expect_that_is_no_list() -> None:
    (said,) = wrong_expectations([{"name": "a", "expect": {"query": "models"}}])
    assert said == "profile 'a', expect must be a list of expectations, not dict."
    assert wrong_expectations("nonsense") == []


def test_without_jmespath_only_those_who_need_it_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "jmespath", None)
    expect = [{"query": "server_info.tp_size", "equals": 8}]
    assert wrong_expectations([{"name": "a"}, {"name": "b", "expect": []}]) == []
    assert unmet_expectations(DATA, []) == []
    (said,) = wrong_expectations([{"name": "a", "expect": expect}])
    assert "pip install jmespath" in said
    with pytest.raises(AnsibleFilterError, match="jmespath"):
        unmet_expectations(DATA, expect)


def test_both_are_offered() -> None:
    assert set(FilterModule().filters()) == {"unmet_expectations", "wrong_expectations"}
