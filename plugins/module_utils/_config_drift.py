# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Whether what is installed, and what runs, is what a profile says. Comments and order are no drift.

Compared are values, not text: unit files by directive, SGLang's configuration by option, the running server by its
command line and by when it read its files. What it says about itself is not compared here, since SGLang rewrites many
of its options while it starts (defaults that depend on others, 128k to 131072): a profile's expectations do that.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import MASK, redact
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import SECRETS

# Their values are sets: systemd puts them together in whatever order they stand.
_UNORDERED = frozenset({"Environment", "After", "Before", "Wants", "Requires", "WantedBy"})
_LAUNCHERS = ("sglang.launch_server", "sglang.launch_server_router", "serve")
_OPTION = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)\s*:(?:\s+(.*))?")
_PLACEHOLDER = re.compile(r"<<secret:([A-Za-z0-9_]*)>>")
_WIDTH = 200


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing that is not as wanted. wanted or found None: it should not be there, or is not there."""

    where: str
    item: str
    wanted: str | None
    found: str | None

    def as_dict(self) -> dict[str, t.Any]:
        return dataclasses.asdict(self)


class NotUnderstood(Exception):
    """A configuration that somebody wrote in a form that is not read here: it cannot be compared by value."""


def _shown(value: t.Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return redact(text)[:_WIDTH]


def unit_directives(text: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """(section, directive) → its values."""
    found: dict[tuple[str, str], list[str]] = {}
    section = ""
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1]
            continue
        name, equals, value = stripped.partition("=")
        found.setdefault((section, name.strip()), []).append(" ".join(value.split()) if equals else "")
    return {key: tuple(sorted(values)) if key[1] in _UNORDERED else tuple(values) for key, values in found.items()}


def unit_differences(where: str, wanted: str, found: str | None) -> list[Difference]:
    """What of a unit file is not as wanted."""
    if found is None:
        return [Difference(where, "file", "there", None)]
    ours, theirs = unit_directives(wanted), unit_directives(found)
    return [
        Difference(where, f"[{key[0]}] {key[1]}", *(_values(side.get(key)) for side in (ours, theirs)))
        for key in sorted(set(ours) | set(theirs))
        if ours.get(key) != theirs.get(key)
    ]


def _values(values: tuple[str, ...] | None) -> str | None:
    return None if values is None else _shown("; ".join(values))


def config_options(text: str) -> dict[str, t.Any]:
    """SGLang's configuration as option → value: one `name: value` on each line, the value as JSON or plain.

    :raises NotUnderstood: names the line. What this collection writes is always understood.
    """
    options: dict[str, t.Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        match = _OPTION.fullmatch(line.rstrip())
        if match is None:
            raise NotUnderstood(f"line {number} is not of the form `option: value`")
        options[match.group(1).replace("_", "-")] = _scalar(match.group(2) or "", number)
    return options


def _scalar(text: str, number: int) -> t.Any:
    for candidate in (text.strip(), re.sub(r"\s+#.*", "", text).strip()):
        try:
            return json.loads(candidate)
        except RecursionError:
            raise NotUnderstood(f"the value on line {number} is nested too deeply") from None
        except ValueError:
            plain = candidate
    if plain[:1] in tuple('[{&*!|>%@`"'):
        raise NotUnderstood(f"the value on line {number} is not written on one line as JSON")
    if len(plain) > 1 and plain[0] == plain[-1] == "'":
        return plain[1:-1].replace("''", "'")
    return {"true": True, "false": False, "null": None, "~": None, "": None}.get(plain.lower(), plain)


def config_differences(where: str, wanted: str, found: str | None, secrets: t.Mapping[str, str]) -> list[Difference]:
    """What of SGLang's configuration is not as wanted. Keys are compared and never shown.

    :raises NotUnderstood: what is installed is written in a form that is not read here.
    """
    if found is None:
        return [Difference(where, "file", "there", None)]
    ours, theirs = config_options(wanted), config_options(found)
    differences = []
    for name in sorted(set(ours) | set(theirs)):
        value = _filled(ours.get(name), secrets)
        if value == theirs.get(name):
            continue
        if name in SECRETS:
            pair = (MASK if name in ours else None, f"{MASK} (another one)" if name in theirs else None)
        else:
            pair = (_shown(value), _shown(theirs.get(name)))
        differences.append(Difference(where, name, *pair))
    return differences


def _filled(value: t.Any, secrets: t.Mapping[str, str]) -> t.Any:
    match = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else secrets.get(match.group(1), value)


def launch_arguments(argv: t.Sequence[str]) -> tuple[str, ...] | None:
    """The arguments after SGLang's entry point, whatever the server was started through; None: there is none."""
    for launcher in _LAUNCHERS:
        if launcher in argv:
            return tuple(argv[argv.index(launcher) + 1 :])
    return None


def running_differences(wanted: t.Sequence[str], running: t.Sequence[str]) -> list[Difference]:
    """What the running process was started with besides what the unit says now."""
    ours, theirs = launch_arguments(wanted), launch_arguments(running)
    if ours is None or theirs is None or ours == theirs:
        return []
    return [Difference("running server", "command line", _shown(" ".join(ours)), _shown(" ".join(theirs)))]


def changed_since(where: str, modified: float | None, started: float | None) -> list[Difference]:
    """Whether a file was written to after the server had read it. Both in seconds since the epoch."""
    if modified is None or started is None or modified <= started:
        return []
    return [Difference("running server", where, "as it is now", f"as it was {modified - started:.0f} s earlier")]
