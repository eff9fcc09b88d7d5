# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult, CommandRunner
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import Check
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_unit import unit_syntax
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.launch_world import LaunchWorld

TEXT = "[Service]\nType=exec\nExecStart=/opt/sglang/bin/python -m sglang.launch_server\n"


def look(world: LaunchWorld, said: str = "", code: int | None = 0, **changes: t.Any) -> tuple[Check, list[list[str]]]:
    """systemd-analyze in memory; FILE in what it says is the path that it was given."""
    calls: list[list[str]] = []

    def run(argv: t.Sequence[str], timeout: float) -> CommandResult:
        calls.append(list(argv))
        path = argv[-1]
        calls.append([pathlib.Path(path).read_text()])
        return CommandResult(tuple(argv), code, "", said.replace("FILE", path), 0.0, **changes)

    context = world.context(unit="sglang@left.service", unit_text=TEXT)
    return unit_syntax(dataclasses.replace(context, runner=run)), calls


@pytest.fixture
def world(tmp_path: pathlib.Path) -> LaunchWorld:
    return LaunchWorld(tmp_path)


def test_it_is_verified_under_its_own_name(world: LaunchWorld) -> None:
    found, calls = look(world)
    assert found.ok is True
    assert calls[0][:3] == ["systemd-analyze", "verify", "--man=no"]
    assert os.path.basename(calls[0][-1]) == "sglang@left.service"
    assert calls[1] == [TEXT]
    assert not os.path.exists(calls[0][-1]), "nothing is left behind"


@pytest.mark.parametrize(
    ("said", "ok"),
    [
        ('FILE:8: Unbalanced quoting, ignoring: "x\n', False),
        ("FILE:5: Failed to parse time value, ignoring: abc\n", False),
        ("sglang@left.service: Unit configuration has fatal error, unit will not be started.\n", False),
        ("sglang@left.service: Command /opt/sglang/bin/python is not executable: No such file or directory\n", True),
        ("FILE:4: Unknown key 'New' in section [Service], ignoring.\n", True),
        ("/etc/systemd/system/other.service:3: Failed to parse time value, ignoring: x\n", True),
    ],
)
def test_what_it_says(said: str, ok: bool, world: LaunchWorld) -> None:
    found, _calls = look(world, said, 1)
    assert found.ok is ok, found
    assert "/tmp" not in found.detail


@pytest.mark.parametrize(
    "changes",
    [
        {"code": None, "error": "not_found"},
        {"code": None, "timed_out": True},
        {"code": None, "error": "x"},
        {"code": 5},
    ],
)
def test_what_cannot_be_told(changes: dict[str, t.Any], world: LaunchWorld) -> None:
    assert look(world, **changes)[0].ok is None


@pytest.mark.parametrize(
    ("said", "changes", "detail"),
    [
        ("", {"code": None, "error": "no rights"}, "systemd-analyze could not be run: no rights"),
        ("", {"code": None, "timed_out": True}, "systemd-analyze could not be run: it did not end within 60 s"),
        ("x" * 400, {"code": 5}, f"systemd-analyze ended with exit code 5: {'x' * 300}"),
        (
            "".join(f"FILE:{n}: Failed to parse\n" for n in range(9)),
            {"code": 1},
            "systemd-analyze says: " + "; ".join(f"sglang@left.service:{n}: Failed to parse" for n in range(8)),
        ),
    ],
)
def test_what_is_told(said: str, changes: dict[str, t.Any], detail: str, world: LaunchWorld) -> None:
    assert look(world, said, **changes)[0].detail == detail


def test_without_a_text(world: LaunchWorld) -> None:
    found, without = unit_syntax(world.context()), unit_syntax(world.node.context())
    assert (found.ok, found.detail) == (None, "no text of a unit was given")
    assert (without.ok, without.detail) == (None, "no launch profile was given")


def test_the_real_one(world: LaunchWorld) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    runner = CommandRunner(SystemClock())
    good = dataclasses.replace(world.context(unit="sglang.service", unit_text=TEXT), runner=runner)
    assert unit_syntax(good).ok is True
    bad = dataclasses.replace(
        world.context(unit="sglang.service", unit_text=TEXT + 'ExecStop=/bin/x "y\n'), runner=runner
    )
    assert "sglang.service:4: Unbalanced quoting" in unit_syntax(bad).detail
