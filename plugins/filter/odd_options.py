# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import math
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_verdict import check_idle_mib
from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import (
    MOST,
    SUFFIXES,
    check_unit,
    line_fault,
    path_fault,
    shown,
    with_suffix,
)


def _fault(name: str, value: t.Any, kind: str, is_program: bool, is_unit: bool, is_idle_mib: bool) -> str | None:
    """A sentence without its full stop."""
    if is_unit:
        try:
            check_unit(name, with_suffix(str(value)), SUFFIXES)
        except ValueError as error:
            return str(error).rstrip(".")
    if kind in ("str", "path"):
        text = str(value)
        if kind == "path" and text and not is_program:
            return path_fault(name, text)
        return line_fault(name, text)
    if kind in ("int", "float"):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) < MOST:  # which NaN is not either
            return f"{name} is {shown(value)}, which is no number that can be meant"
        if is_idle_mib:
            try:
                check_idle_mib(name, int(number))
            except ValueError as error:
                return str(error).rstrip(".")
    return None


def odd_options(
    values: t.Any,
    specs: t.Any,
    programs: t.Iterable[str] = (),
    units: t.Iterable[str] = (),
    idle_mib: t.Iterable[str] = (),
) -> list[str]:
    """Sentences about options whose value could not stand where a role writes it.

    :param values: option to value.
    :param specs: the role's argument_specs.yml as data.
    :param programs: options of type path that may name a program without its path.
    :param units: options that name units of systemd, with or without their suffix.
    :param idle_mib: options that are the MiB which a GPU may hold and still be called idle.
    """
    try:
        options = {name: spec for entry in specs["argument_specs"].values() for name, spec in entry["options"].items()}
        given = dict(values)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"odd_options: this is no argument specification with its values: {exc!r}") from exc
    found = []
    for name, spec in sorted(options.items()):
        if name not in given or spec.get("no_log"):
            continue
        value = given[name]
        is_list = spec["type"] == "list"
        if is_list and not isinstance(value, (list, tuple)):
            found.append(f"{name} is {shown(value)}; it must be a list, as in [a, b].")
            continue
        if value is None or value == "":
            continue
        kind = spec.get("elements", "") if is_list else spec["type"]
        for one in value if is_list else [value]:
            fault = _fault(
                f"an entry of {name}" if is_list else name,
                one,
                kind,
                is_program=name in programs,
                is_unit=name in units,
                is_idle_mib=name in idle_mib,
            )
            if fault:
                found.append(f"{fault}.")
    return found


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"odd_options": odd_options}
