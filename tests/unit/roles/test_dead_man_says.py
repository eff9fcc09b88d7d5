# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a failed relaunch says of its dead-man timer: a rescue is promised only where one is still to come."""

from __future__ import annotations

import pathlib
import typing as t

import jinja2
import pytest
import yaml

VARIABLES = pathlib.Path(__file__).resolve().parents[3] / "roles" / "sglang_server" / "vars" / "main.yml"
DUE = "2026-11-30T03:20:00Z"
ARMED = {"verdict": "armed", "fires_at": DUE}
PROMISE = (
    f" Its dead-man timer starts sglang.service again at {DUE}, through its start guard, unless somebody does before."
)
BEFORE, AFTER = "2026-11-30T03:19:59Z", "2026-11-30T03:45:00Z"


def says(now: str, timer: t.Any = None, disarmed: t.Any = None) -> str:
    source = yaml.safe_load(VARIABLES.read_text(encoding="utf-8"))["__sglang_server_dead_man_says"]
    known = {"sglang_server_dead_man_timer": timer, "sglang_server_disarmed": disarmed}
    return (
        jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
        .from_string(source)
        .render(
            sglang_server_unit="sglang.service",
            now=lambda utc, fmt: now,
            **{name: value for name, value in known.items() if value is not None},
        )
    )


@pytest.mark.parametrize("disarmed", [None, {"skipped": True}, {"unreachable": True}, {"verdict": "armed"}])
def test_what_nobody_disarmed_is_promised_until_it_is_due(disarmed: t.Any) -> None:
    assert says(BEFORE, ARMED, disarmed) == PROMISE
    for now in (DUE, AFTER):
        assert says(now, ARMED, disarmed) == f" Its dead-man timer was due at {DUE} and starts nothing any more."


@pytest.mark.parametrize("now", [BEFORE, AFTER])
def test_one_that_was_gone_before_it_was_disarmed_has_done_its_work(now: str) -> None:
    said = says(now, ARMED, {"verdict": "not_armed"})
    assert "it has fired, and systemd was told to start sglang.service" in said
    assert DUE in said


@pytest.mark.parametrize("now", [BEFORE, AFTER])
def test_what_was_never_armed_or_is_disarmed_is_not_mentioned(now: str) -> None:
    assert says(now) == ""
    for timer in ({"skipped": True}, {"verdict": "unguarded"}, {"verdict": "unsupported"}, {"unreachable": True}):
        assert says(now, timer, {"skipped": True}) == ""
    assert says(now, ARMED, {"verdict": "disarmed"}) == ""
