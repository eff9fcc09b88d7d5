# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controllers that die between two tasks of a relaunch, and nodes and GPU hosts that are lost at one: a row for each
execution of a recorded run (record_runs.py), so that new tasks come in by themselves.

Where nothing differs on the node since the execution before, one kill stands for both. Rows of every state that a next
run can meet are played always, the others with CLEANSLATE_EVERY_BREAK=1.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from run_row import RunFault

KILLED, LOST, MOMENTS = "Controller killed", "Node or GPU host lost", "Every moment of a relaunch"
ALWAYS = ("alone",)  # the kinds of nodes of which some rows are played without being asked for
BEFORE_LEASE = "Take the lease on the GPUs of NODE"
Entry = dict[str, t.Any]
RECORDED: dict[str, list[Entry]] = json.loads(
    pathlib.Path(__file__).with_name("recorded_runs.json").read_text(encoding="utf-8")
)
_SERVER = {"old": "the old server serves", "down": "no server runs", "new": "the new server runs"}
_SERVER_STANDS = {
    "old": "the old server keeps its PID and gets no signal",
    "down": "it is down, and the timer starts it again through its guard",
    "new": "the new server runs on, also when the timer's time comes",
}
_MUST_NOT = "a lease that never ends; a server that stays down without a word; two servers; a signal to anybody else"


def _state(entry: Entry) -> tuple[t.Any, ...]:
    """What a next run meets."""
    return (entry["server"], entry["lease"], entry["starting"], entry["timer"], "swapped" in entry)


def _recorded(kind: str) -> list[Entry]:
    """With the number of the execution among those of its name, and whether new files are live."""
    entries: list[Entry] = []
    times: dict[str, int] = {}
    swapped = False
    for entry in RECORDED[kind]:
        times[entry["task"]] = times.get(entry["task"], 0) + 1
        entries.append({**entry, "time": times[entry["task"]], **({"swapped": True} if swapped else {})})
        swapped = swapped or entry["task"].startswith("Start the server")
    return entries


def _label(entry: Entry) -> str:
    return entry["task"] + ("" if entry["time"] == 1 else f" ({entry['time']})")


def _before(entry: Entry) -> str:
    stands = [_SERVER[entry["server"]]]
    stands += ["the run holds the lease"] if entry["lease"] else []
    stands += ["the timer is armed"] if entry["timer"] else []
    stands += ["the new files are live"] if "swapped" in entry else []
    return ", ".join(stands)


def _next(entry: Entry) -> str:
    return "unlocked as told, the next run serves" if entry["lease"] else "the next run serves at once"


def _row(group: str, name: str, entry: Entry, must: str, always: bool, play: str, **options: t.Any) -> RunFault:
    asked = {"entry": entry, **options}
    needs = ("root",) if options["kind"] == "gpu host" else ()
    always = always and options["kind"] in ALWAYS
    return RunFault(
        group, name, _before(entry), must, _MUST_NOT, play, asked, needs=(*needs, *(() if always else ("every break",)))
    )


def _kills(kind: str, entries: t.Sequence[Entry], seen: set[t.Any]) -> t.Iterator[RunFault]:
    for number, entry in enumerate(entries):
        if number and not entry["changed"]:
            continue  # the kill before the last execution stands for this one
        same = []
        for later in entries[number + 1 :]:
            if later["changed"]:
                break
            same.append(_label(later))
        also = f"; the same before: {', '.join(same)}" if same else ""
        if kind == "gpu host" and entry["where"] == "NODE":
            continue  # as on a node alone
        # What differs with a GPU host is where the lease stands and who releases.
        differs = number > 0 if kind == "alone" else entry["server"] == "down"
        always = differs and (kind, _state(entry)) not in seen
        if always:
            seen.add((kind, _state(entry)))
        where = ", with a GPU host" if kind == "gpu host" else ""
        yield _row(
            KILLED, f"SIGKILL before: {_label(entry)}{where}", entry,
            f"{_SERVER_STANDS[entry['server']]}; {_next(entry)}{also}", always, "killed",
            kind=kind, who="", do="hold", number=number,
        )  # fmt: skip


