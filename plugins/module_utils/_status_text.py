# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The fleet's status in a terminal: a line for each node, then what is wrong, then the GPUs where that matters."""

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._text_table import aligned, printable

Host = t.Mapping[str, t.Any]
LEVEL_NAMES = {"well": "well", "in_hand": "in hand", "attention": "ATTENTION", "not_known": "not known"}
_BAR = 20


def used_share(used: t.Any, total: t.Any) -> float | None:
    """How full a GPU is, 0 to 1; None where that is not known."""
    if not isinstance(used, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
        return None
    return min(1.0, max(0.0, used / total))


def mib(value: t.Any) -> str:
    """A number of MiB, which is unknown where it is None and never 0 then."""
    return "?" if value is None else str(value)


def _amount(value: t.Any) -> str:
    """MiB as they are up to a GiB: a few of them matter; GiB above."""
    if not isinstance(value, (int, float)):
        return "?"
    return f"{value:.0f} MiB" if value < 1024 else f"{value / 1024:.1f} GiB"


def memory(gpu: Host) -> str:
    """The memory of all GPUs of a node."""
    gpus = gpu["gpus"]
    if not gpus:
        return "-"
    if gpu["used_mib_total"] == 0:
        return f"{len(gpus)} x 0 MiB"
    return f"{_amount(gpu['used_mib_total'])} of {_amount(gpu['total_mib_total'])} on {len(gpus)}"


def computing(host: Host) -> str:
    """Whose processes compute, in numbers."""
    dispositions = [process["disposition"] for process in host["holders"]["processes"] if process["computes"]]
    counts = [
        f"{dispositions.count(name)} {name}" for name in ("target", "protected", "foreign") if name in dispositions
    ]
    more = " and more?" if host["holders"]["verdict"] in ("incomplete", "unknown") else ""
    return (", ".join(counts) or ("?" if more else "none")) + more


def last_run(host: Host) -> str:
    """The last run of a node in short."""
    if not host["runs"]["value"]:
        return "-" if host["runs"]["known"] else "?"
    run = host["runs"]["value"][-1]
    ended = "interrupted" if run.get("interrupted") else run.get("verdict") or "?"
    return f"{run.get('playbook') or '?'} {ended} {run.get('ended_at') or run.get('began_at') or ''}".strip()


def unreached(host: Host) -> str:
    """Why nothing is known of a node, in a word or two."""
    return "unreachable" if host["unreached_reason"] else "not looked at"


def _row(host: Host) -> list[str]:
    level = LEVEL_NAMES[host["level"]]
    if not host["reached"]:
        return [host["host"], level, unreached(host), "-", "-", "-", "-", "-"]
    return [
        host["host"], level, host["server"]["verdict"], str(host["profile"] or "-"), host["gpu"]["verdict"],
        memory(host["gpu"]), computing(host), last_run(host),
    ]  # fmt: skip


def _bar(gpu: Host) -> str:
    share = used_share(gpu["used_mib"], gpu["total_mib"])
    if share is None:
        return "?" * _BAR
    # A GPU that holds anything at all shows it.
    filled = -int(-_BAR * share // 1)
    return "#" * filled + "." * (_BAR - filled)


def _processes(gpu: Host) -> str:
    cells = [
        f"{process['pid']} {process['name'] or 'not visible here'} ({mib(process['used_mib'])} MiB)"
        for process in gpu["processes"]
    ]
    return ", ".join(cells) or "-"


def _details(host: Host) -> list[str]:
    lines = [
        f"{host['host']}: server {host['server']['verdict']}, GPUs {host['gpu']['verdict']}",
        f"  server  {host['server']['reason'] or '-'}",
        f"  GPUs    {host['gpu']['reason'] or '-'}",
    ]
    rows = [
        [
            f"  {mib(gpu['index'])}", str(gpu["name"]), f"{mib(gpu['used_mib'])} / {mib(gpu['total_mib'])}", _bar(gpu),
            "; ".join([_processes(gpu), *gpu["problems"]]),
        ]
        for gpu in host["gpu"]["gpus"]
    ]  # fmt: skip
    if rows:
        lines += ["", *aligned(["  GPU", "name", "used / total MiB", "", "processes that compute"], rows)]
    others = [
        f"    pid {process['pid']} ({process['comm']}), user {process['user'] or '?'}: "
        f"{process['disposition']} ({process['reason']})"
        for process in host["holders"]["processes"]
    ]
    if others:
        lines += ["", f"  has a GPU open, seen on {host['holders']['seen_on']}:", *others]
    return lines


def status_text(document: t.Mapping[str, t.Any]) -> str:
    """The document as lines for people. Details are shown of nodes that need attention, and of one looked at alone."""
    hosts = document["hosts"]
    header = ["node", "state", "server", "profile", "GPUs", "memory", "computing", "last run"]
    lines = aligned(header, [_row(host) for host in hosts])
    for host in hosts:
        said = [
            line for problem in host["problems"] for line in (f"  {problem['what']}", f"    next: {problem['next']}")
        ]
        said += [f"  {note}" for note in host["notes"]]
        if said:
            lines += ["", f"{host['host']}:", *said]
    for host in hosts:
        if host["reached"] and (host["level"] == "attention" or len(hosts) == 1):
            lines += ["", *_details(host)]
    return "\n".join(printable(line).rstrip() for line in lines)
