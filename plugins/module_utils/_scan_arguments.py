# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Options of every module that scans for holders, and what they must have to do with each other."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._device_nodes import NVIDIA_GLOB
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope, ScopeName
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._nvidia_smi_text import is_gpu_uuid
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    SUFFIXES,
    check_host,
    check_line,
    check_path,
    check_seconds,
    check_unit,
    check_vmid,
    shown,
    with_suffix,
)
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import ANY_ADDRESS, Port

SCOPES = ("unit", "own", "lxc", "all")

SCAN_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "devices": {"type": "list", "elements": "str", "default": [NVIDIA_GLOB]},
    "majors": {"type": "list", "elements": "int"},
    "scope": {"type": "str", "choices": list(SCOPES)},
    "units": {"type": "list", "elements": "str", "default": []},
    "containers": {"type": "list", "elements": "str", "default": []},
    "lxc": {"type": "list", "elements": "str", "default": []},
    "gpus": {"type": "list", "elements": "str", "default": []},
    "protect": {"type": "list", "elements": "str", "default": []},
    "allow_protected": {"type": "list", "elements": "str", "default": []},
    "allow_foreign": {"type": "bool", "default": False},
    "scan_timeout": {"type": "float", "default": 30.0},
    "systemd_scope": {"type": "str", "choices": ["system", "user"], "default": "system"},
    "port": {"type": "int"},
    "host": {"type": "str", "default": ANY_ADDRESS},
}

_CONTAINER_LEAST = 12
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
LONGEST_SCAN = 3600.0


def scan_request(params: t.Mapping[str, t.Any], proc_root: str = "/proc") -> ScanRequest:
    """The request that the options describe. ValueError names the option and the value that do not fit."""
    name = params["scope"]
    if name not in SCOPES:
        raise ValueError(f"scope is {name!r}; it must be one of {', '.join(SCOPES)}.")
    lists = {
        key: tuple(str(value) for value in params.get(key) or ())
        for key in ("devices", "units", "containers", "lxc", "gpus", "protect", "allow_protected")
    }
    for key, values in lists.items():
        for value in values:
            if not value.strip():
                raise ValueError(f"{key} holds an empty value; leave it out.")
    if not lists["devices"]:
        raise ValueError(f"devices is empty; give at least one glob, for example {NVIDIA_GLOB}.")
    for pattern in lists["devices"]:
        check_path("an entry of devices", pattern)
    units = tuple(with_suffix(unit) for unit in lists["units"])
    _names(lists, units)
    _relations(name, lists, bool(params.get("allow_foreign")))
    timeout = check_seconds("scan_timeout", float(params["scan_timeout"]), most=LONGEST_SCAN)
    majors = params.get("majors")
    for major in majors or ():
        if not 0 < major < 4096:
            raise ValueError(f"majors holds {shown(major)}; a device major lies between 1 and 4095.")
    number = params.get("port")
    if number is not None and not 0 < number < 65536:
        raise ValueError(f"port is {shown(number)}; a port lies between 1 and 65535.")
    host = check_host("host", params.get("host") or ANY_ADDRESS)
    return ScanRequest(
        scope=Scope(
            name=t.cast(ScopeName, name),
            units=units,
            containers=lists["containers"],
            lxc=lists["lxc"],
            protect=lists["protect"],
            allow_protected=lists["allow_protected"],
            gpus=lists["gpus"],
        ),
        devices=lists["devices"],
        majors=tuple(majors) if majors else None,
        timeout=timeout,
        proc_root=proc_root,
        systemd_scope=params.get("systemd_scope") or "system",
        port=None if number is None else Port(number, host),
    )


def _names(lists: t.Mapping[str, tuple[str, ...]], units: tuple[str, ...]) -> None:
    """Names that could belong to nothing: a slip in one would mean that nothing is stopped or protected by it."""
    for unit in units:
        check_unit("an entry of units", unit, SUFFIXES)
    for name in lists["containers"]:
        if not _CONTAINER.fullmatch(name):
            raise ValueError(f"containers holds {shown(name)}, which can be no name and no id of a container.")
    for vmid in lists["lxc"]:
        check_vmid("lxc", vmid)
    for key in ("protect", "allow_protected"):
        for name in lists[key]:
            check_line(f"an entry of {key}", name)
            if "/" in name and not name.startswith("/"):
                raise ValueError(
                    f"{key} holds {shown(name)}; give the name of a program, its absolute path, or the name of a unit."
                )


def _relations(name: str, lists: t.Mapping[str, tuple[str, ...]], allow_foreign: bool) -> None:
    units, containers, lxc, gpus = lists["units"], lists["containers"], lists["lxc"], lists["gpus"]
    if name == "unit" and not units:
        raise ValueError("scope is 'unit', but units is empty; name the unit whose processes may be signalled.")
    if name == "lxc" and not lxc:
        raise ValueError("scope is 'lxc', but lxc is empty; give the VMIDs of the containers.")
    if name != "lxc" and lxc:
        raise ValueError(f"lxc is {', '.join(lxc)}, but scope is {name!r}; lxc goes with scope 'lxc' only.")
    if name not in ("own", "unit") and containers:
        raise ValueError(
            f"containers is {', '.join(containers)}, but scope is {name!r}; they go with 'own' and 'unit' only."
        )
    if gpus and name not in ("unit", "lxc"):
        raise ValueError(f"gpus is {', '.join(gpus)}, but scope is {name!r}; they go with 'unit' and 'lxc' only.")
    if name == "all" and not allow_foreign:
        raise ValueError("scope is 'all', which signals processes of others too; it needs allow_foreign: true.")
    if name != "all" and allow_foreign:
        raise ValueError(f"allow_foreign is true, but scope is {name!r}; it goes with scope 'all' only.")
    for wanted in containers:
        if re.match(r"^[0-9a-f]+\Z", wanted) and len(wanted) < _CONTAINER_LEAST:
            raise ValueError(f"containers holds {wanted!r}; give at least {_CONTAINER_LEAST} characters of an id.")
    for uuid in gpus:
        if not is_gpu_uuid(uuid):
            raise ValueError(f"gpus holds {shown(uuid)}, which is no GPU UUID; `nvidia-smi -L` lists them.")
