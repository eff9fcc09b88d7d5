# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What counts as drift of a unit, a configuration and a running server, and what does not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _config_drift as drift
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import config_text

UNIT = """# Written for profile base
[Unit]
After=network-online.target nvidia-persistenced.service
[Service]
User=sglang
Environment=A=1
Environment="B=x y"
ExecStartPre=/bin/true
ExecStartPre=/bin/false
ExecStart=python -m sglang.launch_server --config /etc/sglang/sglang.yaml
"""
CONFIG = config_text(
    {"model-path": "/models/K 2.5", "tp-size": 8, "trust-remote-code": True, "lora-target-modules": ["a", "b"]}
)
SECRETS = {"api_key": "s3cret-key"}


def items(found: t.Iterable[drift.Difference]) -> list[tuple[str, str | None, str | None]]:
    return [(one.item, one.wanted, one.found) for one in found]


@pytest.mark.parametrize(
    "found",
    [
        UNIT,
        "; another comment\n\n" + UNIT.replace("# Written for profile base\n", ""),
        UNIT.replace("Environment=A=1\n", "").replace('Environment="B=x y"', 'Environment="B=x y"\nEnvironment=A=1'),
        UNIT.replace("User=sglang", "  User = sglang  "),
        UNIT.replace("launch_server --config", "launch_server \\\n  --config"),
    ],
    ids=["the same", "comments", "order of the environment", "blanks", "a line that goes on"],
)
def test_what_is_no_drift_of_a_unit(found: str) -> None:
    assert drift.unit_differences("sglang.service", UNIT, found) == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (UNIT.replace("User=sglang", "User=root"), ("[Service] User", "sglang", "root")),
        (UNIT.replace("User=sglang\n", ""), ("[Service] User", "sglang", None)),
        (UNIT + "Restart=no\n", ("[Service] Restart", None, "no")),
        (
            UNIT.replace("/bin/true", "/bin/x").replace("/bin/false", "/bin/true").replace("/bin/x", "/bin/false"),
            ("[Service] ExecStartPre", "/bin/true; /bin/false", "/bin/false; /bin/true"),
        ),
        (UNIT.replace("[Service]", "[Serv]", 1).replace("[Serv]", "[Service]"), None),
        (None, ("file", "there", None)),
        (UNIT + "[half\n", ("[Service] [half", None, "")),
        (UNIT + "half]\n", ("[Service] half]", None, "")),
    ],
)
def test_what_is_drift_of_a_unit(found: str | None, told: tuple[str, str | None, str | None] | None) -> None:
    assert items(drift.unit_differences("sglang.service", UNIT, found)) == ([] if told is None else [told])


@pytest.mark.parametrize(
    "found",
    [
        CONFIG,
        "# mine\n---\n" + "\n".join(reversed(CONFIG.splitlines())),
        CONFIG.replace("tp-size: 8", "tp_size: 8  # eight"),
        CONFIG.replace('"/models/K 2.5"', "'/models/K 2.5'"),
        CONFIG.replace("true", "True"),
        CONFIG + "revision: ~\ndtype: null\ntokenizer-path:\n",
    ],
    ids=["the same", "comments and order", "underscores", "other quotes", "another spelling of true", "nothing said"],
)
def test_what_is_no_drift_of_a_configuration(found: str) -> None:
    assert drift.config_differences("sglang.yaml", CONFIG, found, {}) == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (CONFIG.replace("tp-size: 8", "tp-size: 4"), ("tp-size", "8", "4")),
        (CONFIG.replace("tp-size: 8\n", ""), ("tp-size", "8", None)),
        (CONFIG + "context-length: 65536\n", ("context-length", None, "65536")),
        (CONFIG + "enable-metrics: FALSE\n", ("enable-metrics", None, "false")),
        (CONFIG + "stop: ''\n", ("stop", None, "")),
        (CONFIG + "stop: '\n", ("stop", None, "'")),
        (CONFIG + "stop: a'\n", ("stop", None, "a'")),
        (CONFIG + "stop: 'it''s'\n", ("stop", None, "it's")),
        (CONFIG + 'rope-scaling: {"b": "é", "a": 1}\n', ("rope-scaling", None, '{"a": 1, "b": "é"}')),
        (CONFIG + f"stop: {'x' * 300}\n", ("stop", None, "x" * 200)),
        (CONFIG.replace('["a", "b"]', '["b", "a"]'), ("lora-target-modules", '["a", "b"]', '["b", "a"]')),
    ],
)
def test_what_is_drift_of_a_configuration(found: str, told: tuple[str, str | None, str | None]) -> None:
    assert items(drift.config_differences("sglang.yaml", CONFIG, found, {})) == [told]


@pytest.mark.parametrize("found", ["a:\n  - 1\n", "- a\n", "a: [1,\n", "a: &x 1\n", "a: |\n"])
def test_a_form_that_is_not_read_is_never_called_the_same(found: str) -> None:
    with pytest.raises(drift.NotUnderstood, match=r"line [12] "):
        drift.config_differences("sglang.yaml", "", found, {})


def test_the_line_that_is_not_read_is_named_as_editors_count() -> None:
    with pytest.raises(drift.NotUnderstood, match="line 3 is not of the form"):
        drift.config_differences("sglang.yaml", "", "a: 1\nb: 2\n- c\n", {})


def test_a_value_that_is_nested_without_end_is_not_read() -> None:
    with pytest.raises(drift.NotUnderstood, match="line 1 is nested too deeply"):
        drift.config_differences("sglang.yaml", "", f"a: {'[' * 200000}\n", {})


def test_keys_are_compared_and_never_shown() -> None:
    wanted = 'api-key: "<<secret:api_key>>"\n'
    assert drift.config_differences("c", wanted, 'api-key: "s3cret-key"\n', SECRETS) == []
    for found in ('api-key: "stolen"\n', ""):
        (told,) = drift.config_differences("c", wanted, found, SECRETS)
        assert told.item == "api-key"
        assert "s3cret" not in str(told)
        assert "stolen" not in str(told)
        assert (told.wanted, told.found) == (MASK, f"{MASK} (another one)" if found else None)
    (extra,) = drift.config_differences("c", "", 'api-key: "stolen"\n', SECRETS)
    assert (extra.wanted, extra.found) == (None, f"{MASK} (another one)")


@pytest.mark.parametrize(
    ("running", "drifted"),
    [
        (["/usr/bin/python3", "-m", "sglang.launch_server", "--config", "/etc/sglang/sglang.yaml"], False),
        (["python", "-m", "sglang.launch_server", "--config", "/tmp/mine.yaml"], True),
        (["python", "-m", "sglang.launch_server", "--model-path", "/m"], True),
        (["something", "else"], False),
    ],
)
def test_the_running_command_line(running: list[str], drifted: bool) -> None:
    wanted = ["flock", "-n", "x", "python", "-m", "sglang.launch_server", "--config", "/etc/sglang/sglang.yaml"]
    found = drift.running_differences(wanted, running)
    assert [one.wanted for one in found] == ["--config /etc/sglang/sglang.yaml"][: int(drifted)]
    assert [one.found for one in found] == [" ".join(running[3:])][: int(drifted)]


@pytest.mark.parametrize(("modified", "count"), [(None, 0), (90.0, 0), (100.0, 0), (160.0, 1)])
def test_a_file_that_was_changed_after_the_start(modified: float | None, count: int) -> None:
    found = drift.changed_since("sglang.yaml", modified, 100.0)
    assert [one.found for one in found] == ["as it was 60 s earlier"][:count]
    assert drift.changed_since("sglang.yaml", modified, None) == []
