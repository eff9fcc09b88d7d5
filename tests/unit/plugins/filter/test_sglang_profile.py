# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_profile import sglang_profile, wrong_profiles

BASE = {"name": "plain", "args": {"model": "/m", "tp": 8, "port": 31000}, "env": {"A": 1}, "api_key": "k"}


def test_inheritance_merges_and_null_takes_away() -> None:
    child = {
        "name": "next",
        "inherit": "plain",
        "args": {"speculative_algorithm": "NEXTN", "port": None},
        "env": {"B": "2"},
    }
    resolved = sglang_profile([BASE, child], "next")
    assert resolved["args"] == {"model-path": "/m", "tp-size": 8, "speculative-algorithm": "NEXTN"}
    assert resolved["env"] == {"A": "1", "B": "2"}
    assert resolved["inherits"] == ["plain"]
    assert resolved["api_key"] == "k"
    assert resolved["port"] == 30000


@pytest.mark.parametrize(
    ("args", "gpus"),
    [
        ({}, 8),
        ({"tp-size": 4, "pp-size": 2}, 8),
        ({"tp-size": 2, "dp-size": 4}, 8),
        ({"tp-size": 8, "dp-size": 8, "enable-dp-attention": True}, 8),
        ({"tp-size": 16, "nnodes": 2}, 8),
        ({"tensor_parallel_size": "4"}, 4),
    ],
)
def test_gpus_of_one_node(args: dict[str, object], gpus: int) -> None:
    assert sglang_profile([{"name": "a", "args": {"model-path": "/m", **args}}], "a")["gpus"] == gpus


@pytest.mark.parametrize(
    ("profiles", "name", "words"),
    [
        ([BASE], "plian", "there is no profile 'plian'; sglang_server_profiles defines plain"),
        ([], "x", "defines none at all"),
        ("text", "x", "must be a list"),
        (["text"], "x", "entry 1"),
        ([{"name": "a b"}], "a b", "has the name 'a b'"),
        ([{"name": "../x"}], "../x", "has the name"),
        ([BASE, BASE], "plain", "two profiles are called 'plain'"),
        ([{"name": "a", "arg": {}}], "a", "unknown fields arg"),
        ([{"name": "a", "inherit": "b"}, {"name": "b", "inherit": "a"}], "a", "in a circle: a -> b -> a"),
        ([{"name": "a", "inherit": "zz"}], "a", "inherits from 'zz', which does not exist"),
        ([{"name": "a", "args": {}}], "a", "has no model-path"),
        ([{"name": "a", "args": {"model": "/m", "model-path": "/n"}}], "a", "model-path is given twice"),
        ([{"name": "a", "args": {"model": "/m", "tp_size": 1, "tp-size": 2}}], "a", "tp-size is given twice"),
        ([{"name": "a", "args": {"model": "/m", "tp": 0}}], "a", "tp-size must be a whole number of at least 1, not 0"),
        ([{"name": "a", "args": {"model": "/m", "tp": True}}], "a", "tp-size must be"),
        ([{"name": "a", "args": {"model": "/m", "tp": 9, "nnodes": 2}}], "a", "spread evenly"),
        ([{"name": "a", "args": {"model": "/m", "bad key": 1}}], "a", "'bad key' is not the name of an SGLang option"),
        ([{"name": "a", "args": {"model": "/m", "api-key": "s3cret"}}], "a", "belongs into the profile's api_key"),
        (
            [{"name": "a", "args": {"model": "/m"}, "api_key": "schlüssel"}],
            "a",
            "api_key must be what a client can",
        ),
        ([{"name": "a", "args": {"model": "/m"}, "api_key": "s3cret key"}], "a", "as a bearer token (RFC 6750)"),
        ([{"name": "a", "args": {"model": "/m"}, "api_key": "s3cret\n"}], "a", "as a bearer token (RFC 6750)"),
        (
            [{"name": "a", "args": {"model": "/m"}, "api_key": "a", "admin_api_key": "s3cret'"}],
            "a",
            "admin_api_key must",
        ),
        ([{"name": "a", "args": {"model": "/m"}, "admin_api_key": "x"}], "a", "without an api_key"),
        ([{"name": "a", "args": ["x"]}], "a", "args must be a mapping"),
        ([{"name": "a", "args": {"model": "/m", "x": "a\nb"}}], "a", "profile 'a', args: x contains a newline"),
        ([{"name": "a", "args": {"model": "/m", "x": [["b"]]}}], "a", "profile 'a', args: x is a list that holds"),
        ([{"name": "a", "args": {"model": "/m"}, "env": ["A=1"]}], "a", "profile 'a': env must be a mapping"),
        (
            [{"name": "a", "args": {"model": "/m"}, "env": {"A B": 1}}],
            "a",
            "profile 'a', env: 'A B' is no name of a variable",
        ),
        ([{"name": "a", "args": {"model": "/m"}, "env": {"A": True}}], "a", "A is True; write the text"),
        ([{"name": "a", "args": {"model": "/m"}, "env": {"A": {"b": 1}}}], "a", "A is a dict"),
        ([{"name": "a", "args": {"model": "/m"}, "env": {"A": "b\nc"}}], "a", "profile 'a', env: A contains a newline"),
        ([{"name": "a", "args": {"model": "/m"}, "env": {"HF_TOKEN": "s3cret"}}], "a", "HF_TOKEN looks like a"),
        ([{"name": "a", "inherit": ["b"]}], "a", "inherit must be text, not list"),
    ],
)
def test_refusals_name_the_profile_and_the_field(profiles: object, name: str, words: str) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        sglang_profile(profiles, name)
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_what_is_wrong_above_is_told_by_the_profile_that_wrote_it() -> None:
    parent = {"name": "above", "args": {"model-path": "/m"}, "env": {"A": [1]}}
    with pytest.raises(AnsibleFilterError, match="profile 'above', env: A is a list"):
        sglang_profile([parent, {"name": "below", "inherit": "above"}], "below")


