# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever a parser is given, it raises nothing but its own error, and never makes a 0 of what is no number."""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

import hypothesis
import pytest
from hypothesis import strategies as st

from ansible_collections.cleanslate.gpu.plugins.module_utils import (
    _config_drift,
    _lease_records,
    _left_behind,
    _metrics_text,
    _model_config,
    _nvidia_smi_text,
    _ownership,
    _procfs,
    _redaction,
    _run_records,
    _sglang_log,
    _sglang_options,
    _sglang_questions,
    _systemd_quoting,
    _time_windows,
    _wanted_state,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._allow_list import AllowListError, read_allowed
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi import FULL_QUERY as FIELDS
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer
from ansible_collections.cleanslate.gpu.plugins.module_utils._whole_file import Unreadable

anything = hypothesis.settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
HUGE = 10**400
NUMBERS = st.integers() | st.floats() | st.sampled_from([HUGE, -HUGE, True, 0, -1, 1e308])
JSON = st.recursive(
    st.none() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ODD_TEXT = st.text(max_size=60) | st.sampled_from(
    ["9" * 500, "[" * 3000, "1e999", "NaN", "\0", "\u2028", "-", "\u0663"]
)


def documents(**keys: st.SearchStrategy[t.Any]) -> st.SearchStrategy[dict[str, t.Any]]:
    """Mappings whose known keys hold anything, now and then what belongs there."""
    return st.fixed_dictionaries({}, optional={name: JSON | values for name, values in keys.items()})


# nvidia-smi

UUID = "GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9"
CELL = st.sampled_from(
    ["0", "7", UUID, "00000000:1B:00.0", "[N/A]", "[GPU is lost]", "81559", "", "-1", "1e3", "9" * 30]
)
ROW = st.lists(CELL | ODD_TEXT, min_size=len(FIELDS) - 1, max_size=len(FIELDS) + 1).map(", ".join)
SMI_TEXT = st.lists(ROW | ODD_TEXT, max_size=4).map("\n".join)


@anything
@hypothesis.given(SMI_TEXT, ODD_TEXT, st.booleans())
def test_any_answer_of_nvidia_smi_about_gpus(out: str, err: str, finished: bool) -> None:
    seen = _nvidia_smi_text.parse_gpus(out, err, FIELDS, finished)
    for gpu in seen.gpus:
        assert gpu.uuid in out
        for number in (gpu.total_mib, gpu.used_mib, gpu.reserved_mib, gpu.utilization_pct):
            assert number is None or str(number) in out


@pytest.mark.parametrize(
    "written", ["", "[N/A]", "N/A", "-1", "0x0", "0.0", "+0", "\u0660", "[Unknown Error]", "none", "9" * 30]
)
def test_what_is_no_number_of_mib_is_not_0(written: str) -> None:
    cells = dict.fromkeys(FIELDS, "0") | {"uuid": UUID, "memory.used": written}
    (gpu,) = _nvidia_smi_text.parse_gpus(", ".join(cells[name] for name in FIELDS), "", FIELDS).gpus
    assert gpu.used_mib is None
    assert gpu.problems


@anything
@hypothesis.given(st.lists(st.lists(CELL | ODD_TEXT, max_size=7).map(", ".join), max_size=4).map("\n".join), ODD_TEXT)
def test_any_answer_of_nvidia_smi_about_processes(out: str, err: str) -> None:
    for row in _nvidia_smi_text.parse_processes(out, err).rows:
        if row.process is not None:
            assert row.process.name is None or row.process.name in out
            assert row.process.used_mib is None or row.process.used_mib >= 0


# /proc

SEGMENT = st.sampled_from(
    [
        "system.slice",
        "sglang.service",
        "lxc",
        "101",
        "ns",
        "docker",
        "f" * 64,
        "user.slice",
        "..",
        "",
        "init.scope",
        "\\x2f",
    ]
)
CGROUP = st.lists(st.lists(SEGMENT | st.text(max_size=6), max_size=6).map("/".join), max_size=3).map(
    lambda paths: "".join(f"0::/{path}\n" for path in paths)
)


@anything
@hypothesis.given(CGROUP | ODD_TEXT, CGROUP | ODD_TEXT, CGROUP | ODD_TEXT)
def test_any_cgroup_has_an_owner(cgroup: str, init: str, own: str) -> None:
    owner = _ownership.owner_of(cgroup, init, own)
    named, unified = _ownership.hierarchies(cgroup)
    for marker in ("/lxc/101", "/docker/" + "f" * 64):
        if all(path is None or marker in path for path in (named, unified)) and (named or unified):
            inside = not any(marker in text for text in (init, own))
            assert owner.container is not None or owner.lxc_monitor or not inside, "a container is never the node"


@anything
@hypothesis.given(st.binary(max_size=80) | st.from_regex(rb"\A\d{1,8} \([^\n]{0,20}\) [A-Z]( -?\d{1,30}){0,25}"))
def test_any_line_of_stat(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        stat = _procfs.parse_stat(data)
        assert str(stat.start_time).encode() in data, "a start time is never made up"


@anything
@hypothesis.given(st.binary(max_size=120), st.sampled_from([b"Uid:\t", b"NSpid:\t", b"Groups:\t", b"ShdPnd:\t"]))
def test_any_status(data: bytes, name: bytes) -> None:
    with contextlib.suppress(ValueError):
        _procfs.parse_status(name + data)


@anything
@hypothesis.given(st.binary(max_size=80))
def test_any_stat_of_a_child(tmp_path: pathlib.Path, data: bytes) -> None:
    folder = tmp_path / "7"
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_bytes(data)
    _left_behind.read_stat(7, str(tmp_path))


# The server

LOG_LINE = st.sampled_from(
    [
        "[2026-11-29 15:02:11 TP0] Load weight begin. avail mem=138.00 GB",
        "[2026-13-45 99:99:99] x",
        "Loading safetensors checkpoint shards:  50% Completed | 4/0 [00:01<?, ?it/s]",
        "100%|█| 99999999999999999999/1 [",
        "The server is fired up and ready to roll!",
    ]
)


@anything
@hypothesis.given(st.lists(LOG_LINE | ODD_TEXT, max_size=6), ODD_TEXT, st.none() | st.floats(0, 4e9))
def test_any_log(lines: list[str], rest: str, since: float | None) -> None:
    complete, left = _sglang_log.split_lines("\n".join([*lines, rest]))
    begun = _sglang_log.LogState(since=1.0)
    state = _sglang_log.advance(begun, complete, 2.0, redact=_redaction.redact, since=since, rest=left)
    assert _sglang_log.from_json(json.loads(json.dumps(_sglang_log.to_json(state)))) == state
    assert state.steps is None or state.steps.total > 0


METRIC = st.builds(
    lambda name, label, value: f'{name}{{rank="{label}"}} {value}',
    st.sampled_from(["sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:generation_tokens_total", "other"]),
    st.integers(0, 3),
    NUMBERS | st.sampled_from(["NaN", "+Inf", "1e999", "1e", "--", "0x0", "none", ""]),
)


def answers(body: bytes) -> t.Callable[..., Answer]:
    return lambda path, **dummy: Answer(200, body) if path == "/metrics" else Answer(404)


@anything
@hypothesis.given(st.lists(METRIC | ODD_TEXT, max_size=5).map("\n".join))
def test_any_metrics(text: str) -> None:
    load = _sglang_questions.ask_load(answers(text.encode("utf-8", "replace")))
    assert load.running is None or load.running >= 0
    assert load.queued is None or load.queued >= 0


@pytest.mark.parametrize("written", ["NaN", "+Inf", "1e999", "1e", "-1", "none", "0x10", "1_0", ""])
def test_one_rank_without_a_number_makes_the_sum_unknown(written: str) -> None:
    lines = f'sglang:num_running_reqs{{tp_rank="0"}} 0.0\nsglang:num_running_reqs{{tp_rank="1"}} {written}\n'
    assert _sglang_questions.ask_load(answers(lines.encode())).running is None


LOADS = documents(
    loads=st.lists(documents(num_running_reqs=NUMBERS, num_waiting_reqs=NUMBERS, num_used_tokens=NUMBERS), max_size=3),
    internal_states=st.lists(documents(num_running_reqs=NUMBERS, num_waiting_reqs=NUMBERS), max_size=3),
)


@anything
@hypothesis.given(LOADS | JSON)
def test_any_load(document: t.Any) -> None:
    body = json.dumps(document).encode()
    load = _sglang_questions.ask_load(lambda path, **dummy: Answer(200, body))
    for number in (load.running, load.queued):
        assert number is None or (isinstance(number, int) and number >= 0)


MODEL = documents(
    architectures=st.just(["DeepseekV3ForCausalLM"]),
    max_position_embeddings=NUMBERS,
    rope_scaling=documents(factor=NUMBERS, rope_type=st.just("yarn")),
    text_config=documents(num_attention_heads=NUMBERS, hidden_size=NUMBERS),
    quantization_config=documents(quant_method=st.just("fp8"), weight_block_size=st.lists(NUMBERS, max_size=2)),
)


@anything
@hypothesis.given(MODEL)
def test_any_config_of_a_model(config: dict[str, t.Any]) -> None:
    found = _model_config.model_config(config)
    assert found.context is None or isinstance(found.context, int)


# Files of ours

OPTION_LINE = st.builds(
    lambda name, value: f"{name}: {value}", st.sampled_from(["tp-size", "model_path", "x"]), ODD_TEXT
)


@anything
@hypothesis.given(st.lists(OPTION_LINE | ODD_TEXT, max_size=4).map("\n".join))
def test_any_config_file_of_sglang(text: str) -> None:
    with contextlib.suppress(_config_drift.NotUnderstood):
        _config_drift.config_options(text)
    _config_drift.unit_directives(text)


def allow_list(folder: pathlib.Path, text: bytes) -> None:
    path = folder / "allowed.json"
    path.write_bytes(text)
    path.chmod(0o644)
    allowed = read_allowed(str(path), owner=path.stat().st_uid)
    document = json.loads(text)
    assert set(document) == {name for name in ("lxc", "gpus") if getattr(allowed, name) is not None}


@anything
@hypothesis.given(documents(lxc=st.lists(NUMBERS | st.text(max_size=4), max_size=3), gpus=st.just([UUID])) | JSON)
def test_any_allow_list(tmp_path: pathlib.Path, document: t.Any) -> None:
    with contextlib.suppress(AllowListError):
        allow_list(tmp_path, json.dumps(document).encode())


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[]", b"[" * 100_000, b"\xff", b'{"lxc": 101}', b'{"vmid": [1]}', b"9" * 5000]
)
def test_an_allow_list_that_is_none_allows_nothing(tmp_path: pathlib.Path, text: bytes) -> None:
    with pytest.raises(AllowListError):
        allow_list(tmp_path, text)


LEASE = documents(
    run_id=st.just("run-1"),
    node=st.just("gpu1"),
    gpus=st.just([UUID]),
    who=st.just("ana"),
    purpose=st.just(""),
    since_wall=NUMBERS,
    since=NUMBERS,
    expires=NUMBERS,
    taken_by=st.just(""),
)


@anything
@hypothesis.given(
    documents(version=st.just(1), leases=st.lists(LEASE, max_size=2), starting=st.lists(LEASE, max_size=2)) | JSON
)
def test_any_lease_file(document: t.Any) -> None:
    with contextlib.suppress(Unreadable):
        book = _lease_records.parse(json.loads(json.dumps(document)))
        assert document is None or len(book.leases) == len(document["leases"]), "no lease is left out"
        json.dumps([_lease_records.lease_view(lease, 1.0) for lease in book.standing(1.0)])


@anything
@hypothesis.given(
    documents(version=st.just(1), units=st.dictionaries(st.just("sglang.service"), JSON, max_size=1)) | JSON
)
def test_any_wanted_state(document: t.Any) -> None:
    with contextlib.suppress(Unreadable):
        _wanted_state.parse(json.loads(json.dumps(document)))


@anything
@hypothesis.given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda data: b'{"version": 1}\n' + data))
def test_any_record(data: bytes) -> None:
    _run_records.runs_of(_run_records.read_lines(data).records, 0.0)


@anything
@hypothesis.given(JSON | st.dictionaries(st.sampled_from(["version", "samples"]), JSON))
def test_any_state_of_the_metrics(document: t.Any) -> None:
    if _metrics_text.is_state(document):
        _metrics_text.render(document)


@anything
@hypothesis.given(ODD_TEXT | st.from_regex(r"\A[A-Za-z,-]{0,9} ?\d\d:\d\d-\d\d:\d\d( [A-Za-z/]+)?\Z"))
def test_any_time_window(text: str) -> None:
    with contextlib.suppress(ValueError):
        _time_windows.parse(text)


# What is written

PLAIN = st.text(max_size=30)


@anything
@hypothesis.given(PLAIN)
def test_any_argument_stays_on_its_line(text: str) -> None:
    with contextlib.suppress(ValueError):
        line = _systemd_quoting.argument(text)
        assert "\n" not in line
        assert "\r" not in line
        assert "\0" not in line
        assert line.replace("%%", "").count("%") == 0
        assert line.replace("$$", "").count("$") == 0


@anything
@hypothesis.given(st.dictionaries(st.sampled_from(["model-path", "tp-size", "lora-paths"]), JSON | PLAIN, max_size=3))
def test_any_options_make_one_line_each(args: dict[str, t.Any]) -> None:
    with contextlib.suppress(ValueError):
        to_config, _argv = _sglang_options.split_args(args)
        text = _sglang_options.config_text(to_config)
        assert text.count("\n") == len(to_config)
        assert list(_config_drift.config_options(text)) == list(to_config)


def test_every_parser_of_foreign_text_is_here() -> None:
    """A new one has to be added: they are what is called parse or parse_SOMETHING in the core."""
    core = pathlib.Path(_procfs.__file__).parent
    defined = {
        f"{path.stem}.{line.split('(')[0].removeprefix('def ')}"
        for path in core.glob("_*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(("def parse(", "def parse_"))
    }
    # Held against anything elsewhere, or reached through what is tested here.
    elsewhere = {
        "_drift_memory.parse_entry", "_drift_memory_file.parse", "_ownership.parse_path", "_sglang_log.parse_bar",
        "_time_windows.parse_all", "_wanted_state.parse_entry",
    }  # fmt: skip
    text = pathlib.Path(__file__).read_text(encoding="utf-8")
    assert {name for name in defined - elsewhere if f"{name}(" not in text} == set()
    assert elsewhere <= defined
