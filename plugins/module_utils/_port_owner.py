# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Who listens on a port: the kernel's tables of sockets, and the processes that have one of them open."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._ownership import owner_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._procfs import Proc

_SOCKET = re.compile(r"^socket:\[(\d+)\]$")
_LISTEN = "0A"
ANY_ADDRESS = "0.0.0.0"
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "*": "127.0.0.1", "::": "::1"}


@dataclasses.dataclass(frozen=True)
class Port:
    """Where a server is to listen."""

    number: int
    host: str = ANY_ADDRESS


@dataclasses.dataclass(frozen=True)
class Listener:
    """A process that listens on the port. pid is None where no process could be seen to own the socket; then
    unreadable says whether there were processes whose descriptors could not be read."""

    address: str
    pid: int | None
    unreadable: bool = False
    cmdline: str = ""


def _address(hexadecimal: str) -> str:
    raw = bytes.fromhex(hexadecimal)
    # Words in host order, as the kernel prints them; every supported GPU host is little-endian.
    packed = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _covers(listening: str, host: str) -> bool:
    if listening in ("0.0.0.0", "::") or host in ("0.0.0.0", "::", ""):
        return True
    try:
        return ipaddress.ip_address(listening) == ipaddress.ip_address(host)
    except ValueError:
        return True  # a host name: any address may be meant


def may_answer(listening: str, host: str) -> bool:
    """Whether a request to host may reach this listener although another one listens for it too: the kernel prefers
    the exact address, and a name may stand for any."""
    try:
        asked = ipaddress.ip_address(address_to_ask(host))
    except ValueError:
        return True
    return ipaddress.ip_address(listening) == asked


def address_to_ask(host: str) -> str:
    """Where a server is reached that listens on this address."""
    return _WILDCARDS.get(host.strip("[]"), host.strip("[]"))


def listening_sockets(host: str, port: int, proc_root: str = "/proc", pid: int | None = None) -> dict[str, str] | None:
    """inode → address of the sockets that listen where host:port would be answered; None where that is unknown. pid:
    in the network namespace of that process, else in the one of whoever asks."""
    result: dict[str, str] = {}
    read = False
    folder = f"{proc_root}/net" if pid is None else f"{proc_root}/{pid}/net"
    for table in ("tcp", "tcp6"):
        try:
            with open(f"{folder}/{table}", encoding="ascii", errors="replace") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        read = True
        for line in lines:
            fields = line.split()
            if len(fields) < 10 or fields[3] != _LISTEN:
                continue
            address, _colon, number = fields[1].partition(":")
            with contextlib.suppress(ValueError):
                if int(number, 16) == port and _covers(_address(address), host.strip("[]")):
                    result[fields[9]] = _address(address)
    return result if read else None


def _sockets_of(pid: int, proc_root: str) -> set[str] | None:
    """Inodes of the sockets that a process has open; None where they may not be read."""
    try:
        names = os.listdir(f"{proc_root}/{pid}/fd")
    except PermissionError:
        return None
    except OSError:
        return set()
    inodes = set()
    for name in names:
        try:
            found = _SOCKET.match(os.readlink(f"{proc_root}/{pid}/fd/{name}"))
        except PermissionError:
            return None
        except OSError:
            continue
        if found:
            inodes.add(found.group(1))
    return inodes


def owners_in_order(
    sockets: t.Mapping[str, str], order: t.Iterable[int], proc_root: str
) -> tuple[tuple[Listener, ...], set[int]]:
    """The first owner of each socket in this order, and the processes that could not be read on the way."""
    left = dict(sockets)
    found: list[Listener] = []
    unreadable: set[int] = set()
    for pid in order:
        if not left:
            break
        inodes = _sockets_of(pid, proc_root)
        if inodes is None:
            unreadable.add(pid)
            continue
        for inode in inodes & set(left):
            found.append(Listener(left.pop(inode), pid))
    found += [Listener(address, None, unreadable=bool(unreadable)) for address in left.values()]
    return tuple(found), unreadable


class ListeningOn:
    """The sockets on one port in the network namespaces that count: that of whoever asks, or those of LXC containers,
    seen from their host. containers nested in these have ports of their own."""

    def __init__(self, port: Port, proc: Proc, lxc: t.Collection[str] = ()) -> None:
        self._port, self._proc, self._lxc = port, proc, lxc

    def sockets(self, pids: t.Iterable[int], init_cgroup: str, own_cgroup: str) -> dict[int, str] | None:
        """inode → address. None where the kernel's tables could not be read."""
        if not self._lxc:
            return self._read(None)
        found: dict[int, str] = {}
        for pid in self._one_of_each_namespace(pids, init_cgroup, own_cgroup):
            found.update(self._read(pid) or {})
        return found

    def sockets_around(self, pid: int) -> dict[int, str]:
        """Those of that process's own network namespace."""
        return self._read(pid if self._lxc else None) or {}

    def _read(self, pid: int | None) -> dict[int, str] | None:
        found = listening_sockets(self._port.host, self._port.number, self._proc.root, pid)
        return None if found is None else {int(inode): address for inode, address in found.items()}

    def _one_of_each_namespace(self, pids: t.Iterable[int], init_cgroup: str, own_cgroup: str) -> list[int]:
        found: dict[str, int] = {}
        for pid in pids:
            try:
                owner = owner_of(self._proc.cgroup(pid), init_cgroup, own_cgroup)
                if owner.container is None or owner.nested is not None:
                    continue
                if owner.container.kind == "lxc" and owner.container.id in self._lxc:
                    found.setdefault(os.readlink(self._proc.path(pid, "ns", "net")), pid)
            except OSError:
                continue  # it ended meanwhile
        return list(found.values())
