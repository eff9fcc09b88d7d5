# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._dispositions import (
    KNOWN_PROGRAMS,
    PROTECTED_EXECUTABLES,
    PROTECTED_UNITS,
    Claim,
    Setting,
    executable_name,
    rule,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._ownership import Ownership
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import PF_KTHREAD, ProcStat, ProcStatus
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import Hold, RawHolder

GPU0, GPU1, GPU2 = (f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in range(3))
OWN = Scope("own", units=("sglang.service",))
UNIT = Scope("unit", units=("sglang.service",))
LXC = Scope("lxc", lxc=("101",))
ALL = Scope("all")

FD = Hold("/dev/nvidia0", "gpu", 0, "fd")
MAP = Hold("/dev/nvidia0", "gpu", 0, "map")
CONTROL = Hold("/dev/nvidiactl", "control", None, "fd")

NOWHERE = Ownership()
IN_UNIT = Ownership("sglang.service", "sglang.service")
IN_OTHER = Ownership("vllm.service", "vllm.service")
IN_SESSION = Ownership(session=True)
IN_USER_SERVICE = Ownership("vllm.service", "vllm.service", user_service=True)
IN_DOCKER = Ownership(container=Container("docker", "ab" * 32))
IN_LXC = Ownership(container=Container("lxc", "101"))
IN_LXC_UNIT = Ownership("sglang.service", container=Container("lxc", "101"))
IN_OTHER_LXC = Ownership(container=Container("lxc", "102"))
IN_NESTED = Ownership(container=Container("lxc", "101"), nested=Container("docker", "cd" * 32))
IN_UNKNOWN = Ownership(container=Container("unknown", "/strange"))
UNIT_RUNS_PODMAN = Ownership("sglang.service", "sglang.service", container=Container("podman", "ef" * 32))


def claim(owner: Ownership = NOWHERE, *, computes: bool | None = True, **other: t.Any) -> Claim:
    names = {field.name for field in dataclasses.fields(RawHolder)}
    raw = {
        "stat": ProcStat(other.pop("pid", 4711), other.pop("comm", "python3"), "S", 1, other.pop("flags", 0), 1),
        "status": ProcStatus((0, 0, 0, 0), frozenset({0}), other.pop("ns_pids", (4711,))),
        "holds": (FD, MAP) if computes else (FD,),
        "dying": False,
        "cgroup": "0::/",
        "exe": "/usr/bin/python3",
    }
    raw.update({name: other.pop(name) for name in list(other) if name in names})
    raw.setdefault("program", executable_name(raw["exe"]))
    return Claim(RawHolder(**raw), owner, other.pop("same_namespace", True), computes, other.pop("gpus", ()), **other)


def test_self_comes_first() -> None:
    setting = Setting(ALL, own_pids={4711})
    assert rule(claim(exe="/usr/bin/nvidia-persistenced", pid=4711), setting)[0] == "self"


@pytest.mark.parametrize(
    "case",
    [
        claim(pid=1),
        claim(pid=1, exe=None, comm="systemd"),
        claim(flags=PF_KTHREAD),
        claim(IN_LXC, ns_pids=(8000, 1)),
        claim(IN_NESTED, ns_pids=(8000, 300, 1)),
        claim(Ownership(lxc_monitor=True)),
        claim(exe="/usr/bin/lxc-start"),
    ],
)
@pytest.mark.parametrize("scope", [OWN, UNIT, LXC, ALL, dataclasses.replace(LXC, lxc=("101", "102"))])
def test_never_whatever_the_scope(case: Claim, scope: Scope) -> None:
    disposition, reason = rule(case, Setting(scope))
    assert disposition == "never"
    assert reason


@pytest.mark.parametrize("name", sorted(PROTECTED_EXECUTABLES))
def test_protected_by_executable(name: str) -> None:
    assert rule(claim(exe=f"/usr/bin/{name}"), Setting(ALL))[0] == "protected"
    assert rule(claim(exe=f"/usr/bin/{name} (deleted)"), Setting(ALL))[0] == "protected"


