# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a real process: the same keys however it ends."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

MODULE = "ansible_collections.cleanslate.gpu.plugins.modules.sglang_dead_man"
KEYS = {"changed", "msg", "verdict", "reason", "timer", "run_id", "fires_in_s", "fires_at", "diff"}
BOOTED = os.path.isdir("/run/systemd/system")


def run(folder: pathlib.Path, **params: t.Any) -> dict[str, t.Any]:
    path = folder / "arguments.json"
    path.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": {"unit": "cleanslate-test.service", **params}}))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, "-m", MODULE, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=300,
    )
    result: dict[str, t.Any] = json.loads(done.stdout)
    result.pop("invocation", None)
    assert (done.returncode != 0) == bool(result.get("failed")), result
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
