# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person sees while the server loads, and what is asked of the module meanwhile."""

from __future__ import annotations

import os
import types
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.action import sglang_wait_ready
from ansible_collections.cleanslate.gpu.plugins.action.sglang_wait_ready import (
    ActionModule,
    detail_text,
    draw_bar,
    progress_text,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import KEY

SHARDS = {"what": "Multi-thread loading shards", "done": 37, "total": 64}


def slice_of(stage: str, waited: float, progress: dict[str, t.Any] | None = None, **more: t.Any) -> dict[str, t.Any]:
    return {
        "finished": False, "verdict": "starting", "stage": stage, "waited_s": waited, "progress": progress,
        "resume": f"token-{waited:g}", **more,
    }  # fmt: skip


READY = {"finished": True, "verdict": "ready", "resume": None, "changed": False}


class Play:
    """One run of the plugin: the module's answers in order, and everything that was displayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, t.Any]], **options: t.Any) -> None:
        self.calls: list[dict[str, t.Any]] = []
        self.shown: list[tuple[str, dict[str, t.Any]]] = []
        self.answers = list(answers)
        self.terminal = options.pop("terminal", False)
        self.hosts = options.pop("hosts", ["gpu1", "gpu2"])
        self.task = types.SimpleNamespace(
            args={"unit": "sglang.service", **options.pop("args", {})},
            async_val=options.pop("async_val", 0),
            check_mode=options.pop("check_mode", False),
        )
        monkeypatch.setattr(sglang_wait_ready, "parent_stdout_is_terminal", lambda: self.terminal)
        monkeypatch.setattr(sglang_wait_ready.ActionBase, "run", lambda *args, **kwargs: {})
        monkeypatch.setattr(
            sglang_wait_ready,
            "display",
            types.SimpleNamespace(columns=60, display=lambda text, **kwargs: self.shown.append((text, kwargs))),
        )
        self.plugin = ActionModule.__new__(ActionModule)
        self.plugin._task = self.task
        self.plugin._execute_module = self._execute

    def _execute(self, **call: t.Any) -> dict[str, t.Any]:
        self.calls.append({**call, "module_args": dict(call["module_args"])})
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def run(self) -> dict[str, t.Any]:
        return self.plugin.run(None, {"inventory_hostname": "gpu1", "ansible_play_batch": self.hosts})

    @property
    def lines(self) -> list[str]:
        return [text for text, dummy in self.shown]


def test_slices_go_on_with_the_token_until_the_wait_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, [slice_of("launch", 5), slice_of("load_weights", 10), READY])
    assert play.run() == READY
    assert [call["module_args"]["resume"] for call in play.calls] == ["", "token-5", "token-10"]
    assert {call["module_name"] for call in play.calls} == {"cleanslate.gpu.sglang_wait_ready"}
    assert play.task.args == {"unit": "sglang.service"}


def test_a_line_is_printed_where_something_changed_and_on_stderr_only(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        slice_of("launch", 5),
        slice_of("launch", 10),
        slice_of("load_weights", 15, SHARDS),
        slice_of("load_weights", 20, SHARDS),
        slice_of("load_weights", 25, {**SHARDS, "done": 64}),
        READY,
    ]
    play = Play(monkeypatch, answers)
    play.run()
    assert play.lines == [
        "  gpu1: launch, 5 s",
        "  gpu1: load_weights [#########.......] 37/64 shards, 15 s",
        "  gpu1: load_weights [################] 64/64 shards, 25 s",
    ]
    assert all(options.get("stderr") for dummy, options in play.shown)


def test_silence_is_broken_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, [*(slice_of("capture_graphs", seconds) for seconds in range(5, 200, 5)), READY])
    play.run()
    assert play.lines == [f"  gpu1: capture_graphs, {said}" for said in ("5 s", "1 min 5 s", "2 min 5 s", "3 min 5 s")]


def test_a_bar_is_redrawn_only_for_one_host_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [slice_of("load_weights", 5, SHARDS), slice_of("ready", 10), READY]
    play = Play(monkeypatch, answers, terminal=True, hosts=["gpu1"])
    play.run()
    assert play.lines[0].startswith("\r  gpu1: load_weights [")
    assert all(len(text) <= 60 for text in play.lines)
    assert len(play.lines[1]) >= len(play.lines[0])  # the shorter line covers the longer one
    assert play.lines[-1] == ""  # the line is ended before Ansible prints the result
    for options in ({"terminal": True, "hosts": ["gpu1", "gpu2"]}, {"terminal": False, "hosts": ["gpu1"]}):
        play = Play(monkeypatch, answers, **options)
        play.run()
        assert not any("\r" in text for text in play.lines)


def test_the_redrawn_line_is_ended_when_the_run_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, [slice_of("launch", 5), KeyboardInterrupt()], terminal=True, hosts=["gpu1"])
    with pytest.raises(KeyboardInterrupt):
        play.run()
    assert play.lines[-1] == ""


@pytest.mark.parametrize("how", [{"async_val": 60}, {"check_mode": True}, {"args": {"resume": "token"}}])
def test_one_plain_call_where_nobody_looks_on(monkeypatch: pytest.MonkeyPatch, how: dict[str, t.Any]) -> None:
    play = Play(monkeypatch, [READY], **how)
    assert play.run() == READY
    assert play.shown == []
    assert play.calls[0]["module_args"].get("resume") == how.get("args", {}).get("resume")
    assert play.calls[0]["wrap_async"] is bool(how.get("async_val"))


@pytest.mark.parametrize(
    "last",
    [{"failed": True, "msg": "x", "finished": True}, {"unreachable": True}, {"failed": True, "msg": "no module"}, {}],
)
def test_every_other_answer_ends_it(monkeypatch: pytest.MonkeyPatch, last: dict[str, t.Any]) -> None:
    play = Play(monkeypatch, [slice_of("launch", 5), last])
    assert play.run() == last
    assert len(play.calls) == 2


def test_no_key_is_displayed(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, [slice_of("launch", 5, reason=KEY, log_tail=[KEY]), READY], args={"api_key": KEY})
    play.run()
    assert KEY not in str(play.shown)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"stage": "guard", "verdict": "starting"}, "guard"),
        ({"stage": None, "verdict": "starting"}, "starting"),
        ({"stage": "ready", "verdict": "hung"}, "ready (hung)"),
        ({"stage": "load_weights", "progress": {"what": "x", "done": 0, "total": 0}}, "load_weights"),
        ({"stage": "s", "progress": {"what": "", "done": 1, "total": 2}}, "s [########........] 1/2"),
    ],
)
def test_texts(result: dict[str, t.Any], text: str) -> None:
    assert progress_text(result) == text


MEMORY = {"used_mib": 236544, "total_mib": 641024, "gpus": 8}


def test_memory_and_estimate_are_shown_but_print_no_line_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        slice_of("load_weights", 45 + step, SHARDS, gpu_memory={**MEMORY, "used_mib": 236544 + 1024 * step},
                 estimate={"left_s": 170.0 - step, "last_s": 250.0})
        for step in (0, 5, 10)
    ]  # fmt: skip
    play = Play(monkeypatch, [*answers, READY])
    play.run()
    assert play.lines == [
        "  gpu1: load_weights [#########.......] 37/64 shards, 231 of 626 GiB on 8 GPUs, 45 s,"
        " about 3 min left (last start took 4 min 10 s)"
    ]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"waited_s": 60}, ", 1 min"),
        ({"waited_s": 5, "gpu_memory": {**MEMORY, "total_mib": None}}, ", 231 GiB on 8 GPUs, 5 s"),
        ({"waited_s": 5, "gpu_memory": {**MEMORY, "total_mib": None, "gpus": 1}}, ", 231 GiB on 1 GPU, 5 s"),
        ({"waited_s": 5, "estimate": {"left_s": 89, "last_s": 30}}, ", 5 s, about 90 s left (last start took 30 s)"),
        ({"waited_s": 5, "estimate": {"left_s": 91, "last_s": 120}}, ", 5 s, about 2 min left (last start took 2 min)"),
        ({"waited_s": 500, "estimate": {"left_s": 0.0, "last_s": 250}}, ", 8 min 20 s (last start took 4 min 10 s)"),
        ({}, ", 0 s"),
    ],
)
def test_details(result: dict[str, t.Any], text: str) -> None:
    assert detail_text(result) == text


@pytest.mark.parametrize(("done", "total", "drawn"), [(0, 4, "...."), (1, 4, "#..."), (4, 4, "####"), (9, 4, "####")])
def test_bars(done: int, total: int, drawn: str) -> None:
    assert draw_bar(done, total, 4) == f"[{drawn}]"


@pytest.mark.parametrize(
    ("target", "terminal"), [("/dev/pts/3", True), ("/dev/tty1", True), ("pipe:[4]", False), ("/tmp/x", False)]
)
def test_the_parent_s_output_tells_whether_somebody_looks_on(
    monkeypatch: pytest.MonkeyPatch, target: str, terminal: bool
) -> None:
    monkeypatch.setattr(os, "readlink", lambda path: target)
    assert sglang_wait_ready.parent_stdout_is_terminal() is terminal


def test_a_parent_that_cannot_be_looked_at_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def readlink(path: str) -> str:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "readlink", readlink)
    assert sglang_wait_ready.parent_stdout_is_terminal() is False
