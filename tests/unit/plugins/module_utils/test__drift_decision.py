# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Laws of the decision table, held against every cell and against random ones, and the cells that people ask about."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _drift_decision
from ansible_collections.cleanslate.gpu.plugins.module_utils._drift_decision import (
    COLUMNS,
    NOT_FORESEEN,
    ROWS,
    Decision,
    Situation,
    decide,
)

VALUES = {column: values for column, (dummy, values) in COLUMNS.items()}
DOWN = ("stopped", "failed", "crash_looping")
HEALTHY = Situation(
    server="ready",
    gpus="own",
    wanted="serving",
    frozen="no",
    lease="no",
    memory="readable",
    alive="yes",
    comes_back="no",
    ended="unknown",
    load="within",
    moves="no",
    drifted="no",
    requests="none",
    config="report",
)


def situations(**fixed: tuple[str, ...] | str) -> t.Iterator[Situation]:
    """Every situation in which the named columns have one of these values, the others every value."""
    wanted = {column: (one,) if isinstance(one, str) else one for column, one in fixed.items()}
    for words in itertools.product(*(wanted.get(column, values) for column, values in VALUES.items())):
        yield Situation(*words)  # type: ignore[arg-type]


def broken_laws(s: Situation, decision: Decision) -> list[str]:
    """Said anew here, not with the rows of the table."""
    acts = decision.action in ("release", "relaunch")
    down = s.alive == "no"
    known = "unknown" not in (s.server, s.gpus, s.frozen, s.lease) and s.memory == "readable"
    stopped = (s.wanted, s.alive, s.comes_back) == ("stopped", "no", "no") and s.server in ("absent", *DOWN)
    well = (
        (s.server, s.load) == ("starting", "within")
        or (s.server == "busy" and s.drifted != "yes")
        or (s.server, s.gpus, s.drifted) == ("ready", "own", "no")
        or (s.server in ("failed", "stopped") and s.comes_back == "yes")
    )
    quiet = (
        s.frozen == "yes"
        or s.lease == "yes"
        or s.wanted == "paused"
        or (stopped and s.gpus in ("idle", "others"))
        or (known and s.wanted == "serving" and s.gpus in ("own", "idle") and well and not acts)
    )
    laws = {
        "whatever is not well is said": quiet == (decision.action == "nothing"),
        "no row has forgotten it": decision.row is not NOT_FORESEEN,
        "frozen is left alone": s.frozen != "yes" or decision.action == "nothing",
        "who holds a lease is left alone": s.lease != "yes" or s.frozen == "yes" or decision.action == "nothing",
        "paused is left alone": s.wanted != "paused" or decision.action == "nothing",
    }
    if acts:
        laws.update(
            {
                "only what a person wants to serve": s.wanted == "serving",
                "unknown never acts": "unknown" not in (s.server, s.gpus, s.frozen, s.lease, s.alive)
                and s.memory == "readable",
                "a lease never acts": s.lease == "no",
                "frozen never acts": s.frozen == "no",
                "nobody else is in the way": s.gpus in ("own", "idle"),
                "these are never ended": s.server
                not in ("absent", "busy", "unauthorized", "wrong_model", "port_taken"),
                "loading is left to load": s.server != "starting" or s.load == "overdue",
                "working is left to work": s.server not in ("hung", "starting") or s.moves == "no",
                "sick and alive needs a standstill": not (s.server in DOWN and s.alive == "yes") or s.moves == "no",
                "serving is ended only to apply": s.server != "ready"
                or (s.drifted, s.config, s.requests) == ("yes", "apply", "none"),
                "a person's stop stands": not (s.server in DOWN and down)
                or s.ended == "alone"
                or decision.action == "release",
                "systemd can be asked": s.comes_back != "unknown" or not (s.server in DOWN and down),
                "systemd is left to start it": s.comes_back != "yes"
                or s.server not in DOWN
                or decision.action == "release",
                "nobody is killed at one look": decision.needs_confirmation or (down and s.gpus == "idle"),
                "release only before systemd's own start": decision.action != "release"
                or (down and s.comes_back == "yes" and s.gpus == "own"),
            }
        )
    return [law for law, kept in laws.items() if not kept]


@pytest.mark.parametrize("gpus", VALUES["gpus"])
@pytest.mark.parametrize("server", VALUES["server"])
def test_every_cell_of_a_wanted_server_keeps_the_laws(server: str, gpus: str) -> None:
    fixed = {"wanted": "serving", "frozen": "no", "lease": "no", "memory": "readable"}
    # What matters to no row of this server takes one value here, and any in the test of random situations.
    if server in ("ready", "busy", "wrong_model"):
        fixed.update(ended="alone", load="overdue", comes_back="no")
    else:
        fixed.update(config="apply", drifted="yes", requests="none")
    cell = situations(server=server, gpus=gpus, **fixed)
    assert not {law for s in cell for law in broken_laws(s, decide(s))}


@pytest.mark.parametrize("wanted", [value for value in VALUES["wanted"] if value != "serving"])
def test_nothing_is_done_where_no_server_is_wanted(wanted: str) -> None:
    """Whatever the server, the GPUs and systemd say."""
    rest = {"load": "overdue", "moves": "no", "drifted": "yes", "requests": "none", "memory": "readable"}
    for s in situations(wanted=wanted, frozen="no", lease="no", **rest):
        decision = decide(s)
        assert decision.action in ("nothing", "report")
        assert not broken_laws(s, decision)


