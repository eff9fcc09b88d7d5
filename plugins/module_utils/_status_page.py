# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The fleet's status as one HTML page that stands alone: no script, nothing fetched from anywhere."""

from __future__ import annotations

import base64
import datetime
import hashlib
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._html import Html, element, together
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_style import STYLE
from ansible_collections.cleanslate.gpu.plugins.module_utils._status_text import (
    computing,
    memory,
    mib,
    unreached,
    used_share,
)

Host = t.Mapping[str, t.Any]
# A sign and a word for each state: colour alone says nothing to many readers, nor in print.
_LEVELS = {
    "attention": ("!", "attention"),
    "not_known": ("?", "not known"),
    "in_hand": ("…", "in hand"),
    "well": ("✓", "well"),
}
# Of any page that a browser can make of this document nothing but its own style sheet is used.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'sha256-{}'"


def _moment(value: t.Any) -> Html | None:
    """A date and time for people, in UTC and saying so; as it stands where it cannot be read."""
    if value in (None, ""):
        return None
    try:
        read = datetime.datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return element("span", str(value))
    if read.tzinfo is None:
        return element("time", str(value), datetime=str(value))
    shown = read.astimezone(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    return element("time", shown, datetime=str(value))


def _badge(level: str, text: str = "") -> Html:
    sign, word = _LEVELS[level]
    return element("span", element("span", sign, aria_hidden="true"), f" {text or word}", class_=f"badge {level}")


def _table(name: str, caption: str, header: t.Sequence[str], rows: t.Iterable[t.Sequence[Html | str | None]]) -> Html:
    """A table whose first column heads the rows. A column called -X is left out on narrow screens."""
    wide = ["wide" if title.startswith("-") else None for title in header]
    head = [element("th", title.lstrip("-"), scope="col", class_=kind) for title, kind in zip(header, wide)]
    body = []
    for first, *others in rows:
        cells = [element("td", cell, class_=kind) for cell, kind in zip(others, wide[1:])]
        body.append(element("tr", element("th", first, scope="row"), *cells))
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *body),
        class_=name,
    )


def _fleet(hosts: t.Sequence[tuple[str, Host]]) -> Html:
    rows: list[list[Html | str | None]] = []
    for anchor, host in hosts:
        name = element("a", host["host"], href=f"#{anchor}")
        if host["reached"]:
            server = host["server"]["verdict"]
            rows.append(
                [
                    name,
                    _badge(host["level"]),
                    together([element("strong", server), " ", str(host["profile"] or "")]),
                    memory(host["gpu"]),
                    computing(host),
                    _last(host),
                ]
            )
        else:
            rows.append([name, _badge(host["level"]), unreached(host), "-", "-", "-"])
    header = ["Node", "State", "Server", "GPU memory", "-Computing", "-Last run"]
    return element("section", _table("nodes", "All nodes", header, rows), class_="card fleet")


def _last(host: Host) -> Html | str:
    if not host["runs"]["value"]:
        return "none" if host["runs"]["known"] else "not known"
    run = host["runs"]["value"][-1]
    return together(
        [f"{run.get('playbook') or '?'} {_ended(run)} ", _moment(run.get("ended_at") or run.get("began_at"))]
    )


def _ended(run: Host) -> str:
    return "interrupted" if run.get("interrupted") else str(run.get("verdict") or "?")


def _said(host: Host) -> Html:
    problems = [
        element(
            "li",
            element("p", problem["what"]),
            element("p", element("span", "Next: ", class_="next"), problem["next"]),
        )
        for problem in host["problems"]
    ]
    notes = [element("li", note) for note in host["notes"]]
    return together(
        [
            element("ul", *problems, class_="problems", aria_label="What is wrong") if problems else None,
            element("ul", *notes, class_="notes", aria_label="What is in hand") if notes else None,
        ]
    )


def _facts(host: Host) -> Html:
    server, requests = host["server"], host["server"]["requests"]
    # That the GPUs of a server which serves are in use needs no explanation.
    serves = server["verdict"] in ("ready", "busy") and host["gpu"]["verdict"] == "busy"
    rows: list[tuple[str, Html | str | None]] = [
        (
            "Server",
            together([element("strong", server["verdict"]), f": {server['reason']}" if server["reason"] else None]),
        ),
        ("Stage", server["stage"] if server["verdict"] == "starting" else None),
        ("Since", _moment(server["since"])),
        ("Profile", f"{host['profile']} ({'wanted' if host['profile_from'] == 'wanted' else 'in the inventory'})"),
        (
            "Requests",
            None if requests["running"] is None else f"{requests['running']} running, {mib(requests['queued'])} queued",
        ),
        ("Restarts", str(server["restarts"]) if server["restarts"] else None),
        (
            "GPUs",
            together([element("strong", host["gpu"]["verdict"]), None if serves else f": {host['gpu']['reason']}"]),
        ),
        ("Driver", host["gpu"]["driver_version"]),
        ("GPU host", host["gpu_host"] if host["gpu_host"] != host["host"] else None),
    ]
    pairs = [together([element("dt", name), element("dd", value)]) for name, value in rows if value not in (None, "")]
    return element("dl", *pairs)


