# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _unit_files, _unit_start
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

UNIT, BOOT = "sglang.service", "b007"
OURS, EARLIER = "1" * 32, "2" * 32
DOWN = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "NeedDaemonReload": "no"}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + 1e9

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Manager:
    """systemctl as a runner: what it was asked in order, and what was live at the time of the start."""

    def __init__(self, clock: Clock, live: pathlib.Path, **state: str) -> None:
        self.clock, self.live = clock, live
        self.state: dict[str, str] | None = {**DOWN, "UnitFileState": "enabled", "InvocationID": OURS, **state}
        self.calls: list[str] = []
        self.fails: dict[str, str] = {}
        self.started_with = ""
        self.guard: t.Callable[[], None] = lambda: None

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        verb = next(word for word in argv[1:] if not word.startswith("-"))
        self.clock.now += 0.5
        if verb == "show":
            names = next(word for word in argv if word.startswith("--property=")).partition("=")[2].split(",")
            state = self.state or {}
            text = "".join(f"{name}={state[name]}\n" for name in names if name in state)
            return CommandResult(tuple(argv), 0 if state else 1, text, "", 0.5)
        self.calls.append(f"{verb} {timeout:.0f}" if verb == "start" else verb)
        if verb == "start":
            self.started_with = self.live.read_text()
            self.guard()
        said = self.fails.get(verb)
        return CommandResult(tuple(argv), 0 if said is None else 1, "", said or "", 0.5)


