# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is left when a relaunch breaks off, and that everybody finds a way from there: real runs of the playbook."""

from __future__ import annotations

import typing as t

import pytest
from broken_rows import BROKEN, OF_MOMENTS, RECORDED
from broken_runs import TTL, executions
from broken_scene import Part, Scene, again
from fault_rows import not_run
from run_row import RunFault

MOST = 8  # nodes of one run
OURS = ("stop", "start", "restart", "kill")


def _batches() -> list[tuple[RunFault, ...]]:
    """The rows that share a run: nodes alone, and nodes with GPU hosts."""
    found = []
    for kind in RECORDED:
        rows = [row for row in BROKEN if row.options["kind"] == kind and not not_run(row)]
        parts = -(-len(rows) // MOST)
        found += [tuple(rows[number::parts]) for number in range(parts)]
    return [batch for batch in found if batch]


BATCHES = _batches()
BATCH_OF = {row.name: number for number, batch in enumerate(BATCHES) for row in batch}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[t.Callable[[int], Scene]]:
    played: dict[int, Scene] = {}
    begun: set[int] = set()

    def scene(number: int) -> Scene:
        if number not in played:
            assert number not in begun, "it broke where the first of its rows says"
            begun.add(number)
            played[number] = Scene(tmp_path_factory.mktemp("broken"), BATCHES[number])
        return played[number]

    yield scene
    for one in played.values():
        one.end()


def verbs(part: Part) -> list[str]:
    """What was done to the unit until the controller was dead."""
    calls = [call for call in part.calls if call.tool == "systemctl" and "sglang.service" in call.argv]
    return [call.verb for call in calls if call.verb in OURS]


def check_what_is_left(part: Part) -> None:
    left, server = part.left, part.entry["server"]
    assert left is not None
    if server == "old":
        assert left.launchers == part.old.launchers
        assert verbs(part) == []
    elif server == "down":
        assert left.launchers == ()
        assert verbs(part) == ["stop"]
    else:
        assert len(left.launchers) == 1
        assert left.launchers != part.old.launchers
        assert verbs(part) == ["stop", "start"]
    for lease in left.leases:
        assert 0 < lease["expires"] - lease["since"] <= TTL, lease


def check_the_timer(scene: Scene, part: Part) -> None:
    """Its time has come, where it was armed."""
    left, came = part.left, part.timer_came
    assert left is not None
    assert came is not None
    if left.armed_by:
        assert left.armed_by == scene.run_id
        assert len(came.launchers) == 1, "it brings the server up"
    if left.launchers:
        assert came.launchers == left.launchers, "it starts nothing beside a server, and none anew"


def check_the_next_run(scene: Scene, part: Part) -> None:
    run, served = part.again, part.served
    if not again(part.row):
        return
    assert run is not None
    assert served is not None
    if part.refused is not None:
        assert part.refused.rc == 2, str(part.refused)
        assert f"unlock.yml -e unlock_run_id={scene.run_id}" in part.refused.text, str(part.refused)
        assert part.refused.verbs(part.node, "stop", "start") == []
    if part.unlocked is not None:
        assert part.unlocked.rc == 0, str(part.unlocked)
    assert run.rc == 0, str(run)
    assert (len(served.launchers), served.new_files, served.armed_by, served.leases) == (1, True, "", ()), served


def killed(scene: Scene, part: Part) -> None:
    entry, left = part.entry, part.left
    assert left is not None
    recorded = RECORDED[part.row.options["kind"]][: part.row.options["number"]]
    assert executions(part.moments) == recorded, "another run than the recorded one: run record_runs.py"
    check_what_is_left(part)
    assert [lease["run_id"] for lease in left.standing] == ([scene.run_id] if entry["lease"] else [])
    assert bool(left.armed_by) is entry["timer"]
    check_the_timer(scene, part)
    check_the_next_run(scene, part)


def dirty(scene: Scene, part: Part) -> None:
    check_what_is_left(part)
    assert part.refused_on_dirty.startswith("refused: "), part.refused_on_dirty
    said, dummy, worker = part.refused_on_dirty.partition(", launchers [], worker ")
    assert f"pid {worker}" in said, part.refused_on_dirty
    assert part.worker_lived
    check_the_timer(scene, part)
    assert part.timer_came is not None
    assert not part.timer_came.new_files
    check_the_next_run(scene, part)


def how_it_stands(part: Part) -> str:
    """In the words of the run that lost it."""
    # On a node without a GPU host the release stops the server too.
    stops = ("Stop ", "Start the server", *(["End who holds"] if part.entry["server"] == "old" else []))
    if part.entry["task"].startswith(stops):
        return f"may be down on {part.node.name}"
    down = f"IS DOWN on {part.node.name}"
    return {"old": "was not stopped by this run", "down": down, "new": "not proved to serve"}[part.entry["server"]]


def lost(scene: Scene, part: Part) -> None:
    entry, left, who = part.entry, part.left, part.row.options["who"]
    assert left is not None
    gone = part.gpu_host.name if part.gpu_host is not None and who == "GPU HOST" else part.node.name
    check_what_is_left(part)
    if part.verdict != "ready":
        assert part.verdict == "failed", part.warned
        assert f"{gone} was lost" in part.said or "could not be given back" in part.said, part.said
        assert how_it_stands(part) in part.said, part.said
    else:
        assert entry["server"] == "new"
        assert gone in part.warned
    # The lease is where the GPU host is, and given back unless that is lost, or what was lost may still be at work.
    leased_on = part.gpu_host.name if part.gpu_host is not None else part.node.name
    at_work = entry["task"].startswith(("Stop sglang.service", "End who holds"))
    if entry["lease"] and (gone == leased_on or at_work):
        assert [lease["run_id"] for lease in left.standing] == [scene.run_id]
        kept = "is kept, since what this run began on" if at_work else "could not be given back and stands"
        assert kept in (part.said or part.warned), part.said
        told = f"stands for up to {TTL} s: end it with unlock.yml -e unlock_run_id="
        assert f"{told}{scene.run_id}" in (part.said or part.warned), part.said
    else:
        assert left.standing == []
    if gone == part.node.name and entry["timer"]:
        assert left.armed_by == scene.run_id
        if part.said:
            assert "Its dead-man timer starts sglang.service again at" in part.said, part.said
    check_the_timer(scene, part)
    check_the_next_run(scene, part)


PLAYS: dict[str, t.Callable[[Scene, Part], None]] = {play.__name__: play for play in (killed, dirty, lost)}


@pytest.mark.parametrize("row", BROKEN, ids=str)
def test_fault(row: RunFault, scenes: t.Callable[[int], Scene]) -> None:
    if not_run(row):
        pytest.skip(not_run(row))
    scene = scenes(BATCH_OF[row.name])
    PLAYS[row.play](scene, scene.parts[row.name])
    assert scene.stranger_lives()


def never_without_timer(scene: Scene, moments: t.Sequence[dict[str, t.Any]]) -> int:
    down, stopped, proved = 0, False, False
    for moment in moments:
        if "ran" in moment:
            proved = proved or moment["ran"].startswith("Wait until the server serves")
            continue
        stopped = stopped or moment["main_pid"] is None
        down += moment["main_pid"] is None
        if stopped and not proved:
            assert scene.run_id in moment["timer"], moment
    return down


def leases_end(scene: Scene, moments: t.Sequence[dict[str, t.Any]]) -> int:
    held = [lease for moment in moments for lease in moment.get("leases", ())]
    for lease in held:
        assert 0 < lease["expires"] - lease["since"] <= TTL, lease
    return len(held)


def never_without_lease(scene: Scene, moments: t.Sequence[dict[str, t.Any]]) -> int:
    down = [moment for moment in moments if "task" in moment and moment["main_pid"] is None]
    for moment in down:
        assert [lease["run_id"] for lease in moment["leases"]] == [scene.run_id], moment
    return len(down)


MOMENTS: dict[str, t.Callable[[Scene, t.Sequence[dict[str, t.Any]]], int]] = {
    play.__name__: play for play in (never_without_timer, leases_end, never_without_lease)
}


@pytest.mark.parametrize("number", range(len(BATCHES)))
@pytest.mark.parametrize("row", OF_MOMENTS, ids=str)
def test_moments(row: RunFault, number: int, scenes: t.Callable[[int], Scene]) -> None:
    scene = scenes(number)
    nodes = [part for part in scene.parts.values() if part.row.options["do"] == "hold"]
    seen = sum(MOMENTS[row.play](scene, part.moments) for part in nodes)
    assert seen > 0, "nothing of it was seen"
