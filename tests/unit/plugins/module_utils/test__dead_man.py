# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The timer that starts a stopped unit again, against a systemd of which only the answers are real."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._dead_man import DeadMan, check_names, timer_name

UNIT = "sglang.service"
TIMER = "cleanslate-dead-man-sglang.timer"


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_800_000_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Manager:
    """What systemctl and systemd-run do to transient units, as systemd 252 does it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loaded: dict[str, dict[str, str]] = {}
        self.calls: list[tuple[str, ...]] = []
        self.broken: dict[str, CommandResult] = {}

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        command = tuple(argv)
        self.calls.append(command)
        words = [word for word in command[1:] if not word.startswith("-")]
        what = "systemd-run" if command[0].endswith("systemd-run") else words[0]
        if what in self.broken:
            return self.broken[what]
        return t.cast(CommandResult, getattr(self, "_" + what.replace("-", "_"))(command))

    def done(self, command: tuple[str, ...], code: int = 0, stdout: str = "", stderr: str = "") -> CommandResult:
        return CommandResult(command, code, stdout, stderr, 0.01)

    def _show(self, command: tuple[str, ...]) -> CommandResult:
        about = self.loaded.get(command[-1], {"LoadState": "not-found", "ActiveState": "inactive"})
        return self.done(command, stdout="".join(f"{name}={value}\n" for name, value in about.items()))

    def _stop(self, command: tuple[str, ...]) -> CommandResult:
        there = self.loaded.pop(command[-1], None)
        return self.done(command, 0 if there else 5, stderr="" if there else f"Unit {command[-1]} not loaded.")

    def _reset_failed(self, command: tuple[str, ...]) -> CommandResult:
        return self.done(command, 1, stderr=f"Unit {command[-1]} not loaded.")

    def _systemd_run(self, command: tuple[str, ...]) -> CommandResult:
        given = dict(word[2:].split("=", 1) for word in command if word.startswith("--") and "=" in word)
        timer = given["unit"] + ".timer"
        if timer in self.loaded:
            return self.done(
                command, 1, stderr=f"Failed to start transient timer unit: Unit {timer} was already loaded."
            )
        self.loaded[timer] = {
            "LoadState": "loaded",
            "ActiveState": "active",
            "Description": given["description"],
            "ActiveEnterTimestampMonotonic": str(int(self.clock.now * 1e6)),
        }
        return self.done(command)

    def timer(self, unit: str = UNIT, **options: t.Any) -> DeadMan:
        return DeadMan(unit, self, self.clock, **options)

    def made(self) -> list[tuple[str, ...]]:
        return [call for call in self.calls if call[0].endswith("systemd-run")]


@pytest.fixture
def manager() -> Manager:
    return Manager()


def test_armed_with_the_systems_own_timer(manager: Manager) -> None:
    result = manager.timer().arm("run-1", 3600)
    assert (result.verdict, result.changed, result.failed) == ("armed", True, False)
    assert (result.timer, result.run_id, result.fires_in_s) == (TIMER, "run-1", 3600.0)
    assert result.fires_at == "2027-01-15T10:23:20Z"
    assert result.fires_at in result.reason
    (argv,) = manager.made()
    assert argv[argv.index("--") + 1 :] == ("systemctl", "--no-block", "start", UNIT)
    assert {"--unit=cleanslate-dead-man-sglang", "--on-active=3600", "--collect"} <= set(argv)
    assert "--user" not in argv


def test_the_timers_start_is_not_one_of_too_many(manager: Manager) -> None:
    manager.timer().arm("run-1", 3600)
    assert ("systemctl", "reset-failed", "--", UNIT) in manager.calls[: manager.calls.index(manager.made()[0])]


def test_arming_again_replaces_it(manager: Manager) -> None:
    manager.timer().arm("run-1", 3600)
    manager.clock.now += 600
    shown = manager.timer().show()
    assert (shown.run_id, shown.fires_in_s) == ("run-1", 3000.0)
    again = manager.timer().arm("run-2", 1800)
    assert (again.verdict, again.run_id, again.fires_in_s) == ("armed", "run-2", 1800.0)
    assert list(manager.loaded) == [TIMER]


def test_disarmed(manager: Manager) -> None:
    manager.timer().arm("run-1", 3600)
    result = manager.timer().disarm("run-1")
    assert (result.verdict, result.changed) == ("disarmed", True)
    assert manager.loaded == {}
    again = manager.timer().disarm("run-1")
    assert (again.verdict, again.changed, again.failed) == ("not_armed", False, False)


def test_the_timer_of_another_run_is_left_alone(manager: Manager) -> None:
    manager.timer().arm("run-2", 3600)
    result = manager.timer().disarm("run-1")
    assert (result.verdict, result.changed, result.failed, result.run_id) == ("armed", False, False, "run-2")
    assert "run-2" in result.reason
    assert TIMER in manager.loaded
    assert manager.timer().disarm().verdict == "disarmed", "a person who stops the server means anybody's"


def test_each_instance_has_its_own(manager: Manager) -> None:
    manager.timer("sglang@left.service").arm("run-1", 3600)
    manager.timer("sglang@right.service").arm("run-1", 3600)
    manager.timer("sglang@left.service").disarm()
    assert list(manager.loaded) == ["cleanslate-dead-man-sglang\\x40right.timer"]
    assert timer_name("sglang@left.service") != timer_name("sglang-left.service")


def test_check_mode_changes_nothing(manager: Manager) -> None:
    would = manager.timer().arm("run-1", 3600, check_mode=True)
    assert (would.verdict, would.changed) == ("would_arm", True)
    assert manager.loaded == {}
    manager.timer().arm("run-1", 3600)
    would = manager.timer().arm("run-2", 3600, check_mode=True)
    assert "in place of that of run run-1" in would.reason
    would = manager.timer().disarm("run-1", check_mode=True)
    assert (would.verdict, would.changed) == ("would_disarm", True)
    assert manager.timer().show().run_id == "run-1"


GUARD = "/usr/local/lib/cleanslate/sglang.pyz"
RUNS_GUARD = (
    f"{{ path=/usr/bin/python3 ; argv[]=/usr/bin/python3 -I {GUARD} --unit={UNIT} ; ignore_errors=no ; "
    "start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"
)


RUNS_ANOTHER = RUNS_GUARD.replace(GUARD, "/opt/site/notify.py")


@pytest.mark.parametrize(
    "before", [RUNS_GUARD, f"{RUNS_ANOTHER}\nExecStartPre={RUNS_GUARD}", f"{RUNS_GUARD}\nExecStartPre={RUNS_ANOTHER}"]
)
def test_a_unit_that_runs_its_guard_gets_its_timer(manager: Manager, before: str) -> None:
    manager.loaded[UNIT] = {"LoadState": "loaded", "ActiveState": "active", "ExecStartPre": before}
    assert manager.timer().arm("run-1", 3600, guard=GUARD).verdict == "armed"


@pytest.mark.parametrize(
    "unit",
    [
        {},
        {"LoadState": "loaded", "ExecStartPre": ""},
        {"LoadState": "loaded", "ExecStartPre": RUNS_GUARD.replace("sglang.pyz", "other.pyz")},
        {"LoadState": "loaded", "ExecStartPre": RUNS_GUARD.replace(GUARD, GUARD + ".staged")},
        {"LoadState": "loaded", "ExecStartPre": RUNS_GUARD.replace("errors=no", "errors=yes")},
        {"LoadState": "loaded", "ExecStartPre": RUNS_GUARD.replace("errors=no", "errors=yes") + f"\n{RUNS_ANOTHER}"},
        {"LoadState": "loaded", "ExecStartPre": RUNS_GUARD.replace(" -I ", " /opt/site/notify.py --about ")},
        {"LoadState": "loaded", "ExecStartPre": RUNS_GUARD.replace("/usr/bin/python3 -I", "/usr/bin/test -e")},
        {
            "LoadState": "loaded",
            "ExecStartPre": RUNS_GUARD.replace("errors=no", "errors=yes").replace(UNIT, "x ; ignore_errors=no"),
        },
        {"LoadState": "loaded", "ExecStartPre": GUARD},
        {"LoadState": "loaded", "ExecStartPre": f"argv[]=/usr/bin/python3 -I {GUARD}"},
    ],
)
def test_what_would_start_without_the_guard_is_not_started_unattended(manager: Manager, unit: dict[str, str]) -> None:
    """A unit that somebody wrote by hand, one that is not there, one of which systemd knows an older file, one that
    starts whatever its guard says, and one that only names it."""
    if unit:
        manager.loaded[UNIT] = {"ActiveState": "active", **unit}
    result = manager.timer().arm("run-1", 3600, guard=GUARD)
    assert (result.verdict, result.changed, result.failed) == ("unguarded", False, False)
    assert manager.made() == []
    for text in (GUARD, UNIT, "stays down until relaunch.yml or start.yml is run again"):
        assert text in result.reason


def test_an_earlier_timer_for_it_goes_too(manager: Manager) -> None:
    manager.timer().arm("run-1", 3600)
    would = manager.timer().arm("run-2", 3600, check_mode=True, guard=GUARD)
    assert (would.verdict, would.changed, TIMER in manager.loaded) == ("unguarded", True, True)
    result = manager.timer().arm("run-2", 3600, guard=GUARD)
    assert (result.verdict, result.changed, TIMER in manager.loaded) == ("unguarded", True, False)
    manager.timer().arm("run-3", 3600)
    manager.broken["stop"] = CommandResult(("systemctl", "stop"), 1, "", "Connection timed out", 0.1)
    stuck = manager.timer().arm("run-4", 3600, guard=GUARD)
    assert (stuck.verdict, stuck.failed, stuck.run_id) == ("armed", True, "run-3")


def test_what_systemd_refuses_is_told_before_anything_is_stopped(manager: Manager) -> None:
    manager.broken["systemd-run"] = CommandResult(("systemd-run",), 1, "", "Access denied", 0.1)
    result = manager.timer().arm("run-1", 3600)
    assert (result.verdict, result.failed) == ("not_armed", True)
    for text in ("Access denied", UNIT, "before anything is stopped"):
        assert text in result.reason


def test_a_timer_that_is_not_there_afterwards_is_not_armed(manager: Manager) -> None:
    manager.broken["systemd-run"] = CommandResult(("systemd-run",), 0, "", "", 0.1)
    result = manager.timer().arm("run-1", 3600)
    assert (result.verdict, result.failed) == ("not_armed", True)


def test_one_that_cannot_be_disarmed_is_told_with_the_command_that_ends_it(manager: Manager) -> None:
    manager.timer().arm("run-1", 3600)
    manager.broken["stop"] = CommandResult(("systemctl", "stop"), 1, "", "Connection timed out", 0.1)
    result = manager.timer().disarm("run-1")
    assert (result.verdict, result.failed, result.changed) == ("armed", True, False)
    for text in ("Connection timed out", f"systemctl stop '{TIMER}'"):
        assert text in result.reason


@pytest.mark.parametrize(
    "answer",
    [
        CommandResult(("systemctl",), None, "", "", 30.0, timed_out=True),
        CommandResult(("systemctl",), 1, "", "Failed to get properties: Connection timed out", 25.0),
        CommandResult(("systemctl",), 0, "", "", 0.1),
    ],
)
def test_a_systemd_that_does_not_answer_has_not_said_that_none_is_armed(
    manager: Manager, answer: CommandResult
) -> None:
    """Whoever stops the server on the strength of it would have it started again behind him."""
    manager.timer().arm("run-1", 3600)
    manager.broken["show"] = answer
    for result in (
        manager.timer().show(),
        manager.timer().disarm("run-1", check_mode=True),
        manager.timer().disarm("run-1"),
    ):
        assert (result.verdict, result.failed, result.changed) == ("armed", True, False)
        assert f"systemctl stop '{TIMER}' there ends it" in result.reason
    assert TIMER in manager.loaded
    assert manager.timer().arm("run-2", 3600).verdict == "not_armed"


def test_nor_is_one_disarmed_where_it_did_not_say_so_afterwards(manager: Manager) -> None:
    manager.timer().arm("run-1", 3600)
    stop = manager._stop

    def then_hang(command: tuple[str, ...]) -> CommandResult:
        manager.broken["show"] = CommandResult(("systemctl",), None, "", "", 30.0, timed_out=True)
        return stop(command)

    manager._stop = then_hang  # type: ignore[method-assign]
    result = manager.timer().disarm("run-1")
    assert (result.verdict, result.failed) == ("armed", True)


NO_BUS = CommandResult(("systemd-run",), 1, "", "Failed to connect to bus: No medium found\n", 0.1)
NO_TOOL = CommandResult(("systemd-run",), None, "", "", 0.0, error="not_found")


@pytest.mark.parametrize(
    ("options", "answer"),
    [({"booted": False}, None), ({"scope": "user"}, NO_BUS), ({"scope": "user"}, NO_TOOL), ({}, NO_TOOL)],
)
def test_where_nothing_can_keep_the_time_it_is_said_and_is_no_failure(
    manager: Manager, options: dict[str, t.Any], answer: CommandResult | None
) -> None:
    if answer is not None:
        manager.broken["systemd-run"] = answer
    result = manager.timer(**options).arm("run-1", 3600)
    assert (result.verdict, result.failed, result.changed) == ("unsupported", False, False)
    assert "leaves it stopped" in result.reason


def test_no_bus_of_the_system_is_a_failure(manager: Manager) -> None:
    manager.broken["systemd-run"] = NO_BUS
    assert manager.timer().arm("run-1", 3600).failed


def test_without_systemd_nothing_is_run(manager: Manager) -> None:
    for act in (lambda timer: timer.disarm("run-1"), lambda timer: timer.show()):
        assert act(manager.timer(booted=False)).verdict == "unsupported"
    assert manager.calls == []


def test_a_users_own_systemd(manager: Manager) -> None:
    assert manager.timer(scope="user").arm("run-1", 3600).verdict == "armed"
    (argv,) = manager.made()
    assert argv[1] == "--user"
    assert argv[argv.index("--") + 1 :] == ("systemctl", "--user", "--no-block", "start", UNIT)


def test_one_that_somebody_else_made_is_shown_without_its_run(manager: Manager) -> None:
    manager.loaded[TIMER] = {"LoadState": "loaded", "ActiveState": "active", "Description": "mine"}
    shown = manager.timer().show()
    assert (shown.verdict, shown.run_id, shown.fires_at) == ("armed", None, None)


@pytest.mark.parametrize(
    ("unit", "run_id", "after", "words"),
    [
        ("sglang", None, None, "unit is 'sglang'"),
        ("-x.service", None, None, "'-x.service'"),
        ("a b.service", None, None, "'a b.service'"),
        ("../x.service", None, None, "'../x.service'"),
        (UNIT, "a b", 60, "run_id is 'a b'"),
        (UNIT, "", 60, "run_id is ''"),
        (UNIT, "run-1", 4, "after is 4"),
        (UNIT, "run-1", 604801, "after is 604801"),
    ],
)
def test_options_that_cannot_be_meant(unit: str, run_id: str | None, after: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", "\\(")):
        check_names(unit, run_id, after)
