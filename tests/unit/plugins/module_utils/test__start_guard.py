# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One start after the other, on a made-up node whose clock only moves when somebody waits."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _start_guard
from ansible_collections.cleanslate.gpu.plugins.module_utils._gate import GateOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_locks import LockRefused, gpu_locks
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation, GpuLook, GpuProcess
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard import Guard, GuardOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._start_guard_record import GuardRecord
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.gate_world import (
    TWO,
    UUIDS,
    Node,
    holder,
    ok,
    scan,
)

HUNG = GpuLook(state="hung", exit_code=None, hung_pid=77)
NO_DEVICES = GpuLook(state="no_devices", exit_code=6, first_line="No devices were found")
SWEPT = {"removed": [{"path": "/dev/shm/nccl-1"}], "kept": [], "removed_bytes": 5, "msg": "Removed 1 segment."}


class World:
    """A node, and what the guard did to it."""

    def __init__(self, node: Node, reset_problem: str | None = None) -> None:
        self.node, self.reset_problem = node, reset_problem
        self.records: list[GuardRecord] = []
        self.said: list[tuple[float, str]] = []
        self.warnings: list[str] = []
        self.environment: list[str | None] = []
        self.resets = self.sweeps = 0

    def look(self, processes: bool) -> GpuLook:
        return self.node.look(processes)

    def scan(self, processes: t.Sequence[GpuProcess]) -> HolderScan:
        return self.node.scan(processes)

    def write(self, record: GuardRecord) -> None:
        self.records.append(record)

    def write_environment(self, numbers: str | None) -> None:
        self.environment.append(numbers)

    def forget_starts(self) -> str | None:
        self.resets += 1
        return self.reset_problem

    def sweep(self) -> dict[str, t.Any]:
        self.sweeps += 1
        return SWEPT

    def say(self, text: str, *, warning: bool = False) -> None:
        self.said.append((self.node.elapsed, text))
        self.warnings += [text] if warning else []

    @property
    def last(self) -> GuardRecord:
        return self.records[-1]

    @property
    def words(self) -> list[str]:
        return [text for _at, text in self.said]


def guard(world: World, *, timeout: float = 300.0, refusals: int = 0, **options: t.Any) -> Guard:
    gate = GateOptions(options.pop("expectation", TWO), timeout=timeout)
    return Guard(
        world,
        GuardOptions(unit="sglang.service", gate=gate, boot_id="b", pid=9, refusals=refusals, **options),
        world.node.clock,
    )


def at(*steps: tuple[float, GpuLook]) -> t.Callable[[float], GpuLook]:
    """The last look whose time has come."""
    return lambda elapsed: [look for since, look in steps if since <= elapsed][-1]


def test_idle_gpus_start_the_server_at_once() -> None:
    world = World(Node([ok(0, 0)]))
    assert guard(world).run() == "start"
    assert world.node.elapsed < 1
    assert (world.last.verdict, world.last.gate, world.last.refused_count) == ("start", "idle", 0)
    assert len(world.last.gpus) == 2
    assert world.records[0].verdict == "waiting", "whoever reads it sees that a guard is at work"
    assert world.resets == 0


@pytest.mark.parametrize(
    ("before", "until"),
    [
        (ok(0, 40000), 100.0),  # memory that nobody can be seen to hold
        (ok(0), 200.0),  # a GPU that is not there yet after a boot
        (NO_DEVICES, 200.0),
        (HUNG, 100.0),
        (ok(0, 0, fabric_state="In Progress"), 250.0),
        (GpuLook(state="no_driver", exit_code=9), 60.0),
    ],
    ids=["orphaned", "missing", "no devices", "hung", "fabric", "no driver"],
)
def test_dirty_at_boot_then_clean(before: GpuLook, until: float) -> None:
    world = World(Node(at((0, before), (until, ok(0, 0)))))
    assert guard(world).run() == "start"
    assert until <= world.node.elapsed < until + 20
    assert world.resets == 0, "one start, however long it waited"


def test_its_own_dying_are_waited_for() -> None:
    dying = holder(40, dying=True, state="D", unit="sglang.service")
    world = World(Node(at((0, ok(0, 70000)), (90, ok(0, 0))), lambda at: scan(*([dying] if at < 90 else []))))
    assert guard(world).run() == "start"
    assert world.node.elapsed >= 90


@pytest.mark.parametrize("disposition", ["target", "foreign"])
def test_a_named_holder_is_refused_within_seconds(disposition: str) -> None:
    world = World(Node([ok(0, 70000)], scan(holder(40, disposition, gpus=(UUIDS[1],)))))
    assert guard(world).run() == "refused"
    assert world.node.elapsed < 5
    assert (world.last.verdict, world.last.refused_count) == ("refused", 1)
    assert "pid 40" in world.last.reason
    assert "GPU 1 holds 70000 MiB" in world.last.reason
    assert world.last.holders[0]["pid"] == 40
    assert (world.sweeps, world.environment) == (0, []), "nothing is touched for a server that does not start"