def _losses(kind: str, who: str, entries: t.Sequence[Entry], seen: set[t.Any]) -> t.Iterator[RunFault]:
    for number, entry in enumerate(entries):
        if entry["where"] != who:
            continue
        # With a GPU host the lease stands there, and a node that is lost gives it back. What is lost before the stop or
        # after the start leaves nothing that a kill does not.
        state = (kind, who, entry["server"], kind == "alone" and "swapped" in entry)
        differs = entry["server"] == "down" or (who == "GPU HOST" and entry["server"] == "new")
        always = entry["lease"] and differs and state not in seen
        if always:
            seen.add(state)
        whose = "GPU host" if who == "GPU HOST" else "node with a GPU host" if kind == "gpu host" else "node"
        yield _row(
            LOST, f"{whose} unreachable from: {_label(entry)}", entry,
            f"rescue and always run, which say who was lost, how it stands and what to do; {_loss_leaves(who, entry)}",
            always, "lost", kind=kind, who=who, do="lose", number=number,
        )  # fmt: skip


def _loss_leaves(who: str, entry: Entry) -> str:
    if who == "GPU HOST" and entry["server"] == "down":
        return "it is down, a person is told, and the timer is taken away"
    return _SERVER_STANDS[entry["server"]]


def _dirty(rows: t.Sequence[RunFault]) -> RunFault:
    """The first kill that leaves no server, with a left-over worker when the timer's time comes."""
    (first,) = [row for row in rows if row.options["entry"]["server"] == "down"][:1]
    entry = first.options["entry"]
    return _row(
        KILLED, "the timer's time comes while a GPU is dirty", entry,
        "the start guard refuses and names the worker; once it is gone the server comes up with the old files",
        True, "dirty", kind="alone", who="", do="hold", number=first.options["number"], dirty=True,
    )  # fmt: skip


def _moments() -> t.Iterator[RunFault]:
    for name, must, must_not, play in (
        ("no server, no timer", "whenever no server runs, a timer of this run is armed, until the new one is proved",
         "a moment at which a dead controller leaves the server down for good", "never_without_timer"),
        ("leases end", "whoever holds the GPUs loses them within the lease's own time",
         "a lease that a dead controller leaves for ever", "leases_end"),
        ("nothing without a lease", "from the stop to the start the run holds the GPUs",
         "a moment at which another run could work on the same GPUs", "never_without_lease"),
    ):  # fmt: skip
        yield RunFault(MOMENTS, name, "Between any two tasks of the relaunches above", must, must_not, play)


def _rows() -> tuple[RunFault, ...]:
    alone, hosted = _recorded("alone"), _recorded("gpu host")
    states: set[t.Any] = set()
    kills = [*_kills("alone", alone, states), *_kills("gpu host", hosted, states)]
    seen: set[t.Any] = set()
    return (
        *kills,
        _dirty(kills),
        *_losses("alone", "NODE", alone, seen),
        *_losses("gpu host", "GPU HOST", hosted, seen),
        *_losses("gpu host", "NODE", hosted, seen),
    )


BROKEN = _rows()
OF_MOMENTS = tuple(_moments())
# On a node without a server, which costs little, so that guards can be taken out of copies there.
ALONE = RunFault(
    LOST,
    "node without a server unreachable from: lease",
    "A relaunch of a node without a server",
    "rescue and always run; its message says that nothing was stopped",
    "the run goes on without the lease; it ends without a word; a server is started",
    "lost_connection",
    says=(
        "was lost while the lease on the GPUs of",
        "Nothing was stopped",
        "The old server was not stopped by this run",
    ),
)
ROWS = (*BROKEN, *OF_MOMENTS, ALONE)
