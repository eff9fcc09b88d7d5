# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shlex
import typing as t

import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import kind_of
from ansible_collections.cleanslate.gpu.plugins.module_utils._redaction import (
    names_a_secret,
    redact,
    secret_in_variable,
)

# Options whose value is the path of a file, or the name under which Podman keeps a secret.
_ONLY_NAMES = ("private-key", "key-file", "secret")


def _in_data(data: t.Any) -> t.Iterator[str]:
    """Clauses about variables at any depth; an empty value is none."""
    if isinstance(data, t.Mapping):
        for name, value in data.items():
            if isinstance(value, (t.Mapping, list)):
                yield from _in_data(value)
            elif value is not None and value != "":
                yield from filter(None, [secret_in_variable(str(name), str(value))])
    elif isinstance(data, list):
        for one in data:
            yield from _in_data(one)


def _in_argument(text: str) -> t.Iterator[str]:
    """An option, an option with its value, or extra variables: as NAME=value or as a mapping."""
    option, equals, rest = text.partition("=") if text.startswith("--") else ("", "", text)
    name = option[2:]
    if name and (not equals or name in _ONLY_NAMES):
        return
    if names_a_secret(name):
        yield f"{option} looks like a secret"
        return
    value = rest[2:] if rest.startswith("-e") else rest
    try:
        data = yaml.safe_load(value) if value.startswith(("{", "[")) else None
        words = shlex.split(value)
    except (yaml.YAMLError, ValueError):
        data, words = None, value.split()
    if isinstance(data, (dict, list)):
        yield from _in_data(data)
        return
    pairs = [word.partition("=") for word in words if "=" in word]
    found = [clause for left, _equals, right in pairs if right and (clause := secret_in_variable(left, right))]
    yield from found
    if not found and redact(value) != value:
        yield "an argument holds a secret"


def open_secrets(value: t.Any, option: str) -> list[str]:
    """What stands in an environment or in arguments that others can read, although it is a secret.

    :param value: variable to value, or a list of arguments (of such mappings, where Ansible takes several).
    :param option: the variable that the sentences name.
    """
    if not isinstance(value, (t.Mapping, list, tuple)):
        raise AnsibleFilterError(f"open_secrets: {option} is a {kind_of(value)}, neither a mapping nor a list.")
    found: list[str] = []
    for one in [value] if isinstance(value, t.Mapping) else value:
        found += _in_argument(one) if isinstance(one, str) else _in_data(one)
    return [f"{option}: {clause}." for clause in dict.fromkeys(found)]


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"open_secrets": open_secrets}
