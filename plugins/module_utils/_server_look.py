# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""One look at a server from a module's options: alone, and as a part of a look at drift."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import Clock
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_arguments import (
    answers_as_dict,
    log_as_dict,
    log_reader,
    look_as_dict,
    redactor,
    target_of,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import look
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_http import HttpOpener
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log import LogState
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_log_source import OneReading
from ansible_collections.cleanslate.gpu.plugins.module_utils._started_with import (
    Asked,
    Files,
    StartedWith,
    started_with,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

_BACKLOG_BYTES = 1024 * 1024  # of the log; more is read only where somebody waits for a start


def _asked_like(params: t.Mapping[str, t.Any], asked: Asked) -> dict[str, t.Any]:
    """The options with another way to ask the server."""
    of_it = {"host": asked.host, "port": asked.port, "log_file": asked.log_file, "api_key": asked.api_key}
    return {**params, **of_it, "expected_workers": asked.workers}


def _started_with(
    params: t.Mapping[str, t.Any], files: Files | None, systemd: Systemd, clock: Clock
) -> StartedWith | None:
    if files is None:
        return None
    names = ("host", "port", "expected_workers", "log_file", "api_key")
    host, port, workers, log_file, api_key = (params[name] for name in names)
    given = Asked(host, port, workers, log_file or None, api_key or None)
    return started_with(files, given, lambda asked: target_of(_asked_like(params, asked)), systemd, clock)


def server_look_from(
    params: t.Mapping[str, t.Any], clock: Clock, runner: Runner, files: Files | None = None
) -> t.Callable[[], dict[str, t.Any]]:
    """What looks at the server. ValueError with a sentence where the options cannot be meant, before anything is looked
    at.

    :param files: where what is installed stands, by which the server is then judged instead of by the options.
    """
    target_of(params)

    def look_at_server() -> dict[str, t.Any]:
        systemd = Systemd(runner, params["systemd_scope"], params["systemctl"])
        started = _started_with(params, files, systemd, clock)
        used = params if started is None else _asked_like(params, started.asked)
        target, redact = target_of(used), redactor([params["api_key"], used["api_key"]])
        reading = OneReading(log_reader(used, target, runner, _BACKLOG_BYTES), clock, redact)
        opener = HttpOpener(target.host, target.port, clock, api_key=used["api_key"] or None)
        seen = look(
            target,
            systemd=systemd,
            opener=opener,
            clock=clock,
            redact=redact,
            log=reading,
        )
        return {
            **look_as_dict(seen, redact),
            **log_as_dict(reading.state or LogState(), reading.position),
            **answers_as_dict(seen, opener, redact, params["with_server_info"]),
            "started_with": started.as_dict() if started is not None else None,
        }

    return look_at_server
