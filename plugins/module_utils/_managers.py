# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Managers first: a holder that something would start again is stopped through that something, before any signal."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult, Runner
from ansible_collections.cleanslate.gpu.plugins.module_utils._dispositions import KNOWN_PROGRAMS, executable_name
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Holder, HolderScan, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._mps import CONTROL, QUIT_TIMEOUT, is_mps, ways_to_quit
from ansible_collections.cleanslate.gpu.plugins.module_utils._systemd import (
    Systemd,
    is_ended,
    restarts_itself,
    what_it_said,
)

OrderKind = t.Literal["unit", "container", "mps", "nobody"]

CONTAINER_TOOLS = ("docker", "podman")
QUERY_TIMEOUT = 30.0  # seconds for a question to a container engine
# Units that group processes without having started them: stopping one would end a login session, or a whole slice.
_STOPPABLE_SUFFIXES = (".service",)


@dataclasses.dataclass(frozen=True)
class Order:
    """Something to be asked of a manager. restarts: it would start what was killed again. spared: what it manages is
    never signalled instead."""

    kind: OrderKind
    name: str
    argv: tuple[str, ...]
    pids: tuple[int, ...]
    restarts: bool = True
    spared: bool = False
    problem: str | None = None  # why there is nobody to ask

    def describe(self) -> str:
        return f"{' '.join(self.argv)} (for PID {', '.join(str(pid) for pid in self.pids)})"


@dataclasses.dataclass(frozen=True)
class OrderOutcome:
    """What came of it. message is empty where it worked. later: it was told, and ends after its clients."""

    order: Order
    ok: bool
    message: str = ""
    later: bool = False


class Managers(t.Protocol):
    def plan(self, scan: HolderScan, own: t.AbstractSet[int]) -> tuple[Order, ...]:
        """Who would have to be asked. Changes nothing."""

    def carry_out(self, order: Order) -> OrderOutcome:
        """Ask, and wait for the answer under a deadline."""

    def spares(self, holder: Holder) -> bool:
        """Whether this target must never be signalled, only stopped through its manager."""


