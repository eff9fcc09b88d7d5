# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Who is in a server's way on its port: relatives of what is released, and strangers. Nothing is read here."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._dispositions import Claim, Ruling, executable_name
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Disposition, PortOwner
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Port
from ansible_collections.cleanslate.gpu.plugins.module_utils._raw_holds import RawPort
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import redact, redact_argv

# They pass a port on into a container and end with it.
_FORWARDERS = frozenset({"docker-proxy", "rootlessport", "slirp4netns", "pasta", "pasta.avx2"})


def listening_relatives(
    claims: t.Sequence[Claim], dispositions: t.Sequence[Disposition], known: t.Collection[tuple[int, int]]
) -> frozenset[int]:
    """The listeners on the server's port that have a target of the same user above or below them, or share the socket
    with one. known: (pid, start time) of those that were found to be so before, whose relatives may have ended since.

    A socket can be handed to somebody who never asked for it, and anybody can be started below a process of another
    user: neither makes kin of them."""
    starts = {claim.raw.stat.pid: claim.raw.stat.start_time for claim in claims}
    lineages = {claim.raw.stat.pid: [pid for pid, _cgroup in claim.raw.lineage] for claim in claims}
    targets = {claim.raw.stat.pid for claim, found in zip(claims, dispositions) if found == "target"}
    users = {claim.raw.stat.pid: claim.raw.status.uids[:2] for claim in claims}
    shared: dict[tuple[int, ...], set[int]] = {}  # by user: inherited by a fork
    for claim in claims:
        if claim.raw.stat.pid in targets:
            inodes = (inode for inode, _address in claim.raw.listens)
            shared.setdefault(users[claim.raw.stat.pid], set()).update(inodes)

    def above(pid: int, other: int) -> bool:
        # An ancestor is never younger: a number that was used again names somebody else.
        return pid in lineages[other] and starts[pid] <= starts[other]

    found = set()
    for claim in claims:
        pid = claim.raw.stat.pid
        related = any(users[pid] == users[target] and (above(pid, target) or above(target, pid)) for target in targets)
        if claim.raw.listens and (
            related
            or (pid, claim.raw.stat.start_time) in known
            or shared.get(users[pid], set()).intersection(inode for inode, _address in claim.raw.listens)
        ):
            found.add(pid)
    return frozenset(found)


def port_owners(port: Port | None, judged: t.Sequence[tuple[Claim, Ruling]], left: RawPort) -> tuple[PortOwner, ...]:
    """Everybody who listens there, with what the rules make of them."""
    if port is None:
        return ()
    stopped = any(ruling[0] == "target" and claim.owner.container is not None for claim, ruling in judged)
    owners = []
    for claim, (disposition, reason) in judged:
        raw, owner = claim.raw, claim.owner
        forwards = executable_name(raw.exe) in _FORWARDERS
        for address in dict.fromkeys(address for _inode, address in raw.listens):
            owners.append(
                PortOwner(
                    address=address_of(address, port),
                    pid=raw.stat.pid,
                    comm=raw.stat.comm,
                    cmdline=redact_argv(raw.argv),
                    user=raw.user,
                    unit=owner.unit,
                    container=owner.container,
                    dying=raw.dying,
                    disposition=disposition,
                    reason=redact(reason),
                    ends_with_target=stopped and forwards,
                )
            )
    nobody = "no process that can be seen from here owns this socket"
    return (*owners, *(PortOwner(address_of(address, port), reason=nobody) for _inode, address in left.unowned))


def strangers(owners: t.Iterable[PortOwner]) -> tuple[PortOwner, ...]:
    """Those who stay after a release: nothing may be signalled there."""
    return tuple(owner for owner in owners if not owner.goes)


def address_of(address: str, port: Port | None) -> str:
    number = "" if port is None else f":{port.number}"
    return f"[{address}]{number}" if ":" in address else f"{address}{number}"


def describe_owner(owner: PortOwner) -> str:
    """One line for people."""
    if owner.pid is None:
        return f"somebody on {owner.address}: {owner.reason}"
    parts = [f"pid {owner.pid} ({owner.cmdline[:200] or owner.comm})"]
    parts += [f"user {owner.user}"] if owner.user else []
    parts += [f"container {owner.container.kind} {owner.container.id}"] if owner.container is not None else []
    parts += [f"unit {owner.unit}"] if owner.unit else []
    parts.append(f"on {owner.address}")
    return f"{', '.join(parts)}: {owner.disposition} ({owner.reason})"
