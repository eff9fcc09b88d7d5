# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What drift makes of a look: one table, the first row that matches wins. docs/drift-decisions.md is printed from it.

Pure: no clock, no file, no memory of earlier looks. What holds an action back stands in _drift_limits.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_health import Verdict

Action = t.Literal["nothing", "report", "release", "relaunch"]
YesNo = t.Literal["yes", "no"]
Told = t.Literal["yes", "no", "unknown"]


@dataclasses.dataclass(frozen=True)
class Situation:
    """A look in words of closed lists. Every field is a column of the table."""

    server: str
    gpus: str
    wanted: str
    frozen: Told
    lease: Told
    memory: t.Literal["readable", "unreadable"]
    alive: Told
    comes_back: Told
    ended: t.Literal["alone", "on_request", "unknown"]
    load: t.Literal["within", "overdue", "unknown"]
    moves: Told
    drifted: Told
    requests: t.Literal["none", "some", "unknown"]
    config: t.Literal["report", "apply"]


COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "server": (
        "the verdict of sglang_health_info",
        t.get_args(Verdict),
    ),
    "gpus": (
        "`idle`; held by the unit's `own` processes; by `others` too; `orphaned`, memory that nobody to be seen holds;"
        " `missing`; `faulty`, also where a recovery is asked for or the fabric is not up; `unknown`",
        ("idle", "own", "others", "orphaned", "missing", "faulty", "unknown"),
    ),
    "wanted": (
        "what a person last asked for: `serving`, `stopped`, `none` (nothing yet), `failed` (a person's last run did),"
        " `paused`; `unreadable`, the file cannot be read",
        ("serving", "stopped", "none", "failed", "paused", "unreadable"),
    ),
    "frozen": ("whether the unit or its container is frozen or locked", ("yes", "no", "unknown")),
    "lease": ("whether a run holds a lease on these GPUs, or a server is starting on them", ("yes", "no", "unknown")),
    "memory": ("drift's own memory on the node", ("readable", "unreadable")),
    "alive": ("whether the unit has a main process", ("yes", "no", "unknown")),
    "comes_back": ("whether systemd starts the unit again by itself", ("yes", "no", "unknown")),
    "ended": (
        "how a unit that does not run came to its end: `alone`, its process died; `on_request`, it was stopped",
        ("alone", "on_request", "unknown"),
    ),
    "load": ("whether a start is `within` its load budget or `overdue`", ("within", "overdue", "unknown")),
    "moves": (
        "whether requests, tokens, an answer or the use of the GPUs say that it works; `unknown` also where it may have"
        " been asked at a port that is not its own",
        ("yes", "no", "unknown"),
    ),
    "drifted": ("whether configuration, unit or expectations are not as wanted", ("yes", "no", "unknown")),
    "requests": ("whether requests are running or queued", ("none", "some", "unknown")),
    "config": ("the policy for drifted configuration", ("report", "apply")),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """when: column → values that match; a column that is not named matches always. about: the column whose own sentence
    says most. kills: it may end processes, so that one look is not enough."""

    name: str
    action: Action
    when: t.Mapping[str, tuple[str, ...]]
    why: str
    about: str = "server"
    kills: bool = False

    def matches(self, situation: Situation) -> bool:
        return all(getattr(situation, column) in values for column, values in self.when.items())


_DOWN = ("stopped", "failed", "crash_looping")
_SICK = ("hung", "failed", "crash_looping")
_FREE = ("own", "idle")


def _row(
    name: str, action: Action, why: str, about: str = "server", kills: bool = False, **when: str | tuple[str, ...]
) -> Row:
    values = {column: (one,) if isinstance(one, str) else one for column, one in when.items()}
    return Row(name, action, values, why, about, kills)