@pytest.mark.parametrize("unit", sorted(PROTECTED_UNITS))
def test_protected_by_unit(unit: str) -> None:
    assert rule(claim(Ownership(unit, unit)), Setting(ALL))[0] == "protected"


@pytest.mark.parametrize(
    ("case", "scope", "expected"),
    [
        # a name that a process gives itself protects nobody
        (claim(comm="nv-hostengine", argv=("nv-hostengine",)), ALL, "target"),
        (claim(comm="nvidia-persiste"), OWN, "target"),
        # but where the executable cannot be read nothing else is known, and a wrong kill is worse
        (claim(comm="nv-fabricmanage", exe=None), ALL, "protected"),
        (claim(comm="nvidia-persiste", exe=None), ALL, "protected"),
        (claim(comm="python3", exe=None), OWN, "target"),
        # protect adds
        (claim(exe="/opt/x/exporter"), dataclasses.replace(OWN, protect=("exporter",)), "protected"),
        (claim(exe="/opt/x/exporter"), dataclasses.replace(OWN, protect=("/opt/x/exporter",)), "protected"),
        (claim(exe="/opt/y/exporter"), dataclasses.replace(OWN, protect=("/opt/x/exporter",)), "target"),
        (claim(IN_UNIT), dataclasses.replace(OWN, protect=("sglang.service",)), "protected"),
        # allow_protected releases by either name
        (
            claim(exe="/usr/bin/nvidia-cuda-mps-server"),
            dataclasses.replace(OWN, allow_protected=("nvidia-cuda-mps-server",)),
            "target",
        ),
        (
            claim(Ownership("nvidia-mps.service", "nvidia-mps.service"), exe="/usr/bin/nvidia-cuda-mps-server"),
            dataclasses.replace(ALL, allow_protected=("nvidia-mps.service",)),
            "target",
        ),
        (
            claim(exe="/usr/bin/nv-hostengine"),
            dataclasses.replace(OWN, allow_protected=("nvidia-cuda-mps-server",)),
            "protected",
        ),
        (
            claim(exe="/usr/bin/nv-hostengine", computes=False),
            dataclasses.replace(OWN, allow_protected=("nv-hostengine",)),
            "monitor",
        ),
        (claim(comm="nv-hostengine", exe=None), dataclasses.replace(ALL, allow_protected=("nv-hostengine",)), "target"),
    ],
)
def test_protection(case: Claim, scope: Scope, expected: str) -> None:
    assert rule(case, Setting(scope))[0] == expected


@pytest.mark.parametrize("scope", [OWN, UNIT, LXC, ALL])
@pytest.mark.parametrize("owner", [Ownership(), IN_OTHER, IN_SESSION, IN_DOCKER, IN_LXC, IN_UNKNOWN])
def test_a_monitor_is_one_in_every_scope(owner: Ownership, scope: Scope) -> None:
    assert rule(claim(owner, computes=False), Setting(scope))[0] == "monitor"