@pytest.fixture
def live(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / UNIT
    path.write_text("old\n")
    return path


def start(manager: Manager, *, staged: bool = True, **options: t.Any) -> _unit_start.StartResult:
    path = str(manager.live)
    if staged:
        _unit_files.stage([_unit_files.UnitFile(path, b"new\n")])
    request = _unit_start.StartRequest(UNIT, timeout=700, files=(path,), **options)
    return _unit_start.start_unit(Systemd(manager), request, manager.clock, BOOT)


def report(folder: pathlib.Path, manager: Manager, **fields: t.Any) -> str:
    path = folder / "guard.json"
    said = {"verdict": "refused", "reason": "GPU 3 holds 5000 MiB", "boot_id": BOOT, "invocation_id": OURS}
    path.write_text(json.dumps({**said, "started_at": manager.clock.wall(), **fields}))
    return str(path)


def test_new_files_are_live_and_known_to_systemd_before_the_start(live: pathlib.Path) -> None:
    manager = Manager(Clock(), live)
    result = start(manager)
    assert (result.verdict, result.swapped, result.reloaded) == ("started", (str(live),), True)
    assert manager.calls == ["daemon-reload", "reset-failed", "start 700"]
    assert manager.started_with == "new\n"
    assert result.seconds == 2.0


def test_where_nothing_changed_systemd_need_not_read_all_units(live: pathlib.Path) -> None:
    manager = Manager(Clock(), live)
    result = start(manager, staged=False)
    assert (result.verdict, result.swapped, result.reloaded) == ("started", (), False)
    assert manager.calls == ["reset-failed", "start 700"]


@pytest.mark.parametrize("needs", ["yes", None])
def test_a_unit_that_was_edited_by_hand_is_read_anew(needs: str | None, live: pathlib.Path) -> None:
    manager = Manager(Clock(), live)
    assert manager.state is not None
    del manager.state["NeedDaemonReload"]
    if needs:
        manager.state["NeedDaemonReload"] = needs
    assert start(manager, staged=False).verdict == "started"
    assert manager.calls == ["daemon-reload", "reset-failed", "start 700"]


@pytest.mark.parametrize(("state", "asked"), [("disabled", True), ("", True), ("enabled", False), ("static", False)])
def test_it_is_enabled_where_it_is_not(state: str, asked: bool, live: pathlib.Path) -> None:
    manager = Manager(Clock(), live, UnitFileState=state)
    assert start(manager, staged=False, enable=True).enabled == asked
    assert manager.calls == [*(["enable"] if asked else []), "reset-failed", "start 700"]
    manager.calls.clear()
    assert not start(manager, staged=False).enabled
    assert manager.calls == ["reset-failed", "start 700"]


def test_an_ordered_start_is_not_one_of_too_many(live: pathlib.Path) -> None:
    """systemd counts every start, those that a person orders too, and refuses the fourth within four hours."""
    manager = Manager(Clock(), live)
    begun: list[int] = []

    def count() -> None:
        since = len(manager.calls) - manager.calls[::-1].index("reset-failed") if "reset-failed" in manager.calls else 0
        begun[:] = [one for one in begun if one > since] + [len(manager.calls)]
        if len(begun) > 3:
            manager.fails["start"] = "start request repeated too quickly"

    manager.guard = count
    for dummy in range(5):
        assert start(manager, staged=False).verdict == "started"


def test_an_attempt_that_systemd_is_about_to_make_itself_is_ended_first(live: pathlib.Path) -> None:
    """It is nobody's server, and would come up with the files that are there now."""
    manager = Manager(Clock(), live, ActiveState="activating", SubState="auto-restart")
    assert start(manager).verdict == "started"
    assert manager.calls == ["stop", "daemon-reload", "reset-failed", "start 700"]
    assert manager.started_with == "new\n"


def test_where_that_attempt_cannot_be_ended_nothing_is_swapped(live: pathlib.Path) -> None:
    manager = Manager(Clock(), live, ActiveState="activating", SubState="auto-restart")
    manager.fails["stop"] = "Access denied"
    result = start(manager)
    assert (result.verdict, live.read_text(), manager.calls) == ("unprepared", "old\n", ["stop"])
    assert "Access denied" in result.reason
    assert "stop.yml" in result.reason


@pytest.mark.parametrize("state", ["active", "activating", "reloading"])
def test_what_somebody_else_started_keeps_its_files(state: str, live: pathlib.Path) -> None:
    manager = Manager(Clock(), live, ActiveState=state)
    result = start(manager)
    assert (result.verdict, result.failed) == ("already_active", True)
    assert "something else starts it" in result.reason
    assert (live.read_text(), manager.calls) == ("old\n", [])


@pytest.mark.parametrize(
    ("since", "verdict"), [(-0.1, "already_active"), (0.0, "started"), (0.2, "started"), (None, "started")]
)
def test_a_server_that_somebody_started_in_between_is_not_ours(
    since: float | None, verdict: str, live: pathlib.Path
) -> None:
    """systemctl start says 0 to a unit that runs; since: when it left inactive, from our order on."""
    manager = Manager(Clock(), live)

    def started() -> None:
        assert manager.state is not None
        if since is not None:
            # The order itself takes half a second here.
            manager.state[_unit_start.LEFT_INACTIVE] = f"{(manager.clock.now - 0.5 + since) * 1e6:.0f}"

    manager.guard = started
    result = start(manager)
    assert (result.verdict, result.failed, result.swapped) == (verdict, verdict != "started", (str(live),))
    if verdict != "started":
        assert "0.1 s before this run ordered it" in result.reason


def test_a_silent_systemd_changes_nothing(live: pathlib.Path) -> None:
    manager = Manager(Clock(), live)
    manager.state = None
    result = start(manager)
    assert (result.verdict, result.swapped) == ("unprepared", ())
    assert "systemd did not answer" in result.reason
    assert (live.read_text(), manager.calls) == ("old\n", [])


def test_files_that_cannot_be_swapped_start_nothing(live: pathlib.Path) -> None:
    manager = Manager(Clock(), live)
    live.with_name(f"{UNIT}.previous").mkdir()
    result = start(manager)
    assert (result.verdict, result.swapped, manager.calls) == ("unprepared", (), [])
    assert "every file is as it was before" in result.reason


@pytest.mark.parametrize("verb", ["daemon-reload", "enable"])
def test_what_was_swapped_is_told_where_nothing_was_started(verb: str, live: pathlib.Path) -> None:
    manager = Manager(Clock(), live, UnitFileState="disabled")
    manager.fails[verb] = "Access denied"
    result = start(manager, enable=True)
    assert (result.verdict, result.swapped) == ("unprepared", (str(live),))
    assert f"{UNIT} was not started" in result.reason
    assert "Access denied" in result.reason
    assert "start 700" not in manager.calls


def test_a_refusal_is_told_in_the_guards_words(live: pathlib.Path, tmp_path: pathlib.Path) -> None:
    manager = Manager(Clock(), live)
    manager.fails["start"] = "Job for sglang.service failed"
    manager.guard = lambda: t.cast(None, report(tmp_path, manager))
    result = start(manager, guard_report=str(tmp_path / "guard.json"))
    assert (result.verdict, result.swapped) == ("refused", (str(live),))
    assert result.reason == f"{UNIT} was not started: GPU 3 holds 5000 MiB"


@pytest.mark.parametrize(
    "fields",
    [
        {"invocation_id": EARLIER},  # the guard of this start ended before it could write
        {"invocation_id": "", "started_at": 0},
        {"boot_id": "another"},
        {"verdict": "start"},
        {"verdict": "waiting"},
    ],
)
def test_systemds_words_where_the_guard_said_nothing_of_this_start(
    fields: dict[str, t.Any], live: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    manager = Manager(Clock(), live)
    manager.fails["start"] = "Job for sglang.service failed"
    result = start(manager, guard_report=report(tmp_path, manager, **fields))
    assert result.verdict == "failed"
    assert "Job for sglang.service failed" in result.reason
    assert "5000 MiB" not in result.reason


def test_where_systemd_names_no_runs_the_time_tells_which_start_it_was(
    live: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    manager = Manager(Clock(), live, InvocationID="")
    manager.fails["start"] = "failed"
    old = report(tmp_path, manager, started_at=manager.clock.wall() - 60)
    assert start(manager, guard_report=old).verdict == "failed"
    manager.guard = lambda: t.cast(None, report(tmp_path, manager))
    assert start(manager, guard_report=old).verdict == "refused"


def test_check_mode_says_what_would_be_swapped_and_touches_nothing(live: pathlib.Path) -> None:
    manager = Manager(Clock(), live, ActiveState="active")
    _unit_files.stage([_unit_files.UnitFile(str(live), b"new\n")])
    request = _unit_start.StartRequest(UNIT, timeout=1, files=(str(live),))
    result = _unit_start.would_start(Systemd(manager), request)
    assert (result.verdict, result.failed, result.swapped) == ("would_start", False, (str(live),))
    assert (live.read_text(), manager.calls) == ("old\n", [])
