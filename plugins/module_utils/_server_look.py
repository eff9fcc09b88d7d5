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
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import Systemd

_BACKLOG_BYTES = 1024 * 1024  # of the log; more is read only where somebody waits for a start


def server_look_from(params: t.Mapping[str, t.Any], clock: Clock, runner: Runner) -> t.Callable[[], dict[str, t.Any]]:
    """What looks at the server. ValueError with a sentence where the options cannot be meant, before anything is looked
    at."""
    target, redact = target_of(params), redactor([params["api_key"]])

    def look_at_server() -> dict[str, t.Any]:
        reading = OneReading(log_reader(params, target, runner, _BACKLOG_BYTES), clock, redact)
        opener = HttpOpener(target.host, target.port, clock, api_key=params["api_key"] or None)
        seen = look(
            target,
            systemd=Systemd(runner, params["systemd_scope"], params["systemctl"]),
            opener=opener,
            clock=clock,
            redact=redact,
            log=reading,
        )
        return {
            **look_as_dict(seen, redact),
            **log_as_dict(reading.state or LogState(), reading.position),
            **answers_as_dict(seen, opener, redact, params["with_server_info"]),
        }

    return look_at_server
