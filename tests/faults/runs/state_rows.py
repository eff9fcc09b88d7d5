# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The small files that a node keeps between runs, spoilt in every way that a disk, a hand or an attacker knows."""

from __future__ import annotations

import dataclasses
import typing as t

from run_row import RunFault

GROUP = "State files"


class Spoil(t.NamedTuple):
    """One way. cause: how the sentence tells it. of_lines: what becomes of a file of lines, whose other lines count."""

    name: str
    cause: str
    of_lines: str = "refused"
    needs: tuple[str, ...] = ()


SPOILS = (
    Spoil("cut short", "not the JSON", "appended"),
    Spoil("no JSON", "not the JSON", "appended"),
    Spoil("binary", "not the JSON", "appended"),
    Spoil("nested too deep", "not the JSON", "appended"),
    Spoil("null", "null", "appended"),
    Spoil("of a later version", "version", "appended"),
    Spoil("100 MB", "longer than", "rotated"),
    Spoil("a symbolic link", "symbolic link"),
    Spoil("a folder", "regular file"),
    Spoil("a named pipe", "regular file"),
    Spoil("of another user", "belongs to user id", needs=("root",)),
)


@dataclasses.dataclass(frozen=True)
class Kept:
    """One file. obeyed: what a good one would let happen; instead: what must happen with a spoilt one."""

    key: str
    name: str
    obeyed: str
    instead: str
    needs: tuple[str, ...] = ()
    causes: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # where the sentence has other words


FILES = (
    Kept("wanted", "wanted state", "drift starts the dead server again",
         "drift only reports; a person's run sets it aside"),
    Kept("memory", "drift's memory", "drift starts the dead server again",
         "drift only reports and counts nothing; a person's reset sets it aside"),
    Kept("lease", "leases", "a run gets the GPUs", "nobody gets the GPUs until a person throws it away by unlock.yml"),
    Kept("starts", "seconds of former starts", "the wait tells how long it will take", "the wait goes on without"),
    Kept("allowed", "host's allow-list", "container 101 may be released", "nothing on the host may be released",
         ("root",), {**dict.fromkeys(("cut short", "no JSON", "binary", "nested too deep"), "is no JSON"),
                     "null": "must look like", "of a later version": "must look like",
                     "of another user": "must belong to root"}),
)  # fmt: skip

RECORDED = {
    "appended": "the run is recorded on a line of its own behind it",
    "rotated": "it is rotated away as it is, and the run is recorded in a new file",
    "refused": "the run goes on and says that it was not recorded",
}


def _row(file: Kept, spoil: Spoil) -> RunFault:
    return RunFault(
        GROUP,
        f"{file.name}: {spoil.name}",
        f"{file.obeyed[0].upper()}{file.obeyed[1:]} by what should stand there",
        f"{file.instead}; the sentence names the path and the cause",
        "the file is changed, followed, waited for or read whole into memory; what it should allow is done",
        "spoilt",
        {"file": file.key, "spoil": spoil.name},
        (file.causes.get(spoil.name, spoil.cause),),
        (*file.needs, *spoil.needs) if file.needs != spoil.needs else spoil.needs,
    )


def _line_row(spoil: Spoil) -> RunFault:
    cause = spoil.cause if spoil.of_lines == "refused" else ""
    if spoil.name == "a folder":
        cause = "it is a folder"  # opened for writing, and so refused by the kernel itself
    return RunFault(
        GROUP,
        f"record of runs: {spoil.name}",
        "A run is about to write its line",
        RECORDED[spoil.of_lines],
        "a byte of what stood there is lost, a link is followed, the run fails for it",
        "spoilt_record",
        {"spoil": spoil.name, "then": spoil.of_lines},
        (cause,) if cause else (),
        spoil.needs,
    )


ROWS = (*(_row(file, spoil) for file in FILES for spoil in SPOILS), *(_line_row(spoil) for spoil in SPOILS))
