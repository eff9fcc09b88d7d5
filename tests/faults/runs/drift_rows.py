# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes and GPU hosts that are lost while a scheduled run mends a server that hangs, or has died."""

from __future__ import annotations

import typing as t

from run_row import RunFault

GROUP = "Lost while drift mends"


class Loss(t.NamedTuple):
    """before: the task before which it is lost. server: hung as it was, down, or new."""

    name: str
    before: str
    server: str
    who: str = "NODE"
    always: bool = False


# One execution stops the server and releases the GPUs.
_STOP, _START = "End who holds the GPUs of NODE", "Start the server with profile base"
LOSSES: tuple[Loss, ...] = (
    Loss("node lost before drift's stop", _STOP, "hung"),
    Loss("node lost before drift's start", _START, "down"),
    Loss("GPU host lost before drift's release", _STOP, "new", "GPU HOST"),
)
_HANGS = "A server hangs, two looks have agreed"
_BEFORE = {"hung": _HANGS, "down": _HANGS, "new": "A server has died in a container of the GPU host"}
_FAILS = "the remedy counts as failed and says who was lost; "
_SERVER = {
    "hung": "nothing was signalled",
    "down": "nobody reads this run, so the timer stays and brings the server up through its guard",
    "new": "a remedy keeps to the unit on its node and goes on; that the lease stands on the host is said",
}


def _row(loss: Loss) -> RunFault:
    gpu_host = ("root",) if loss.who == "GPU HOST" else ()
    return RunFault(
        GROUP,
        loss.name,
        f"{_BEFORE[loss.server]}, and the remedy has begun",
        f"{_FAILS if loss.server != 'new' else ''}{_SERVER[loss.server]}; the next look finds it as it is",
        "a server that stays down without a timer; two servers; a signal to anybody else",
        "lost_while_mending",
        {"before": loss.before, "server": loss.server, "who": loss.who, "kind": "gpu host" if gpu_host else "alone"},
        needs=(*gpu_host, *(() if loss.always else ("every break",))),
    )


ROWS = tuple(map(_row, LOSSES))
