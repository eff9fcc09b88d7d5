# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules that hold a role's defaults, its argument_specs.yml and the variables it uses together.

Ansible takes values from defaults/main.yml and only documents those of the specification, so nothing else notices when
the two drift apart; and it accepts any variable, documented or not.
"""

from __future__ import annotations

import pathlib
import re
import typing as t

import yaml

# What a value of each specified type looks like in defaults/main.yml.
SHAPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "path": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
    "raw": (object,),
    "jsonarg": (str, dict, list),
    "bytes": (str, int),
    "bits": (str, int),
}
Options = dict[str, dict[str, t.Any]]


def load(path: pathlib.Path) -> dict[str, t.Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
    return found if isinstance(found, dict) else {}


def specification(role: pathlib.Path) -> dict[str, Options]:
    """Entry point → its options."""
    entries = load(role / "meta" / "argument_specs.yml").get("argument_specs", {})
    return {name: entry.get("options") or {} for name, entry in entries.items()}


def is_template(value: object) -> bool:
    return isinstance(value, str) and "{{" in value


def fits(value: object, kind: str) -> bool:
    if kind in ("int", "float") and isinstance(value, bool):
        return False
    return isinstance(value, SHAPES.get(kind, ()))


def _described(where: str, option: dict[str, t.Any]) -> list[str]:
    breaches = []
    if option.get("type") not in SHAPES:
        breaches.append(f"{where}: the type is {option.get('type')!r}, which is not one of {', '.join(SHAPES)}.")
    if not option.get("description"):
        breaches.append(f"{where}: it has no description.")
    if option.get("type") == "list" and "elements" not in option:
        breaches.append(f"{where}: a list says what its elements are.")
    for name, inner in (option.get("options") or {}).items():
        breaches += _described(f"{where}.{name}", inner)
    return breaches


def _default(where: str, option: dict[str, t.Any], defaults: dict[str, t.Any], name: str) -> list[str]:
    """Same value on both sides; a template stands in defaults/main.yml only, and is told in the description."""
    if name not in defaults:
        if option.get("default") is not None:
            return [f"{where}: the default {option['default']!r} is not in defaults/main.yml."]
        return []
    actual = defaults[name]
    if option.get("required"):
        return [f"{where}: it is required, yet defaults/main.yml has a value for it."]
    if is_template(actual):
        if option.get("default") not in (None, actual):
            return [f"{where}: the default is {option['default']!r}, but defaults/main.yml computes {actual!r}."]
        return []
    if actual is not None and not fits(actual, str(option.get("type"))):
        return [f"{where}: the type is {option.get('type')}, but the default {actual!r} is a {type(actual).__name__}."]
    documented = option.get("default")
    if documented != actual or isinstance(documented, bool) != isinstance(actual, bool):
        return [f"{where}: the default is documented as {documented!r}, but defaults/main.yml says {actual!r}."]
    return []


def specification_breaches(role: pathlib.Path) -> list[str]:
    """Defaults and argument_specs.yml name the same options with the same types and values, all described."""
    entries = specification(role)
    defaults = load(role / "defaults" / "main.yml")
    if not entries:
        return [f"{role.name}: meta/argument_specs.yml has no entry point."]
    breaches = []
    known: Options = {}
    for entry, options in entries.items():
        for name, option in options.items():
            where = f"{role.name}: {entry}: {name}"
            if not name.startswith(f"{role.name}_"):
                breaches.append(f"{where}: an option's name begins with the role's name.")
            breaches += _described(where, option) + _default(where, option, defaults, name)
            earlier = known.setdefault(name, option)
            if (earlier.get("type"), earlier.get("default")) != (option.get("type"), option.get("default")):
                breaches.append(f"{where}: type or default differ from those in another entry point.")
    breaches += [
        f"{role.name}: defaults/main.yml: {name} is in no entry point of meta/argument_specs.yml."
        for name in defaults
        if name not in known
    ]
    return breaches


def documented_names(role: pathlib.Path) -> set[str]:
    """Options of every entry point, and what the README says the role leaves behind for others."""
    names = {name for options in specification(role).values() for name in options}
    readme = role / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    return names | set(re.findall(rf"\b{role.name}_\w+", text))


def used_names(text: str, roles: t.Iterable[str]) -> set[tuple[str, str]]:
    """(role, variable) for each name that begins with a role's name. Comments and names of files are not uses."""
    uncommented = re.sub(r"(?m)^\s*#.*$|\s#\s.*$|\{#.*?#\}", "", text)
    longest_first = sorted(roles, key=len, reverse=True)
    found = set()
    for match in re.finditer(r"(?<![\w./-])([a-z][a-z0-9_]*)(?![\w/-]|\.(?:yml|j2|py|md)\b)", uncommented):
        role = next((role for role in longest_first if match[1].startswith(f"{role}_")), None)
        if role:
            found.add((role, match[1]))
    return found


def undocumented_variables(root: pathlib.Path, names_of_modules: t.Collection[str]) -> list[str]:
    """A variable named after a role and used in a role, a playbook or an inventory is an option or in its README."""
    roles = {path.parent.parent.name: path.parent.parent for path in (root / "roles").glob("*/meta/argument_specs.yml")}
    documented = {name: documented_names(path) for name, path in roles.items()}
    breaches = []
    places = ("roles/*/tasks", "roles/*/handlers", "roles/*/templates", "roles/*/vars", "playbooks", "inventory")
    for path in sorted(found for place in places for folder in root.glob(place) for found in folder.rglob("*")):
        if path.suffix not in (".yml", ".j2"):
            continue
        for role, name in sorted(used_names(path.read_text(encoding="utf-8"), roles)):
            if name not in documented[role] and name not in names_of_modules:
                where = path.relative_to(root)
                breaches.append(f"{where}: {name} is in no specification and not in the README of role {role}.")
    return breaches


def without_readme(root: pathlib.Path) -> list[str]:
    return [
        f"{role.name}: it has no README.md."
        for role in sorted((root / "roles").iterdir())
        if role.is_dir() and not (role / "README.md").exists()
    ]
