# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The options that name an SGLang server and its log, and the shape in which a look at it is returned."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import is_gpu_uuid
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    check_host,
    check_line,
    check_path,
    check_program,
    check_unit,
    odd_character,
    shown,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import check_seconds as check_one
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK, redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import HealthLook, Target
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import Opener, check_key
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState, Redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log_source import (
    BACKLOG_BYTES,
    Chunk,
    FileLog,
    JournalLog,
    Position,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_questions import ask_server_info, masked
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_unit import UnitState

SGLANG_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "unit": {"type": "str", "required": True},
    "systemd_scope": {"type": "str", "choices": ["system", "user"], "default": "system"},
    "systemctl": {"type": "path", "default": "systemctl"},
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 30000},
    "api_key": {"type": "str", "no_log": True},
    "served_model_name": {"type": "str"},
    "expected_workers": {"type": "int"},
    "log_file": {"type": "path"},
    "request_timeout": {"type": "float", "default": 25.0},
    "with_server_info": {"type": "bool", "default": False},
}
_MOST_WORKERS = 1024
_LAST_MOMENT = 253402300800.0  # the year 10000, which dates in text end before


def check_seconds(params: t.Mapping[str, t.Any], *names: str, zero: bool = False) -> None:
    """ValueError with a sentence where one of these options is no sensible number of seconds."""
    for name in names:
        check_one(name, params[name], zero=zero)


def target_of(params: t.Mapping[str, t.Any]) -> Target:
    """The server that the options name. ValueError with a sentence where they cannot be meant."""
    unit = params["unit"] or ""
    if unit:
        check_unit("unit", unit)
    check_program("systemctl", params["systemctl"])
    check_host("host", params["host"])
    if not 1 <= params["port"] <= 65535:
        raise ValueError(f"port is {shown(params['port'])}: it must be a number from 1 to 65535.")
    check_line("served_model_name", params["served_model_name"] or "")
    if params["log_file"]:
        check_path("log_file", params["log_file"])
    workers = params["expected_workers"]
    if workers is not None and not 1 <= workers <= _MOST_WORKERS:
        raise ValueError(
            f"expected_workers is {shown(workers)}: give 1 to {_MOST_WORKERS}, or leave it out to expect no number."
        )
    check_seconds(params, "request_timeout")
    check_key(params["api_key"] or None)
    return Target(
        unit=unit,
        host=params["host"],
        port=params["port"],
        served_model_name=params["served_model_name"] or None,
        expected_workers=workers,
        request_timeout=params["request_timeout"],
    )


def check_wait(params: t.Mapping[str, t.Any]) -> None:
    """The options of a wait that are no times. ValueError with a sentence."""
    position = params["log_position"]
    if position is not None and not _is_position(position):
        raise ValueError(
            f"log_position is {shown(position)}; it must be what sglang_health_info returned under that name."
        )
    since = params["log_since"]
    if since is not None and not 0 <= since < _LAST_MOMENT:
        raise ValueError(f"log_since is {shown(since)}: it must be seconds since the epoch.")
    check_line("profile", params["profile"] or "")
    for name in ("starts_file", "guard_file"):
        if params[name]:
            check_path(name, params[name])
    for uuid in params["expected_uuids"]:
        if not is_gpu_uuid(uuid):
            raise ValueError(
                f"expected_uuids contains {shown(uuid)}, which is no GPU UUID; `nvidia-smi -L` lists them."
            )


def _is_position(position: t.Mapping[str, t.Any]) -> bool:
    if "cursor" in position:
        cursor = position["cursor"]
        return isinstance(cursor, str) and odd_character(cursor) is None
    numbers = [position.get("inode"), position.get("offset")]
    return all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers)


def redactor(secrets: t.Iterable[str | None]) -> Redact:
    """The collection's redactor, and these secrets wherever they stand and in whatever form."""
    known = sorted({secret for secret in secrets if secret}, key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in known:
            text = text.replace(secret, MASK)
        return redact(text)

    return mask


def log_reader(
    params: t.Mapping[str, t.Any], target: Target, runner: Runner, backlog: int = BACKLOG_BYTES
) -> t.Callable[[UnitState | None, float | None, Position | None], Chunk]:
    """Reads what is new in the log file, or in the unit's journal where no file is named."""

    def read(unit: UnitState | None, since: float | None, position: Position | None) -> Chunk:
        if params["log_file"]:
            return FileLog(params["log_file"], backlog).read(position)
        if not target.unit:
            return Chunk(error="No log is known: neither a log_file nor a unit was given.")
        invocation = unit.invocation if unit is not None else ""
        journal = JournalLog(runner, target.unit, scope=params["systemd_scope"], invocation=invocation, since=since)
        return journal.read(position)

    return read


def iso_time(seconds: float | None) -> str | None:
    """Seconds since the epoch as people read them, in UTC."""
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def look_as_dict(look: HealthLook, redact: Redact) -> dict[str, t.Any]:
    """What both modules return about one look."""
    unit, processes = look.seen.unit, look.seen.processes
    return {
        "verdict": look.verdict,
        "reason": redact(f"{look.name}: {look.reason}"),
        "stage": look.stage,
        "witnesses": {
            name: {"ok": witness.ok, "detail": redact(witness.detail)} for name, witness in look.witnesses.items()
        },
        "requests": look.seen.requests.as_dict(),
        "since": iso_time(look.since),
        "main_pid": processes.main.pid if processes.main is not None else None,
        "workers": [
            {"pid": worker.pid, "rank": rank} for worker, rank in zip(processes.workers, processes.worker_ranks())
        ],
        "restarts": unit.restarts if unit is not None else None,
    }


def answers_as_dict(look: HealthLook, opener: Opener, redact: Redact, wanted: bool) -> dict[str, t.Any]:
    """What a healthy server says about itself, without its keys: what profiles have expectations about."""
    seen = look.seen
    # A port that is somebody else's is never sent the key.
    if not wanted or seen.health is None or seen.health.status != 200 or seen.processes.foreign is not None:
        return {"server_info": None, "models": None}
    models = seen.models.answer if seen.models is not None and seen.models.ids is not None else None
    return {
        "server_info": ask_server_info(opener, redact),
        "models": masked(models.json(), redact) if models is not None else None,
    }


def log_as_dict(log: LogState, position: Position | None) -> dict[str, t.Any]:
    """What both modules return about the log."""
    return {"log_tail": list(log.last_lines()), "log_position": dict(position) if position is not None else None}
