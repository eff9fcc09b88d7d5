# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is asked of a server, and how its answers are read."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK, redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_questions import (
    Load,
    Requests,
    ask_generation,
    ask_lasting_load,
    ask_load,
    ask_models,
    ask_server_info,
    compare_loads,
    refused_key,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import FakeClock, FakeOpener, answer

METRICS = b"""# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="kimi",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="kimi",tp_rank="0"} 2.0
sglang:generation_tokens_total{model_name="kimi"} 1.2e+06
sglang:prompt_tokens_total{model_name="kimi"} 500.0
"""


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        (answer({"data": [{"id": "a"}, {"id": "b"}]}), ("a", "b")),
        (answer({"data": []}), ()),
        (answer({"data": "x"}), None),
        (answer([]), None),
        (Answer(status=200, body=b"<html>"), None),
        (Answer(status=401), None),
        (Answer(failure="timeout"), None),
    ],
)
def test_models(given: Answer, ids: tuple[str, ...] | None) -> None:
    assert ask_models(FakeOpener({"/v1/models": given})).ids == ids


@pytest.mark.parametrize(
    ("answers", "ok", "asked"),
    [
        ({"/v1/completions": answer({"choices": [{"text": ""}]})}, True, 1),
        ({"/v1/completions": answer({"choices": []}), "/generate": Answer(status=500)}, False, 2),
        ({"/v1/completions": Answer(status=400), "/generate": answer({"output_ids": [1], "meta_info": {}})}, True, 2),
        ({"/v1/completions": Answer(status=400)}, False, 2),
        ({"/v1/completions": Answer(status=401)}, False, 1),
        ({"/v1/completions": Answer(status=503)}, False, 1),
        ({"/v1/completions": Answer(failure="timeout")}, False, 1),
        ({"/v1/completions": Answer(status=200, body=b"nonsense"), "/generate": answer({})}, False, 2),
    ],
)
def test_generation(answers: dict[str, Answer], ok: bool, asked: int) -> None:
    opener = FakeOpener(answers)
    assert ask_generation(opener, "kimi", 25.0).ok is ok
    assert len(opener.asked) == asked


def test_the_answer_that_says_more_is_kept() -> None:
    opener = FakeOpener({"/v1/completions": Answer(status=500, body=b"CUDA error"), "/generate": Answer(status=404)})
    assert ask_generation(opener, "kimi", 25.0).answer.body == b"CUDA error"


@pytest.mark.parametrize(
    ("answers", "load"),
    [
        (
            {
                "/v1/loads": answer(
                    {
                        "loads": [
                            {"dp_rank": 0, "num_running_reqs": 1, "num_waiting_reqs": 2, "num_used_tokens": 30},
                            {"dp_rank": 1, "num_running_reqs": 3, "num_waiting_reqs": 0, "num_used_tokens": 7},
                        ]
                    }
                )
            },
            Load(4, 2, (30.0, 7.0)),
        ),
        ({"/metrics": Answer(status=200, body=METRICS)}, Load(3, 2, (1.2e6, 500.0))),
        (
            {"/server_info": answer({"internal_states": [{"num_running_reqs": 1, "num_waiting_reqs": 0}]})},
            Load(1, 0, None),
        ),
        ({"/server_info": answer({"internal_states": [{"last_gen_throughput": 1.0}]})}, Load()),
        ({"/v1/loads": answer({"loads": [{"odd": 1}]})}, Load()),
        ({"/v1/loads": answer({"loads": []})}, Load()),
        ({"/v1/loads": Answer(failure="timeout")}, Load()),
        ({"/metrics": Answer(status=200, body=b"nothing of ours 1\n")}, Load()),
        ({}, Load()),
    ],
)
def test_load(answers: dict[str, t.Any], load: Load) -> None:
    assert ask_load(FakeOpener(answers)) == load


def loads(*running: int | None) -> list[t.Any]:
    return [
        Answer(failure="timeout") if number is None
        else answer({"loads": [{"num_running_reqs": number, "num_waiting_reqs": 0, "num_used_tokens": 1}]})
        for number in running
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("running", "told", "asked"),
    [
        ((0,), 0, 1),
        ((1, 0), 0, 2),  # a health check, ours or a load balancer's
        ((2, 1, 0), 0, 3),
        ((1,), 1, 3),
        ((5, 3, 4), 3, 3),
        ((1, None), 1, 3),  # what is not told is not nothing
        ((None,), None, 1),
    ],
)
def test_a_request_counts_as_running_that_is_seen_several_times(
    running: tuple[int | None, ...], told: int | None, asked: int
) -> None:
    opener, clock = FakeOpener({"/v1/loads": loads(*running)}), FakeClock()
    assert ask_lasting_load(opener, clock).running == told
    assert len(opener.asked) == asked


def test_a_server_that_does_not_answer_is_not_asked_three_times() -> None:
    opener = FakeOpener({"/v1/loads": Answer(failure="timeout")})
    ask_load(opener)
    assert opener.asked == ["/v1/loads"]


@pytest.mark.parametrize(
    ("before", "after", "requests"),
    [
        (Load(1, 0, (1.0,)), Load(1, 0, (2.0,)), Requests(1, 0, True)),
        (Load(1, 0, (1.0,)), Load(1, 0, (1.0,)), Requests(1, 0, False)),
        (Load(0, 0, (1.0,)), Load(0, 0, (1.0,)), Requests(0, 0, None)),
        (Load(), Load(1, 0, (1.0,)), Requests(1, 0, None)),
        (Load(), Load(), Requests()),
    ],
)
def test_whether_the_model_moves(before: Load, after: Load, requests: Requests) -> None:
    assert compare_loads(before, after) == requests