@pytest.mark.parametrize(
    ("case", "scope", "expected"),
    [
        # a GPU open is enough for what is being stopped
        (claim(IN_UNIT, computes=False), OWN, "target"),
        (claim(IN_UNIT, computes=False), UNIT, "target"),
        (claim(IN_UNIT, computes=False, holds=(CONTROL,)), UNIT, "monitor"),
        (claim(computes=False, started_from="sglang.service"), UNIT, "target"),
        (claim(IN_LXC_UNIT, computes=False), dataclasses.replace(LXC, units=("sglang.service",)), "target"),
        (claim(IN_LXC_UNIT, computes=False), LXC, "monitor"),
        # mappings that could not be read: not known whether it computes
        (claim(computes=None), OWN, "foreign"),
        (claim(computes=None), ALL, "foreign"),
        (claim(IN_UNIT, computes=None), OWN, "target"),
        (claim(IN_UNIT, computes=None, holds=(CONTROL,)), OWN, "foreign"),
        # unit
        (claim(IN_UNIT), UNIT, "target"),
        (claim(), UNIT, "foreign"),
        (claim(IN_OTHER), UNIT, "foreign"),
        (claim(IN_SESSION), UNIT, "foreign"),
        (claim(IN_SESSION, started_from="sglang.service"), UNIT, "target"),
        (claim(UNIT_RUNS_PODMAN, same_namespace=False), UNIT, "target"),
        (claim(IN_LXC_UNIT), UNIT, "foreign"),
        (claim(IN_DOCKER, started_from="sglang.service"), UNIT, "foreign"),
        # own
        (claim(IN_UNIT), OWN, "target"),
        (claim(), OWN, "target"),
        (claim(IN_SESSION), OWN, "target"),
        (claim(Ownership(own_group=True)), OWN, "target"),
        (claim(IN_OTHER), OWN, "foreign"),
        (claim(IN_OTHER, started_from="sglang.service"), OWN, "target"),
        (claim(IN_USER_SERVICE), OWN, "foreign"),
        (claim(IN_USER_SERVICE), dataclasses.replace(OWN, units=("vllm.service",)), "target"),
        (claim(IN_DOCKER, same_namespace=False), OWN, "foreign"),
        (claim(IN_DOCKER), dataclasses.replace(OWN, containers=("ab" * 6,)), "target"),
        (claim(IN_DOCKER, computes=False), dataclasses.replace(OWN, containers=("ab" * 32,)), "target"),
        (claim(IN_DOCKER), Scope("unit", units=("sglang.service",), containers=("ab" * 32,)), "target"),
        (claim(IN_DOCKER), dataclasses.replace(OWN, containers=("abab",)), "foreign"),
        (claim(IN_DOCKER), dataclasses.replace(OWN, containers=("cd" * 6,)), "foreign"),
        (claim(UNIT_RUNS_PODMAN, same_namespace=False), OWN, "target"),
        (claim(), dataclasses.replace(OWN, containers=("ab" * 6,)), "target"),
        (claim(IN_LXC), OWN, "foreign"),
        (claim(IN_LXC_UNIT), OWN, "foreign"),
        (claim(IN_UNKNOWN), OWN, "foreign"),
        (claim(same_namespace=False), OWN, "foreign"),
        # lxc
        (claim(IN_LXC), LXC, "target"),
        (claim(IN_LXC, ns_pids=(8000, 300)), LXC, "target"),
        (claim(IN_LXC_UNIT), LXC, "target"),
        (claim(IN_NESTED, same_namespace=False), LXC, "target"),
        (claim(IN_OTHER_LXC), LXC, "foreign"),
        (claim(), LXC, "foreign"),
        (claim(IN_UNIT), dataclasses.replace(LXC, units=("sglang.service",)), "foreign"),
        (claim(IN_DOCKER), LXC, "foreign"),
        (claim(IN_UNKNOWN), LXC, "foreign"),
        (claim(Ownership(container=Container("docker", "101"))), LXC, "foreign"),
        # all
        (claim(), ALL, "target"),
        (claim(IN_UNKNOWN), ALL, "target"),
        (claim(IN_OTHER), ALL, "target"),
        (claim(IN_OTHER_LXC), ALL, "target"),
    ],
)
def test_target_or_foreign(case: Claim, scope: Scope, expected: str) -> None:
    disposition, reason = rule(case, Setting(scope))
    assert disposition == expected, reason
    assert reason


@pytest.mark.parametrize(
    ("active", "expected", "word"),
    [(True, "foreign", "active"), (None, "foreign", "cannot be told"), (False, "target", "left behind")],
)
def test_another_service(active: bool | None, expected: str, word: str) -> None:
    disposition, reason = rule(claim(IN_OTHER), Setting(OWN, unit_active={"vllm.service": active}))
    assert disposition == expected
    assert word in reason
    assert "vllm.service" in reason