def test_a_tool_that_computes_for_a_moment_is_no_reason_to_refuse() -> None:
    world = World(
        Node(
            at((0, ok(0, 300)), (1.5, ok(0, 0))),
            lambda at: scan(*([holder(40, "foreign", gpus=(UUIDS[1],))] if at < 1.5 else [])),
        )
    )
    assert guard(world).run() == "start"


def test_refused_ten_times_then_clean() -> None:
    """systemd's part: it tries again after each no. The start limit never counts one of them."""
    node = Node(lambda elapsed: ok(0, 70000), lambda at: scan(holder(40)))
    world, refusals = World(node), 0
    for number in range(1, 13):
        assert guard(world, refusals=refusals).run() == "refused"
        refusals = world.last.refused_count
        assert refusals == number
        assert world.resets == number
    assert node.elapsed > 2 * _start_guard.PROGRESS_EVERY, "the eleventh and twelfth looked on for a minute each"
    world.node = Node([ok(0, 0)])
    assert guard(world, refusals=refusals).run() == "start"
    assert world.last.refused_count == 0
    assert "It had said no 12 times before." in world.last.reason


def test_a_holder_that_goes_while_it_is_looked_on_is_not_refused() -> None:
    world = World(Node(at((0, ok(0, 70000)), (30, ok(0, 0))), lambda at: scan(*([holder(40)] if at < 30 else []))))
    assert guard(world, refusals=10).run() == "start"


def test_a_start_limit_that_could_not_be_reset_is_said() -> None:
    world = World(Node([ok(0, 70000)], scan(holder(40))), reset_problem="systemctl: no end after 10 s")
    guard(world).run()
    assert (
        "The start limit counts this, since it could not be reset: systemctl: no end after 10 s." in world.last.reason
    )


def test_giving_up_says_how_long_and_why_and_counts_as_a_no() -> None:
    world = World(Node([ok(0)]))
    assert guard(world, timeout=60).run() == "gave_up"
    assert 60 <= world.node.elapsed < 65
    assert (world.last.verdict, world.last.refused_count, world.resets) == ("gave_up", 1, 1)
    assert world.last.reason.startswith("Gives up on sglang.service after 60 s (no 1 in a row): ")
    assert world.last.gate == "missing"


def test_one_line_a_change_and_one_a_minute() -> None:
    world = World(Node(at((0, ok(0)), (150, HUNG), (200, ok(0, 0)))))
    guard(world).run()
    assert [text.partition(",")[0] for text in world.words[:-1]] == [
        "waiting",
        "still waiting",
        "still waiting",
        "waiting",
    ]
    times = [when for when, _text in world.said]
    assert all(60 <= later - earlier < 80 for earlier, later in zip(times[:2], times[1:3]))
    assert world.words[-1].startswith("starts sglang.service")


def test_the_record_follows_what_is_seen_while_it_waits() -> None:
    world = World(Node(at((0, ok(0)), (30, ok(0, 0)))))
    guard(world).run()
    waiting = [record for record in world.records if record.verdict == "waiting" and record.gate]
    assert waiting[0].gate == "missing"
    assert "GPU" in waiting[0].reason


# -- numbers, locks, leftovers -----------------------------------------------------------------------------------------


def test_a_server_on_named_gpus_is_told_their_numbers() -> None:
    world = World(Node([ok(0, 90000, 0, 0)], scan(holder(20, "foreign", gpus=(UUIDS[1],)))))
    assert guard(world, expectation=Expectation(uuids=(UUIDS[3], UUIDS[2]))).run() == "start"
    assert world.environment == ["2,3"]
    assert "CUDA_VISIBLE_DEVICES=2,3." in world.last.reason


def test_a_server_on_all_gpus_is_told_none() -> None:
    world = World(Node([ok(0, 0)]))
    guard(world).run()
    assert world.environment == [None]


def test_leftovers_are_removed_once_and_listed() -> None:
    world = World(Node([ok(0, 0)]))
    guard(world).run()
    assert (world.sweeps, world.last.leftovers) == (1, SWEPT)
    assert "Removed 1 segment." in world.last.reason


def test_idle_gpus_with_a_lock_are_refused_and_its_owner_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_start_guard, "held_by", lambda locks, sleep, root: f"{locks[0].path} is locked by pid 5")
    world = World(Node([ok(0, 0)]))
    assert guard(world, locks=gpu_locks(str(tmp_path / "gpus"), ())).run() == "refused"
    assert "another server is starting on them" in world.last.reason
    assert f"{tmp_path}/gpus/all.lock is locked by pid 5" in world.last.reason
    assert world.sweeps == 0


def test_the_locks_are_there_before_the_server_is(tmp_path: pathlib.Path) -> None:
    guard(World(Node([ok(0, 0)])), locks=gpu_locks(str(tmp_path / "gpus"), ())).run()
    assert (tmp_path / "gpus" / "all.lock").exists()


def test_without_locks_nothing_starts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "gpus").write_text("not a folder")
    world = World(Node([ok(0, 0)]))
    with pytest.raises(LockRefused):
        guard(world, locks=gpu_locks(str(tmp_path / "gpus"), ())).run()
    assert world.environment == []


