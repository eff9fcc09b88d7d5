# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError


def _within_two(left: str, right: str) -> bool:
    """Is the Levenshtein distance at most 2? Two neighbouring letters swapped count as 2."""
    if abs(len(left) - len(right)) > 2:
        return False
    # All names of a role begin alike, which costs the most and changes no distance.
    alike = next((place for place, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))
    left, right = left[alike:], right[alike:]
    previous = list(range(len(right) + 1))
    for row, a in enumerate(left, 1):
        current = [row]
        for column, b in enumerate(right, 1):
            current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (a != b)))
        if min(current) > 2:
            return False
        previous = current
    return previous[-1] <= 2


def misspelt_options(names: t.Iterable[str], specs: t.Mapping[str, t.Any], known: t.Iterable[str] = ()) -> list[str]:
    """Sentences about variables whose name is nearly, but not quite, that of an option.

    :param names: all variable names of the host.
    :param specs: the role's argument_specs.yml as data.
    :param known: names that are right although they look alike (options of other roles).
    """
    try:
        options = {name for spec in specs["argument_specs"].values() for name in spec.get("options") or {}}
    except (AttributeError, KeyError, TypeError) as exc:
        raise AnsibleFilterError(f"misspelt_options: this is no argument specification: {exc!r}") from exc
    right = options | set(known)
    found = []
    for name in sorted(set(names) - right):
        if name.startswith("_"):
            continue
        near = sorted(option for option in options if _within_two(name, option))
        if near:
            found.append(f"{name} is not an option; did you mean {' or '.join(near)}?")
    return found


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"misspelt_options": misspelt_options}
