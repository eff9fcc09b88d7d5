# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process: the same keys however it ends."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins import module_process

KEYS = {"changed", "msg", "verdict", "reason", "timer", "run_id", "fires_in_s", "fires_at", "diff"}
BOOTED = os.path.isdir("/run/systemd/system")


def run(folder: pathlib.Path, **params: t.Any) -> dict[str, t.Any]:
    result = module_process.run("sglang_dead_man", folder, {"unit": "cleanslate-test.service", **params})
    result.pop("invocation", None)
    return result


@pytest.mark.skipif(BOOTED, reason="systemd runs this machine, and a test arms no timer on it")
@pytest.mark.parametrize("state", ["armed", "disarmed", "shown"])
def test_without_systemd_it_says_so_and_does_not_fail(tmp_path: pathlib.Path, state: str) -> None:
    result = run(tmp_path, state=state, run_id="run-1", after=60)
    assert set(result) == KEYS
    assert (result["verdict"], result["changed"], result["fires_at"]) == ("unsupported", False, None)
    assert "cleanslate-test.service" in result["msg"]


@pytest.mark.parametrize(("params", "word"), [({"unit": "x"}, "unit is 'x'"), ({"run_id": "a b"}, "run_id is 'a b'")])
def test_options_that_cannot_be_meant_return_the_same_keys(
    tmp_path: pathlib.Path, params: dict[str, t.Any], word: str
) -> None:
    result = run(tmp_path, **params)
    assert set(result) == KEYS | {"failed"}
    assert word in result["msg"]


@pytest.mark.parametrize("missing", ["run_id", "after"])
def test_arming_needs_to_know_who_and_when(tmp_path: pathlib.Path, missing: str) -> None:
    given = {"run_id": "run-1", "after": 60}
    del given[missing]
    result = run(tmp_path, state="armed", **given)
    assert result["failed"]
    assert missing in result["msg"]


def test_whether_a_users_systemd_runs_is_told_by_its_socket(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's own says nothing about it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run(tmp_path, systemd_scope="user")["verdict"] == "unsupported"
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd" / "private").touch()
    assert run(tmp_path, systemd_scope="user")["verdict"] == "armed", "it does not answer: one may be"
