# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are full, out of inodes or read-only under everything that is written on a node."""

from __future__ import annotations

import typing as t

from run_row import RunFault

GROUP = "Disks"


class Disk(t.NamedTuple):
    """One kind of trouble. cure: what the sentence tells a person to look at."""

    name: str
    before: str
    cure: str


FULL = Disk("full", "not one block is free", "the file system is full; `df -h` and `df -i` show it")
NO_INODES = Disk("out of inodes", "no file can be made any more", FULL.cure)
READ_ONLY = Disk("read-only", "it was remounted read-only", "the file system is mounted read-only; `dmesg` may say why")


def _row(what: str, disk: Disk, must: str, must_not: str, ask: str, *says: str) -> RunFault:
    return RunFault(
        GROUP,
        f"{what}: {disk.name}",
        f"The file system holds good older files; {disk.before}",
        f"{must}; the sentence names the path and the cure",
        f"{must_not}; an older file changes; something half-written is left",
        "on_disk",
        {"disk": disk.name, "ask": ask},
        (disk.cure, *says),
        ("mounts",),
    )


def _rows(what: str, must: str, must_not: str, ask: str, *says: str) -> tuple[RunFault, ...]:
    return tuple(_row(what, disk, must, must_not, ask, *says) for disk in (FULL, READ_ONLY))


_UNIT = "staging is refused while the old server still serves"
_SWAP = "the swap is refused as a whole: every file is as it was before"
ROWS = (
    *_rows("new unit", _UNIT, "a new unit beside an old configuration", "stage_unit", "cannot write"),
    *_rows("new configuration", _UNIT, "a new unit beside an old configuration", "stage_config", "cannot write"),
    _row(
        "swap of unit and configuration, the second on it",
        NO_INODES,
        _SWAP,
        "one file is new and one is old",
        "swap",
        "as it was before",
    ),
    _row(
        "swap of unit and configuration, the second on it",
        READ_ONLY,
        _SWAP,
        "one file is new and one is old",
        "swap",
        "as it was before",
    ),
    *_rows(
        "record of runs",
        "the run is told that it was not recorded, and goes on",
        "half a line",
        "record",
        "was not recorded",
        "record/runs.",
    ),
    *_rows(
        "metrics",
        "the run is recorded and told that it is not counted",
        "the run counts as not recorded",
        "metrics",
        "was recorded in",
        "but the metrics were not",
    ),
    *_rows(
        "wanted state",
        "the run is refused before anything is stopped",
        "drift loses what was wanted before",
        "wanted",
        "What is wanted was not written",
        "wanted.json",
    ),
    *_rows(
        "drift's memory",
        "no remedy is begun that could not be counted",
        "the budget is forgotten",
        "memory",
        "Drift's memory was not written",
        "drift.json",
    ),
    *_rows(
        "leases",
        "the run is refused before anything is stopped",
        "a lease is held that nobody can read",
        "lease",
        "no lease was changed",
    ),
    *_rows(
        "seconds of a start",
        "the start counts as good, and the wait warns",
        "the start fails for it",
        "starts",
        "starts.json",
    ),
    *_rows(
        "report of the start guard",
        "the server is started all the same, since its GPUs are idle, and it is said once",
        "the server stays down for a file that only people read",
        "guard_report",
        "goes on without",
    ),
    *_rows(
        "report of the start guard, GPUs held",
        "the server is not started, and the holder is named in the journal",
        "the guard lets it start because it could not write",
        "guard_refuses",
        "goes on without",
        "4711",
    ),
    *_rows(
        "numbers of the GPUs for the server",
        "the server is not started, and why is said",
        "it starts on GPUs that are not its own",
        "guard_numbers",
        "could not do its work",
    ),
    _row(
        "locks of the GPUs",
        READ_ONLY,
        "the server is not started, and why is said",
        "it starts without exclusion",
        "guard_locks",
        "cannot make the lock file",
    ),
)
