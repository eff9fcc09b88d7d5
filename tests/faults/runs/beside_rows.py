# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two at once: relaunches, drift, unlock.yml, runs whose lease ran out under them, runs that were killed."""

from __future__ import annotations

from run_row import RunFault

GROUP = "Two at once"

ROWS = (
    RunFault(
        GROUP,
        "twelve relaunches in the same moment",
        "Nobody holds the GPUs",
        "one gets them, eleven are told who",
        "two get them",
        "race_for_the_lease",
        says=("held by run",),
    ),
    RunFault(
        GROUP,
        "drift beside a relaunch",
        "A person's run holds the GPUs",
        "drift gives up at once and names the run",
        "drift waits, or works beside it",
        "drift_does_not_wait",
        says=("held by run A", "relaunch.yml"),
    ),
    RunFault(
        GROUP,
        "two scheduled looks at once",
        "Both decided on the same memory",
        "the second one looks again",
        "two remedies are begun",
        "two_looks",
        says=("another run has been here since",),
    ),
    RunFault(
        GROUP,
        "unlock by the name of another run",
        "A run holds the GPUs",
        "nothing is taken over, and whose they are is said",
        "the run loses its lease",
        "unlock_wrongly",
        says=("run B holds no lease", "held by run A"),
    ),
    RunFault(
        GROUP,
        "unlocked run comes back",
        "A person took over its lease, and another run got the GPUs",
        "it is refused, and told who took its lease over",
        "it goes on beside the other run",
        "unlocked_run_renews",
        says=("was taken over by run unlock", "held by run B"),
    ),
    RunFault(
        GROUP,
        "unlocked run gives back",
        "A person took over its lease, and another run got the GPUs",
        "the other run keeps them",
        "the other run's lease ends",
        "unlocked_run_gives_back",
        says=("was taken over", "Meanwhile", "held by run B"),
    ),
    RunFault(
        GROUP,
        "lease expired in the middle, another has the GPUs",
        "A run was slower than its lease",
        "its next renewal is refused and names the other run",
        "it goes on beside the other run",
        "expired_and_taken",
        says=("had run out", "held by run B"),
    ),
    RunFault(
        GROUP,
        "lease expired in the middle, nobody came",
        "A run was slower than its lease",
        "it gets the GPUs anew and says that it had lost them",
        "it fails for nothing",
        "expired_and_free",
        says=("acquired", "had run out"),
    ),
    RunFault(
        GROUP,
        "killed while it writes the leases",
        "A run was killed with the momentary lock and a half-written file",
        "the next run gets the GPUs at once",
        "the lock or the half file stands in the way",
        "killed_while_writing",
    ),
    RunFault(
        GROUP,
        "stopped while it has the lock",
        "A process that was stopped by a debugger has the momentary lock",
        "after 5 s the run is refused and told how to find that process",
        "it waits for ever, or writes without the lock",
        "lock_is_kept",
        says=("locked for 5 s", "fuser -v"),
    ),
    RunFault(
        GROUP,
        "killed in the middle of a remedy",
        "Drift's controller died after it had counted its remedy",
        "the remedy counts as a failed one; after two of them drift gives up and says so",
        "drift tries for ever",
        "remedies_that_never_end",
        says=("brought no serving server",),
    ),
)
