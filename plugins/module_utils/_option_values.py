# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""What an option that is text may say: one line, a path, a program, the name of a unit, an address.

Each check raises ValueError with a sentence that names the option and the value, cut short. What passes can stand in an
argument list, in one line of a unit and on a terminal as it is.
"""

from __future__ import annotations

import math
import re
import typing as t
import unicodedata

LONGEST_LINE = 4095  # bytes; of a path it is PATH_MAX without its NUL
LONGEST_WAIT = 7 * 86400.0  # seconds
MOST = 1 << 53  # what is larger is no exact number for everybody who reads JSON
_SHOWN = 60
_JOINERS = "\u200c\u200d"  # part of ordinary words in some scripts
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]*\.[a-z]+")
_LONGEST_UNIT = 255
# Not .slice, .target or init.scope: they hold half of the machine, and its PID 1.
SUFFIXES = (".service", ".scope", ".socket", ".timer")
_OTHER_KINDS = (".slice", ".target", ".mount", ".automount", ".swap", ".path", ".device")
_HOLDS_THE_MACHINE = ("init.scope",)
_HOST = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,255}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VMID = re.compile(r"[1-9][0-9]{0,8}")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,255}")


def shown(value: t.Any) -> str:
    """A value for a sentence: quoted, on one line, and not endless."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**20 else f"a number of {value.bit_length()} bits"
    text = value if isinstance(value, str) else repr(value)
    quoted = repr(text[:_SHOWN]) if isinstance(value, str) else text[:_SHOWN]
    return quoted if len(text) <= _SHOWN else f"{quoted}… ({len(text)} characters)"


def kind_of(value: t.Any) -> str:
    """The type of a value for a sentence: Ansible's own texts and containers have names that say nothing to people."""
    known: tuple[tuple[t.Any, str], ...] = (
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (str, "str"),
        (bytes, "bytes"),
        (t.Mapping, "dict"),
        (tuple, "tuple"),
        (t.Sequence, "list"),
    )
    return next((name for kind, name in known if isinstance(value, kind)), type(value).__name__)


def odd_character(text: str) -> str | None:
    """The first character, in words, that would end or garble a line; None where there is none."""
    for character in text:
        category = unicodedata.category(character)
        odd = category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
        if odd or ord(character) & 0xFFFE == 0xFFFE:
            names = {"\n": "a newline", "\r": "a carriage return", "\0": "a NUL", "\t": "a tab"}
            return names.get(character, f"the character U+{ord(character):04X}")
    return None


def is_variable(name: str) -> bool:
    """Whether a variable of the environment can have this name."""
    return _VARIABLE.fullmatch(name) is not None


def line_fault(name: str, value: str) -> str | None:
    """What is wrong with one line of text, as a sentence without its full stop."""
    odd = odd_character(value)
    if odd:
        return f"{name} is {shown(value)}, which contains {odd}; give one line of text"
    if len(value.encode("utf-8", "replace")) > LONGEST_LINE:
        return f"{name} is {shown(value)}; at most {LONGEST_LINE} bytes are possible"
    return None


def path_fault(name: str, value: str) -> str | None:
    """The same of an absolute path: a relative one would depend on where Ansible happens to run."""
    if not value.startswith("/"):
        return f"{name} is {shown(value)}, which is not an absolute path"
    return line_fault(name, value)


def check_line(name: str, value: str) -> str:
    fault = line_fault(name, value)
    if fault:
        raise ValueError(f"{fault}.")
    return value


def check_path(name: str, value: str) -> str:
    fault = path_fault(name, value)
    if fault:
        raise ValueError(f"{fault}.")
    return value


def check_program(name: str, value: str) -> str:
    """The name or the path of a program."""
    check_line(name, value)
    if not value.strip() or value.startswith("-"):
        raise ValueError(f"{name} is {shown(value)}; give the name or the path of the program to run.")
    return value


def check_unit(name: str, value: str, suffixes: tuple[str, ...] = (".service",)) -> str:
    if (
        not _UNIT.fullmatch(value)
        or not value.endswith(suffixes)
        or len(value) > _LONGEST_UNIT
        or value in _HOLDS_THE_MACHINE
    ):
        raise ValueError(f"{name} is {shown(value)}, which is no unit name with its suffix, as in sglang.service.")
    return value


def with_suffix(unit: str) -> str:
    """A name without any is that of a service, as for systemctl."""
    return unit if unit.endswith((*SUFFIXES, *_OTHER_KINDS)) else f"{unit}.service"


def check_host(name: str, value: str) -> str:
    """An address or a host name."""
    if not _HOST.fullmatch(value):
        raise ValueError(f"{name} is {shown(value)}, which is neither an IP address nor a host name.")
    return value


def check_vmid(name: str, value: str) -> str:
    if not _VMID.fullmatch(value):
        raise ValueError(f"{name} holds {shown(value)}, which is no VMID; `pct list` shows them.")
    return value


def check_account(name: str, value: str) -> str:
    """The name of a user or of a group."""
    if not _ACCOUNT.fullmatch(value):
        raise ValueError(f"{name} is {shown(value)}, which can be no name of a user or group.")
    return value


def check_seconds(name: str, value: float, *, zero: bool = False, most: float = LONGEST_WAIT) -> float:
    if not math.isfinite(value) or value > most or value < 0 or (value == 0 and not zero):
        least = "0 or more" if zero else "above 0"
        raise ValueError(f"{name} is {shown(value)}: it must be {least} and at most {most:g} seconds.")
    return value


def check_number(name: str, value: int, least: int, most: int = MOST) -> int:
    if not least <= value <= most:
        raise ValueError(f"{name} is {shown(value)}: it must be between {least} and {most}.")
    return value
