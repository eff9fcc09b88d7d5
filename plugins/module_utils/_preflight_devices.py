# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Checks of the GPU device nodes, made where the server runs: what a passthrough into a container can get wrong."""

from __future__ import annotations

import errno
import os
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import plays_nodes
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight import (
    Check,
    Context,
    Fault,
    failed,
    not_checked,
    passed,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_nodes import (
    LOAD_UVM,
    START_AGAIN,
    NeededNode,
    fault_of,
    needed_nodes,
    sound_nodes,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_deadline import Progress, collect
from ansible_collections.cleanslate.gpu.plugins.module_utils._service_account import Account

_ACL = "system.posix_acl_access"
_READ_WRITE, _SEARCH = 6, 1
_MISSING_CURE = (
    f"{LOAD_UVM}, check the container's devN or lxc.mount.entry lines, and {START_AGAIN}: an optional mount entry is"
    " left out without a word where the host has no node yet."
)
_USER_CURE = "Create it on this node (in the container, not on its host), or name the user that the server runs as."
_BITS_CURE = (
    "On the Proxmox host give devN the option mode=0666, or gid= of a group of this user, and start the container"
    " again; where the nodes are the machine's own, put the user into their group or load the nvidia module with"
    " NVreg_DeviceFileMode=0666."
)
_ALLOW_CURE = (
    "On the host give the device to the container as devN, which also allows it, or correct the number in its"
    " lxc.cgroup2.devices.allow line, and start the container again."
)
_ROOT_DENIED_CURE = (
    "Check on the host that the folder of the node is not mounted nodev in the container and that no security profile"
    " forbids the device, and start the container again."
)
_NO_DEVICE_CURE = "On the host see what the driver says of the GPU (`nvidia-smi`, `dmesg | grep -e NVRM -e Xid`)."
_BLOCKED_CURE = (
    "On the host see whether `nvidia-smi` answers and what `dmesg | grep -e NVRM -e Xid` says; where every start of a"
    " GPU takes this long, switch its persistence mode on."
)


def service_user(context: Context) -> Check:
    """The user that the unit names."""
    name = "service_user"
    if not context.service_user:
        return not_checked(name, "no service user was given")
    try:
        account = context.account(context.service_user, context.service_group)
    except LookupError as error:
        return failed(name, [Fault(str(error), _USER_CURE)])
    return passed(name, f"{account.name} has the uid {account.uid}")


def device_nodes(context: Context) -> Check:
    """Something is at every path."""
    name = "device_nodes"
    needed = needed_nodes(context)
    faults = []
    if needed.missing:
        faults.append(Fault(f"{_names(needed.missing)} {_verb(needed.missing, 'is', 'are')} missing", _MISSING_CURE))
    there = needed.gpus_present
    if len(there) < needed.gpus_wanted and not any(node.gpu_minor is not None for node in needed.missing):
        seen = _names(there) or "none"
        faults.append(
            Fault(f"{len(there)} of at least {needed.gpus_wanted} GPU nodes are there ({seen})", _MISSING_CURE)
        )
    if faults:
        return failed(name, faults)
    return passed(name, f"all are there: {_names(needed.nodes)}")


def device_kind(context: Context) -> Check:
    """What is there is the driver's device."""
    name = "device_kind"
    present = needed_nodes(context).present
    if not present:
        return not_checked(name, "there is no node to look at")
    faults = _grouped((node, fault) for node in present for fault in (fault_of(node, context),) if fault is not None)
    if faults:
        return failed(name, faults)
    if plays_nodes(context.devices):
        return passed(name, f"{len(present)} simulated nodes outside /dev")
    _known, strange = sound_nodes(context)
    if strange:
        where = os.path.join(context.proc.root, "devices")
        return not_checked(name, f"{where}, which says what major {_names(strange)} must have, cannot be read")
    return passed(name, f"{len(present)} character devices with the majors they should have")


def open_read_write(path: str) -> None:
    """Open as a server does, and let go of it at once."""
    os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))


def device_access(
    context: Context,
    *,
    opener: t.Callable[[str], None] = open_read_write,
    attributes: t.Callable[[str], t.Sequence[str]] = os.listxattr,
) -> Check:
    """The service user may open each node, and each lets itself be opened."""
    name = "device_access"
    nodes, strange = sound_nodes(context)
    if not nodes:
        return not_checked(name, "there is no node that could be opened")
    account = None
    doubts = (
        [f"{_names(strange)} {_verb(strange, 'was', 'were')} not tried, the right number is not known"]
        if strange
        else []
    )
    if context.service_user:
        try:
            account = context.account(context.service_user, context.service_group)
        except LookupError as error:
            doubts.append(f"the permissions were not looked at, because {error}")
    faults: list[tuple[NeededNode, Fault]] = []
    if account is not None and account.uid != context.own_uid:
        denied, unsure = _by_permission(context, account, nodes, attributes)
        faults.extend(denied)
        doubts.extend(unsure)
    refused, untried = _by_opening(context, account, nodes, opener)
    faults.extend(refused)
    doubts.extend(untried)
    if faults:
        check = failed(name, _grouped(faults))
        return Check(name, False, "; ".join([check.detail, *doubts]), check.cure)
    if doubts:
        return not_checked(name, "; ".join(doubts))
    who = f", and user {account.name} may do so" if account is not None else ""
    return passed(name, f"{len(nodes)} nodes were opened read-write{who}")


