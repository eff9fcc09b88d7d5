# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""Quoting for systemd units. Two places, two rules: ExecStart= expands % and $, Environment= expands % only."""

from __future__ import annotations

import re

from ansible_collections.cleanslate.gpu.plugins.module_utils._option_values import is_variable
from ansible_collections.cleanslate.gpu.plugins.module_utils._sglang_options import check_text

_BARE = re.compile(r"[A-Za-z0-9_@+=:,./-]+")


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def argument(text: str) -> str:
    """One argument for ExecStart= and its kin. Not for the program itself where its path holds a dollar sign: there
    systemd does not expand variables. ValueError with a sentence for what a unit cannot carry."""
    check_text("the argument", text)
    return _quoted(text.replace("%", "%%").replace("$", "$$"))


def environment(assignment: str) -> str:
    """One NAME=value for Environment=. ValueError with a sentence where it is none, without its value."""
    name, equals, value = assignment.partition("=")
    if not equals or not is_variable(name):
        raise ValueError(f"{name[:40]!r} does not begin a NAME=value; a name is letters, digits and underscores.")
    check_text(f"the value of {name}", value)
    return _quoted(assignment.replace("%", "%%"))
