# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What a relaunch left in the variables of a host, as the table, the result file and the record all read it."""

from __future__ import annotations

import typing as t

Variables = t.Mapping[str, t.Any]


def mapping(value: t.Any) -> Variables:
    return value if isinstance(value, t.Mapping) else {}


def seconds_between(later: t.Any, earlier: t.Any) -> float | None:
    try:
        return round(float(later) - float(earlier), 1)
    except (TypeError, ValueError):
        return None


def verdict(host: Variables) -> str | None:
    """None where the run never began on this host. One on which the former profile serves again is not just failed."""
    if "__relaunch_verdict" in host:
        return str(host["__relaunch_verdict"])
    if "__relaunch_begun" not in host:
        return None
    return "rolled_back" if host.get("__relaunch_rolled_back") else "failed"


def _results(host: Variables) -> Variables:
    """Those of the relaunch itself: a rollback stops, releases and waits once more, and registers the same names."""
    return mapping(host.get("__relaunch_first_results")) or host


def release(host: Variables) -> Variables:
    return mapping(_results(host).get("gpu_release_result"))


def of_every_release(host: Variables, name: str) -> list[t.Any]:
    """What the releases of this run list under a name: of the relaunch, and of a rollback that came so far."""
    first, last = release(host), mapping(host.get("gpu_release_result"))
    return [entry for one in ([first] if first == last else [first, last]) for entry in one.get(name) or []]


def gate(host: Variables) -> Variables:
    """The gate in the execution of the release, or the one of its own."""
    return mapping(release(host).get("gate")) or mapping(_results(host).get("gpu_idle_result"))


def stop(host: Variables) -> Variables:
    """The stop in the execution of the release, or the one of its own."""
    return mapping(release(host).get("stop")) or mapping(_results(host).get("sglang_stop_result"))
