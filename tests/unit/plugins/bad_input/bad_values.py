# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values that an option must refuse, by what the option is."""

from __future__ import annotations

import typing as t

LONG = "a" * 100_000
HUGE = 10**400
NAN, INFINITE = float("nan"), float("inf")

# What garbles a line, ends a string of C, or is an order to a shell, to systemd or to a template.
BROKEN_LINES = (
    "one\ntwo",
    "[Service]\nExecStart=/bin/sh -c reboot",
    "cut\0off",
    "carriage\rreturn",
    "line\u2028separator",
    "paragraph\u2029separator",
    "next\u0085line",
    "escape\x1b[2J",
    "right\u202eleft",
    LONG,
)
ODD_NAMES = (
    *BROKEN_LINES,
    "../above",
    "a/b",
    "$(id)",
    "`id`",
    "two words",
    "quo'te",
    'quo"te',
    "--option",
    "%n",
    "a;b",
    "*",
)

LINE = BROKEN_LINES
NAME = ("", *ODD_NAMES)
UNIT = (
    "",
    " ",
    "sglang",
    "-x.service",
    "sglang.service\n",
    "user.slice",
    "init.scope",
    "sysinit.target",
    *(f"{name}.service" for name in ODD_NAMES),
)
# In a list of units the suffix may be missing.
UNIT_OF_LIST = tuple([value] for value in UNIT if value != "sglang")
PATH = ("", "relative", "../above", *(f"/folder/{line}" for line in BROKEN_LINES))
PROGRAM = ("", " ", "-x", *BROKEN_LINES)
HOST = (*BROKEN_LINES, "two words", "a/b", "$(id)", "a;b", 'quo"te')
ACCOUNT = (*BROKEN_LINES, "two words", "a/b", "$(id)", "a:b", "-x", "%i")
PORT = (0, -1, 65536, HUGE)
COUNT = (0, -1, HUGE)
AMOUNT = (-1, HUGE)
SECONDS = (0, -1, NAN, INFINITE, -INFINITE, 1e308)
SECONDS_OR_NONE = (-1, NAN, INFINITE, -INFINITE, 1e308)
UUID_OF_LIST = tuple([value] for value in ("0", "GPU-", "all", *BROKEN_LINES))


def lists(values: t.Iterable[t.Any]) -> tuple[t.Any, ...]:
    return tuple([value] for value in values)


# One of each type, for every option of that type. What Ansible itself converts is not wrong: 7 is text, "7" a number.
OF_ANOTHER_TYPE: dict[str, tuple[t.Any, ...]] = {
    "int": ("many", "1.5", 1.5, [], {}, [1], "0x1G", "", LONG),
    "float": ("soon", [], {}, "1,5", "", LONG),
    "bool": ("perhaps", 7, [], {}, ""),
    "list": ({"a": 1},),
    "dict": (["a"], 7),
    "str": (),
    "path": (),
    "raw": (),
}


def fragment(value: t.Any) -> str:
    """What of a value a sentence about it must hold."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    if isinstance(value, str):
        return repr(value[:12])[1:-1].rstrip("\\")[:12]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bool):
        return str(value).lower()
    if value == HUGE:
        return "bits"
    return str(value) if isinstance(value, int) else ""