def test_every_row_is_reached() -> None:
    """A row that an earlier one always hides would be a rule that nobody keeps."""
    names = [row.name for row in ROWS]
    assert not [name for name, count in collections.Counter(names).items() if count > 1]
    for row in ROWS:
        some = situations(
            **{"requests": "none", "frozen": "no", "lease": "no", "memory": "readable", "wanted": "serving", **row.when}
        )
        assert any(decide(s).row is row for s in some), row.name


def test_rows_use_known_words() -> None:
    assert [field.name for field in dataclasses.fields(Situation)] == list(VALUES)
    for row in ROWS:
        for column, values in row.when.items():
            assert set(values) <= set(VALUES[column]), row.name


DEAD = {"server": "failed", "alive": "no", "gpus": "idle", "ended": "alone"}
CASES: list[tuple[str, dict[str, str], str, bool]] = [
    ("healthy", {}, "nothing", False),
    ("busy", {"server": "busy", "moves": "yes"}, "nothing", False),
    ("loads", {"server": "starting", "load": "within"}, "nothing", False),
    ("its guard waits", {"server": "starting", "load": "within", "alive": "unknown", "gpus": "idle"}, "nothing", False),
    ("loads for ever", {"server": "starting", "load": "overdue"}, "relaunch", True),
    ("loads for long, and works", {"server": "starting", "load": "overdue", "moves": "yes"}, "report", False),
    ("loads for long, who knows", {"server": "starting", "load": "overdue", "moves": "unknown"}, "report", False),
    ("hung", {"server": "hung"}, "relaunch", True),
    ("slow but working", {"server": "hung", "moves": "yes"}, "report", False),
    ("refuses the key", {"server": "unauthorized"}, "report", False),
    ("another model", {"server": "wrong_model"}, "report", False),
    ("the port is somebody's", {"server": "port_taken"}, "report", False),
    ("crashed", DEAD, "relaunch", False),
    ("crashed with exit status 0", {**DEAD, "server": "stopped"}, "relaunch", False),
    ("start limit", {**DEAD, "server": "crash_looping"}, "relaunch", False),
    ("still crashing", {**DEAD, "server": "crash_looping", "comes_back": "yes"}, "report", False),
    ("between two starts", {**DEAD, "comes_back": "yes"}, "nothing", False),
    ("killed launcher, workers left", {**DEAD, "gpus": "own"}, "relaunch", True),
    ("left-overs before a restart", {**DEAD, "gpus": "own", "comes_back": "yes"}, "release", True),
    ("half of the workers dead", {"server": "failed"}, "relaunch", True),
    ("a worker short, and it works", {"server": "failed", "moves": "yes"}, "report", False),
    ("an operator's stop", {**DEAD, "server": "stopped", "ended": "on_request"}, "report", False),
    ("an operator's stop that needed SIGKILL", {**DEAD, "ended": "on_request"}, "report", False),
    ("dead, and others on the GPUs", {**DEAD, "gpus": "others"}, "report", False),
    ("a colleague's job beside a server", {"gpus": "others"}, "report", False),
    ("dead, a GPU missing", {**DEAD, "gpus": "missing"}, "report", False),
    ("dead, a recovery asked for", {**DEAD, "gpus": "faulty"}, "report", False),
    ("hung, nvidia-smi hangs", {"server": "hung", "gpus": "unknown"}, "report", False),
    ("dead, memory nobody holds", {**DEAD, "gpus": "orphaned"}, "report", False),
    ("edited unit", {"drifted": "yes"}, "report", False),
    ("edited unit, to be applied", {"drifted": "yes", "config": "apply"}, "relaunch", True),
    ("edited unit, requests", {"drifted": "yes", "config": "apply", "requests": "some"}, "report", False),
    ("edited unit, busy", {"server": "busy", "drifted": "yes", "config": "apply"}, "report", False),
    ("frozen by a backup", {"server": "hung", "frozen": "yes"}, "nothing", False),
    ("a run at work", {**DEAD, "lease": "yes"}, "nothing", False),
    ("stopped as wanted", {**DEAD, "server": "stopped", "ended": "on_request", "wanted": "stopped"}, "nothing", False),
    ("stopped as wanted, left-overs", {**DEAD, "gpus": "own", "wanted": "stopped"}, "report", False),
    ("started past the playbooks", {"wanted": "stopped"}, "report", False),
    ("nobody said what is wanted", {**DEAD, "wanted": "none"}, "report", False),
    ("a person's relaunch failed", {**DEAD, "wanted": "failed"}, "report", False),
    ("paused", {**DEAD, "wanted": "paused"}, "nothing", False),
    ("corrupt memory", {**DEAD, "memory": "unreadable"}, "report", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "action", "two_looks"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_people_ask_about(change: dict[str, str], action: str, two_looks: bool) -> None:
    situation = dataclasses.replace(HEALTHY, **change)  # type: ignore[arg-type]
    decision = decide(situation)
    assert (decision.action, decision.needs_confirmation) == (action, two_looks), decision.row.name


def test_what_is_not_foreseen_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_drift_decision, "ROWS", ())
    decision = decide(HEALTHY)
    assert (decision.action, decision.acts, decision.row) == ("report", False, NOT_FORESEEN)
