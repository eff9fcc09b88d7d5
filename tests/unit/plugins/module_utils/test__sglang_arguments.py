# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that name a server, and how secrets are masked."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_arguments import (
    SGLANG_ARGUMENTS,
    check_seconds,
    iso_time,
    log_reader,
    redactor,
    target_of,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState

PARAMS: dict[str, t.Any] = {
    **{name: spec.get("default") for name, spec in SGLANG_ARGUMENTS.items()},
    "unit": "sglang.service",
}


def test_the_key_is_never_logged() -> None:
    assert SGLANG_ARGUMENTS["api_key"]["no_log"] is True


def test_defaults() -> None:
    target = target_of(PARAMS)
    assert (target.unit, target.host, target.port, target.request_timeout) == (
        "sglang.service",
        "127.0.0.1",
        30000,
        25.0,
    )
    assert (target.served_model_name, target.expected_workers) == (None, None)
    assert target_of({**PARAMS, "unit": None}).unit == ""
    assert target_of({**PARAMS, "served_model_name": "", "api_key": ""}).served_model_name is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"unit": "sglang"}, "unit is 'sglang'.*sglang.service"),
        ({"port": 0}, "port is 0"),
        ({"port": 65536}, "port is 65536"),
        ({"expected_workers": 0}, "expected_workers is 0"),
        ({"request_timeout": 0.0}, "request_timeout is 0"),
        ({"request_timeout": float("nan")}, "request_timeout is nan"),
        ({"request_timeout": 1e9}, "request_timeout is 1e"),
        ({"api_key": "a\nb"}, "api_key must be printable ASCII"),
    ],
)
def test_options_that_cannot_be_meant(changes: dict[str, t.Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        target_of({**PARAMS, **changes})


def test_seconds_may_be_zero_where_that_means_something() -> None:
    check_seconds({"settle": 0.0}, "settle", zero=True)
    with pytest.raises(ValueError, match="0 or more"):
        check_seconds({"settle": -0.1}, "settle", zero=True)


def test_a_known_secret_is_masked_in_any_surroundings() -> None:
    mask = redactor(["hush", None, "", "hush-hush"])
    assert mask("x hush-hush y hushed") == f"x {MASK} y {MASK}ed"
    assert "other" not in mask("--api-key other")


def test_times_are_utc() -> None:
    assert iso_time(0.0) == "1970-01-01T00:00:00Z"
    assert iso_time(None) is None


def test_the_log_is_the_file_else_the_journal_else_nothing(tmp_path: pathlib.Path) -> None:
    calls: list[list[str]] = []

    def runner(argv: t.Sequence[str], timeout: float) -> CommandResult:
        calls.append(list(argv))
        return CommandResult(tuple(argv), 0, "from the journal\n", "", 0.0)

    (tmp_path / "log").write_text("from the file\n")
    unit = UnitState("sglang.service", "running", invocation="abc")
    target = target_of(PARAMS)
    with_file = log_reader({**PARAMS, "log_file": str(tmp_path / "log")}, target, runner)
    assert with_file(unit, None, None).lines == ("from the file",)
    assert log_reader(PARAMS, target, runner)(unit, None, None).lines == ("from the journal",)
    assert "_SYSTEMD_INVOCATION_ID=abc" in calls[0]
    assert "No log is known" in log_reader(PARAMS, target_of({**PARAMS, "unit": ""}), runner)(None, None, None).error
