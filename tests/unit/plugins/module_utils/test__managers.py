# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._dispositions import executable_name
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import (
    Container,
    Holder,
    HolderScan,
    Scope,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._managers import NodeManagers, Order

ID = "0123456789abcdef" * 4
DOCKER = Container("docker", ID)


class Machine:
    """A machine with units and containers, as its tools show it."""

    def __init__(self) -> None:
        self.units: dict[str, dict[str, str]] = {}
        self.containers: dict[str, dict[str, str]] = {"docker": {}, "podman": {}}
        self.systemd: t.Literal["there", "absent", "hung"] = "there"
        self.stop_works = True
        self.stop_ends = True
        self.asked: list[str] = []

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        self.asked.append(" ".join(argv))
        if argv[0] == "systemctl":
            return self.systemctl(tuple(argv))
        if argv[0] in self.containers:
            policy = self.containers[argv[0]].get(argv[-1])
            if policy is None:
                return CommandResult(tuple(argv), 1, "", f"no such container {argv[-1]}", 0.1)
            return CommandResult(tuple(argv), 0 if self.stop_works or "inspect" in argv else 1, policy, "", 0.1)
        return CommandResult(tuple(argv), 0, "", "", 0.1)

    def systemctl(self, argv: tuple[str, ...]) -> CommandResult:
        if self.systemd == "absent":
            return CommandResult(argv, None, "", "", 0.0, error="not_found")
        if self.systemd == "hung":
            return CommandResult(argv, None, "", "", 30.0, timed_out=True)
        if "stop" in argv:
            if not self.stop_works:
                return CommandResult(argv, 1, "", "Job for a.service failed", 0.1)
            if self.stop_ends:
                self.units.get(argv[-1], {})["ActiveState"] = "inactive"
            return CommandResult(argv, 0, "", "", 0.1)
        if "--" not in argv:
            return CommandResult(argv, 0, "Version=252\n", "", 0.1)
        known = {"LoadState": "not-found", "ActiveState": "inactive"}
        blocks = [
            "".join(f"{key}={value}\n" for key, value in self.units.get(unit, known).items())
            for unit in argv[argv.index("--") + 1 :]
        ]
        return CommandResult(argv, 0, "\n".join(blocks), "", 0.1)


def holder(pid: int = 10, disposition: str = "target", **fields: t.Any) -> Holder:
    if "container" not in fields or fields["container"].kind != "lxc":
        fields.setdefault("node_unit", fields.get("unit"))
    fields.setdefault("program", executable_name(fields.get("exe")))
    return Holder(pid=pid, start_time=1, comm="python3", ppid=1, disposition=t.cast(t.Any, disposition), **fields)


def active(restart: str = "always") -> dict[str, str]:
    return {"Id": "x", "LoadState": "loaded", "ActiveState": "active", "Restart": restart}


def plan(machine: Machine, scope: Scope, *holders: Holder) -> tuple[Order, ...]:
    return NodeManagers(machine, scope).plan(HolderScan(holders=holders), frozenset({500}))


OWN = Scope("own", units=("a.service",), containers=(ID[:12],))


def test_a_target_in_a_named_unit_is_stopped_through_systemd() -> None:
    machine = Machine()
    machine.units["a.service"] = active()
    (order,) = plan(machine, OWN, holder(10, unit="a.service"), holder(11, unit="a.service"), holder(12))
    assert order == Order("unit", "a.service", ("systemctl", "stop", "a.service"), (10, 11), restarts=True)
    managers = NodeManagers(machine, OWN)
    assert managers.carry_out(order).ok
    assert machine.units["a.service"]["ActiveState"] == "inactive"


@pytest.mark.parametrize("state", ["inactive", "failed", None])
def test_a_unit_that_is_not_there_or_has_ended_is_fine(state: str | None) -> None:
    machine = Machine()
    if state:
        machine.units["a.service"] = {**active(), "ActiveState": state}
    assert plan(machine, OWN, holder(unit="a.service")) == ()


def test_a_unit_is_left_alone_that_was_not_named_or_has_no_target() -> None:
    machine = Machine()
    machine.units.update({"a.service": active(), "b.service": active()})
    assert plan(machine, OWN, holder(unit="b.service")) == ()
    assert plan(machine, OWN, holder(), holder(11, "foreign", unit="b.service")) == ()
    assert plan(machine, OWN, holder(500, unit="a.service")) == ()


@pytest.mark.parametrize("pid", [1, 2])
def test_pid_1_is_never_a_reason_to_stop_anything_and_whoever_comes_after_it_is(pid: int) -> None:
    machine = Machine()
    machine.units["a.service"] = active()
    assert [order.pids for order in plan(machine, OWN, holder(pid, unit="a.service"))] == [(2,)][: pid - 1]


@pytest.mark.parametrize("disposition", ["foreign", "protected", "monitor", "never"])
def test_with_scope_all_a_service_of_somebody_who_is_no_target_goes_on(disposition: str) -> None:
    machine = Machine()
    machine.units["b.service"] = active()
    machine.containers["docker"][ID] = "no"
    others = (holder(10, disposition, unit="b.service"), holder(11, disposition, container=DOCKER))
    assert plan(machine, Scope("all"), *others) == ()


def test_a_unit_that_stays_active_though_systemctl_was_content_has_not_ended() -> None:
    machine = Machine()
    machine.stop_ends = False
    machine.units["a.service"] = active()
    (order,) = plan(machine, OWN, holder(unit="a.service"))
    outcome = NodeManagers(machine, OWN).carry_out(order)
    assert (outcome.ok, "the unit is active" in outcome.message) == (False, True)


@pytest.mark.parametrize("works", [True, False])
def test_where_the_state_cannot_be_asked_afterwards_the_exit_code_of_stop_counts(works: bool) -> None:
    def runner(argv: t.Sequence[str], timeout: float) -> CommandResult:
        return CommandResult(tuple(argv), 0 if "stop" in argv and works else 1, "", "no bus", 0.1)

    order = Order("unit", "a.service", ("systemctl", "stop", "a.service"), (10,))
    outcome = NodeManagers(runner, OWN).carry_out(order)
    assert outcome.ok is works
    assert works or "the unit is in an unknown state" in outcome.message


def test_a_unit_inside_an_lxc_container_is_not_ours_to_stop() -> None:
    machine = Machine()
    machine.units["a.service"] = active()
    scope = Scope("lxc", units=("a.service",), lxc=("101",))
    assert plan(machine, scope, holder(unit="a.service", container=Container("lxc", "101"))) == ()


def test_without_systemd_there_is_nobody_to_ask() -> None:
    machine = Machine()
    machine.systemd = "absent"
    assert plan(machine, OWN, holder(unit="a.service")) == ()


def test_a_systemd_that_hangs_is_a_reason_not_to_signal() -> None:
    machine = Machine()
    machine.systemd = "hung"
    (order,) = plan(machine, OWN, holder(unit="a.service"))
    assert order.kind == "nobody"
    assert order.restarts
    outcome = NodeManagers(machine, OWN).carry_out(order)
    assert not outcome.ok
    assert "does not answer" in outcome.message


@pytest.mark.parametrize(("restart", "restarts"), [("no", False), ("on-failure", True)])
def test_a_unit_that_cannot_be_stopped_says_what_systemd_said(restart: str, restarts: bool) -> None:
    machine = Machine()
    machine.stop_works = False
    machine.units["a.service"] = active(restart)
    (order,) = plan(machine, OWN, holder(unit="a.service"))
    outcome = NodeManagers(machine, OWN).carry_out(order)
    assert order.restarts is restarts
    assert not outcome.ok
    assert "Job for a.service failed" in outcome.message
    assert "the unit is active" in outcome.message


def test_a_unit_that_ended_though_systemctl_complained_has_ended() -> None:
    machine = Machine()
    machine.stop_works = False
    machine.units["a.service"] = active()
    (order,) = plan(machine, OWN, holder(unit="a.service"))
    machine.units["a.service"]["ActiveState"] = "failed"
    assert NodeManagers(machine, OWN).carry_out(order).ok


@pytest.mark.parametrize(
    ("kind", "has_it", "tool"),
    [("docker", "docker", "docker"), ("podman", "podman", "podman"), ("crio", "podman", "podman")],
)
def test_a_named_container_is_stopped_through_whatever_has_it(kind: str, has_it: str, tool: str) -> None:
    machine = Machine()
    machine.containers[has_it][ID[:12]] = "always\n"
    (order,) = plan(machine, OWN, holder(container=Container(kind, ID)))
    assert order.argv == (tool, "stop", "-t", "15", ID[:12])
    assert order.restarts
    assert NodeManagers(machine, OWN).carry_out(order).ok
    machine.stop_works = False
    assert not NodeManagers(machine, OWN).carry_out(order).ok


def test_only_the_engine_that_runs_a_container_is_asked_about_it() -> None:
    machine = Machine()
    machine.containers["podman"][ID[:12]] = "no"
    plan(machine, OWN, holder(container=Container("podman", ID)))
    assert [asked.split()[0] for asked in machine.asked] == ["podman"]


@pytest.mark.parametrize(("length", "stopped"), [(11, False), (12, True), (64, True)])
def test_an_id_names_a_container_from_twelve_characters_on(length: int, stopped: bool) -> None:
    machine = Machine()
    machine.containers["docker"][ID[:length]] = "no"
    scope = Scope("own", containers=(ID[:length],))
    assert bool(plan(machine, scope, holder(container=DOCKER))) is stopped


@pytest.mark.parametrize(("policy", "restarts"), [("no\n", False), ("\n", False), ("unless-stopped\n", True)])
def test_whether_a_container_would_be_started_again(policy: str, restarts: bool) -> None:
    machine = Machine()
    machine.containers["docker"][ID[:12]] = policy
    assert plan(machine, OWN, holder(container=DOCKER))[0].restarts is restarts


def test_a_container_that_no_engine_knows_is_a_reason_not_to_signal() -> None:
    (order,) = plan(Machine(), OWN, holder(container=DOCKER))
    assert order.kind == "nobody"
    assert order.restarts
    assert "no such container" in (order.problem or "")
    (unknown,) = plan(Machine(), OWN, holder(container=Container("crio", ID)))
    assert unknown.argv == ("docker", "stop", ID[:12]), "one command that a person can try"


def test_the_init_of_a_named_container_counts_though_it_is_never_signalled() -> None:
    """The usual case: the server is PID 1 of its image."""
    machine = Machine()
    machine.containers["docker"][ID[:12]] = "always"
    (order,) = plan(machine, OWN, holder(10, "never", container=DOCKER))
    assert order.kind == "container"
    assert order.pids == (10,)
    assert plan(machine, OWN, holder(10, "never", container=Container("docker", "f" * 64))) == ()


def test_a_container_that_runs_inside_a_named_unit_is_stopped_with_it() -> None:
    machine = Machine()
    machine.units["a.service"] = active()
    scope = Scope("own", units=("a.service",))
    holders = (holder(10, unit="a.service", container=Container("podman", ID)),)
    assert [order.argv[0] for order in plan(machine, scope, *holders)] == ["systemctl"]


def test_with_scope_all_services_and_containers_are_stopped_and_sessions_signalled() -> None:
    machine = Machine()
    machine.units["b.service"] = active()
    machine.containers["docker"][ID] = "no"
    orders = plan(
        machine,
        Scope("all"),
        holder(10, unit="b.service"),
        holder(11, unit="session-3.scope"),
        holder(12, container=DOCKER),
    )
    assert [order.name for order in orders] == ["b.service", ID]


DCGM = "nvidia-dcgm.service"


def test_a_protected_daemon_is_stopped_only_where_a_person_named_it() -> None:
    machine = Machine()
    engine = holder(20, "protected", exe="/usr/bin/nv-hostengine", unit=DCGM)
    assert plan(machine, Scope("own"), engine) == ()
    for name in ("nv-hostengine", DCGM, "/usr/bin/nv-hostengine"):
        scope = Scope("own", allow_protected=(name,))
        for disposition in ("protected", "target", "foreign", "monitor"):
            orders = plan(machine, scope, holder(20, disposition, exe=engine.exe, unit=DCGM))
            assert [order.argv for order in orders] == [("systemctl", "stop", DCGM)], (name, disposition)
        assert NodeManagers(machine, scope).spares(engine)


def test_one_that_runs_in_no_unit_has_to_be_stopped_by_hand() -> None:
    scope = Scope("own", allow_protected=("nv-hostengine",))
    (order,) = plan(Machine(), scope, holder(20, exe="/usr/bin/nv-hostengine"))
    assert order.kind == "nobody"
    assert "by hand" in (order.problem or "")


def test_a_name_alone_protects_only_where_the_program_cannot_be_seen() -> None:
    scope = Scope("own", allow_protected=("python3",))
    spares = NodeManagers(Machine(), scope).spares
    assert spares(holder(20, exe=None))
    assert not spares(holder(20, exe="/home/bob/other"))


def test_a_daemon_of_another_container_is_not_stopped_here() -> None:
    scope = Scope("lxc", lxc=("101",), allow_protected=("nv-hostengine",))
    other = holder(20, "foreign", exe="/usr/bin/nv-hostengine", unit=DCGM, container=Container("lxc", "102"))
    assert plan(Machine(), scope, other) == ()


def test_a_unit_of_a_user_is_never_asked_of_the_system() -> None:
    """Bob may call his service ssh.service; only his own systemd has that one."""
    machine = Machine()
    for name in ("ssh.service", "display-manager.service"):
        machine.units[name] = active()
        bobs = holder(20, unit=name, node_unit=None)
        for scope in (Scope("all"), Scope("own", units=(name,), allow_protected=(name,))):
            assert plan(machine, scope, bobs) == ()


def test_a_program_under_mps_name_does_not_end_the_real_one() -> None:
    scope = Scope("own", allow_protected=("nvidia-cuda-mps-control",))
    fake = holder(20, exe="/home/bob/nvidia-cuda-mps-control", program=None)
    assert plan(Machine(), scope, fake) == ()
    assert not NodeManagers(Machine(), scope).spares(fake)
