# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A made-up world for the ladder: processes as records, and a clock that only moves when somebody waits."""

from __future__ import annotations

import dataclasses
import signal
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan
from ansible_collections.cleanslate.gpu.plugins.module_utils._kinship import Process
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder import ReleaseOptions, release
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import Rung
from ansible_collections.cleanslate.gpu.plugins.module_utils._managers import Order, OrderOutcome

QUICK = (Rung("TERM", 2.0), Rung("KILL", 5.0))
SCAN_COST = 0.001


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.0)


@dataclasses.dataclass
class Fake:
    """A process. term and kill: seconds until it ends after that signal (None: ignores it). dies_at: by itself.
    listed: seconds for which a scan still finds it afterwards, unreaped and only listed by nvidia-smi. unseen: while it
    is dying no scan finds it, since its tables are detached."""

    pid: int
    ppid: int = 1
    start: int = 100
    term: float | None = 0.0
    kill: float | None = 0.0
    dying_after_kill: bool = False
    dying: bool = False
    dies_at: float | None = None
    born_at: float | None = None
    holds: bool = True
    maps: bool = True
    disposition: str = "target"
    comm: str = "python3"
    cmdline: str = ""
    ns_pid: int | None = None
    state: str = "S"
    permitted: bool = True
    on_term: t.Callable[[World], None] | None = None
    on_death: t.Callable[[World], None] | None = None
    dead: bool = False
    listed: float = 0.0
    unseen: bool = False
    got: list[str] = dataclasses.field(default_factory=list)


class World:
    """Scanner, signaller, kinship and managers in one."""

    def __init__(self, *processes: Fake) -> None:
        self.clock = Clock()
        self.processes = list(processes)
        self.incomplete: list[HolderScan] = []
        self.scans = 0
        self.orders: tuple[Order, ...] = ()
        self.order_ok = True
        self.order_later = False
        self.carried: list[str] = []
        self.on_order: t.Callable[[], None] | None = None
        self.spared: set[int] = set()
        self.before_send: t.Callable[[int], None] | None = None
        self.asked_again: list[int] = []
        self.adopters: set[int] = {1}
        self.own_pids = frozenset({500, 501})
        self.closed = 0
        self.memory: list[int | t.Literal["hangs"] | None] = []
        self.memory_asked: list[float] = []

    # -- time ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        for one in list(self.processes):
            if one.dies_at is not None and not one.dead and self.present(one) and one.dies_at <= self.clock.now:
                one.dead = True
                if one.on_death is not None:
                    one.on_death(self)

    def present(self, one: Fake) -> bool:
        return not one.dead and (one.born_at is None or one.born_at <= self.clock.now)

    def alive(self) -> list[Fake]:
        self.settle()
        return [one for one in self.processes if self.present(one)]

    def find(self, pid: int) -> Fake | None:
        return next((one for one in self.alive() if one.pid == pid), None)

    # -- the four roles -----------------------------------------------------------------------------------------

    def holder(self, one: Fake) -> Holder:
        age = None if one.born_at is None else self.clock.now - one.born_at
        return Holder(
            pid=one.pid,
            start_time=one.start,
            comm=one.comm,
            ppid=one.ppid if any(other.pid == one.ppid for other in self.alive()) else 1,
            ns_pid=one.ns_pid,
            cmdline=one.cmdline,
            state="Z" if one.dying else one.state,
            dying=one.dying,
            age_s=600.0 if age is None else age,
            via=("fd", "map") if one.maps else ("fd",),
            computes=one.maps,
            disposition=t.cast(t.Any, one.disposition),
        )

    def scan(self) -> HolderScan:
        self.scans += 1
        self.clock.now += SCAN_COST
        if self.incomplete:
            return self.incomplete.pop(0)
        seen = [self.holder(one) for one in self.alive() if one.holds and not (one.unseen and one.dying)]
        seen += [dataclasses.replace(self.holder(one), state="Z", dying=True) for one in self.unreaped()]
        return HolderScan(holders=tuple(seen), seconds=SCAN_COST)

    def unreaped(self) -> list[Fake]:
        now = self.clock.now
        return [
            one for one in self.processes if one.dead and one.dies_at is not None and now < one.dies_at + one.listed
        ]

    def hold_again(self, holders: t.Sequence[Holder]) -> list[Holder | None]:
        self.asked_again.append(len(holders))
        return [self.look_again(holder) for holder in holders]

    def look_again(self, holder: Holder) -> Holder | None:
        if self.before_send is not None:
            self.before_send(holder.pid)
        one = self.find(holder.pid)
        return None if one is None or one.start != holder.start_time or not one.holds else self.holder(one)

    def aim(self, pid: int, start_time: int) -> FakeAim | None:
        one = self.find(pid)
        return FakeAim(self, one) if one is not None and one.start == start_time else None

    def wait(self, aims: t.Sequence[FakeAim], seconds: float) -> bool:
        """The world moves in steps of a millisecond until one of them has ended."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now = min(self.clock.now + 0.001, until)
            if any(aim.gone() for aim in aims):
                return True
        return False

    def own(self) -> frozenset[int]:
        return self.own_pids

    def process(self, pid: int) -> Process | None:
        one = self.find(pid)
        if pid == 1:
            return Process(1, 1, 0, "init", adopts=True)
        return None if one is None else Process(pid, one.start, one.ppid, one.comm, pid in self.adopters)

    def describe(self, process: Process) -> str:
        return f"PID {process.pid} ({process.comm})"

    def plan(self, scan: HolderScan, own: t.AbstractSet[int]) -> tuple[Order, ...]:
        return self.orders

    def carry_out(self, order: Order) -> OrderOutcome:
        self.carried.append(order.name)
        if self.on_order is not None:
            self.on_order()
        return OrderOutcome(order, self.order_ok, "" if self.order_ok else "exit code 1, Job failed", self.order_later)

    def spares(self, holder: Holder) -> bool:
        return holder.pid in self.spared

    def used_mib(self) -> int | t.Literal["hangs"] | None:
        self.memory_asked.append(self.clock.now - 1000.0)
        return self.memory.pop(0) if len(self.memory) > 1 else self.memory[0]

    def release(self, ladder: t.Sequence[Rung] = QUICK, *, memory: bool = False, **options: t.Any) -> t.Any:
        return release(
            self.scan,
            ReleaseOptions(ladder=tuple(ladder), **options),
            hold_again=self.hold_again,
            describe=lambda holder: f"pid {holder.pid}",
            clock=self.clock,
            signaller=t.cast(t.Any, self),
            kinship=self,
            managers=self,
            used_mib=self.used_mib if memory else None,
        )

    def got(self) -> dict[int, list[str]]:
        return {one.pid: one.got for one in self.processes if one.got}


class FakeAim:
    def __init__(self, world: World, one: Fake) -> None:
        self.world, self.one = world, one

    def send(self, signum: int) -> str:
        world, one = self.world, self.one
        if not world.present(one):
            return "gone"
        if not one.permitted:
            return "refused"
        name = signal.Signals(signum).name[3:]
        one.got.append(name)
        after = one.kill if name == "KILL" else one.term
        if after is not None:
            one.dies_at = world.clock.now + after
            one.dying = name == "KILL" and one.dying_after_kill
        if name != "KILL" and one.on_term is not None:
            one.on_term(world)
        return "sent"

    def gone(self) -> bool:
        self.world.settle()
        return not self.world.present(self.one)

    def close(self) -> None:
        self.world.closed += 1
