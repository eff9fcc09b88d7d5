# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import (
    Systemd,
    is_ended,
    restarts_itself,
    what_it_said,
)


class Runner:
    """Answers by the argv's last words, and keeps what it was asked."""

    def __init__(self, answer: t.Callable[[tuple[str, ...]], CommandResult]) -> None:
        self.answer = answer
        self.asked: list[tuple[tuple[str, ...], float]] = []

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        self.asked.append((tuple(argv), timeout))
        return self.answer(tuple(argv))


def said(stdout: str = "", exit_code: int | None = 0, **fields: t.Any) -> CommandResult:
    return CommandResult(("systemctl",), exit_code, stdout, fields.pop("stderr", ""), 0.1, **fields)


def units(states: t.Mapping[str, str]) -> Runner:
    """A systemd that knows these units, each as "LoadState ActiveState"."""

    def answer(argv: tuple[str, ...]) -> CommandResult:
        blocks = []
        for unit in argv[argv.index("--") + 1 :]:
            load, active = states.get(unit, "not-found inactive").split()
            blocks.append(f"LoadState={load}\nActiveState={active}\n")
        return said("\n".join(blocks))

    return Runner(answer)


@pytest.mark.parametrize(
    ("state", "active"),
    [
        ("loaded active", True),
        ("loaded activating", True),
        ("loaded deactivating", True),
        ("loaded reloading", True),
        ("loaded inactive", False),
        ("loaded failed", False),
        ("masked inactive", False),
        ("not-found failed", False),
        ("not-found active", True),
        ("not-found inactive", None),
        ("loaded strange", None),
    ],
)
def test_active(state: str, active: bool | None) -> None:
    assert Systemd(units({"a.service": state})).active(["a.service"]) == {"a.service": active}


def test_several_units_are_asked_for_at_once() -> None:
    runner = units({"a.service": "loaded active", "b.service": "loaded failed"})
    assert Systemd(runner).active(["a.service", "b.service"]) == {"a.service": True, "b.service": False}
    assert len(runner.asked) == 1


def test_nothing_to_ask_is_not_asked() -> None:
    runner = units({})
    assert Systemd(runner).active([]) == {}
    assert runner.asked == []


@pytest.mark.parametrize("names", [["a.service"], ["a.service", "b.service", "c.service"]])
def test_a_systemd_that_does_not_answer_is_waited_for_once(names: list[str]) -> None:
    """Each wait takes half a minute, in which nobody is served."""
    runner = Runner(lambda argv: said(exit_code=None, timed_out=True))
    assert Systemd(runner).show(names, ["ActiveState"]) == {}
    assert Systemd(runner).active(names) == dict.fromkeys(names)
    assert len(runner.asked) == 2


def test_one_that_stops_answering_half_way_has_said_what_it_said() -> None:
    def answer(argv: tuple[str, ...]) -> CommandResult:
        names = argv[argv.index("--") + 1 :]
        if len(names) > 1:
            return said(exit_code=1)
        return said("ActiveState=active\n") if names[0] == "a.service" else said(exit_code=None, timed_out=True)

    runner = Runner(answer)
    assert Systemd(runner).show(["a.service", "b.service", "c.service"], ["ActiveState"]) == {
        "a.service": {"ActiveState": "active"}
    }
    assert len(runner.asked) == 3


@pytest.mark.parametrize(
    ("said_of_it", "pids"), [("4711", {4711: "a.service"}), ("0", {}), ("", {}), ("[not set]", {}), ("-1", {})]
)
def test_a_main_process_is_one_that_has_a_number(said_of_it: str, pids: dict[int, str]) -> None:
    assert Systemd(Runner(lambda argv: said(f"MainPID={said_of_it}\n"))).main_pids(["a.service"]) == pids


def test_the_same_question_about_one_unit_is_not_asked_twice() -> None:
    runner = Runner(lambda argv: said(exit_code=1))
    assert Systemd(runner).show(["a.service"], ["ActiveState"]) == {}
    assert len(runner.asked) == 1


