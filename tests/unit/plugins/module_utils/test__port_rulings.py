# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who listens on the server's port, and who of these is released: from a made-up /proc to dispositions."""

from __future__ import annotations

import pathlib
import socket
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._clock import SystemClock
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan, PortOwner, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import (
    ScanRequest,
    describe,
    hold_again,
    look_for_holders,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import ListeningOn, Port
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_rulings import describe_owner, strangers
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc, make_nodes

TCP_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ANY, LOCAL, OTHER_ADDRESS = "00000000", "0100007F", "0500000A"
OWN = Scope("own", units=("sglang.service",))
SESSION = "0::/user.slice/user-0.slice/session-7.scope"
SERVICE = "0::/system.slice/sglang.service"
NGINX = "0::/system.slice/nginx.service"
DOCKER = "0::/system.slice/docker-" + "ab" * 32 + ".scope"


class Node:
    """Files that are sockets play those of the kernel: what counts is that stat says socket, and the inode."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.fake = FakeProc(folder / "proc")
        self.glob = make_nodes(folder / "dev")
        self.gpu = folder / "dev/nvidia0"
        self.files: list[socket.socket] = []
        self.listens()

    def socket(self) -> pathlib.Path:
        made = socket.socket(socket.AF_UNIX)
        path = self.folder / f"s{len(self.files)}"
        made.bind(str(path))
        self.files.append(made)
        return path

    def listens(self, *sockets: pathlib.Path, address: str = ANY, place: str = "net", port: int = 30000) -> None:
        lines = [
            f"   {n}: {address}:{port:04X} 00000000:0000 0A 0:0 00:0 0  1000 0 {path.stat().st_ino} 1 0\n"
            for n, path in enumerate(sockets)
        ]
        self.fake.write(f"{place}/tcp", TCP_HEAD + "".join(lines))

    def listener(self, pid: int = 50, **about: t.Any) -> pathlib.Path:
        """A process that listens on the port."""
        path = self.socket()
        opens = (*about.pop("opens", ()), path)
        self.fake.add(pid, **{"comm": "launcher", "cgroup": SESSION, "opens": opens, **about})
        self.listens(path)
        return path

    def request(self, scope: Scope, host: str) -> ScanRequest:
        return ScanRequest(scope, (self.glob,), timeout=60.0, proc_root=self.fake.root, port=Port(30000, host))

    def look(
        self, scope: Scope = OWN, host: str = "0.0.0.0", relatives: t.Collection[tuple[int, int]] = ()
    ) -> HolderScan:
        scan = look_for_holders(
            self.request(scope, host),
            unit_states=lambda units: dict.fromkeys(units, True),
            clock=SystemClock(),
            relatives=relatives,
        )
        assert scan.complete, scan.incomplete_reason
        return scan


@pytest.fixture
def node(tmp_path: pathlib.Path) -> t.Iterator[Node]:
    made = Node(tmp_path)
    yield made
    for one in made.files:
        one.close()


def one_owner(scan: HolderScan) -> PortOwner:
    (owner,) = scan.port_owners
    return owner


def found(scan: HolderScan) -> dict[int, str]:
    return {holder.pid: holder.disposition for holder in scan.holders}


def test_a_launcher_in_tmux_is_released_with_its_workers(node: Node) -> None:
    node.listener(50, opens=[node.gpu])
    node.fake.add(51, ppid=50, opens=[node.gpu], maps=[node.gpu], cgroup=SESSION)
    scan = node.look()
    assert found(scan) == {50: "target", 51: "target"}
    owner = one_owner(scan)
    assert (owner.address, owner.pid, owner.disposition, owner.goes) == ("0.0.0.0:30000", 50, "target", True)
    assert "listens on 0.0.0.0:30000" in describe(scan.holders[0])
    assert strangers(scan.port_owners) == ()


def test_without_its_port_a_launcher_is_a_monitor(node: Node) -> None:
    node.listener(50, opens=[node.gpu])
    node.fake.add(51, ppid=50, maps=[node.gpu], cgroup=SESSION)
    node.listens()
    assert found(node.look()) == {50: "monitor", 51: "target"}


@pytest.mark.parametrize(
    ("listener", "other"),
    [
        ({"pid": 50, "start": 10}, {"pid": 51, "ppid": 50, "start": 11}),
        ({"pid": 50, "start": 10}, {"pid": 52, "ppid": 60, "start": 12}),
        ({"pid": 51, "ppid": 50, "start": 11}, {"pid": 50, "start": 10}),
    ],
    ids=["its parent", "its grandparent", "its child"],
)
def test_a_relative_of_a_target_is_one_without_any_device(
    node: Node, listener: dict[str, t.Any], other: dict[str, t.Any]
) -> None:
    node.fake.add(60, ppid=50, start=11, cgroup=SESSION)
    node.listener(**listener)
    node.fake.add(**other, maps=[node.gpu], cgroup=SESSION)
    scan = node.look()
    assert found(scan) == {listener["pid"]: "target", other["pid"]: "target"}
    holder = next(one for one in scan.holders if one.pid == listener["pid"])
    assert (holder.devices, holder.listens) == ((), ("0.0.0.0:30000",))
    assert "no GPU device open" in describe(holder)


def test_a_number_that_was_used_again_is_no_ancestor(node: Node) -> None:
    node.listener(50, start=20)
    node.fake.add(51, ppid=50, start=11, maps=[node.gpu], cgroup=SESSION)
    assert found(node.look()) == {51: "target"}


def test_a_fork_that_inherited_the_socket_goes_with_it(node: Node) -> None:
    path = node.listener(50, opens=[node.gpu])
    node.fake.add(51, opens=[path], cgroup=SESSION)
    scan = node.look()
    assert found(scan) == {50: "target", 51: "target"}
    assert [owner.pid for owner in scan.port_owners] == [50, 51]


def test_one_that_was_a_relative_before_its_workers_ended_stays_a_target(node: Node) -> None:
    node.listener(50, start=10)
    assert found(node.look()) == {}
    assert found(node.look(relatives={(50, 11)})) == {}
    assert found(node.look(relatives={(50, 10)})) == {50: "target"}


def test_the_unit_that_is_stopped_may_have_it(node: Node) -> None:
    node.listener(50, cgroup=SERVICE)
    assert found(node.look()) == {50: "target"}
    assert one_owner(node.look()).reason == "belongs to sglang.service"


@pytest.mark.parametrize(
    ("about", "disposition", "words"),
    [
        ({"cgroup": NGINX, "comm": "nginx"}, "foreign", "no relative"),
        ({"cgroup": SESSION}, "foreign", "no relative"),
        ({"cgroup": NGINX, "gpu": True}, "foreign", "nginx.service, another active service"),
        ({"cgroup": DOCKER, "gpu": True}, "foreign", "docker container"),
        ({"cgroup": NGINX, "parent": True}, "foreign", "nginx.service"),
        ({"exe": "/usr/bin/dcgm-exporter", "gpu": True}, "protected", "protected"),
        ({"ns_pids": [50, 1], "namespace": "pid:[2]", "gpu": True}, "never", "PID 1"),
    ],
)
def test_strangers_are_named_and_left_alone(node: Node, about: dict[str, t.Any], disposition: str, words: str) -> None:
    about = dict(about)
    opens = [node.gpu] if about.pop("gpu", False) else []
    parent = about.pop("parent", False)
    node.listener(50, opens=opens, argv=["serve", "--api-key", "sk-secret"], **about)
    node.fake.add(51, ppid=50 if parent else 1, maps=[node.gpu], cgroup=SESSION, start=2000)
    scan = node.look()
    assert [holder.pid for holder in scan.targets()] == [51]
    owner = one_owner(scan)
    assert owner.disposition == disposition
    assert words in owner.reason
    assert strangers(scan.port_owners) == (owner,)
    assert "pid 50 (serve" in describe_owner(owner)
    assert "sk-secret" not in describe_owner(owner) + str(owner.as_dict())


def test_this_modules_own_shell_is_never_released(node: Node) -> None:
    path = node.socket()
    node.listens(path)
    (node.fake.path / "800/fd/5").symlink_to(path)
    (node.fake.path / "800/fd/6").symlink_to(node.gpu)
    scan = node.look()
    assert scan.targets() == ()
    assert [owner.disposition for owner in strangers(scan.port_owners)] == ["self"]


def test_an_owner_that_cannot_be_seen_is_a_stranger(node: Node) -> None:
    node.listens(node.socket())
    owner = one_owner(node.look())
    assert (owner.pid, owner.disposition) == (None, "foreign")
    assert "0.0.0.0:30000" in describe_owner(owner)
    assert "cannot" in describe_owner(owner) or "no process" in describe_owner(owner)


def test_a_socket_that_was_closed_during_the_look_has_no_owner(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.listens(node.socket())
    real, times = ListeningOn.sockets, []

    def once(self: ListeningOn, *given: t.Any) -> dict[int, str] | None:
        times.append(1)
        return real(self, *given) if len(times) == 1 else {}

    monkeypatch.setattr(ListeningOn, "sockets", once)
    assert node.look().port_owners == ()


def test_tables_that_cannot_be_read_leave_it_open_who_listens(node: Node) -> None:
    (node.fake.path / "net/tcp").unlink()
    scan = look_for_holders(node.request(OWN, "0.0.0.0"), unit_states=lambda _units: {}, clock=SystemClock())
    assert not scan.complete
    assert "net/tcp could not be read" in scan.incomplete_reason


@pytest.mark.parametrize(
    ("address", "host", "expected"),
    [(LOCAL, "127.0.0.1", 1), (OTHER_ADDRESS, "127.0.0.1", 0), (OTHER_ADDRESS, "0.0.0.0", 1), (ANY, "127.0.0.1", 1)],
)
def test_only_who_is_in_the_way_counts(node: Node, address: str, host: str, expected: int) -> None:
    path = node.listener(50)
    node.listens(path, address=address)
    assert len(node.look(host=host).port_owners) == expected
    node.listens(path, address=address, port=30001)
    assert node.look(host=host).port_owners == ()


def test_a_forwarder_ends_with_its_container(node: Node) -> None:
    scope = Scope("own", containers=("ab" * 32,))
    node.listener(50, exe="/usr/bin/docker-proxy", cgroup="0::/system.slice/docker.service")
    assert [owner.pid for owner in strangers(node.look(scope).port_owners)] == [50]
    node.fake.add(51, maps=[node.gpu], cgroup=DOCKER)
    scan = node.look(scope)
    assert found(scan) == {51: "target"}
    assert strangers(scan.port_owners) == ()


def in_lxc(vmid: int, rest: str = "init.scope") -> str:
    return f"0::/lxc/{vmid}/ns/{rest}"


def test_the_port_inside_a_container_counts_on_its_host(node: Node) -> None:
    """The host has a listener on that port too, and so has the neighbour: neither is in the way."""
    ours = node.listener(50, cgroup=in_lxc(101, ".lxc"), ns_pids=[50, 9], namespace="pid:[2]")
    node.fake.add(51, ppid=50, maps=[node.gpu], cgroup=in_lxc(101, ".lxc"), ns_pids=[51, 10], namespace="pid:[2]")
    neighbour = node.listener(70, cgroup=in_lxc(102, "system.slice/x.service"), ns_pids=[70, 9], namespace="pid:[3]")
    host = node.listener(90, cgroup=NGINX)
    node.listens(host)
    for pid, namespace, listening in ((50, "net:[2]", ours), (51, "net:[2]", ours), (70, "net:[3]", neighbour)):
        (node.fake.path / f"{pid}/ns/net").symlink_to(namespace)
        node.listens(listening, place=f"{pid}/net")
    scope = Scope("lxc", lxc=("101",))
    scan = node.look(scope)
    assert found(scan) == {50: "target", 51: "target"}
    assert [owner.pid for owner in scan.port_owners] == [50]
    listener = next(one for one in scan.holders if one.pid == 50)
    assert hold_again([listener], node.request(scope, "0.0.0.0")) != (None,)


def test_a_container_with_the_network_of_its_host(node: Node) -> None:
    host = node.listener(90, cgroup=NGINX)
    node.fake.add(50, cgroup=in_lxc(101), ns_pids=[50, 9], namespace="pid:[2]")
    (node.fake.path / "50/ns/net").symlink_to("net:[1]")
    node.listens(host, place="50/net")
    owner = one_owner(node.look(Scope("lxc", lxc=("101",))))
    assert (owner.pid, owner.disposition, owner.unit) == (90, "foreign", "nginx.service")


def test_right_before_a_signal_it_must_still_listen(node: Node) -> None:
    path = node.listener(50, start=10)
    node.fake.add(51, ppid=50, start=11, maps=[node.gpu], cgroup=SESSION)
    request = node.request(OWN, "0.0.0.0")
    listener = next(one for one in node.look().holders if one.pid == 50)
    assert hold_again([listener], request) != (None,)
    node.listens(path, port=30001)
    assert hold_again([listener], request) == (None,)


@pytest.mark.parametrize(("uid", "disposition"), [(0, "target"), (4711, "foreign")])
def test_a_socket_that_was_handed_to_somebody_else_makes_no_kin_of_him(node: Node, uid: int, disposition: str) -> None:
    """A process that passes its listening socket on would have whoever takes it ended in its place."""
    path = node.listener(50, opens=[node.gpu], maps=[node.gpu])
    node.fake.add(60, opens=[path], cgroup=SESSION, uid=uid)
    assert {owner.pid: owner.disposition for owner in node.look().port_owners}[60] == disposition


@pytest.mark.parametrize(("uid", "disposition"), [(0, "target"), (4711, "foreign")])
def test_a_parent_of_another_user_is_no_kin(node: Node, uid: int, disposition: str) -> None:
    node.listener(50, uid=uid)
    node.fake.add(51, ppid=50, opens=[node.gpu], maps=[node.gpu], cgroup=SESSION)
    assert found(node.look())[51] == "target"
    assert {owner.pid: owner.disposition for owner in node.look().port_owners}[50] == disposition


@pytest.mark.parametrize(
    ("uids", "disposition"),
    [
        ((0, 0, 0, 0), "target"),
        ((0, 0, 4711, 4711), "target"),
        ((0, 4711, 4711, 4711), "foreign"),  # acts as another user now
        ((4711, 0, 0, 0), "foreign"),  # a setuid program that somebody else started
    ],
)
def test_only_who_is_and_acts_as_the_same_user_is_kin(node: Node, uids: tuple[int, ...], disposition: str) -> None:
    node.listener(50)
    node.fake.add(51, ppid=50, opens=[node.gpu], maps=[node.gpu], cgroup=SESSION)
    status = node.fake.path / "50/status"
    status.write_text(status.read_text().replace("Uid:\t0\t0\t0\t0", "Uid:\t" + "\t".join(map(str, uids))))
    assert {owner.pid: owner.disposition for owner in node.look().port_owners}[50] == disposition


@pytest.mark.parametrize(
    ("scope", "holder", "goes"),
    [
        (Scope("own", containers=("ab" * 32,)), DOCKER, True),
        (OWN, DOCKER, False),  # the container stays, and so does what forwards to it
        (OWN, SESSION, False),  # something is released, but no container
    ],
)
def test_a_forwarder_stays_unless_a_container_is_stopped(node: Node, scope: Scope, holder: str, goes: bool) -> None:
    node.listener(50, exe="/usr/bin/docker-proxy", cgroup="0::/system.slice/docker.service")
    node.fake.add(51, maps=[node.gpu], cgroup=holder)
    assert one_owner(node.look(scope)).goes is goes


@pytest.mark.parametrize(
    ("user", "unit"), [("sglang", "a.service"), ("sglang", None), (None, "a.service"), (None, None)]
)
def test_whoever_is_in_the_way_is_described_with_what_is_known(user: str | None, unit: str | None) -> None:
    owner = PortOwner(
        "0.0.0.0:30000", pid=50, comm="x", cmdline="y" * 300, user=user, unit=unit, disposition="foreign", reason="why"
    )
    known = (f", user {user}" if user else "") + (f", unit {unit}" if unit else "")
    assert describe_owner(owner) == f"pid 50 ({'y' * 200}){known}, on 0.0.0.0:30000: foreign (why)"
