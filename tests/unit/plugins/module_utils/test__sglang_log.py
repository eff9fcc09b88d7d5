# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's log, in the wordings of three versions."""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import (
    LINE_LENGTH,
    LogState,
    Steps,
    advance,
    enter_guard,
    from_json,
    leave_guard,
    parse_bar,
    split_lines,
    time_stamp,
    to_json,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import KEY

# One start of each version, two ranks. (seconds since the launch, who, text)
V0512 = (
    (20, "", f"server_args=ServerArgs(model_path='/m', tp_size=2, api_key='{KEY}', admin_api_key='{KEY}')"),
    (31, " TP0", "Init torch distributed begin."),
    (31, " TP1", "Init torch distributed begin."),
    (35, " TP0", "Init torch distributed ends. elapsed=4.00 s, mem usage=0.74 GB"),
    (36, " TP1", "Load weight begin. avail mem=94.00 GB"),
    (36, " TP0", "Load weight begin. avail mem=94.00 GB"),
    (66, " TP0", "Load weight end. elapsed=30.10 s, type=KimiK25, avail mem=20.10 GB, mem usage=73.90 GB."),
    (67, " TP0", "KV Cache is allocated. #tokens: 65536, K size: 4.00 GB, V size: 4.00 GB"),
    (67, " TP0", "Memory pool end. avail mem=11.90 GB"),
    (68, " TP0", "Capture cuda graph begin. This can take up to several minutes. avail mem=11.80 GB"),
    (88, " TP0", "Capture cuda graph end. Time elapsed: 20.00 s. mem usage=1.20 GB. avail mem=10.60 GB."),
    (
        89,
        " TP0",
        "max_total_num_tokens=65536, chunked_prefill_size=8192, context_len=65536, available_gpu_mem=10.6 GB",
    ),
    (91, "", "INFO:     Started server process [4711]"),
    (91, "", "INFO:     Application startup complete."),
    (91, "", "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"),
    (95, "", "The server is fired up and ready to roll!"),
)
V0515 = tuple(
    (second, rank, text)
    if "graph" not in text
    else (
        second,
        rank,
        "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs [1, 2, 4], avail mem=11.8 GB"
        if "begin" in text
        else "Capture target decode CUDA graph end. elapsed=20.00 s, mem usage=1.20 GB, avail mem=10.60 GB.",
    )
    for second, rank, text in V0512
)
V0523 = (
    V0512[0],
    (31, " TP0", "Init parallel begin."),
    (35, " TP0", "Init parallel ends. elapsed=4.00 s"),
    (35, " TP0", "Memory baseline taken. mem usage=0.74 GB"),
    *V0515[4:],
)
STAGES = {
    "launch": 11.0,
    "init_distributed": 5.0,
    "load_weights": 30.0,
    "allocate_memory": 2.0,
    "capture_graphs": 21.0,
    "open_port": 2.0,
    "warm_up": 4.0,
}
BASE = 1_700_000_000


def written(lines: tuple[tuple[int, str, str], ...]) -> list[str]:
    return [
        time.strftime("[%Y-%m-%d %H:%M:%S", time.localtime(BASE + second)) + f"{rank}] {text}"
        for second, rank, text in lines
    ]


def after(lines: list[str], state: LogState | None = None, since: float | None = None, rest: str = "") -> LogState:
    return advance(state or LogState(since=0.0), lines, 5.0, redact=redact, since=since, rest=rest)


@pytest.mark.parametrize("version", [V0512, V0515, V0523], ids=["0.5.12", "0.5.15", "0.5.23"])
def test_a_whole_start_gives_every_stage_its_own_seconds_although_it_is_read_at_once(
    version: tuple[tuple[int, str, str], ...],
) -> None:
    state = after(written(version), LogState(accepting=False), since=BASE + 20.0)
    assert state.ready
    assert (state.stage, state.fatal, state.failures) == ("ready", "", ())
    assert state.stage_seconds(now=5.0) == STAGES
    assert list(state.stage_seconds(now=5.0)) == list(STAGES)


@pytest.mark.parametrize("version", [V0512, V0515, V0523], ids=["0.5.12", "0.5.15", "0.5.23"])
@pytest.mark.parametrize("count", range(1, 14))
def test_no_stage_depends_on_how_the_lines_are_cut_into_readings(
    version: tuple[tuple[int, str, str], ...], count: int
) -> None:
    lines = written(version)
    whole = after(lines)
    state = after(lines[count:], after(lines[:count]))
    assert state.stage == whole.stage
    assert state.stages == whole.stages
    assert state.tail == whole.tail


def test_other_ranks_do_not_move_the_stage() -> None:
    lines = written(((31, " TP0", "Init parallel begin."), (36, " TP1", "Load weight begin. avail mem=94.00 GB")))
    assert after(lines).stage == "init_distributed"
    assert after(written(((36, " DP0 TP0 EP0", "Load weight begin."),))).stage == "load_weights"
    assert after(written(((36, " DP1 TP0", "Load weight begin."),))).stage == "launch"


