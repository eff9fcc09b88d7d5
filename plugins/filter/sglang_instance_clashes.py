# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_profile import sglang_profile

_UNIT = "sglang.service"  # the default of the role


def _address(host: t.Mapping[str, t.Any]) -> str:
    address = str(host.get("ansible_host") or host["inventory_hostname"])
    # Containers may share an address and differ in the port of their sshd.
    return f"{address}:{host['ansible_port']}" if host.get("ansible_port") else address


def _port(host: t.Mapping[str, t.Any]) -> int:
    resolved = sglang_profile(host.get("sglang_server_profiles") or [], host.get("sglang_server_profile"))
    return t.cast("int", resolved["port"])


def _clashes(one: t.Mapping[str, t.Any], other: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    both = f"{one['inventory_hostname']} and {other['inventory_hostname']} are servers of one node ({_address(one)})"
    unit = one.get("sglang_server_unit") or _UNIT
    if unit == (other.get("sglang_server_unit") or _UNIT):
        yield f"{both} and have the same sglang_server_unit, {unit}; give each its own, as in sglang@left.service."
    log = one.get("sglang_server_log_file")
    if log and log == other.get("sglang_server_log_file"):
        yield f"{both} and write to the same sglang_server_log_file, {log}; the progress of each is read from its own."
    port = _port(one)
    if port == _port(other):
        yield f"{both} and listen on the same port, {port}; give their profiles different ones."
    unnamed = [host["inventory_hostname"] for host in (one, other) if not host.get("gpu_idle_expected_uuids")]
    if unnamed:
        yield f"{both}, and {' and '.join(unnamed)} does not say which GPUs are its own; set gpu_idle_expected_uuids."
    shared = sorted(set(one.get("gpu_idle_expected_uuids") or ()) & set(other.get("gpu_idle_expected_uuids") or ()))
    if shared:
        yield f"{both} and share {', '.join(shared)} in gpu_idle_expected_uuids; a GPU belongs to one of them."


def sglang_instance_clashes(hosts: t.Iterable[t.Mapping[str, t.Any]], name: str) -> list[str]:
    """Sentences about what two servers of one node cannot share, as far as one of them is this host.

    :param hosts: the variables of all hosts in question.
    :param name: the host whose clashes are wanted.
    """
    found: list[str] = []
    for one, other in itertools.combinations(hosts, 2):
        if name in (one["inventory_hostname"], other["inventory_hostname"]) and _address(one) == _address(other):
            found += _clashes(one, other)
    return found


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"sglang_instance_clashes": sglang_instance_clashes}