@pytest.mark.parametrize(
    ("case", "scope", "kin", "dead", "expected"),
    [
        (claim(IN_UNIT, gpus=(GPU0,)), UNIT, (), (), "target"),
        (claim(IN_UNIT, gpus=(GPU1, GPU0)), UNIT, (), (), "target"),
        (claim(IN_UNIT, gpus=(GPU1,)), UNIT, (), (), "foreign"),
        (claim(IN_UNIT), UNIT, (), (), "target"),
        (claim(IN_UNIT), UNIT, (GPU1,), (), "foreign"),
        (claim(IN_UNIT), UNIT, (GPU1, GPU0), (), "target"),
        (claim(IN_LXC, gpus=(GPU0,)), LXC, (), (), "target"),
        (claim(IN_LXC, gpus=(GPU1,)), LXC, (), (), "foreign"),
        (claim(IN_LXC), LXC, (), (), "foreign"),
        (claim(IN_LXC), LXC, (GPU0,), (), "target"),
        (claim(IN_LXC), LXC, (GPU1,), (GPU0,), "foreign"),
        (claim(IN_LXC), LXC, (), (GPU0,), "target"),
        (claim(IN_LXC), LXC, (), (GPU0, GPU2), "target"),
        (claim(IN_LXC), LXC, (), (GPU0, GPU1), "foreign"),
        (claim(IN_LXC_UNIT), dataclasses.replace(LXC, units=("sglang.service",)), (), (), "target"),
        (claim(IN_OTHER_LXC, gpus=(GPU0,)), LXC, (), (), "foreign"),
    ],
)
def test_a_subset_of_the_gpus(
    case: Claim, scope: Scope, kin: tuple[str, ...], dead: tuple[str, ...], expected: str
) -> None:
    setting = Setting(dataclasses.replace(scope, gpus=(GPU0, GPU2)), gpu_of_relatives={4711: kin}, dead_on=dead)
    disposition, reason = rule(case, setting)
    assert disposition == expected, reason


def test_reasons_name_the_owner() -> None:
    assert "docker container cdcdcdcdcdcd in LXC container 101" in rule(claim(IN_NESTED), Setting(LXC))[1]
    assert "LXC container 102" in rule(claim(IN_OTHER_LXC), Setting(LXC))[1]
    assert "/strange" in rule(claim(IN_UNKNOWN), Setting(OWN))[1]
    assert GPU1 in rule(claim(IN_UNIT, gpus=(GPU1,)), Setting(dataclasses.replace(UNIT, gpus=(GPU0,))))[1]


@pytest.mark.parametrize(
    ("case", "scope", "words"),
    [
        (claim(IN_SESSION), OWN, "belongs to a login session and no container"),
        (claim(), OWN, "belongs to no unit and no container"),
        (claim(IN_SESSION), UNIT, "belongs to a login session, not to sglang.service"),
        (claim(), UNIT, "belongs to no unit, not to sglang.service"),
        (claim(dataclasses.replace(IN_USER_SERVICE, user_uid=1000)), OWN, "a service of user 1000"),
        (claim(IN_USER_SERVICE, user="bob"), OWN, "a service of user bob"),
    ],
)
def test_reasons_say_whose_it_is_where_no_unit_of_the_system_has_it(case: Claim, scope: Scope, words: str) -> None:
    assert rule(case, Setting(scope))[1].endswith(words)


def test_executable_name() -> None:
    assert executable_name("/usr/bin/X (deleted)") == "X"
    assert executable_name("/usr/bin/X") == "X"
    assert executable_name(None) is None


BOBS = Ownership("sglang.service", user_service=True, user_uid=1000)