def test_a_draft_model_is_a_stage_of_its_own_and_repeated_stages_add_up() -> None:
    draft = tuple((second + 60, rank, text) for second, rank, text in V0512[5:11])
    state = after(written((*V0512[:11], *draft)))
    seconds = state.stage_seconds(now=5.0)
    assert seconds["load_weights"] == 30.0
    assert seconds["load_draft_weights"] == 30.0
    assert seconds["allocate_memory"] == 4.0
    assert state.stage == "capture_graphs"


def test_weights_that_are_committed_after_the_capture_do_not_turn_the_stage_back() -> None:
    late = (100, " TP0", "Load weight end. Committed real weights after CUDA graph capture in 3.00 s")
    assert after(written((*V0512[:10], late))).stage == "capture_graphs"


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        (
            "Multi-thread loading shards:  58% Completed | 37/64 [01:12<00:52,  1.95s/it]",
            Steps("Multi-thread loading shards", 37, 64),
        ),
        (
            "Loading safetensors checkpoint shards:   0% Completed | 0/64 [00:00<?, ?it/s]",
            Steps("Loading safetensors checkpoint shards", 0, 64),
        ),
        (
            "Loading pt checkpoint shards: 100% Completed | 2/2 [00:10<00:00,  5.0s/it]",
            Steps("Loading pt checkpoint shards", 2, 2),
        ),
        (
            "Capturing batches (bs=1 avail_mem=9.81 GB):  42%|####2     | 15/36 [00:10<00:14,  1.4it/s]",
            Steps("Capturing batches", 15, 36),
        ),
        ("[2026-11-29 15:00:00 TP0] Load weight end. elapsed=3 s", None),
        ("0% of nothing | 0/0", None),
        ("", None),
    ],
)
def test_progress_bars(line: str, steps: Steps | None) -> None:
    assert parse_bar(line) == steps


def test_carriage_returns_end_lines_and_the_unfinished_bar_counts() -> None:
    text = "a\r\n" + "".join(f"\rMulti-thread loading shards: {i}% Completed | {i}/100 [x]" for i in range(1, 43))
    lines, rest = split_lines(text)
    assert len(lines) == 42
    assert rest.endswith("42/100 [x]")
    begun = after(written(((36, " TP0", "Load weight begin."),)))
    state = after(lines, begun, rest=rest)
    assert state.steps == Steps("Multi-thread loading shards", 42, 100)
    assert state.stage == "load_weights"
    assert not any("Completed" in line for line in state.tail)


def test_a_new_stage_forgets_the_bar() -> None:
    state = after(["x: 50% Completed | 1/2"], after(written(((1, " TP0", "Load weight begin."),))))
    assert after(written(((2, " TP0", "Load weight end."),)), state).steps is None


def test_lines_before_this_run_are_not_of_this_run() -> None:
    old = [
        *written(V0512),
        *written(((120, "", "SIGQUIT received. signum=None, frame=None. It usually means one child failed."),)),
        "Traceback (most recent call last):",
    ]
    new = ["UserWarning: python -m sglang.launch_server is going away", *written(((300, "", "server_args={}"),))]
    begun = LogState(since=0.0, accepting=False)
    state = after(old, begun, since=BASE + 299.7)
    assert (state.stage, state.ready, state.fatal, state.tail) == ("launch", False, "", ())
    assert state.last_lines()[-1] == "Traceback (most recent call last):"
    state = after(new, state, since=BASE + 299.7)
    assert state.accepting
    assert not any("SIGQUIT" in line for line in state.tail)
    assert state.tail[-1].endswith("server_args={}")


def test_a_run_whose_beginning_is_not_known_accepts_nothing() -> None:
    state = after(written(V0512), LogState(accepting=False), since=None)
    assert not state.accepting
    assert not state.begun


def test_server_args_begin_a_new_run_and_keep_what_failed_before() -> None:
    lines = written((*V0512[:5], (40, " TP0", "Scheduler hit an exception: Traceback"), (99, "", "server_args={}")))
    state = after(lines)
    assert (state.stage, state.fatal, state.failures) == ("launch", "", ())
    assert "Scheduler hit an exception" in state.earlier_failures[0]


@pytest.mark.parametrize(
    "line",
    [
        "Scheduler hit an exception: Traceback (most recent call last):",
        "Rank 3 scheduler died during initialization (exit code: -9). If exit code is -9, a common cause is OOM.",
        "Received sigquit from a child process. It usually means the child failed.",
        "Subprocess scheduler_3 (pid=4711) crashed with exit code -9",
        "Capture cuda graph failed: CUDA out of memory.",
        "SIGQUIT received. signum=3, frame=None. It usually means one child failed.",
        "Initialization failed. warmup error: Traceback",
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "[Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
    ],
)
def test_lines_that_end_a_start(line: str) -> None:
    for rank in ("", " TP0", " TP5"):
        state = after(written(((50, rank, line),)))
        assert line[:60] in state.fatal
        assert state.failures


