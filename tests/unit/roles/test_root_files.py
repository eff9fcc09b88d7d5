# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever root's start guard is, or runs, by a path of a person's choice is looked at by the preflight first."""

from __future__ import annotations

import pathlib
import re
import typing as t

import jinja2.nativetypes
import pytest
import yaml

PREFLIGHT = pathlib.Path(__file__).resolve().parents[3] / "roles" / "sglang_server" / "tasks" / "preflight.yml"


def root_files(**given: t.Any) -> list[str]:
    (variables,) = [
        task["vars"] for task in yaml.safe_load(PREFLIGHT.read_text(encoding="utf-8")) if "vars" in task
    ]  # fmt: skip
    environment = jinja2.nativetypes.NativeEnvironment(undefined=jinja2.StrictUndefined)
    environment.filters["bool"] = bool
    environment.tests["match"] = lambda value, pattern: re.match(pattern, value) is not None
    known: dict[str, t.Any] = {
        "__sglang_server_contained": False,
        "sglang_server_environment_files": ["/etc/sglang.env"],
        "sglang_server_guard": True,
        "sglang_server_guard_python": "/opt/guard/python3",
        "sglang_server_flock": "/opt/guard/flock",
        **given,
    }
    for name in ("__sglang_server_guard_smi", "__sglang_server_root_files"):
        known[name] = environment.from_string(variables[name]).render(known)
    return t.cast("list[str]", known["__sglang_server_root_files"])


@pytest.mark.parametrize(
    ("given", "smi"),
    [
        ({}, []),
        ({"gpu_release_nvidia_smi": "nvidia-smi"}, []),
        ({"gpu_release_nvidia_smi": "/home/bob/nvidia-smi"}, ["/home/bob/nvidia-smi"]),
    ],
)
def test_all_that_the_guard_runs_is_looked_at(given: dict[str, t.Any], smi: list[str]) -> None:
    programs = ["/opt/guard/python3", "/opt/guard/flock", *smi]
    assert root_files(**given) == ["/etc/sglang.env", *programs]
    assert root_files(**given, __sglang_server_contained=True) == programs
    assert root_files(**given, sglang_server_guard=False) == ["/etc/sglang.env"]