ROWS: tuple[Row, ...] = (
    # Whose turn it is.
    _row(
        "frozen",
        "nothing",
        "What is frozen or locked looks hung and is not: a backup or a migration is at work.",
        about="frozen",
        frozen="yes",
    ),
    _row(
        "somebody_at_work",
        "nothing",
        "Whoever holds the lease is at work, and a server that was just started is left to load.",
        about="lease",
        lease="yes",
    ),
    _row(
        "paused",
        "nothing",
        "A person asked drift to keep still.",
        about="wanted",
        wanted="paused",
    ),
    _row(
        "wanted_unreadable",
        "report",
        "What is wanted cannot be told.",
        about="wanted",
        wanted="unreadable",
    ),
    _row(
        "nothing_wanted",
        "report",
        "Nobody has said what is wanted here; a person's relaunch.yml, start.yml or stop.yml does.",
        about="wanted",
        wanted="none",
    ),
    _row(
        "left_to_a_person",
        "report",
        "A person's last run failed. Whoever ran it knows, and may be at it.",
        about="wanted",
        wanted="failed",
    ),
    _row(
        "stopped_as_wanted",
        "nothing",
        "It is stopped, and that is what a person asked for.",
        about="wanted",
        wanted="stopped",
        server=("absent", *_DOWN),
        alive="no",
        comes_back="no",
        gpus=("idle", "others"),
    ),
    _row(
        "not_stopped",
        "report",
        "A person asked for a stopped server, and this is not one. Whoever started it may have had a reason.",
        wanted="stopped",
    ),
    # What cannot be told is never a reason to act.
    _row("lease_unknown", "report", "Whether a run is at work cannot be told.", about="lease", lease="unknown"),
    _row("frozen_unknown", "report", "Whether it is frozen cannot be told.", about="frozen", frozen="unknown"),
    _row(
        "memory_unreadable",
        "report",
        "What drift did here before cannot be told, so neither can what it may still do.",
        about="memory",
        memory="unreadable",
    ),
    _row("server_unknown", "report", "How the server is cannot be told.", server="unknown"),
    _row("gpus_unknown", "report", "How the GPUs are cannot be told.", about="gpus", gpus="unknown"),
    # What a relaunch cannot mend.
    _row(
        "gpus_unfit",
        "report",
        "No relaunch brings back a GPU that is gone, broken, or waits for a reset.",
        about="gpus",
        gpus=("missing", "faulty"),
    ),
    _row(
        "others_on_gpus",
        "report",
        "Others compute on these GPUs. Drift ends nobody outside the unit that it looks after.",
        about="gpus",
        gpus="others",
    ),
    _row(
        "orphaned_memory",
        "report",
        "Memory is held and nobody can be seen who holds it, so there is nobody to release it from.",
        about="gpus",
        gpus="orphaned",
    ),
    _row("key_refused", "report", "It runs. A wrong key is no reason to restart it.", server="unauthorized"),
    _row("port_taken", "report", "The port belongs to somebody else, whom drift does not end.", server="port_taken"),
    _row("unit_gone", "report", "There is no such unit: a person has taken it away.", server="absent"),
    _row(
        "other_model",
        "report",
        "It works, with another model than is wanted: a person started it, or the wanted state is out of date.",
        server="wrong_model",
    ),
    # On its way.
    _row("loading", "nothing", "It is within the time that its start may take.", server="starting", load="within"),
    _row("load_unknown", "report", "How long it has been starting cannot be told.", server="starting", load="unknown"),
    _row(
        "load_overdue",
        "relaunch",
        "It has been starting for longer than its load budget, nothing in it works, and nothing ends such a start by"
        " itself.",
        kills=True,
        server="starting",
        load="overdue",
        alive="yes",
        gpus=_FREE,
        moves="no",
    ),
    _row(
        "still_loading",
        "report",
        "It has been starting for longer than its load budget, and it works, or whether it does cannot be told.",
        server="starting",
        alive="yes",
    ),
    _row(
        "not_launched",
        "report",
        "It has waited for longer than its load budget and has no main process yet: its guard or systemd waits.",
        server="starting",
    ),
    # At work.
    _row("busy_drifted", "report", "It is at work. What differs waits.", about="drifted", server="busy", drifted="yes"),
    _row("busy", "nothing", "It is at work: its model moves.", server="busy"),
    _row(
        "ready_on_nothing",
        "report",
        "It answers, and holds no GPU: these are not its GPUs.",
        server="ready",
        gpus="idle",
    ),
    _row(
        "drift_applied",
        "relaunch",
        "It is not as wanted, has no requests, and the policy is to apply what is wanted.",
        about="drifted",
        kills=True,
        server="ready",
        drifted="yes",
        config="apply",
        requests="none",
        alive="yes",
    ),
    _row("drifted", "report", "It serves, and is not as wanted.", about="drifted", server="ready", drifted="yes"),
    _row(
        "compared_in_part",
        "report",
        "It serves; not everything could be compared.",
        "drifted",
        server="ready",
        drifted="unknown",
    ),
    _row("healthy", "nothing", "It serves, on its GPUs, as wanted.", server="ready", gpus="own"),
    # Down.
    _row(
        "leftovers_before_restart",
        "release",
        "systemd tries to start it again, and what its last run left on the GPUs is all that is in the way: that is"
        " ended. The stop before it ends systemd's attempts too, so drift starts the server itself.",
        about="gpus",
        kills=True,
        server=("failed", "crash_looping"),
        alive="no",
        comes_back="yes",
        gpus="own",
    ),
    _row(
        "crash_loop",
        "report",
        "It keeps dying; systemd is still starting it.",
        server="crash_looping",
        comes_back="yes",
    ),
    _row("restarting", "nothing", "systemd starts it again by itself.", server=("failed", "stopped"), comes_back="yes"),
    _row(
        "restart_unknown",
        "report",
        "Whether systemd starts it again cannot be told.",
        server=_DOWN,
        alive="no",
        comes_back="unknown",
    ),
    _row(
        "operators_stop",
        "report",
        "It was stopped on request, past the playbooks: a person's decision, although another one is noted as wanted.",
        server=_DOWN,
        alive="no",
        ended="on_request",
    ),
    _row("end_unknown", "report", "How it ended cannot be told.", server=_DOWN, alive="no", ended="unknown"),
    _row(
        "dead_with_leftovers",
        "relaunch",
        "It died and stays down, and its processes still hold the GPUs: they are released, then it is started.",
        kills=True,
        server=_DOWN,
        alive="no",
        gpus="own",
    ),
    _row(
        "dead",
        "relaunch",
        "It died and stays down, also where it ended with exit status 0 or systemd gave up after its start limit.",
        server=_DOWN,
        alive="no",
        gpus="idle",
    ),
    _row("shutting_down", "report", "It is shutting down.", server="stopped"),
    # Running, and not well.
    _row("main_process_unknown", "report", "Its main process cannot be told.", server=_SICK, alive=("no", "unknown")),
    _row(
        "moves",
        "report",
        "It does not answer as it should, but something in it works: a long request, or a hang or a dead worker that"
        " keeps the GPUs turning, which SGLang's own watchdog ends.",
        server=_SICK,
        moves="yes",
    ),
    _row("progress_unknown", "report", "Whether its model works cannot be told.", server=_SICK, moves="unknown"),
    _row(
        "hung",
        "relaunch",
        "It runs, and its model gives no sign of life: no request moves, no token comes, no GPU works.",
        kills=True,
        server="hung",
        gpus=_FREE,
        moves="no",
    ),
    _row(
        "half_dead",
        "relaunch",
        "It runs, a part of it is dead, and nothing in it works.",
        kills=True,
        server=("failed", "crash_looping"),
        gpus=_FREE,
        moves="no",
    ),
)
NOT_FORESEEN = Row("not_foreseen", "report", {}, "Nobody has foreseen this; a person should look at it.")


@dataclasses.dataclass(frozen=True)
class Decision:
    """action: what the table says, before anything holds it back."""

    action: Action
    row: Row

    @property
    def acts(self) -> bool:
        return self.action in ("release", "relaunch")

    @property
    def needs_confirmation(self) -> bool:
        return self.row.kills


def decide(situation: Situation) -> Decision:
    row = next((row for row in ROWS if row.matches(situation)), NOT_FORESEEN)
    return Decision(row.action, row)
