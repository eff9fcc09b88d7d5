# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the gate of a node is told of the kills on its GPU host: the driver may still be at work on them."""

from __future__ import annotations

import pathlib
import typing as t

import jinja2
import pytest
import yaml

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles" / "gpu_idle"
NOBODY: dict[str, t.Any] = {"elapsed_s": 0.2, "signalled": [], "stopped": []}
KILLED = {"elapsed_s": 75.5, "signalled": [{"pid": 7, "after_s": 0.02}, {"pid": 8, "after_s": 15.25}], "stopped": []}


def killed_ago(**known: t.Any) -> str:
    source = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))["__gpu_idle_killed_ago"]
    return jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False).from_string(source).render(**known)


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        pytest.param({}, "", id="start.yml has released nothing"),
        pytest.param({"gpu_release_result": NOBODY}, "", id="there was nobody"),
        pytest.param({"gpu_release_result": KILLED}, "60.25", id="from the last signal to the end of the release"),
        pytest.param({"gpu_release_result": {**KILLED, "elapsed_s": 15.2}}, "0", id="rounded"),
        pytest.param({"gpu_release_result": {**NOBODY, "stopped": ["x"]}}, "0", id="a manager was told"),
        pytest.param(
            {"gpu_release_result": NOBODY, "sglang_stop_result": {"changed": True}}, "0.2", id="the unit was stopped"
        ),
        pytest.param(
            {"gpu_release_result": NOBODY, "sglang_stop_result": {"changed": False}}, "", id="no unit was running"
        ),
    ],
)
def test_how_long_ago_this_run_has_killed(known: dict[str, t.Any], seconds: str) -> None:
    assert killed_ago(**known) == seconds


def test_the_gate_is_told() -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "gate.yml").read_text(encoding="utf-8"))
    (gate,) = (task for task in tasks if task.get("register") == "gpu_idle_result")
    assert "__gpu_idle_killed_ago" in gate["cleanslate.gpu.gpu_wait_idle"]["killed_ago"]
