# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print docs/faults.md from the tables that drive the fault tests: python tests/tooling/write_faults.py."""

from __future__ import annotations

import functools
import itertools
import pathlib
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "faults.md"
FAULTS = ROOT / "tests" / "faults"
PLACES = (
    FAULTS, FAULTS / "release", FAULTS / "launch", FAULTS / "runs", ROOT / "tests" / "integration" / "playbooks",
    ROOT / "tests" / "simulator", ROOT / "tests" / "tooling",
)  # fmt: skip
sys.path[:0] = [str(place) for place in PLACES if str(place) not in sys.path]

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

import planted_faults  # noqa: E402
import recorded_states  # noqa: E402
import release_faults  # noqa: E402
import run_faults  # noqa: E402
from fault_rows import FaultRow  # noqa: E402

HEAD = """<!--
Copyright (c) 2026 cleanslate.gpu contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
-->
# Faults that are planted, and what must not come of them

<!-- Printed from the tables in tests/faults by tests/tooling/write_faults.py; edit there. -->

`make test-faults` plants each of these faults and looks what has happened: in the process table (the same process, by
PID and start time, is alive or not), in what the processes wrote down about signals that they got, in the log of every
call of `nvidia-smi`, `systemctl` and `docker`, and in the files of the node. The modules' own results are asked for the
verdict only. In every row besides, a process that has nothing to do with it must have lived on without a signal,
`nvidia-smi` must have been asked questions only, and no file of the node may have changed.

{total} rows, and {recorded} of recorded states of nvidia-smi. Those that need something (device nodes and control
groups need root) are listed as not run where that is missing, never as passed. `every break` is the variable
CLEANSLATE_EVERY_BREAK: those rows end a run at a step at which the node is in a state that other rows have too, take
half an hour together, and are not run without it. "as in" names a tool that has or had the defect.

That the rows prove something is tested as well: guards are taken out of a copy of the core, and rows have to fail.
"""

RECORDED = """
## Recorded states of nvidia-smi

Each recording is played at each of the three places where nvidia-smi is asked. Recordings of compute processes are
played beside memory on GPU 1.

| recording | state | facts | gate | start guard |
|---|---|---|---|---|
"""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _rows(rows: t.Sequence[FaultRow]) -> t.Iterator[str]:
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        yield f"\n### {group}\n\n| fault | state before | what must happen | what must not | needs |\n"
        yield "|---|---|---|---|---|\n"
        for row in members:
            peer = getattr(row, "peer", "")
            fault = f"{row.name} (as in {peer})" if peer else row.name
            cells = (fault, row.before, row.must, row.must_not, ", ".join(row.needs))
            yield f"| {' | '.join(map(_cell, cells))} |\n"


def _recorded() -> t.Iterator[str]:
    for file, entries in itertools.groupby(recorded_states.ROWS, key=lambda row: row.name.split(", in the ")[0]):
        of_place = {row.ask: row for row in entries}
        words = []
        for ask in recorded_states.PLACES:
            verdicts = of_place[ask].verdicts
            shut = {"gate": recorded_states.SHUT, "guard": recorded_states.NOT_STARTED}.get(ask)
            words.append({"gate": "stays shut", "guard": "no start"}[ask] if verdicts == shut else "/".join(verdicts))
        yield f"| `{file}` | {_cell(of_place['facts'].before)} | {' | '.join(words)} |\n"


def _launches() -> t.Iterator[str]:
    yield "\n### Faults that show while the server loads\n\n"
    yield "| fault | verdict | what the message says |\n|---|---|---|\n"
    for fault in planted_faults.LOAD:
        yield f"| {_cell(fault.name)} | `{fault.verdict}` | {_cell(fault.says)} |\n"
    yield "\n### Faults that are refused while the old server serves\n\n| fault | what the message says |\n|---|---|\n"
    for refusal in planted_faults.REFUSED:
        yield f"| {_cell(refusal.name)} | {_cell(refusal.says)} |\n"


def _in_order(rows: t.Sequence[FaultRow]) -> list[FaultRow]:
    """By group, groups in the order in which they first come."""
    groups = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: groups.index(row.group))


@functools.lru_cache(maxsize=1)
def page() -> str:
    """The whole page."""
    release, runs = _in_order(release_faults.ROWS), _in_order(run_faults.ROWS)
    launches = len(planted_faults.LOAD) + len(planted_faults.REFUSED)
    head = HEAD.format(total=len(release) + len(runs) + launches, recorded=len(recorded_states.ROWS))
    return "".join(
        (
            head,
            "\n## Release, gate, facts and start guard\n",
            *_rows(release),
            "\n## Runs of the playbooks\n",
            *_rows(runs),
            "\n## Launches\n\nWithin ten seconds of the event; the old server, where there is one, keeps its PID.\n",
            *_launches(),
            RECORDED,
            *_recorded(),
        )
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
