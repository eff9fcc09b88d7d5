# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A controller that dies between two tasks of a relaunch, and nodes that are lost at one: real runs of the playbook."""

from __future__ import annotations

import typing as t

from run_row import RunFault

KILLED, LOST, MOMENTS = "Controller killed", "Node lost", "Every moment of a relaunch"
NEEDS = ("root",)  # for a mount namespace in which systemd seems to have booted the node


class Kill(t.NamedTuple):
    """What is true when the controller gets SIGKILL before this task."""

    before: str
    server: str  # old, down or new
    leased: bool
    armed: bool


KILLS = {
    "stop": Kill("Stop {{ sglang_stop_unit }}", "old", leased=True, armed=True),
    "release": Kill("End who holds the GPUs of", "down", leased=True, armed=True),
    "start": Kill("Start the server with profile", "down", leased=True, armed=True),
    "proof": Kill("Keep the files that serve as", "new", leased=False, armed=True),
}


class Loss(t.NamedTuple):
    """says: pieces of the message of the rescue. server: as above."""

    before: str
    server: str
    says: tuple[str, ...]


LOSSES = {
    "lease": Loss(
        "Take the lease on the GPUs of",
        "old",
        (
            "was lost while the lease on the GPUs of",
            "Nothing was stopped",
            "The old server was not stopped by this run",
        ),
    ),
    "wanted": Loss(
        "Keep what was asked for on",
        "old",
        (
            "was lost while what was asked for was being kept",
            "The old server was not stopped by this run",
            "could not be given back",
            "dead-man timer starts",
        ),
    ),
    "swap": Loss(
        "Swap in the files of",
        "down",
        (
            "was lost while the files of",
            "IS DOWN on",
            "nothing was started",
            "could not be given back",
            "dead-man timer starts",
        ),
    ),
    "ready": Loss(
        "Wait until the server serves profile",
        "new",
        ("was lost while sglang.service was loading", "status.yml", "is left as it is, but it is not proved to serve"),
    ),
}

_SERVER = {
    "old": "the old server serves with its old PID",
    "down": "it is down, and its dead-man timer stands",
    "new": "the new server runs",
}
_MUST_NOT = "a lease that never ends; a server that is down without a timer or a word; one that runs on a dirty GPU"


def _kill_row(name: str, kill: Kill) -> RunFault:
    leased = "the next run names the dead one and how to unlock it" if kill.leased else "the next run goes on at once"
    return RunFault(
        KILLED,
        f"SIGKILL before: {name}",
        "A relaunch with another profile, its task before has ended",
        f"{_SERVER[kill.server]}; {leased}; then it serves",
        _MUST_NOT,
        "killed",
        {"at": name},
        needs=NEEDS,
    )


def _loss_row(name: str, loss: Loss) -> RunFault:
    return RunFault(
        LOST,
        f"unreachable from: {name}",
        "A relaunch with another profile",
        f"rescue and always run, its verdict is `failed`, its message says how it stands; {_SERVER[loss.server]}",
        _MUST_NOT,
        "lost",
        {"at": name},
        loss.says,
        NEEDS,
    )


ROWS = (
    *(_kill_row(name, kill) for name, kill in KILLS.items()),
    RunFault(
        KILLED,
        "the timer fires while a GPU is dirty",
        "Killed before the release; a left-over worker holds GPU 1",
        "the start guard refuses and names it; once it is gone the server comes up with the old files",
        "the server is started beside it; the worker is signalled",
        "dirty_timer",
        needs=NEEDS,
    ),
    RunFault(
        KILLED,
        "the timer fires after the swap",
        "Killed before the start, the new files are live",
        "the server comes up with the new files, through its guard",
        "it stays down",
        "late_timer",
        needs=NEEDS,
    ),
    RunFault(
        KILLED,
        "the timer fires beside a server",
        "Killed before the stop",
        "the old server goes on",
        "a second server is started, the old one is restarted",
        "idle_timer",
        needs=NEEDS,
    ),
    *(_loss_row(name, loss) for name, loss in LOSSES.items()),
    RunFault(
        MOMENTS,
        "no server, no timer",
        "Between any two tasks of eight relaunches",
        "whenever no server runs, a timer of this run is armed",
        "a moment at which a dead controller leaves the server down for good",
        "never_without_timer",
        needs=NEEDS,
    ),
    RunFault(
        MOMENTS,
        "leases end",
        "Between any two tasks of eight relaunches",
        "whoever holds the GPUs loses them within the lease's own time",
        "a lease that a dead controller leaves for ever",
        "leases_end",
        needs=NEEDS,
    ),
    RunFault(
        MOMENTS,
        "nothing without a lease",
        "Between any two tasks of eight relaunches",
        "from the stop to the start the run holds the GPUs",
        "a moment at which another run could work on the same GPUs",
        "never_without_lease",
        needs=NEEDS,
    ),
)
