# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print docs/drift-decisions.md from the table by which drift decides: python tests/tooling/write_decisions.py."""

from __future__ import annotations

import functools
import itertools
import pathlib
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "drift-decisions.md"

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_decision as table  # noqa: E402
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_memory import Limits  # noqa: E402

HEAD = """# What drift decides

<!-- Printed from plugins/module_utils/_drift_decision.py by tests/tooling/write_decisions.py; edit there. -->

A scheduled run looks at a server, puts what it sees into the words of closed lists, and takes the first row of
one table that matches. What is missing from the look, failed, or has an unknown shape is `unknown`, and unknown
is never a reason to act.

| action | what is done |
|---|---|
| nothing | all is as it should be, or it is somebody else's turn |
| report | something is not as it should be; it is said, and a person decides |
| release | as a relaunch, where systemd still tries and only the unit's own left-over processes are in the way |
| relaunch | evidence is taken, what is left of the unit is ended, the GPUs are proved idle, it is started again |

## The table

The first row that matches decides. Columns that a row does not name do not matter to it.
"""

TAIL = """
Why a release starts the server as well: what is left over is ended only after the unit was stopped, or systemd
would start a server in the midst of it. The stop ends systemd's own attempts, so nobody else would start it.

Why a unit that reached its start limit is started once more: systemd tried the same start on the same GPUs,
time after time. A relaunch does what it cannot, it releases what is left over, proves every GPU idle, and
clears the limit; and what kept the server from starting (the fabric, a file system) may be well by now. The
budget bounds it. While systemd is still trying, it is left to try.

Why a hang that keeps the GPUs turning is left alone: from outside it looks like a very long request. SGLang's
own watchdog ends the stuck process (`--watchdog-timeout`), and then the server is dead, which can be told.

Why `systemctl stop` is told from a crash by time: it takes the unit out of *active* before its process ends;
when the process dies by itself, *active* ends after it. systemd's `Result` does not tell: a stop that needed
SIGKILL is a failure to it, and a start limit often leaves the result of the last crash. A stop while the guard
waits is told by the guard's exit status, and one between two starts by `Restart=always`, with which only a stop
leaves a unit inactive.

## By server and GPUs

For a wanted server, no lease, nothing frozen, and a policy to remediate and to apply what is wanted: every
action that the other columns can lead to. "after two looks" says that one look is not enough.
"""

_GAVE_UP = (
    "as many remedies in a row as the budget allows brought no serving server. A run that never came back counts as"
    " failed. Only a person's relaunch or a reset ends it"
)
_BACKOFF = (
    "the last remedy failed or is not over: {backoff} s, doubled with each further failure in a row, {backoff_most} s"
    " at most"
)
_BUDGET = (
    "{max_remediations} remedies began in the last {window} s, whatever became of them. They count from before their"
    " first step"
)
_CONFIRMATION = (
    "the action may end processes, and no earlier look saw the same of the same processes at least {confirm_after} s"
    " ago"
)
HOLDING = {
    "mode": "the policy is to report",
    "opt_out": "remedies are switched off for this host",
    "gave_up": _GAVE_UP,
    "backoff": _BACKOFF,
    "budget": _BUDGET,
    "window": "it is not one of the times that are allowed",
    "confirmation": _CONFIRMATION,
}
HELD_BACK = """
## What holds an action back

The first of these that applies makes a report of it, and the report says which.

| word | when |
|---|---|
{rows}

Two looks confirm each other when they belong to one boot, follow each other within {confirm_within} s without a
look in between that saw something else, name the same processes, and the date was not set in between. Time is
told by CLOCK_BOOTTIME: a clock that jumps confirms nothing. Between boots the date counts, and a date in the
future counts as now.

Times that are allowed are written `Mon-Fri 22:00-06:00`, `Sat,Sun 00:00-24:00`, `02:00-05:00` or, with a zone,
`02:00-05:00 Europe/Berlin`. Days are those on which a window begins: the first of these ends on Saturday at
six. Without a zone it is the local time of the controller, as for the schedule itself.

On a fleet there is one more: when more hosts are in trouble than a set share (or number) of those that were
looked at, nobody is acted on, and the cause is looked for in what they share. Hosts that still wait for a
second look, a back-off or their time count; those that gave up or take no part do not. One host is always
allowed.
"""

EXPLAINED = """
## The columns

| column | what it says | values |
|---|---|---|
"""


def _condition(row: table.Row) -> str:
    parts = []
    for column, values in row.when.items():
        all_values = table.COLUMNS[column][1]
        others = [value for value in all_values if value not in values]
        if len(others) == 1 and len(all_values) > 2:
            parts.append(f"{column} not {others[0]}")
        else:
            parts.append(f"{column} {' or '.join(values)}")
    return "; ".join(parts)


def _rows() -> t.Iterator[str]:
    yield "\n| no. | row | when | action | why |"
    yield "|---|---|---|---|---|"
    for number, row in enumerate((*table.ROWS, table.NOT_FORESEEN), 1):
        action = f"**{row.action}**" if row.action in ("release", "relaunch") else row.action
        action += ", after two looks" if row.kills else ""
        yield f"| {number} | `{row.name}` | {_condition(row) or 'anything else'} | {action} | {row.why} |"


def outcomes(server: str, gpus: str) -> list[table.Decision]:
    """Every decision that a wanted server can meet in this cell, in the order of the table."""
    fixed = {"server": (server,), "gpus": (gpus,), "wanted": ("serving",), "frozen": ("no",), "lease": ("no",)}
    fixed.update(memory=("readable",), config=("apply",))
    columns = [fixed.get(column, values) for column, (dummy, values) in table.COLUMNS.items()]
    found = {
        (decision.action, decision.needs_confirmation): decision
        for words in itertools.product(*columns)
        for decision in [table.decide(table.Situation(**dict(zip(table.COLUMNS, words))))]  # type: ignore[arg-type]
    }
    order = ("nothing", "report", "release", "relaunch")
    return sorted(found.values(), key=lambda one: (order.index(one.action), one.needs_confirmation))


def _matrix() -> t.Iterator[str]:
    gpus = table.COLUMNS["gpus"][1]
    yield f"\n| server | {' | '.join(gpus)} |"
    yield "|---" * (len(gpus) + 1) + "|"
    for server in table.COLUMNS["server"][1]:
        cells = []
        for state in gpus:
            said = [
                (f"**{one.action}**" if one.acts else one.action)
                + (" after two looks" if one.needs_confirmation else "")
                for one in outcomes(server, state)
            ]
            cells.append(", ".join(said))
        yield f"| {server} | {' | '.join(cells)} |"


@functools.lru_cache(maxsize=1)
def page() -> str:
    """The whole page."""
    limits = Limits()
    numbers = {
        name: f"{getattr(limits, name):g}"
        for name in ("backoff", "backoff_most", "max_remediations", "window", "confirm_after", "confirm_within")
    }
    columns = (f"| {name} | {meaning} | {', '.join(values)} |\n" for name, (meaning, values) in table.COLUMNS.items())
    return "".join(
        (
            HEAD,
            "\n".join(_rows()),
            "\n",
            TAIL,
            "\n".join(_matrix()),
            "\n",
            HELD_BACK.replace("{rows}", "\n".join(f"| `{word}` | {when} |" for word, when in HOLDING.items())).format(
                **numbers
            ),
            EXPLAINED,
            *columns,
        )
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