class NodeManagers:
    """systemd, docker, podman and the MPS control tool of this machine."""

    def __init__(
        self,
        runner: Runner,
        scope: Scope,
        *,
        systemd: Systemd | None = None,
        timeout: float = 180.0,
        grace: float = 15.0,
        proc_root: str = "/proc",
    ) -> None:
        self._runner = runner
        self._scope = scope
        self._systemd = systemd or Systemd(runner)
        self._timeout = timeout
        self._grace = grace
        self._proc_root = proc_root

    def spares(self, holder: Holder) -> bool:
        """A protected process that a person released, and MPS in any case."""
        return self._named(holder) or is_mps(holder)

    def plan(self, scan: HolderScan, own: t.AbstractSet[int]) -> tuple[Order, ...]:
        others = [holder for holder in scan.holders if holder.pid > 1 and holder.pid not in own]
        released = [
            holder
            for holder in others
            if (holder.disposition == "target" and self.spares(holder))
            or (holder.disposition not in ("self", "never") and holder.container is None and self._named(holder))
        ]
        # The init of a container is never signalled, but its container may have been named for stopping.
        stoppable = [
            holder
            for holder in others
            if (holder.disposition == "target" and not self.spares(holder))
            or (holder.disposition == "never" and (self._listed(holder) or self._run_by_unit(holder)))
        ]
        return (
            *self._unit_orders(stoppable),
            *self._container_orders(stoppable),
            *self._protected_orders(released),
        )

    def carry_out(self, order: Order) -> OrderOutcome:
        if order.kind == "nobody":
            return OrderOutcome(order, False, order.problem or "there is nobody to ask")
        if order.kind == "unit":
            result = self._systemd.stop(order.name, self._timeout)
            answer = self._systemd.show((order.name,), ("LoadState", "ActiveState")).get(order.name, {})
            ok = is_ended(answer) or (not answer and _worked(result))
            state = f"; the unit is {answer.get('ActiveState', 'in an unknown state')}"
            return OrderOutcome(order, ok, "" if ok else what_it_said(result) + state)
        if order.kind == "mps":
            result = self._runner(order.argv, QUIT_TIMEOUT)
            if result.timed_out:
                return OrderOutcome(order, False, "it was told to quit, and ends after its clients", later=True)
        else:
            result = self._runner(order.argv, self._timeout)
        return OrderOutcome(order, _worked(result), "" if _worked(result) else what_it_said(result))

    def _named(self, holder: Holder) -> bool:
        names = {holder.node_unit, holder.comm if holder.exe is None else None}
        name = executable_name(holder.exe)
        if holder.program is not None or name not in KNOWN_PROGRAMS:
            names |= {name, holder.exe}
        return bool(names.intersection(self._scope.allow_protected))

    def _run_by_unit(self, holder: Holder) -> bool:
        """Whether a named unit of this machine has it, be it through a container that runs inside the unit. Units
        inside an LXC container belong to that container's systemd, which cannot be asked from here."""
        here = holder.container is None or holder.container.kind in CONTAINER_TOOLS
        return here and holder.node_unit in self._scope.units and self._listed(holder) is None

    def _unit_orders(self, holders: t.Sequence[Holder]) -> list[Order]:
        wanted: dict[str, list[int]] = {}
        for holder in holders:
            everything = self._scope.name == "all" and holder.container is None
            if self._run_by_unit(holder) or (everything and (holder.node_unit or "").endswith(_STOPPABLE_SUFFIXES)):
                wanted.setdefault(str(holder.node_unit), []).append(holder.pid)
        answers = self._systemd.show(tuple(wanted), ("Id", "LoadState", "ActiveState", "Restart"))
        orders = []
        for unit, pids in wanted.items():
            answer = answers.get(unit, {})
            stop = self._systemd.argv("stop", unit)
            if not answer and self._systemd.hangs():
                problem = "systemctl does not answer, so the unit might be started again"
                orders.append(Order("nobody", unit, stop, tuple(pids), problem=problem))
            # No answer because there is no systemd here: then it starts nothing again either.
            elif answer and not is_ended(answer):
                orders.append(Order("unit", unit, stop, tuple(pids), restarts_itself(answer)))
        return orders

    def _listed(self, holder: Holder) -> str | None:
        """The id by which a person named this holder's container."""
        if holder.container is None:
            return None
        for wanted in self._scope.containers:
            if holder.container.id == wanted or (len(wanted) >= 12 and holder.container.id.startswith(wanted)):
                return wanted
        return None

    def _container_orders(self, targets: t.Sequence[Holder]) -> list[Order]:
        wanted: dict[str, list[Holder]] = {}
        for holder in targets:
            name = self._listed(holder)
            if name is None and self._scope.name == "all" and holder.container is not None:
                name = holder.container.id if holder.container.kind in CONTAINER_TOOLS else None
            if name is not None:
                wanted.setdefault(name, []).append(holder)
        return [self._container_order(name, holders) for name, holders in wanted.items()]

    def _container_order(self, name: str, holders: t.Sequence[Holder]) -> Order:
        kinds = {holder.container.kind for holder in holders if holder.container is not None}
        tools = [tool for tool in CONTAINER_TOOLS if tool in kinds] or list(CONTAINER_TOOLS)
        pids = tuple(holder.pid for holder in holders)
        said = []
        for tool in tools:
            result = self._runner(
                (tool, "container", "inspect", "--format", "{{.HostConfig.RestartPolicy.Name}}", name), QUERY_TIMEOUT
            )
            if _worked(result):
                policy = result.stdout.strip()
                stop = (tool, "stop", "-t", f"{self._grace:.0f}", name)
                return Order("container", name, stop, pids, restarts=policy not in ("no", ""))
            said.append(what_it_said(result))
        problem = f"neither knows this container: {'; '.join(said)}"
        return Order("nobody", f"container {name}", (*tools[:1], "stop", name), pids, problem=problem)

    def _protected_orders(self, released: t.Sequence[Holder]) -> list[Order]:
        orders: list[Order] = []
        for way in ways_to_quit([holder for holder in released if is_mps(holder)], self._proc_root):
            kind: OrderKind = "mps" if way.problem is None else "nobody"
            # Nothing starts it again, and while it has clients it only ends after them.
            orders.append(Order(kind, CONTROL, way.argv, way.pids, restarts=False, spared=True, problem=way.problem))
        units: dict[str, list[int]] = {}
        for holder in released:
            if is_mps(holder):
                continue
            if (holder.node_unit or "").endswith(_STOPPABLE_SUFFIXES):
                units.setdefault(str(holder.node_unit), []).append(holder.pid)
            else:
                problem = f"{holder.comm} (PID {holder.pid}) is protected and runs in no unit: stop it by hand"
                orders.append(Order("nobody", holder.comm, (holder.comm,), (holder.pid,), problem=problem))
        orders.extend(
            Order("unit", unit, self._systemd.argv("stop", unit), tuple(pids)) for unit, pids in units.items()
        )
        return orders


def _worked(result: CommandResult) -> bool:
    return result.exit_code == 0 and not result.timed_out and result.error is None