def _bar(gpu: Host) -> Html:
    share = used_share(gpu["used_mib"], gpu["total_mib"])
    if share is None:
        return element("svg", class_="bar unread", aria_hidden="true")
    # What is not nothing is seen.
    width = max(100 * share, 1.0) if share else 0.0
    filled = element("rect", width=f"{width:.1f}", height="10")
    return element("svg", filled, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def _memory_cell(gpu: Host) -> Html:
    share = used_share(gpu["used_mib"], gpu["total_mib"])
    percent = "" if share is None else f" ({100 * share:.0f} %)"
    text = "not known" if gpu["used_mib"] is None else f"{gpu['used_mib']} of {mib(gpu['total_mib'])} MiB{percent}"
    return element("div", element("span", text, class_="number"), _bar(gpu), class_="use")


def _users_cell(gpu: Host) -> Html:
    lines = [
        element(
            "div",
            element("code", f"{mib(process['pid'])} {process['name'] or 'not visible here'}"),
            f" {mib(process['used_mib'])} MiB" + (f", {process['disposition']}" if process["disposition"] else ""),
        )
        for process in gpu["processes"]
    ]
    lines += [element("div", problem, class_="fault") for problem in gpu["problems"]]
    return together(lines or [element("span", "nobody listed", class_="soft")])


def _gpus(host: Host) -> Html | None:
    rows = [
        [
            together([mib(gpu["index"]), element("span", f" {gpu['name'] or ''}", class_="soft wide")]),
            _memory_cell(gpu),
            _users_cell(gpu),
        ]
        for gpu in host["gpu"]["gpus"]
    ]
    return _table("gpus", "GPUs", ["GPU", "Memory in use", "Who computes"], rows) if rows else None


def _holder_name(process: Host) -> Html:
    where = process["container"] or {}
    parts = [process["user"], process["unit"], f"{where.get('kind')} {where.get('id')}" if where else None]
    return together(
        [
            element("code", f"{process['pid']} {process['comm']}"),
            element("div", ", ".join(str(part) for part in parts if part), class_="soft"),
        ]
    )


def _holders(host: Host) -> Html | None:
    rows = [
        [_holder_name(process), f"{process['disposition']}: {process['reason']}", process["cmdline"] or ""]
        for process in host["holders"]["processes"]
    ]
    if not rows:
        return None
    caption = f"Processes with a GPU open, seen on {host['holders']['seen_on']}"
    table = _table("holders", caption, ["Process", "Whose", "-Command line"], rows)
    if host["level"] == "attention":
        return table
    # Where nothing is wrong there are many and they say little.
    return element("details", element("summary", f"{len(rows)} processes with a GPU open"), table)


def _runs(host: Host) -> Html | None:
    rows = [
        [
            _moment(run.get("began_at")) or "?",
            str(run.get("playbook") or "?"),
            together([element("strong", _ended(run)), f": {run['reason']}" if run.get("reason") else None]),
            str(run.get("who") or "?"),
        ]
        for run in reversed(host["runs"]["value"])
    ]
    return _table("runs", "Last runs", ["Began", "Playbook", "Outcome", "-Who"], rows) if rows else None


def _log(host: Host) -> Html | None:
    if host["level"] != "attention" or not host["server"]["log_tail"]:
        return None
    lines = element("pre", element("code", "\n".join(host["server"]["log_tail"])), class_="log")
    return together([element("h3", "Last lines of its log"), lines])


def _node(anchor: str, host: Host) -> Html:
    title = element("div", element("h2", host["host"], id=f"{anchor}-name"), _badge(host["level"]), class_="title")
    parts = [_facts(host), _gpus(host), _holders(host), _runs(host), _log(host)] if host["reached"] else []
    return element("section", title, _said(host), *parts, class_="card", id=anchor, aria_labelledby=f"{anchor}-name")


def status_page(document: t.Mapping[str, t.Any]) -> str:
    """The document as a page, with the nodes in the order of the inventory."""
    hosts = [(f"node-{number}", host) for number, host in enumerate(document["hosts"], 1)]
    counts = [
        element("li", _badge(level, f"{document['summary'][level]} {_LEVELS[level][1]}"))
        for level in _LEVELS
        if document["summary"][level]
    ]
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    title = "GPU servers"
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY.format(digest)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(STYLE)),
    ]
    body = [
        element(
            "header", element("h1", title), element("p", "As of ", _moment(document["generated_at"]), class_="soft")
        ),
        element("ul", *counts, class_="counts", aria_label="How the nodes stand"),
        element("main", _fleet(hosts), *(_node(anchor, host) for anchor, host in hosts)),
        element("footer", "Made by status.yml of cleanslate.gpu. It shows that moment and does not renew itself."),
    ]
    return f"<!DOCTYPE html>\n{element('html', element('head', *head), element('body', *body), lang='en').text}\n"
