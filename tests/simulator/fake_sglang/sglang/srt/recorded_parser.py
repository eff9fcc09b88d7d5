# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's own argument parser, rebuilt from a recording of it (tests/recordings/sglang-parsers).

Names, kinds, number of values, choices and simple types are those of the recorded version. Not imitated: the messages
of its own types (lengths with a suffix and JSON are checked, the rest is taken as text), warnings for old spellings.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import re
import typing as t

FOLDER = pathlib.Path(__file__).resolve().parents[4] / "recordings" / "sglang-parsers"
VERSIONS = ("0.5.12", "0.5.15", "0.5.23")


def human_readable_int(value: str) -> int:
    if re.fullmatch(r"\d+|\d+(\.\d+)?[kMGT]|\d+[KMGT]i", value) is None:
        raise argparse.ArgumentTypeError(f"{value} is no number with a suffix")
    return int(float(re.sub(r"[A-Za-z]", "", value)))


TYPES: dict[str, t.Callable[[str], t.Any]] = {
    "int": int,
    "float": float,
    "loads": json.loads,
    "human_readable_int": human_readable_int,
}


@functools.cache
def description(version: str) -> dict[str, t.Any]:
    found: dict[str, t.Any] = json.loads((FOLDER / f"{version}.json").read_text(encoding="utf-8"))
    return found


def add_arguments(parser: argparse.ArgumentParser, version: str) -> None:
    for option in description(version)["options"]:
        named: dict[str, t.Any] = {"required": option.get("required", False), "default": option.get("default")}
        if option["action"] == "boolean_optional":
            flags = [flag for flag in option["flags"] if not flag.startswith("--no-")]
            parser.add_argument(*flags, action=argparse.BooleanOptionalAction, **named)
            continue
        if option.get("nargs") == 0:
            parser.add_argument(*option["flags"], action="store_true", **named)
            continue
        named.update(nargs=option.get("nargs"), choices=option.get("choices"), type=TYPES.get(option.get("type") or ""))
        parser.add_argument(*option["flags"], **named)


def parser_of(version: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang serve")
    add_arguments(parser, version)
    return parser


def words_of(version: str, config: t.Mapping[str, t.Any]) -> list[str]:
    """The words for which a config file stands. ValueError where this version refuses one of its keys."""
    refused = {name for option in description(version)["options"] for name in option.get("not_in_config", ())}
    switches = {
        flag[2:] for option in description(version)["options"] if option.get("nargs") == 0 for flag in option["flags"]
    }
    words: list[str] = []
    for key, value in config.items():
        if key in refused:
            raise ValueError(f"Unsupported config option '{key.replace('-', '_')}'")
        if isinstance(value, bool) and key in switches:
            words += [f"--{key}"] if value else []
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, dict):
            words += [f"--{key}", json.dumps(value)]
        else:
            words += [f"--{key}", str(value).lower() if isinstance(value, bool) else str(value)]
    return words
