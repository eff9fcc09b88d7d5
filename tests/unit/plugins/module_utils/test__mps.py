# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An MPS daemon is told to quit through its own pipes, and nobody else's."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _mps
from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Container, Holder, HolderScan, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._managers import NodeManagers

PLAIN = "sh -c echo quit | nvidia-cuda-mps-control"
NAMED = 'sh -c echo quit | env "CUDA_MPS_PIPE_DIRECTORY=$1" nvidia-cuda-mps-control sh '
SCOPE = Scope("own", allow_protected=("nvidia-cuda-mps-server", "nvidia-cuda-mps-control"))


class Node:
    """A /proc with environments and owners, and a runner that keeps what it was asked."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.owners = folder, {}
        self.asked: list[tuple[str, ...]] = []
        self.answer: dict[str, t.Any] = {"exit_code": 0}
        real = os.stat

        def stat(path: t.Any, *given: t.Any, **named: t.Any) -> t.Any:
            name = os.path.basename(str(path))
            if str(path) == os.path.join(str(folder), name) and name.isdigit() and name in self.owners:
                return os.stat_result((0o40555, 0, 0, 1, self.owners[name], 0, 0, 0, 0, 0))
            return real(path, *given, **named)

        monkeypatch.setattr(_mps.os, "stat", stat)

    def process(self, pid: int, uid: int = 0, environ: bytes | None = b"A=1\0") -> None:
        self.owners[str(pid)] = uid
        (self.folder / str(pid)).mkdir()
        if environ is not None:
            (self.folder / str(pid) / "environ").write_bytes(environ)

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        self.asked.append(tuple(argv))
        return CommandResult(
            tuple(argv), stdout="", stderr="Cannot find MPS control daemon process", seconds=0.1, **self.answer
        )

    def managers(self) -> NodeManagers:
        return NodeManagers(self, SCOPE, proc_root=str(self.folder))


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def mps(pid: int, ppid: int = 1, kind: str = "server", **fields: t.Any) -> Holder:
    name = f"nvidia-cuda-mps-{kind}"
    return Holder(
        pid=pid, start_time=1, comm=name[:15], ppid=ppid, exe=f"/usr/bin/{name}", program=name, disposition="target",
        **fields,
    )  # fmt: skip


def orders(node: Node, *holders: Holder) -> list[str]:
    return [" ".join(order.argv) for order in node.managers().plan(HolderScan(holders=holders), frozenset())]


def test_it_is_told_to_quit_through_its_own_tool(node: Node) -> None:
    node.process(20)
    assert orders(node, mps(20, kind="control")) == [PLAIN]
    assert NodeManagers(node, Scope("all")).spares(mps(20)), "never signalled, whatever the scope"


def test_through_the_pipes_that_its_environment_names(node: Node) -> None:
    node.process(20, environ=b"PATH=/bin\0CUDA_MPS_PIPE_DIRECTORY=/run/mps;reboot\0")
    (order,) = node.managers().plan(HolderScan(holders=(mps(20, kind="control"),)), frozenset())
    assert order.argv[-1] == "/run/mps;reboot", "an argument of its own, whatever it holds"
    assert ";" not in order.argv[2]


def test_daemon_and_server_of_one_service_are_one_order_and_two_services_are_two(node: Node) -> None:
    node.process(20, environ=b"CUDA_MPS_PIPE_DIRECTORY=/a\0")
    node.process(21, uid=1000, environ=b"CUDA_MPS_PIPE_DIRECTORY=/evil\0")
    node.process(30, environ=b"CUDA_MPS_PIPE_DIRECTORY=/b\0")
    found = orders(node, mps(20, kind="control"), mps(21, ppid=20, uid=1000), mps(30, kind="control"))
    assert found == [NAMED + "/a", NAMED + "/b"]


def test_nothing_starts_it_again_and_what_else_was_released_is_still_stopped(node: Node) -> None:
    node.process(20)
    name = "nv-hostengine"
    engine = Holder(
        pid=30, start_time=1, comm=name, ppid=1, exe=f"/usr/bin/{name}", program=name, disposition="target",
        node_unit="dcgm.service",
    )  # fmt: skip
    scope = Scope("own", allow_protected=(*SCOPE.allow_protected, name))
    managers = NodeManagers(node, scope, proc_root=str(node.folder))
    asked = managers.plan(HolderScan(holders=(mps(20, kind="control"), engine)), frozenset())
    assert [(order.kind, order.restarts, order.pids) for order in asked] == [
        ("mps", False, (20,)),
        ("unit", True, (30,)),
    ]


@pytest.mark.parametrize("uids", [(1000, 1000), (1000, None)])
def test_nobody_elses_folder_is_believed(node: Node, uids: tuple[int, int | None]) -> None:
    node.process(21, uid=uids[0], environ=b"CUDA_MPS_PIPE_DIRECTORY=/home/bob\0")
    if uids[1] is not None:
        node.process(20, uid=uids[1], environ=b"CUDA_MPS_PIPE_DIRECTORY=/home/bob\0")
    (order,) = node.managers().plan(HolderScan(holders=(mps(21, ppid=20),)), frozenset())
    assert (order.kind, "as its own user" in (order.problem or "")) == ("nobody", True)
    assert not node.managers().carry_out(order).ok
    assert node.asked == []


def test_one_in_a_container_is_not_asked_of_this_machine(node: Node) -> None:
    node.process(20)
    scope = Scope("lxc", lxc=("101",), allow_protected=("nvidia-cuda-mps-server",))
    managers = NodeManagers(node, scope, proc_root=str(node.folder))
    (order,) = managers.plan(HolderScan(holders=(mps(20, container=Container("lxc", "101")),)), frozenset())
    assert (order.kind, "in a container" in (order.problem or "")) == ("nobody", True)


def test_the_first_word_of_an_environment_counts(node: Node) -> None:
    """As for the process itself."""
    node.process(20, environ=b"CUDA_MPS_PIPE_DIRECTORY=/a\0CUDA_MPS_PIPE_DIRECTORY=relative\0")
    assert orders(node, mps(20, kind="control")) == [NAMED + "/a"]


def test_an_init_is_no_daemon_of_a_server_that_lost_its_own(node: Node) -> None:
    node.process(1)
    node.process(21, uid=1000)
    (order,) = node.managers().plan(HolderScan(holders=(mps(21, ppid=1),)), frozenset())
    assert order.kind == "nobody"


def test_a_daemon_may_be_the_second_process_of_a_machine(node: Node) -> None:
    node.process(2)
    assert orders(node, mps(2, kind="control")) == [PLAIN]


def test_what_mps_is_tells_the_program_and_only_without_one_the_name() -> None:
    server = mps(20)
    assert _mps.is_mps(server)
    assert _mps.is_mps(dataclasses.replace(server, exe=None, program=None))
    assert not _mps.is_mps(dataclasses.replace(server, exe="/home/bob/x", program=None))
    assert not _mps.is_mps(dataclasses.replace(server, exe=None, program=None, comm="python3"))


@pytest.mark.parametrize(
    "environ", [None, b"", b"CUDA_MPS_PIPE_DIRECTORY=relative\0", b"XCUDA_MPS_PIPE_DIRECTORY=/a\0"]
)
def test_without_a_usable_word_it_has_the_default(node: Node, environ: bytes | None) -> None:
    node.process(20, environ=environ)
    assert orders(node, mps(20, kind="control")) == [PLAIN]


def test_one_with_clients_ends_after_them(node: Node) -> None:
    node.process(20)
    (order,) = node.managers().plan(HolderScan(holders=(mps(20, kind="control"),)), frozenset())
    node.answer = {"exit_code": None, "timed_out": True}
    told = node.managers().carry_out(order)
    assert (told.ok, told.later, order.spared) == (False, True, True)
    node.answer = {"exit_code": 1}
    refused = node.managers().carry_out(order)
    assert (refused.ok, refused.later) == (False, False)
    assert "Cannot find MPS control daemon process" in refused.message