# -- ended from outside ------------------------------------------------------------------------------------------------


def test_an_interruption_is_recorded_and_counts_as_no_refusal() -> None:
    world = World(Node([ok(0)]))
    stopped = guard(world, refusals=4)
    assert stopped.interrupted() == "interrupted"
    assert (world.last.verdict, world.last.refused_count, world.resets) == ("interrupted", 4, 0)
    assert world.last.reason.startswith("Ended by a signal")


def test_a_failure_of_the_guard_itself_starts_nothing_and_says_what() -> None:
    world = World(Node([ok(0, 0)]))
    assert guard(world).failed("OSError: no space left") == "error"
    assert "could not do its work, so sglang.service was not started: OSError" in world.words[-1]
    assert world.last.verdict == "error"


def test_a_report_that_cannot_be_written_keeps_no_server_down() -> None:
    world = World(Node([ok(0, 0)]))

    def full(record: GuardRecord) -> None:
        raise OSError(28, "No space left on device")

    world.write = full  # type: ignore[method-assign]
    assert guard(world).run() == "start"
    (said,) = [text for text in world.words if "cannot be written" in text]
    assert "goes on without" in said
    assert "df -h" in said


# -- what is said, and how loudly --------------------------------------------------------------------------------------


def test_only_what_keeps_the_server_down_is_a_warning() -> None:
    """journalctl -p warning is what a person asks at night."""
    world = World(Node(at((0, ok(0)), (70, ok(0, 0)))))
    assert guard(world).run() == "start"
    assert (world.warnings, len(world.words)) == ([], 3)
    for look, seen in ((ok(0), scan()), (ok(0, 70000), scan(holder(40)))):
        world = World(Node([look], seen))
        guard(world, timeout=5).run()
        assert world.warnings == world.words[-1:]
    for end in (lambda it: it.interrupted(), lambda it: it.failed("x")):
        world = World(Node([ok(0)]))
        end(guard(world))
        assert world.warnings == world.words


def test_a_report_that_cannot_be_written_is_a_warning() -> None:
    world = World(Node([ok(0, 0)]))

    def full(record: t.Any) -> t.NoReturn:
        raise OSError(28, "No space left on device")

    world.write = full  # type: ignore[method-assign]
    guard(world).run()
    assert len(world.warnings) == 1


def test_gpus_whose_numbers_cannot_be_told_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would take the first ones, which may be another server's."""

    def unknown(gpus: t.Any, uuids: t.Any) -> str:
        raise ValueError("the order of GPU 2 is not known")

    monkeypatch.setattr(_start_guard, "cuda_numbers", unknown)
    world = World(Node([ok(0, 0, 0, 0)]))
    assert guard(world, timeout=30, expectation=Expectation(uuids=(UUIDS[2],))).run() == "gave_up"
    assert "The GPUs are idle, but the order of GPU 2 is not known." in world.last.reason
    assert world.environment == []


def test_a_lock_is_looked_at_only_where_the_gpus_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(_start_guard, "held_by", lambda locks, sleep, root: asked.append(1.0))
    world = World(Node([ok(0)]))
    guard(world, timeout=30).run()
    assert asked == []
    assert "another server" not in world.last.reason


def test_whom_it_waits_for_is_told_anew_when_it_changes() -> None:
    """Those whose memory counts: a monitor that comes and goes is no news."""
    held = ok(0, 70000)
    who = {0: [holder(40)], 20: [holder(41)], 40: [holder(41), holder(90, "monitor")]}
    world = World(Node(lambda elapsed: held, lambda at: scan(*who[max(since for since in who if since <= at)])))
    guard(world, refusals=10, timeout=55).run()
    assert len([text for text in world.words if text.startswith("waiting")]) == 2


def test_it_keeps_to_its_time_and_waits_no_less() -> None:
    """systemd's own limit is a little behind it; a last look is not cut short by a wait."""
    for budget in (1.0, 15.5, 16.0, 31.0, 59.5):
        world = World(Node([ok(0)]))
        assert guard(world, timeout=budget).run() == "gave_up"
        assert budget <= world.node.elapsed < budget + 1.5
        assert f"after {world.node.elapsed:.0f} s" in world.last.reason


def test_nothing_removed_is_not_told() -> None:
    for found in (None, {"removed": [], "msg": "Nothing was left."}):
        world = World(Node([ok(0, 0)]))
        world.sweep = lambda found=found: found  # type: ignore[method-assign, misc, assignment]
        guard(world).run()
        assert "Nothing was left" not in world.last.reason
        assert world.last.leftovers == found


def test_times_are_to_the_thousandth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Node(at((0, ok(0)), (20, ok(0, 0)))))
    monkeypatch.setattr(world.node.clock, "wall", lambda: 1764460800.123456)
    guard(world).run()
    assert {record.started_at for record in world.records} == {1764460800.123}
    assert {record.updated_at for record in world.records} == {1764460800.123}
    assert all(record.waited_s == round(record.waited_s, 3) for record in world.records)