@pytest.mark.parametrize(
    "line",
    [
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)",
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
        "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. ",
        "Ignore import error when loading sglang.srt.models.x",
        "The server is fired up and ready to roll!",
    ],
)
def test_lines_that_do_not_end_a_start(line: str) -> None:
    assert after(written(((50, " TP0", line),))).fatal == ""


def test_no_key_is_kept_anywhere() -> None:
    lines = written(
        (
            *V0512,
            (96, "", f"Error: Authorization: Bearer {KEY}"),
            (97, "", "x" * (LINE_LENGTH - 40) + f" api_key='{KEY}'"),
            (98, "", f"Scheduler hit an exception: server_args=ServerArgs(api_key='{KEY}', x='" + "y" * 20000 + "')"),
        )
    )
    state = after(lines)
    assert KEY not in json.dumps(to_json(state))
    assert KEY[:12] not in json.dumps(to_json(state))
    assert all(len(line) <= LINE_LENGTH for line in state.tail)


def test_the_state_survives_json() -> None:
    state = after([*written(V0512[:6]), "shards: 50% Completed | 1/2", *written(((50, "", "x Error y"),))])
    assert from_json(json.loads(json.dumps(to_json(state)))) == state


@pytest.mark.parametrize("broken", [{}, {"stage": "launch"}, {**to_json(LogState()), "more": 1}])
def test_a_state_of_another_shape_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="other fields"):
        from_json(broken)


def test_the_guard_comes_before_the_launch() -> None:
    state = enter_guard(LogState(since=0.0), 0.0)
    assert state.stage == "guard"
    state = leave_guard(state, 30.0)
    assert state.stage == "launch"
    assert after(written(V0512[:2]), state).stage_seconds(5.0)["guard"] == 30.0


def test_a_log_that_says_nothing_of_the_start_is_not_begun() -> None:
    state = after(written(((5000, " TP0", "Decode batch. #running-req: 1, gen throughput (token/s): 80.1"),)))
    assert not state.begun
    assert after(written(V0512[:1])).begun


def test_time_stamps() -> None:
    assert time_stamp(written(((7, " TP0", "x"),))[0]) == BASE + 7
    assert time_stamp("[2026-11-29 15:02:11.123 DP0 TP0] x") is not None
    assert time_stamp("no stamp") is None
    assert time_stamp("[2026-13-41 15:02:11] x") is None


def test_answers_to_our_own_questions_are_no_progress() -> None:
    begun = after(written(V0512))
    asked = [
        'INFO:     127.0.0.1:41732 - "GET /health HTTP/1.1" 503 Service Unavailable',
        *written(((99, "", 'INFO:     127.0.0.1:41732 - "POST /v1/completions HTTP/1.1" 200 OK'),)),
        *written(
            ((99, "", "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."),)
        ),
    ]
    state = after(asked, begun)
    assert state.lines == begun.lines
    assert state.tail[-1].endswith("for last 20 seconds.")
    assert not any("GET /health" in line for line in state.tail)


def test_a_line_behind_an_unfinished_bar_is_a_line_of_its_own() -> None:
    died = written(((50, "", "Rank 3 scheduler died during initialization (exit code: -9)."),))[0]
    lines, rest = split_lines(f"\rMulti-thread loading shards:   2% Completed | 1/64 [00:01<?, ?it/s]{died}\n")
    assert rest == ""
    assert lines[1] == died
    state = after(lines)
    assert "scheduler died" in state.fatal


@pytest.mark.parametrize(
    "words",
    [
        "SIGQUIT received. signum=None",
        "Scheduler hit an exception: Traceback",
        "Health check request received during shutdown",
        "Health check failed. Server couldn't get a response",
        "Load weight begin. avail mem=94.00 GB",
        "The server is fired up and ready to roll",
        "server_args=ServerArgs(model_path='/m')",
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "Receive: obj=GenerateReqInput(rid='a', text='{}')",
        "Finish: obj=GenerateReqInput(rid='a'), out={{'text': '{}'}}",
        "Receive: ChatCompletionRequest(messages=[{{'content': '{}'}}])",
    ],
)
def test_what_a_client_asks_for_says_nothing_about_the_server(words: str, line: str) -> None:
    before = advance(
        LogState(), ["[2026-11-01 10:00:00] The server is fired up and ready to roll!"], 1.0, redact=redact
    )
    assert advance(before, ["[2026-11-01 10:00:01] " + line.format(words)], 2.0, redact=redact) == before
