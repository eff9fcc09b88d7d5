# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What one SGLang server answers: its models, one generation, its load. The verdict is made elsewhere."""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Answer, Opener

QUICK_TIMEOUT = 5.0  # for what the HTTP process answers by itself
# Every /health makes the model write a token, and so does our own question: such a request is counted for a moment.
LOAD_READINGS = 3
READING_INTERVAL = 0.3
_COUNTERS = ("sglang:generation_tokens_total", "sglang:prompt_tokens_total")
_METRIC = re.compile(r"^(sglang:\w+)(?:\{.*\})?[ \t]*(\S*)", re.MULTILINE)
# No sign: requests and tokens are counted.
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_PROMPT = "Hello"
_MOST = 1e15


@dataclasses.dataclass(frozen=True)
class Load:
    """Requests in the server. tokens changes with every step that the model makes; None: not told."""

    running: int | None = None
    queued: int | None = None
    tokens: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Requests:
    """The load, and whether the model moved between two readings of it (None: cannot be told)."""

    running: int | None = None
    queued: int | None = None
    progress: bool | None = None

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Models:
    """The served names; ids is None where the list could not be had, answer tells why."""

    answer: Answer
    ids: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Generation:
    """One real generation: ok, or the answer that was given instead."""

    ok: bool
    answer: Answer


def masked(value: t.Any, redact: t.Callable[[str], str]) -> t.Any:
    """A JSON value without secrets. SGLang answers with both its keys in plain text."""
    if isinstance(value, dict):
        return {
            # Which names are a secret's only the redactor knows: it is asked with a value that nobody has.
            key: MASK
            if item not in (None, "") and not isinstance(item, bool) and MASK in redact(f"{key}: x")
            else masked(item, redact)
            for key, item in value.items()
        }
    if isinstance(value, list):
        # An option and its value side by side, as in a command line.
        after = [isinstance(item, str) and item.startswith("-") and MASK in redact(f"{item} x") for item in value]
        return [MASK if secret else masked(item, redact) for item, secret in zip(value, [False, *after])]
    return redact(value) if isinstance(value, str) else value


def ask_server_info(opener: Opener, redact: t.Callable[[str], str]) -> dict[str, t.Any] | None:
    """What the server says about itself, without its keys; None where it does not."""
    for path in ("/server_info", "/get_server_info"):  # the second is what older versions call it
        answer = opener(path, timeout=QUICK_TIMEOUT)
        if answer.status != 404:
            break
    data = answer.json() if answer.status == 200 else None
    return masked(data, redact) if isinstance(data, dict) else None


def refused_key(answer: Answer | None) -> bool:
    return answer is not None and answer.status in (401, 403)


def ask_models(opener: Opener) -> Models:
    answer = opener("/v1/models", timeout=QUICK_TIMEOUT)
    data = answer.json() if answer.status == 200 else None
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return Models(answer)
    return Models(answer, tuple(str(entry.get("id")) for entry in entries if isinstance(entry, dict)))


def ask_generation(opener: Opener, model: str, timeout: float) -> Generation:
    """A few tokens through the OpenAI endpoint, which also proves the served name. A server without a tokenizer cannot
    do that: then through its own endpoint."""
    answer = opener(
        "/v1/completions",
        timeout=timeout,
        payload={"model": model, "prompt": _PROMPT, "max_tokens": 4, "temperature": 0},
    )
    data = answer.json() if answer.status == 200 else None
    if isinstance(data, dict) and data.get("choices"):
        return Generation(True, answer)
    if answer.status not in (200, 400, 404, 422, 500):
        return Generation(False, answer)
    native = opener(
        "/generate",
        timeout=timeout,
        payload={"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4, "temperature": 0}},
    )
    data = native.json() if native.status == 200 else None
    if isinstance(data, dict) and "meta_info" in data:
        return Generation(True, native)
    # The first answer says more than "no such endpoint" or "no input_ids here".
    return Generation(False, answer if native.status in (404, 422, 400) else native)


def _counted(value: t.Any) -> int:
    """A number of requests or tokens. ValueError where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _MOST:
        raise ValueError("it is no number of requests")
    return int(value)


def _load_from_loads(data: t.Any) -> Load | None:
    loads = data.get("loads") if isinstance(data, dict) else None
    if not isinstance(loads, list) or not loads or not all(isinstance(load, dict) for load in loads):
        return None
    try:
        return Load(
            running=sum(_counted(load["num_running_reqs"]) for load in loads),
            queued=sum(_counted(load["num_waiting_reqs"]) for load in loads),
            tokens=tuple(float(_counted(load["num_used_tokens"])) for load in loads),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _load_from_metrics(text: str) -> Load | None:
    sums: dict[str, float] = {}
    for name, value in _METRIC.findall(text):
        # One rank that tells no number makes the sum of all unknown: it stays NaN.
        sums[name] = sums.get(name, 0.0) + (float(value) if _AMOUNT.fullmatch(value) else math.nan)
    known = {name: value for name, value in sums.items() if math.isfinite(value)}
    if not known:
        return None
    running, queued = known.get("sglang:num_running_reqs"), known.get("sglang:num_queue_reqs")
    counters = tuple(known[name] for name in _COUNTERS if name in known)
    return Load(
        running=None if running is None else int(running),
        queued=None if queued is None else int(queued),
        tokens=counters or None,
    )


def _load_from_info(data: t.Any) -> Load | None:
    states = data.get("internal_states") if isinstance(data, dict) else None
    if not isinstance(states, list) or not states:
        return None
    try:
        return Load(
            running=sum(_counted(state["num_running_reqs"]) for state in states),
            queued=sum(_counted(state["num_waiting_reqs"]) for state in states),
        )
    except (KeyError, TypeError, ValueError):
        return None


def ask_load(opener: Opener) -> Load:
    """Running and queued requests from the first place that tells them."""
    answer = opener("/v1/loads", timeout=QUICK_TIMEOUT)
    if answer.failure is not None:
        return Load()  # a server that does not answer this one will not answer the others either
    load = _load_from_loads(answer.json()) if answer.status == 200 else None
    if load is None:
        answer = opener("/metrics", timeout=QUICK_TIMEOUT, with_key=False)
        load = _load_from_metrics(answer.body.decode("utf-8", "replace")) if answer.status == 200 else None
    if load is None:
        answer = opener("/server_info", timeout=QUICK_TIMEOUT)
        load = _load_from_info(answer.json()) if answer.status == 200 else None
    return load or Load()


def ask_lasting_load(opener: Opener, clock: Clock) -> Load:
    """The smallest of a few readings, so that a health check is not taken for somebody's request."""
    least = ask_load(opener)
    for dummy in range(LOAD_READINGS - 1):
        if not least.running:
            break
        clock.sleep(READING_INTERVAL)
        again = ask_load(opener)
        if again.running is not None and again.running < least.running:
            least = again
    return least


def compare_loads(before: Load, after: Load) -> Requests:
    """What two readings, a few seconds apart, say. Standing still means something only with requests running."""
    progress: bool | None = None
    if before.tokens is not None and after.tokens is not None:
        if before.tokens != after.tokens:
            progress = True
        elif after.running:
            progress = False
    return Requests(after.running, after.queued, progress)