def test_answers_that_do_not_fit_the_questions_are_asked_for_one_by_one() -> None:
    def answer(argv: tuple[str, ...]) -> CommandResult:
        names = argv[argv.index("--") + 1 :]
        return said("ActiveState=active\n" if len(names) == 1 and names[0] == "b.service" else "")

    assert Systemd(Runner(answer)).show(["a.service", "b.service"], ["ActiveState"]) == {
        "b.service": {"ActiveState": "active"}
    }


@pytest.mark.parametrize(
    "result",
    [
        said(exit_code=1, stderr="System has not been booted with systemd"),
        said(exit_code=None, error="not_found"),
        said(exit_code=None, timed_out=True),
    ],
)
def test_no_answer_is_neither_active_nor_ended(result: CommandResult) -> None:
    assert Systemd(Runner(lambda argv: result)).active(["a.service"]) == {"a.service": None}


def test_values_may_hold_an_equals_sign() -> None:
    runner = Runner(lambda argv: said("ExecStart={ path=/bin/x ; argv[]=/bin/x }\n"))
    assert Systemd(runner).show(["a.service"], ["ExecStart"])["a.service"]["ExecStart"].startswith("{ path=/bin/x")


@pytest.mark.parametrize(
    ("act", "argv", "timeout"),
    [
        (lambda s: s.stop("a.service", 9.0), "systemctl stop -- a.service", 9.0),
        (lambda s: s.stop("a.service", 9.0, block=False), "systemctl stop --no-block -- a.service", 9.0),
        (lambda s: s.start("a.service", 8.0), "systemctl start -- a.service", 8.0),
        (lambda s: s.kill("a.service", "SIGKILL"), "systemctl kill --signal=SIGKILL -- a.service", 30.0),
        (lambda s: s.reset_failed("a.service"), "systemctl reset-failed -- a.service", 30.0),
    ],
)
def test_what_is_run(act: t.Callable[[Systemd], CommandResult], argv: str, timeout: float) -> None:
    runner = Runner(lambda argv: said())
    act(Systemd(runner))
    assert runner.asked == [(tuple(argv.split()), timeout)]


def test_a_users_systemd() -> None:
    runner = Runner(lambda argv: said())
    Systemd(runner, "user", "/bin/sc").stop("a.service", 1.0)
    assert runner.asked[0][0] == ("/bin/sc", "--user", "stop", "--", "a.service")


@pytest.mark.parametrize(
    ("result", "hangs"), [(said("Version=252"), False), (said(exit_code=None, timed_out=True), True)]
)
def test_hangs(result: CommandResult, hangs: bool) -> None:
    assert Systemd(Runner(lambda argv: result)).hangs() is hangs


@pytest.mark.parametrize(("state", "ended"), [("inactive", True), ("failed", True), ("active", False), ("", False)])
def test_is_ended(state: str, ended: bool) -> None:
    assert is_ended({"ActiveState": state}) is ended


@pytest.mark.parametrize(
    ("answer", "restarts"), [({"Restart": "no"}, False), ({"Restart": "always"}, True), ({}, True)]
)
def test_restarts_itself(answer: dict[str, str], restarts: bool) -> None:
    assert restarts_itself(answer) is restarts


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (said(exit_code=None, error="not_found"), "there is no such command"),
        (said(exit_code=None, error="Text file busy"), "Text file busy"),
        (said(exit_code=None, timed_out=True), "no end after"),
        (said(exit_code=5, stderr="Unit a.service\nnot loaded.\n"), "exit code 5, Unit a.service not loaded."),
        (said("out", exit_code=1), "exit code 1, out"),
        (said(exit_code=1), "exit code 1"),
    ],
)
def test_what_it_said(result: CommandResult, words: str) -> None:
    assert what_it_said(result).startswith("systemctl: ")
    assert words in what_it_said(result)
