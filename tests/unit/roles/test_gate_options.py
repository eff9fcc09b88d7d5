# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person sets for the gate holds wherever the gate is asked: a place that leaves an option out obeys the default
of the module instead, and says nothing."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
GATE, RELEASE = "cleanslate.gpu.gpu_wait_idle", "cleanslate.gpu.gpu_force_release"
# Options of the gate that are options of the role too.
LOOKS = {"max_used_mib", "settled_mib"}  # what counts in a single look
WAITS = LOOKS | {"samples", "timeout"}


class Asked(t.NamedTuple):
    """One task that asks the gate, and what it passes on."""

    where: str
    options: t.Mapping[str, t.Any]
    waits: bool


def _tasks(document: t.Any) -> t.Iterator[dict[str, t.Any]]:
    for task in document or ():
        yield task
        for part in ("block", "rescue", "always"):
            yield from _tasks(task.get(part))


def _asked() -> t.Iterator[Asked]:
    for path in sorted(ROLES.glob("*/tasks/*.yml")):
        for task in _tasks(yaml.safe_load(path.read_text(encoding="utf-8"))):
            name = str(path.relative_to(ROLES))
            for module in (GATE, RELEASE):
                if module in task:
                    yield Asked(f"{name}: {task['name']}", task[module], task.get("check_mode") is not True)
            for module, options in task.items():
                if module.startswith("cleanslate.gpu.") and isinstance(options.get("gate"), dict):
                    yield Asked(f"{name}: {task['name']}", options["gate"], False)


ASKED = tuple(_asked())


def test_the_places_are_found() -> None:
    assert {one.where.partition(":")[0] for one in ASKED} == {
        "gpu_idle/tasks/gate.yml",
        "gpu_release/tasks/release.yml",
        "gpu_drift/tasks/look_at_node.yml",
        "gpu_drift/tasks/look_further.yml",
    }


@pytest.mark.parametrize("one", ASKED, ids=lambda one: one.where)
def test_every_option_of_the_gate_is_passed_on(one: Asked) -> None:
    wanted = WAITS if one.waits else LOOKS
    assert wanted <= set(one.options)


def test_a_release_that_waits_itself_is_told_all_of_them() -> None:
    told = yaml.safe_load((ROLES / "gpu_idle" / "vars" / "main.yml").read_text(encoding="utf-8"))["__gpu_idle_options"]
    for option in WAITS:
        assert f"'{option}': gpu_idle_{option}" in told
    (release,) = (one for one in ASKED if one.where.startswith("gpu_release/"))
    for option in WAITS:
        assert f"__gpu_release_gate | default({{}})).{option} " in release.options[option]