def test_a_null_takes_an_inherited_variable_away_and_a_number_becomes_text() -> None:
    child = {"name": "next", "inherit": "plain", "env": {"A": None, "NCCL_MIN_NCHANNELS": 8, "MAX_BYPASS": "x"}}
    assert sglang_profile([BASE, child], "next")["env"] == {"NCCL_MIN_NCHANNELS": "8", "MAX_BYPASS": "x"}


def test_the_environment_of_all_profiles_is_checked_and_overridden_like_an_inherited_one() -> None:
    child = {"name": "next", "inherit": "plain", "env": {"B": None}}
    assert sglang_profile([BASE, child], "next", 8, {"A": "0", "B": "2", "C": "3"})["env"] == {"A": "1", "C": "3"}
    with pytest.raises(AnsibleFilterError, match="sglang_server_environment: HF_TOKEN looks like a secret"):
        sglang_profile([BASE], "plain", 8, {"HF_TOKEN": "s3cret"})


@pytest.mark.parametrize("name", ["MY_DB_PWD", "MY_SASL_PW", "DB_PASS", "PASSCODE", "SENTRY_DSN"])
def test_a_variable_whose_last_word_means_a_secret_is_refused(name: str) -> None:
    assert sglang_profile([{**BASE, "env": {"PWD": "/srv"}}], BASE["name"])["env"]["PWD"] == "/srv"
    with pytest.raises(AnsibleFilterError, match=f"{name} looks like a secret") as refused:
        sglang_profile([{**BASE, "env": {name: "Zq9"}}], BASE["name"])
    assert "Zq9" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://bob:Zq9-proxypw@127.0.0.1:3128"),
        ("ENDPOINT", "Bearer abcdefghijklmnop"),
        ("ANYTHING", "hf_abcdefghijklmnopqrstuvwx"),
    ],
)
def test_a_secret_under_an_innocent_name_is_refused_and_not_shown(name: str, value: str) -> None:
    for profiles, environment in (([{**BASE, "env": {name: value}}], None), ([BASE], {name: value})):
        with pytest.raises(AnsibleFilterError, match=f"the value of {name} holds a secret") as refused:
            sglang_profile(profiles, BASE["name"], 8, environment)
        assert value not in str(refused.value)


def test_a_password_among_the_arguments_is_refused_and_not_shown() -> None:
    args = {**BASE["args"], "ssl-keyfile-password": "Zq9-sslpw"}
    with pytest.raises(AnsibleFilterError, match="ssl-keyfile-password is a secret") as refused:
        sglang_profile([{**BASE, "args": args}], BASE["name"])
    assert "Zq9" not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("args", ["tp-size=8"], "args must be a mapping of SGLang option to value, not list"),
        ("args", "--tp-size 8", "args must be a mapping of SGLang option to value, not str"),
        ("env", ["A=1"], "env must be a mapping of variable to value, not list"),
        ("expect", {"query": "models"}, "expect must be a list of mappings"),
        ("expect", ["models"], "expect must be a list of mappings"),
        ("expect", 5, "expect must be a list of mappings"),
        ("inherit", ["plain"], "inherit must be text, not list"),
        ("enviroment", {}, "has unknown fields enviroment"),
    ],
)
def test_a_field_of_another_type_is_told_with_its_profile_whichever_is_launched(
    field: str, value: object, says: str
) -> None:
    profiles = [BASE, {"name": "other", "args": {"model-path": "/m"}, field: value}]
    (sentence,) = wrong_profiles(profiles)
    assert "profile 'other'" in sentence
    assert says in sentence
    with pytest.raises(AnsibleFilterError, match="profile 'other'"):
        sglang_profile(profiles, BASE["name"])


def test_the_list_of_profiles_itself_may_be_none() -> None:
    assert wrong_profiles([]) == wrong_profiles([BASE]) == []
    assert "sglang_server_profiles must be a list" in wrong_profiles({"kimi": BASE})[0]
    assert "entry 2 of sglang_server_profiles is a str" in wrong_profiles([BASE, "kimi"])[0]


@pytest.mark.parametrize(
    ("plain", "said"), [("text", "str"), (["a"], "list"), (7, "int"), (True, "bool"), (None, "NoneType")]
)
def test_types_are_told_by_their_plain_names(plain: object, said: str) -> None:
    """Ansible hands over texts and containers of its own kinds, whose names say nothing to people."""
    given = plain if plain is None or plain is True else type("_AnsibleTagged", (type(plain),), {})(plain)
    (sentence,) = wrong_profiles([given])
    assert sentence == f"entry 1 of sglang_server_profiles is a {said}, not a mapping."
