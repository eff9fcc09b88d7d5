# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is rendered, against the recorded parsers of the SGLang versions that are supported."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_profile import sglang_profile
from ansible_collections.cleanslate.gpu.plugins.module_utils import _sglang_parser_program as program
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import (
    REFUSED_BY_CONFIG,
    SPELLINGS,
    SWITCHES,
    config_text,
    split_args,
)
from ansible_collections.cleanslate.gpu.tests.simulator.fake_sglang.sglang.srt import recorded_parser as recorded

ROOT = pathlib.Path(__file__).resolve().parents[4]
# The demo's templates need a node; what they become does not matter here.
TEMPLATE = re.compile(r"\{\{.*\}\}")


def profiles_of(path: str) -> list[dict[str, t.Any]]:
    found: list[dict[str, t.Any]] = yaml.safe_load((ROOT / path).read_text())["sglang_server_profiles"]
    return found


def of_readmes() -> list[dict[str, t.Any]]:
    """Every list of profiles in a page for people."""
    found: list[dict[str, t.Any]] = []
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "roles").glob("*/README.md")]:
        for block in re.findall(r"^ *```yaml\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
            for part in re.findall(
                r"^( *)sglang_server_profiles:\n((?:\1 *-? .*\n|\1 +.*\n|\n)+)", block, re.MULTILINE
            ):
                found += yaml.safe_load(f"profiles:\n{part[1]}")["profiles"]
    return found


def cases() -> t.Iterator[t.Any]:
    sources = {
        "example": profiles_of("inventory/example/group_vars/sglang_nodes.yml"),
        "demo": profiles_of("inventory/demo/group_vars/sglang_nodes.yml"),
        "pages": of_readmes(),
    }
    for source, profiles in sources.items():
        unique = {profile["name"]: profile for profile in profiles}
        for name in unique:
            yield pytest.param(list(unique.values()), name, id=f"{source}-{name}")


def plain(value: t.Any) -> t.Any:
    """Without templates; a number fits where they stand, as port and as key."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    return "30000" if isinstance(value, str) and TEMPLATE.fullmatch(value) else value


def parsed(version: str, args: dict[str, t.Any], text: str = "", argv: t.Sequence[str] = ()) -> list[str]:
    config, words = split_args(args)
    read = yaml.safe_load(text or config_text({**config, "api-key": "a-key"}))
    return program.refusals(recorded.parser_of(version), [*recorded.words_of(version, read), *words, *argv])


@pytest.mark.parametrize("version", recorded.VERSIONS)
@pytest.mark.parametrize(("profiles", "name"), list(cases()))
def test_every_example_is_taken(version: str, profiles: list[dict[str, t.Any]], name: str) -> None:
    spec = sglang_profile([plain(profile) for profile in profiles], name)
    assert parsed(version, spec["args"]) == []


def test_there_are_examples_in_the_pages() -> None:
    assert {profile["name"] for profile in of_readmes()} >= {"kimi"}


@pytest.mark.parametrize("version", recorded.VERSIONS)
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"no-such-option": 1}, "unrecognized arguments: --no-such-option 1"),
        ({"tool-call-parser": "nonsense"}, "argument --tool-call-parser: invalid choice: 'nonsense'"),
        ({"mem-fraction-static": "most"}, "argument --mem-fraction-static: invalid float value: 'most'"),
        ({"context-length": "much"}, "argument --context-length"),
        ({"trust-remote-code": "yes"}, "unrecognized arguments: yes"),
    ],
)
def test_what_is_wrong_is_refused(version: str, args: dict[str, t.Any], words: str) -> None:
    said = parsed(version, {"model-path": "/m", **args})
    assert len(said) == 1
    assert words in said[0]


@pytest.mark.parametrize("version", recorded.VERSIONS)
def test_all_refusals_at_once(version: str) -> None:
    args = {"model-path": "/m", "dtype": "x", "port": "y", "no-such-option": 1, "tool-call-parser": "z"}
    said = parsed(version, args)
    assert len(said) == 4
    assert said[-1] == "unrecognized arguments: --no-such-option 1"


@pytest.mark.parametrize("version", ["0.5.15", "0.5.23"])
def test_the_config_file_refuses_what_has_an_action_of_its_own(version: str) -> None:
    with pytest.raises(ValueError, match="disable_cuda_graph"):
        recorded.words_of(version, {"model-path": "/m", "disable-cuda-graph": True})


def refused() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for version in recorded.VERSIONS:
        for option in recorded.description(version)["options"]:
            for name in option.get("not_in_config", ()):
                found.setdefault(name, set()).add(version)
    return found


def known() -> set[str]:
    options = [option for version in recorded.VERSIONS for option in recorded.description(version)["options"]]
    return {flag[2:] for option in options for flag in option["flags"]}


def test_what_one_version_refuses_in_its_config_file_goes_to_the_command_line() -> None:
    negative = {f"no-{name}" for name in SWITCHES}
    assert set(refused()) - negative <= REFUSED_BY_CONFIG


def test_the_lists_name_real_options() -> None:
    assert known() >= REFUSED_BY_CONFIG
    assert all(known() >= set(names[:2]) for names in SPELLINGS)


def test_the_switches_are_those_with_a_no_form() -> None:
    found = {
        flag[2:]
        for version in recorded.VERSIONS
        for option in recorded.description(version)["options"]
        if option["action"] == "boolean_optional"
        for flag in option["flags"]
        if not flag.startswith("--no-")
    }
    assert found == SWITCHES


@pytest.mark.parametrize("version", recorded.VERSIONS)
@pytest.mark.parametrize("name", sorted(REFUSED_BY_CONFIG - SWITCHES))
def test_what_goes_to_the_command_line_is_taken_there(version: str, name: str) -> None:
    """Where the version has it at all."""
    option = next((o for o in recorded.description(version)["options"] if f"--{name}" in o["flags"]), None)
    if option is None:
        return
    value = True if option.get("nargs") == 0 else (option.get("choices") or ["1"])[0]
    config, argv = split_args({name: value})
    assert config == {}
    assert program.refusals(recorded.parser_of(version), ["--model-path", "/m", *argv]) == []