def test_what_the_server_says_of_itself_is_told_without_its_keys() -> None:
    secret = "open4711sesame"  # no shape by which it could be known
    said = {
        "api_key": secret, "admin_api_key": f"{secret}-2", "tp_size": 8, "max_tokens": 5, "tokenizer_path": "/m",
        "launch_command": ["python", "-m", "sglang.launch_server", "--api-key", secret, "--port", "1"],
        "shell": f"--admin-api-key={secret}",
        "internal_states": [{"server_args": {"api_key": secret, "nothing": None}}],
    }  # fmt: skip
    opener = FakeOpener({"/server_info": answer(said)})
    seen = ask_server_info(opener, redact)
    assert seen is not None
    assert secret not in str(seen)
    assert {key: seen[key] for key in ("tp_size", "max_tokens", "tokenizer_path")} == {
        "tp_size": 8, "max_tokens": 5, "tokenizer_path": "/m",
    }  # fmt: skip
    assert seen["launch_command"] == ["python", "-m", "sglang.launch_server", "--api-key", MASK, "--port", "1"]
    assert seen["internal_states"][0]["server_args"]["nothing"] is None


def test_the_older_name_is_asked_too_and_nonsense_is_nothing() -> None:
    assert ask_server_info(FakeOpener({"/get_server_info": answer({"tp_size": 8})}), redact) == {"tp_size": 8}
    for odd in (answer([1]), answer({}, status=401), Answer(failure="timeout")):
        assert ask_server_info(FakeOpener({"/server_info": odd}), redact) is None


@pytest.mark.parametrize(
    ("given", "refused"),
    [(Answer(status=401), True), (Answer(status=403), True), (Answer(status=400), False), (Answer(status=402), False),
     (Answer(status=404), False), (Answer(status=200), False), (Answer(failure="timeout"), False), (None, False)],
)  # fmt: skip
def test_which_answers_refuse_the_key(given: Answer | None, refused: bool) -> None:
    assert refused_key(given) is refused


@pytest.mark.parametrize(("status", "asked"), [(400, 2), (404, 2), (422, 2), (500, 2), (403, 1), (405, 1), (421, 1),
                                               (423, 1), (499, 1), (501, 1)])  # fmt: skip
def test_who_may_be_a_server_without_a_tokenizer(status: int, asked: int) -> None:
    opener = FakeOpener({"/v1/completions": Answer(status=status)})
    assert not ask_generation(opener, "kimi", 9.0).ok
    assert len(opener.asked) == asked


@pytest.mark.parametrize(
    ("native", "told"), [(404, 500), (422, 500), (400, 500), (503, 503), (401, 401), (421, 421), (423, 423), (399, 399)]
)
def test_the_answer_that_says_more_is_told(native: int, told: int) -> None:
    opener = FakeOpener({"/v1/completions": Answer(status=500), "/generate": Answer(status=native)})
    assert ask_generation(opener, "kimi", 9.0).answer.status == told


def test_a_question_is_four_tokens_of_one_certain_answer() -> None:
    """What is asked costs a busy server next to nothing, and is the same each time."""
    sent: dict[str, t.Any] = {}

    def opener(path: str, *, timeout: float, payload: t.Any = None, with_key: bool = True) -> Answer:
        sent[path] = payload
        return Answer(status=400)

    ask_generation(opener, "kimi", 9.0)
    completion, native = sent["/v1/completions"], sent["/generate"]
    assert (completion["model"], completion["max_tokens"], completion["temperature"]) == ("kimi", 4, 0)
    assert native["sampling_params"] == {"max_new_tokens": 4, "temperature": 0}
    assert native["input_ids"]


@pytest.mark.parametrize("number", [-1, -0.5, True, "3", None, 1e15, float("nan")])
@pytest.mark.parametrize("field", ["num_running_reqs", "num_waiting_reqs", "num_used_tokens"])
def test_what_is_no_number_of_requests_makes_the_load_unknown(number: t.Any, field: str) -> None:
    load = {"num_running_reqs": 2, "num_waiting_reqs": 1, "num_used_tokens": 10, field: number}
    assert ask_load(FakeOpener({"/v1/loads": answer({"loads": [load]})})) == Load()
    lacking = {name: value for name, value in load.items() if name != field}
    assert ask_load(FakeOpener({"/v1/loads": answer({"loads": [lacking]})})) == Load()


@pytest.mark.parametrize("states", [None, "x", [], [None], [{}], [{"num_running_reqs": "2", "num_waiting_reqs": 0}]])
def test_a_server_info_that_tells_no_load_is_unknown(states: t.Any) -> None:
    assert ask_load(FakeOpener({"/server_info": answer({"internal_states": states})})) == Load()


def test_metrics_are_read_without_the_key() -> None:
    opener = FakeOpener({"/metrics": Answer(status=200, body=METRICS)})
    ask_load(opener)
    assert "/metrics" in opener.asked
    assert "/metrics" not in opener.with_key


def test_nobody_waits_for_more_readings_than_it_takes() -> None:
    clock = FakeClock()
    busy = {"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 0, "num_used_tokens": 1}]}
    idle = {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0, "num_used_tokens": 1}]}
    opener = FakeOpener({"/v1/loads": [answer(busy), answer(idle), answer(busy)]})
    began = clock.now
    assert ask_lasting_load(opener, clock).running == 0
    assert opener.asked == ["/v1/loads", "/v1/loads"]
    assert 0 < clock.now - began < 1
