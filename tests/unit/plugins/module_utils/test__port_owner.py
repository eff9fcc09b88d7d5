# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose socket listens on a port, from the kernel's tables and the descriptors of processes."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import (
    Listener,
    ListeningOn,
    Port,
    address_to_ask,
    listening_sockets,
    may_answer,
    owners_in_order,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ANY, LOCAL = "00000000", "0100007F"
ANY6, LOCAL6 = "0" * 32, "0" * 24 + "01000000"
MAPPED = "0000000000000000FFFF00000100007F"
DOCUMENTED = "B80D0120000000000000000001000000"


@pytest.fixture
def fake(tmp_path: pathlib.Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def row(address: str, inode: int, port: str = "7530", state: str = "0A") -> str:
    return (
        f"   0: {address}:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode}\n"
    )


def sockets(fake: FakeProc, *rows: str, host: str = "0.0.0.0", table: str = "tcp") -> dict[str, str] | None:
    fake.write(f"net/{table}", HEADING + "".join(rows))
    return listening_sockets(host, 30000, fake.root)


@pytest.mark.parametrize(
    ("address", "table", "words"),
    [
        (LOCAL, "tcp", "127.0.0.1"),
        (ANY, "tcp", "0.0.0.0"),
        (LOCAL6, "tcp6", "::1"),
        (ANY6, "tcp6", "::"),
        (MAPPED, "tcp6", "127.0.0.1"),
        (DOCUMENTED, "tcp6", "2001:db8::1"),
    ],
)
def test_addresses_are_read_as_people_write_them(fake: FakeProc, address: str, table: str, words: str) -> None:
    assert sockets(fake, row(address, 77), table=table) == {"77": words}


def test_only_listeners_on_that_port_and_a_bad_row_does_not_end_the_table(fake: FakeProc) -> None:
    bad = (
        row(LOCAL, 1, state="01"),
        "   1: cut\n",
        row(LOCAL, 2, port="7531"),
        row("xyz", 3),
        row(LOCAL, 4, port="zz"),
    )
    assert sockets(fake, *bad, row(LOCAL, 5)) == {"5": "127.0.0.1"}


def test_the_heading_is_no_socket(fake: FakeProc) -> None:
    fake.write("net/tcp", row(LOCAL, 6) + row(LOCAL, 7))
    assert listening_sockets("127.0.0.1", 30000, fake.root) == {"7": "127.0.0.1"}


def test_tables_that_cannot_be_read_are_unknown_and_one_of_two_is_enough(fake: FakeProc) -> None:
    assert listening_sockets("127.0.0.1", 30000, fake.root) is None
    assert sockets(fake, row(LOCAL6, 8), table="tcp6") == {"8": "::1"}


@pytest.mark.parametrize(
    ("listening", "host", "covered"),
    [
        (LOCAL, "127.0.0.1", True),
        (LOCAL, "[::1]", False),
        (LOCAL, "10.0.0.5", False),
        (LOCAL, "0.0.0.0", True),
        (LOCAL, "", True),
        (LOCAL, "::", True),
        (ANY, "10.0.0.5", True),
        (LOCAL, "localhost", True),
    ],
)
def test_which_listener_stands_in_the_way(fake: FakeProc, listening: str, host: str, covered: bool) -> None:
    assert bool(sockets(fake, row(listening, 9), host=host)) is covered


@pytest.mark.parametrize(
    ("listening", "host", "may"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "*", True),
        ("0.0.0.0", "127.0.0.1", False),
        ("::1", "[::1]", True),
        ("::1", "::", True),
        ("10.0.0.5", "gpu1.example", True),
    ],
)
def test_whom_a_request_may_reach(listening: str, host: str, may: bool) -> None:
    assert may_answer(listening, host) is may


@pytest.mark.parametrize(
    ("host", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("*", "127.0.0.1"), ("[::]", "::1"), ("10.0.0.5", "10.0.0.5")],
)
def test_where_a_server_is_asked(host: str, asked: str) -> None:
    assert address_to_ask(host) == asked


