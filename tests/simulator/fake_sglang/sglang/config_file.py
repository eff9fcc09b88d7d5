# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The config file of --config: a small, strict reader of the YAML that is used there (and of JSON).

Read: "key: value" with plain or quoted scalars, JSON or flow lists and mappings on one line, block lists of scalars,
one nested block mapping, comments, --- at the top. Anything else is an error that names the line; it is never guessed.
"""

from __future__ import annotations

import json
import re
import typing as t

Value = t.Any
KEY = re.compile(r"""^(?:"([^"]+)"|'([^']+)'|([A-Za-z_][\w.-]*))\s*:(?:\s+(.*))?$""")
NUMBER = re.compile(r"^[-+]?(?:\d+|\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?$")


class ConfigError(Exception):
    pass


def without_comment(text: str) -> str:
    quote = ""
    for place, letter in enumerate(text):
        if quote:
            if letter == "\\" and quote == '"':
                continue
            if letter == quote and not (quote == '"' and text[place - 1] == "\\"):
                quote = ""
        elif letter in "\"'" and (place == 0 or text[place - 1] in " [{,:"):
            quote = letter
        elif letter == "#" and (place == 0 or text[place - 1] in " \t"):
            return text[:place].rstrip()
    return text.rstrip()


def scalar(text: str, where: str) -> Value:
    if text == "" or text in ("null", "~", "Null", "NULL"):
        return None
    if text[0] == "'":
        if len(text) < 2 or text[-1] != "'" or "'" in text[1:-1].replace("''", ""):
            raise ConfigError(f"{where}: unfinished quoted text: {text}")
        return text[1:-1].replace("''", "'")
    if text[0] == '"':
        try:
            return json.loads(text)
        except ValueError:
            raise ConfigError(f"{where}: cannot read the quoted text: {text}") from None
    if text[0] in "[{":
        try:
            return json.loads(text)
        except ValueError:
            if text[0] == "[" and text[-1] == "]" and not set(text[1:-1]) & set("[]{}\"'"):
                return [scalar(item.strip(), where) for item in text[1:-1].split(",") if item.strip()]
            raise ConfigError(f"{where}: flow values must be JSON here: {text}") from None
    if text[0] in "&*!|>%@`":
        raise ConfigError(f"{where}: not read by this simulator: {text}")
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if NUMBER.match(text):
        return float(text) if set(text) & set(".eE") else int(text)
    if ": " in text or text.endswith(":"):
        raise ConfigError(f"{where}: a mapping inside a value needs quotes or a block: {text}")
    return text


def block(lines: list[tuple[str, int, str]]) -> Value:
    """A block list or a block mapping, all lines at one depth."""
    depth = lines[0][1]
    items: list[Value] = []
    mapping: dict[str, Value] = {}
    while lines:
        where, indent, text = lines.pop(0)
        if indent != depth:
            raise ConfigError(f"{where}: unexpected indentation")
        if text == "-" or text.startswith("- "):
            items.append(scalar(text[1:].strip(), where))
            continue
        match = KEY.match(text)
        if not match:
            raise ConfigError(f"{where}: neither 'key: value' nor '- item': {text}")
        key = match.group(1) or match.group(2) or match.group(3)
        if key in mapping:
            raise ConfigError(f"{where}: {key} is there twice")
        value = (match.group(4) or "").strip()
        nested = []
        while not value and lines and (lines[0][1] > depth or (lines[0][1] == depth and lines[0][2].startswith("- "))):
            nested.append(lines.pop(0))
        mapping[key] = block(nested) if nested else scalar(value, where)
    if items and mapping:
        raise ConfigError(f"{where}: a list and a mapping at one depth")
    return items or mapping


def parse(text: str, name: str) -> dict[str, Value]:
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None
    else:
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            where = f"{name} line {number}"
            if "\t" in line[: len(line) - len(line.lstrip())]:
                raise ConfigError(f"{where}: a tab as indentation")
            stripped = without_comment(line.strip())
            if not stripped or stripped in ("---", "...") or stripped.startswith("%YAML"):
                continue
            lines.append((where, len(line) - len(line.lstrip()), stripped))
        found = block(lines) if lines else None
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: Config file must contain a dictionary at root level")
    return found