def _by_permission(
    context: Context, account: Account, nodes: t.Sequence[NeededNode], attributes: t.Callable[[str], t.Sequence[str]]
) -> tuple[list[tuple[NeededNode, Fault]], list[str]]:
    """By mode and owner of the node and of the folders above it. An access control list changes what these mean."""
    denied: list[tuple[NeededNode, Fault]] = []
    unsure: list[NeededNode] = []
    for node in nodes:
        closed = None
        listed = False
        for path, bits in _way(node.path):
            try:
                found = context.stat(path)
            except OSError:
                continue
            try:
                listed = listed or _ACL in attributes(path)
            except OSError:
                pass
            if closed is None and not account.may(found, bits):
                what = "has" if path == node.path else f"lies in {path}, which has"
                closed = f"{what} mode {found.st_mode & 0o7777:04o} and owner {found.st_uid}:{found.st_gid}"
        if listed:
            unsure.append(node)
        elif closed is not None:
            denied.append((node, Fault(f"{closed}, so user {account.name} cannot open it read-write", _BITS_CURE)))
    doubts = []
    if unsure:
        path = unsure[0].path
        doubts.append(
            f"{_names(unsure)} {_verb(unsure, 'has', 'have')} an access control list, which only the user itself can"
            f" try: sudo -u {account.name} sh -c 'test -r {path} -a -w {path}'"
        )
    return denied, doubts


def _way(path: str) -> t.Iterator[tuple[str, int]]:
    folder = os.path.dirname(os.path.realpath(path))
    folders = [folder]
    while os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        folders.insert(0, folder)
    for step in folders:
        yield step, _SEARCH
    yield path, _READ_WRITE


def _by_opening(
    context: Context, account: Account | None, nodes: t.Sequence[NeededNode], opener: t.Callable[[str], None]
) -> tuple[list[tuple[NeededNode, Fault]], list[str]]:
    """Each is opened in a child process: a driver that is stuck can keep whoever opens its node for ever."""

    def attempt(progress: Progress) -> t.Iterator[tuple[int, int]]:
        for index, node in enumerate(nodes):
            progress.at(os.getpid(), index)
            try:
                opener(node.path)
            except OSError as error:
                yield index, error.errno or errno.EIO
            else:
                yield index, 0

    until = context.clock.monotonic() + context.timeout * len(nodes)
    tried = collect(attempt, deadline=until, stall=context.timeout, clock=context.clock)
    faults: list[tuple[NeededNode, Fault]] = []
    doubts: list[str] = []
    for index, number in tried.items:
        if number == errno.EACCES and context.own_uid != 0 and (account is None or account.uid != context.own_uid):
            doubts.append(f"{nodes[index].path} may not be opened by uid {context.own_uid}; try it as root")
        elif number:
            faults.append((nodes[index], _open_fault(number, context.own_uid)))
    if tried.finished:
        return faults, doubts
    rest = nodes[len(tried.items) :]
    if tried.blocked_at is None:
        doubts.append(f"{_names(rest)} could not be tried: {tried.error}")
    elif rest:
        faults.append((rest[0], Fault(f"did not open within {context.timeout:g} s", _BLOCKED_CURE)))
        if rest[1:]:
            doubts.append(f"{_names(rest[1:])} {_verb(rest[1:], 'was', 'were')} not tried after that")
    return faults, doubts


def _open_fault(number: int, own_uid: int) -> Fault:
    said = os.strerror(number)
    if number == errno.EPERM:
        return Fault(
            f"cannot be opened by uid {own_uid} ({said}): the device rules of the container lack it", _ALLOW_CURE
        )
    if number == errno.EACCES:
        cure = _ROOT_DENIED_CURE if own_uid == 0 else _BITS_CURE
        return Fault(f"cannot be opened by uid {own_uid} ({said})", cure)
    return Fault(f"cannot be opened ({said})", _NO_DEVICE_CURE)


def _grouped(found: t.Iterable[tuple[NeededNode, Fault]]) -> list[Fault]:
    """Nodes with the same fault share a clause."""
    groups: dict[Fault, list[NeededNode]] = {}
    for node, fault in found:
        groups.setdefault(fault, []).append(node)
    return [
        Fault(f"{_names(nodes)}: {fault.what}" if len(nodes) > 1 else f"{nodes[0].path} {fault.what}", fault.cure)
        for fault, nodes in groups.items()
    ]


def _names(nodes: t.Sequence[NeededNode]) -> str:
    return ", ".join(node.path for node in nodes)


def _verb(nodes: t.Sequence[NeededNode], one: str, several: str) -> str:
    return one if len(nodes) == 1 else several
