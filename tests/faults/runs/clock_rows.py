# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clocks that jump between a look and what is done on it, and reboots."""

from __future__ import annotations

from run_row import RunFault

GROUP = "Clocks"
YEARS = 10 * 365 * 86400.0
JUMPS = {"back by ten years": -YEARS, "forward by ten years": YEARS}


def _both(name: str, before: str, must: str, must_not: str, play: str, *says: str) -> tuple[RunFault, ...]:
    return tuple(
        RunFault(GROUP, f"{name}: the date is set {words}", before, must, must_not, play, {"jump": jump}, says)
        for words, jump in JUMPS.items()
    )


ROWS = (
    *_both(
        "lease",
        "A run holds the GPUs for 900 s",
        "it holds them for these 900 s and no longer",
        "another run gets them before, or never",
        "lease_and_date",
        "held by run A",
    ),
    RunFault(
        GROUP,
        "lease: reboot",
        "A run holds the GPUs",
        "the next run gets them, since nothing of the former boot runs",
        "the dead run's lease stands",
        "lease_and_reboot",
    ),
    *_both(
        "marker of a start",
        "A server is starting for up to 2700 s",
        "others are told so for these 2700 s",
        "the marker stays for ever or goes at once",
        "marker_and_date",
        "is starting",
    ),
    RunFault(
        GROUP,
        "marker of a start: reboot",
        "A server is starting",
        "nobody is told of it any more",
        "a run is refused for a server that died with the former boot",
        "marker_and_reboot",
    ),
    *_both(
        "drift's two looks",
        "A look suspected a hung server; the second comes 300 s later",
        "the second look confirms nothing and begins anew",
        "a server is killed on a time that was not measured",
        "looks_and_date",
        "takes a second look",
    ),
    RunFault(
        GROUP,
        "drift's two looks: reboot",
        "A look suspected a hung server; the node was booted since",
        "the second look confirms nothing and begins anew",
        "a server is killed for what another boot saw",
        "looks_and_reboot",
        says=("takes a second look",),
    ),
    *_both(
        "drift's budget",
        "Two remedies of two that are allowed in a day were spent",
        "no third one is begun, in this boot or in the next where the date says that no time has passed",
        "the jump gives the budget back while the node has been up all the time",
        "budget_and_date",
    ),
    *_both(
        "drift's back-off",
        "The last remedy failed a minute ago",
        "the next one waits for the whole back-off",
        "the jump ends the back-off",
        "backoff_and_date",
        "the next one may begin in",
    ),
    RunFault(
        GROUP,
        "pause: the date is set back by ten years",
        "A person paused drift for an hour",
        "drift keeps still",
        "drift acts in the pause",
        "pause_and_date",
        {"jump": -YEARS},
        ("paused until",),
    ),
    *_both(
        "dead-man timer",
        "It was armed 60 s ago for 1000 s",
        "940 s are left, whatever the date is",
        "the server is started in the midst of the work, or years later",
        "dead_man_and_date",
    ),
    *_both(
        "report of the start guard",
        "The guard refused this very start, and said whom it met",
        "its words are told, since systemd's own name of the start decides",
        "the refusal is taken for an old one",
        "guard_and_date",
        "GPU 3 is held",
    ),
    RunFault(
        GROUP,
        "report of the start guard: reboot",
        "The guard refused a start in the former boot",
        "nobody is accused by it, and its refusals do not count any more",
        "a process of this boot is called the holder",
        "guard_and_reboot",
    ),
)