@pytest.mark.parametrize("name", sorted(PROTECTED_EXECUTABLES | {"lxc-start"}))
@pytest.mark.parametrize("scope", [OWN, ALL])
def test_a_name_that_anybody_could_give_his_program_protects_nobody(name: str, scope: Scope) -> None:
    """program is None: the file, or its folder, is not root's."""
    assert rule(claim(IN_SESSION, exe=f"/home/bob/{name}", program=None), Setting(scope))[0] == "target"


@pytest.mark.parametrize("scope", [OWN, UNIT])
@pytest.mark.parametrize("computes", [True, False])
def test_a_service_of_a_user_with_the_name_of_ours_is_not_ours(scope: Scope, computes: bool) -> None:
    assert rule(claim(BOBS, computes=computes), Setting(scope))[0] in ("foreign", "monitor")


@pytest.mark.parametrize("unit", sorted(PROTECTED_UNITS))
def test_a_service_of_a_user_with_the_name_of_a_protected_one_is_not_protected(unit: str) -> None:
    assert rule(claim(Ownership(unit, user_service=True, user_uid=1000)), Setting(ALL))[0] == "target"


def test_a_service_of_a_user_inside_a_container_is_not_the_unit_of_the_container() -> None:
    scope = dataclasses.replace(LXC, units=("sglang.service",))
    inside = dataclasses.replace(IN_LXC_UNIT, user_service=True, user_uid=1000)
    assert rule(claim(IN_LXC_UNIT, computes=False), Setting(scope))[0] == "target"
    assert rule(claim(inside, computes=False), Setting(scope))[0] == "monitor"


LISTENS = ((99, "0.0.0.0:30000"),)


@pytest.mark.parametrize(
    ("case", "kin", "expected", "word"),
    [
        (claim(computes=False, holds=()), False, "foreign", "no relative"),
        (claim(computes=False, holds=()), True, "target", "listens on the server's port"),
        (claim(IN_SESSION, computes=False, holds=()), True, "target", "listens on the server's port"),
        (claim(IN_OTHER, computes=False, holds=()), True, "foreign", "vllm.service"),
        (claim(IN_DOCKER, computes=False, holds=()), True, "foreign", "docker container"),
        (claim(IN_UNIT, computes=False, holds=()), False, "target", "sglang.service"),
        (claim(computes=False, holds=(FD,)), False, "target", "listens on the server's port"),
        (claim(computes=False, holds=(CONTROL,)), False, "monitor", "maps no GPU"),
        (claim(computes=None, holds=(CONTROL,)), False, "foreign", "not known whether it computes"),
        (claim(computes=True), False, "target", "computes on this node"),
    ],
)
def test_who_listens_on_the_server_s_port(case: Claim, kin: bool, expected: str, word: str) -> None:
    """In the way is who belongs to the unit, has a GPU open, or is a relative of a target; nobody else for its port."""
    listening = dataclasses.replace(case, raw=dataclasses.replace(case.raw, listens=LISTENS))
    disposition, reason = rule(listening, Setting(OWN, kin={4711} if kin else ()))
    assert (disposition, word in reason) == (expected, True), reason


def test_who_does_not_listen_is_no_target_for_being_a_relative() -> None:
    assert rule(claim(computes=False, holds=(CONTROL,)), Setting(OWN, kin={4711}))[0] == "monitor"


def test_uuids_may_be_written_in_capitals() -> None:
    uuid = "GPU-0000000a-0000-0000-0000-000000000000"
    scope = dataclasses.replace(UNIT, gpus=(uuid.upper(),))
    assert rule(claim(IN_UNIT, gpus=(uuid,)), Setting(scope))[0] == "target"
    assert rule(claim(IN_UNIT, gpus=(uuid.replace("a-", "b-"),)), Setting(scope))[0] == "foreign"


@pytest.mark.parametrize("name", ["Xorg", "nvidia-persistenced", "lxc-start", "lxcfs"])
def test_whose_program_decides_about_it_is_looked_at(name: str) -> None:
    """Only these are proved to be what they are called: by the owner of their file."""
    assert name in KNOWN_PROGRAMS
