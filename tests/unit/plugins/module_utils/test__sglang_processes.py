# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The server's processes and the owner of its port: in a made-up /proc, and among real processes."""

from __future__ import annotations

import os
import pathlib
import socket
import time

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _sglang_processes
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import listening_sockets
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_processes import (
    look_at_processes,
    read_process,
    seconds_since_boot,
)
from ansible_collections.cleanslate.gpu.tests.unit.plugins.sglang_stand_ins import ServerProcess

TCP_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
GROUP = "/system.slice/sglang.service"


class Proc:
    """A folder that looks like /proc."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        (root / "net").mkdir(parents=True)
        self.listens(())

    def process(
        self, pid: int, ppid: int, cmdline: str = "", state: str = "S", group: str = "/", sockets: tuple[int, ...] = ()
    ) -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        fields = [
            state,
            str(ppid),
            *["0", "0", "0", "0", "0", "0", "0", "0", "0", "30", "12", "0", "0", "20", "0", "1", "0"],
            "4711",
            "0",
        ]
        (folder / "stat").write_text(f"{pid} (a) b c) {' '.join(fields)}\n")
        (folder / "cmdline").write_bytes(cmdline.replace(" ", "\0").encode() + b"\0" if cmdline else b"")
        (folder / "cgroup").write_text(f"0::{group}\n")
        for number, inode in enumerate(sockets):
            (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")

    def listens(self, sockets: tuple[tuple[str, int, int], ...], table: str = "tcp", state: str = "0A") -> None:
        lines = [
            f"   {i}: {address}:{port:04X} 00000000:0000 {state} 0:0 00:0 0  1000 0 {inode} 1 0\n"
            for i, (address, port, inode) in enumerate(sockets)
        ]
        (self.root / "net" / table).write_text(TCP_HEAD + "".join(lines))

    def look(self, main: int | None = 100, group: str = GROUP, host: str = "127.0.0.1", unit: bool = True) -> object:
        return look_at_processes(main, group, host, 30000, unit=unit, proc_root=str(self.root))


@pytest.fixture
def proc(tmp_path: pathlib.Path) -> Proc:
    made = Proc(tmp_path / "proc")
    made.process(1, 0, "/sbin/init")
    made.process(100, 1, "python -m sglang.launch_server", group=GROUP, sockets=(7,))
    for rank in range(3):
        made.process(110 + rank, 100, f"sglang::scheduler_TP{rank}", group=GROUP)
    made.process(120, 100, "sglang::detokenizer", group=GROUP)
    made.listens((("0100007F", 30000, 7),))
    return made


def test_workers_and_listener_of_a_unit(proc: Proc) -> None:
    seen = proc.look()
    assert seen.main.pid == 100
    assert seen.worker_ranks() == ("TP0", "TP1", "TP2")
    assert (seen.ours, seen.foreign) == (True, None)
    assert [(listener.address, listener.pid) for listener in seen.listeners] == [("127.0.0.1", 100)]
    assert seen.cpu_ticks == 5 * 42


def test_workers_are_found_by_descent_where_there_is_no_control_group(proc: Proc) -> None:
    assert len(proc.look(group="").workers) == 3
    assert len(proc.look(group="/").workers) == 3


def test_workers_are_found_by_control_group_where_they_lost_their_parent(proc: Proc) -> None:
    proc.process(113, 1, "sglang::scheduler_TP3", group=GROUP + "/sub")
    proc.process(114, 1, "sglang::scheduler_TP4", group="/system.slice/sglang.service2")
    assert proc.look().worker_ranks() == ("TP0", "TP1", "TP2", "TP3")


def test_dead_workers_are_not_counted(proc: Proc) -> None:
    proc.process(113, 100, "", state="Z", group=GROUP)
    proc.process(114, 100, "sglang::scheduler_TP4", state="Z", group=GROUP)
    assert len(proc.look().workers) == 3


def test_ranks_with_several_parts(proc: Proc) -> None:
    proc.process(113, 100, "sglang::scheduler_DP1_PP0_TP3_EP3", group=GROUP)
    assert "DP1_PP0_TP3" in proc.look().worker_ranks()


def test_a_port_of_another_process_is_foreign(proc: Proc) -> None:
    proc.process(900, 1, "python old_server", sockets=(8,))
    proc.listens((("00000000", 30000, 8),))
    seen = proc.look()
    assert seen.ours is False
    assert (seen.foreign.pid, seen.foreign.cmdline, seen.foreign.address) == (900, "python old_server", "0.0.0.0")


def test_a_port_that_is_shared_with_another_process_still_is_ours(proc: Proc) -> None:
    proc.process(900, 1, "python other", sockets=(8,))
    proc.listens((("0100007F", 30000, 7), ("00000000", 30000, 8)))
    assert (proc.look().ours, proc.look().foreign) == (True, None)


def test_an_owner_that_cannot_be_seen_is_somebody_else_when_the_unit_can_be_read(proc: Proc) -> None:
    proc.listens((("0100007F", 30000, 99),))
    seen = proc.look()
    assert seen.foreign.pid is None
    assert seen.ours is False


def test_an_owner_that_cannot_be_seen_is_unknown_when_the_unit_cannot_be_read(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.listens((("0100007F", 30000, 99),))
    real = os.listdir

    def listdir(path: str) -> list[str]:
        if str(path).endswith("/100/fd"):
            raise PermissionError(13, "no")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    seen = proc.look()
    assert (seen.ours, seen.foreign) == (None, None)


@pytest.mark.parametrize(
    ("table", "address", "host", "found"),
    [
        ("tcp", "0100007F", "127.0.0.1", "127.0.0.1"),
        ("tcp", "00000000", "127.0.0.1", "0.0.0.0"),
        ("tcp", "0100007F", "0.0.0.0", "127.0.0.1"),
        ("tcp", "0500000A", "127.0.0.1", None),
        ("tcp", "0500000A", "10.0.0.5", "10.0.0.5"),
        ("tcp", "0100007F", "localhost", "127.0.0.1"),
        ("tcp6", "00000000000000000000000000000000", "127.0.0.1", "::"),
        ("tcp6", "00000000000000000000000001000000", "::1", "::1"),
        ("tcp6", "0000000000000000FFFF00000100007F", "127.0.0.1", "127.0.0.1"),
    ],
)
def test_addresses(proc: Proc, table: str, address: str, host: str, found: str | None) -> None:
    proc.listens(())
    proc.listens(((address, 30000, 5), (address, 30001, 6)), table)
    assert listening_sockets(host, 30000, str(proc.root)) == ({"5": found} if found else {})


def test_connections_are_not_listeners(proc: Proc) -> None:
    proc.listens((("0100007F", 30000, 7),), state="01")
    assert proc.look().listeners == ()


def test_unreadable_socket_tables_are_unknown_not_empty(proc: Proc) -> None:
    (proc.root / "net" / "tcp").unlink()
    assert proc.look().listeners is None


def test_without_a_unit_the_listener_is_the_server(proc: Proc) -> None:
    seen = proc.look(main=None, group="", unit=False)
    assert seen.main.pid == 100
    assert len(seen.workers) == 3
    assert (seen.ours, seen.foreign) == (True, None)


DOCKER_UNIT = "/system.slice/other.service"
CONTAINER = f"/system.slice/docker-{'0123456789abcdef' * 4}.scope"
ROOTLESS = f"/user.slice/user-{os.getuid() + 1}.slice/user@{os.getuid() + 1}.service/docker-{'f' * 64}.scope"


def test_a_container_s_runner_is_not_the_server(proc: Proc) -> None:
    proc.process(200, 1, "/usr/bin/docker run image", group=DOCKER_UNIT)
    proc.process(300, 1, "python -m sglang.launch_server", group=CONTAINER, sockets=(9,))
    proc.process(301, 300, "sglang::scheduler_TP0", group=CONTAINER)
    proc.listens((("0100007F", 30000, 9),))
    seen = proc.look(main=200, group=DOCKER_UNIT)
    assert seen.outside
    assert (seen.ours, seen.foreign) == (True, None)
    assert seen.worker_ranks() == ("TP0",), "the workers of others have the same titles"


@pytest.mark.parametrize("group", [GROUP, "/user.slice/user-7.slice/session-1.scope", ROOTLESS])
def test_who_is_in_no_container_of_the_engine_is_not_the_server(proc: Proc, group: str) -> None:
    """Anybody may bind the port while the container still loads. He must not be given the key."""
    proc.process(200, 1, "/usr/bin/docker run image", group=DOCKER_UNIT)
    proc.process(300, 1, "python3 catch.py", group=group, sockets=(9,))
    proc.process(301, 300, "sglang::scheduler_TP0", group=group)
    proc.listens((("0100007F", 30000, 9),))
    seen = proc.look(main=200, group=DOCKER_UNIT)
    assert seen.outside
    assert (seen.ours, seen.foreign.pid, seen.workers) == (False, 300, ())


@pytest.mark.parametrize(
    ("runner", "uid", "program", "ours"),
    [
        ("docker", 0, "/usr/bin/docker-proxy", True),
        ("docker", 1, "/usr/bin/docker-proxy", False),  # anybody can call his program that
        ("docker", None, "/usr/bin/docker-proxy", False),
        ("docker", 0, "/usr/sbin/nginx", False),
        ("podman", 0, "/usr/bin/docker-proxy", False),
    ],
)
def test_only_roots_own_forwarder_passes_for_a_docker_container(
    proc: Proc, monkeypatch: pytest.MonkeyPatch, runner: str, uid: int | None, program: str, ours: bool
) -> None:
    """Whoever has the port gets the key."""
    proc.process(200, 1, f"/usr/bin/{runner} run image", group=DOCKER_UNIT)
    proc.process(300, 1, f"{program} -proto tcp", group="/system.slice/docker.service", sockets=(9,))
    proc.listens((("0100007F", 30000, 9),))
    monkeypatch.setattr(_sglang_processes, "_uid", lambda pid, root: uid if pid == 300 else os.getuid())
    seen = proc.look(main=200, group=DOCKER_UNIT)
    assert seen.ours is ours
    assert (seen.foreign is None) is ours


def test_of_several_strangers_the_first_who_can_be_named_is(proc: Proc) -> None:
    for pid, inode in ((300, 9), (400, 8)):
        proc.process(pid, 1, f"python3 catch{pid}.py", sockets=(inode,))
    proc.listens((("0100007F", 30000, 77), ("0100007F", 30000, 9), ("0100007F", 30000, 8)))
    seen = proc.look()
    assert (seen.ours, seen.foreign.pid, seen.foreign.cmdline) == (False, 300, "python3 catch300.py")


def test_a_process_that_ends_while_it_is_looked_at_hides_no_other(proc: Proc) -> None:
    proc.process(50, 1, "python3")
    for name in ("stat", "cmdline", "cgroup"):
        (proc.root / "50" / name).unlink()
    proc.process(51, 1, "python3")
    (proc.root / "51/stat").write_text("51 (x) S 1\n")
    proc.process(52, 1, "python3")
    (proc.root / "52/stat").write_text("no brackets\n")
    proc.process(53, 1, "python3")
    (proc.root / "53/cgroup").unlink()
    assert len(proc.look().workers) == 3
    assert [read_process(pid, str(proc.root)) for pid in (50, 51, 52)] == [None] * 3


def test_a_group_is_told_by_its_whole_name_and_of_its_own_hierarchy(proc: Proc) -> None:
    for pid, line in ((50, f"0::{GROUP}-copy"), (51, f"3:cpu:{GROUP}"), (52, f"1:name=systemd:{GROUP}/x:y")):
        proc.process(pid, 1, "python3")
        (proc.root / str(pid) / "cgroup").write_text(f"{line}\n")
    assert {50, 51, 52} & set(proc.look().members) == {52}


@pytest.mark.parametrize(
    ("host", "ours", "other", "reached"),
    [
        ("localhost", ("0100007F", "tcp"), ("0" * 24 + "01000000", "tcp6"), True),
        ("0.0.0.0", ("00000000", "tcp"), ("0" * 24 + "01000000", "tcp6"), False),
        ("0.0.0.0", ("00000000", "tcp"), ("0100007F", "tcp"), True),
        ("127.0.0.1", ("0100007F", "tcp"), ("00000000", "tcp"), False),
    ],
)
def test_a_second_listener_whom_a_request_could_reach_is_somebody_else(
    proc: Proc, host: str, ours: tuple[str, str], other: tuple[str, str], reached: bool
) -> None:
    proc.process(300, 1, "python3 catch.py", sockets=(9,))
    sockets: dict[str, tuple[tuple[str, int, int], ...]] = {"tcp": (), "tcp6": ()}
    for (address, table), inode in ((ours, 7), (other, 9)):
        sockets[table] += ((address, 30000, inode),)
    for table, entries in sockets.items():
        proc.listens(entries, table)
    seen = proc.look(host=host)
    assert seen.ours is True
    assert (seen.foreign.pid if seen.foreign else None) == (300 if reached else None)


def test_a_podman_whose_container_is_in_the_unit_s_group_is_the_server(proc: Proc) -> None:
    """Without a group of its own the container lives in that of the unit, as does its monitor."""
    group = "/system.slice/other.service"
    proc.process(200, 1, "/usr/bin/podman run image", group=group)
    proc.process(201, 1, "/usr/bin/conmon --api-version 1", group=group)
    assert proc.look(main=200, group=group).outside
    proc.process(202, 201, "/run/podman-init -- python3", group=group)
    proc.process(203, 202, "sglang::scheduler_TP0", group=group)
    seen = proc.look(main=200, group=group)
    assert not seen.outside
    assert seen.worker_ranks() == ("TP0",)


def test_a_main_process_that_is_gone(proc: Proc) -> None:
    seen = proc.look(main=555, group="")
    assert (seen.main, seen.members, seen.workers) == (None, (), ())


def test_an_empty_proc_is_no_error(tmp_path: pathlib.Path) -> None:
    seen = look_at_processes(1, "", "127.0.0.1", 1, proc_root=str(tmp_path / "none"))
    assert seen.main is None
    assert seen.listeners is None


def test_real_processes(tmp_path: pathlib.Path) -> None:
    with ServerProcess(workers=3) as server:
        server.wait_for_port()
        end = time.monotonic() + 30
        while True:
            seen = look_at_processes(server.pid, "", "127.0.0.1", server.port)
            if len(seen.workers) == 3 or time.monotonic() > end:
                break
            time.sleep(0.1)
        assert seen.worker_ranks() == ("TP0", "TP1", "TP2")
        assert (seen.ours, seen.foreign) == (True, None)
        other = look_at_processes(os.getpid(), "", "127.0.0.1", server.port)
        assert other.ours is True  # the server is a child of this test
        with socket.socket() as mine:
            mine.bind(("127.0.0.1", 0))
            mine.listen(1)
            seen = look_at_processes(server.pid, "", "127.0.0.1", mine.getsockname()[1])
            assert (seen.ours, seen.foreign.pid) == (False, os.getpid())


def test_the_start_of_a_real_process() -> None:
    me = read_process(os.getpid())
    assert me is not None
    age = seconds_since_boot() - me.started_after_boot()
    assert 0 <= age < 3600