class TestOwners:
    """The first process of an order that has a socket open."""

    @pytest.fixture
    def node(self, fake: FakeProc) -> FakeProc:
        opened = {50: ["/dev/null", "socket:[7]"], 51: ["socket:[7]", "socket:[8]", "socket:[99]"], 52: []}
        for pid, opens in opened.items():
            fake.add(pid, opens=opens)
        return fake

    def owners(self, node: FakeProc, *order: int, wanted: t.Sequence[str] = ("7", "8")) -> tuple[t.Any, set[int]]:
        found, unreadable = owners_in_order(dict.fromkeys(wanted, "127.0.0.1"), order, node.root)
        return [(one.pid, one.unreadable) for one in found], unreadable

    def test_the_first_in_order_has_it(self, node: FakeProc) -> None:
        assert self.owners(node, 52, 51, 50) == ([(51, False), (51, False)], set())
        assert self.owners(node, 52, 50, 51) == ([(50, False), (51, False)], set())

    def test_the_address_goes_with_its_socket(self, node: FakeProc) -> None:
        found, dummy = owners_in_order({"7": "127.0.0.1", "8": "::1"}, (50, 51), node.root)
        assert set(found) == {Listener("127.0.0.1", 50), Listener("::1", 51)}

    def test_a_process_that_ended_meanwhile_does_not_end_the_search(self, node: FakeProc) -> None:
        assert self.owners(node, 4711, 50, wanted=["7"]) == ([(50, False)], set())

    def test_nobody_seen_to_own_it_is_told(self, node: FakeProc) -> None:
        assert self.owners(node, 50, 52, wanted=["8"]) == ([(None, False)], set())

    def test_nobody_is_asked_once_all_are_found(self, node: FakeProc) -> None:
        def order() -> t.Iterator[int]:
            yield from (50, 51)
            raise AssertionError("asked for one more")

        found, dummy = owners_in_order({"7": "::1"}, order(), node.root)
        assert [one.pid for one in found] == [50]

    @pytest.mark.parametrize("what", ["listdir", "readlink"])
    def test_whoever_may_not_be_read_may_own_it(
        self, node: FakeProc, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        real = getattr(os, what)

        def refuse(path: t.Any, *given: t.Any, **named: t.Any) -> t.Any:
            if f"{node.root}/50/fd" in str(path):
                raise PermissionError(13, "Permission denied")
            return real(path, *given, **named)

        monkeypatch.setattr(os, what, refuse)
        assert self.owners(node, 50, 51, 52) == ([(51, False), (51, False)], {50})
        assert self.owners(node, 50, 52, wanted=["7"]) == ([(None, True)], {50})

    def test_a_descriptor_that_is_closed_meanwhile_does_not_hide_the_next(
        self, node: FakeProc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, closed = os.readlink, list[object]()

        def gone(path: t.Any, *given: t.Any, **named: t.Any) -> t.Any:
            if not closed:
                closed.append(path)
                raise FileNotFoundError(2, "No such file or directory")
            return real(path, *given, **named)

        listed = sorted(os.listdir(f"{node.root}/51/fd"))
        monkeypatch.setattr(os, "listdir", lambda path: [*listed, *listed])
        monkeypatch.setattr(os, "readlink", gone)
        assert self.owners(node, 51, wanted=["7"]) == ([(51, False)], set())


class TestContainers:
    """What the host of LXC containers sees of their ports."""

    def place(self, fake: FakeProc, pid: int, cgroup: str, namespace: str, inode: int) -> None:
        fake.add(pid, cgroup=cgroup)
        (fake.path / f"{pid}/ns/net").symlink_to(namespace)
        fake.write(f"{pid}/net/tcp", HEADING + row(LOCAL, inode))

    def test_each_network_namespace_of_the_named_containers_is_read_once(self, fake: FakeProc) -> None:
        nested = "0::/lxc/101/ns/system.slice/docker-" + "ab" * 32 + ".scope"
        self.place(fake, 50, "0::/lxc/101/ns/init.scope", "net:[1]", 7)
        self.place(fake, 51, "0::/lxc/101/ns/system.slice/a.service", "net:[1]", 8)
        self.place(fake, 52, "0::/lxc/102/ns/init.scope", "net:[2]", 9)
        self.place(fake, 53, "0::/system.slice/b.service", "net:[3]", 10)
        self.place(fake, 54, nested, "net:[4]", 11)
        on = ListeningOn(Port(30000), Proc(fake.root), ("101",))
        found = on.sockets((4711, 53, 54, 50, 51, 52), "0::/init.scope", "0::/user.slice")
        assert found == {7: "127.0.0.1"}
        assert on.sockets_around(52) == {9: "127.0.0.1"}

    def test_without_containers_it_is_the_namespace_of_whoever_asks(self, fake: FakeProc) -> None:
        on = ListeningOn(Port(30000), Proc(fake.root))
        assert on.sockets((), "", "") is None
        fake.write("net/tcp", HEADING + row(LOCAL, 7))
        self.place(fake, 50, "0::/", "net:[1]", 8)
        assert on.sockets((50,), "", "") == {7: "127.0.0.1"}
        assert on.sockets_around(50) == {7: "127.0.0.1"}
