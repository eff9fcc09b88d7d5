# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The one redactor: every command line, log line, diff, record and evidence file passes through it."""

from __future__ import annotations

import re
import shlex
import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._text_table import printable

MASK = "********"

# What the name of a secret ends in. Singular on purpose: max_tokens and num-draft-tokens are numbers.
_WORD = (
    r"(?:api[-_]?key|apikey|token|passw(?:or)?d|passphrase|secret|secret[-_]?(?:access[-_]?)?key|access[-_]?key|"
    r"private[-_]?key|auth[-_]?key|signing[-_]?key|encryption[-_]?key|credentials?)"
)
_NAME = rf"(?:[A-Za-z0-9]{{1,40}}[-_.]){{0,10}}{_WORD}"  # bounded: a log line may be long
# As the last word of a variable's name; in prose a pass is a turn, and PWD alone is the shell's working folder.
_NAME_OF_VARIABLE = (
    r"(?:[A-Za-z0-9]{1,40}[-_.]){0,10}(?:[A-Za-z0-9]{0,40}passw(?:or)?d|(?:ssh)?pass|passcode|pw|dsn)"
    r"|(?:[A-Za-z0-9]{1,40}[-_.]){1,10}pwd"
)
_QUOTE = r"\\*[\"']"  # also as it stands in JSON within JSON
# A quote within it has a backslash more before it than the one at its begin, or stands twice, as YAML writes it.
_QUOTED = r"(?:[bBrRuUfF]?(?P<q>\\*[\"'])(?:(?!(?P=q)).|(?<=\\)(?P=q)|(?P=q)(?P=q))*(?P=q))"
_BARE = r"[^\s,;&\"'{}()\[\]]+"
_EMPTY = r"(?!(?:None|null|true|false|True|False|~)\b)"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # ['--api-key', 'x'] as a list of arguments is printed
    (re.compile(rf"(?i)(?P<a>{_QUOTE}--?{_NAME}{_QUOTE}\s*,\s*){_QUOTED}"), rf"\g<a>{MASK}"),
    # --api-key x, --api-key=x
    (re.compile(rf"(?i)(?P<a>(?<![\w-])--?{_NAME}(?:=|\s+))(?:{_QUOTED}|[^\s\"']+)"), rf"\g<a>{MASK}"),
    # Authorization: Bearer x, also on its own
    (re.compile(r"(?i)(?P<a>\b(?:bearer|basic)\s+)(?!\*)[A-Za-z0-9._~+/=-]{4,}"), rf"\g<a>{MASK}"),
    (
        re.compile(
            rf"(?i)(?P<a>\b(?:proxy-)?authorization{_QUOTE}?\s*[:=]\s*(?:{_QUOTE})?)(?!bearer\s|basic\s)[^\s\"',;]+"
        ),
        rf"\g<a>{MASK}",
    ),
    # a line of YAML: the whole value, blanks and all
    (
        re.compile(rf"(?im)(?P<a>^\s*(?:-\s+)?{_NAME}:[ \t]+){_EMPTY}(?![\"'{{\[|>&!*\s])[^\n,{{}}]*[^\n,{{}}\s]"),
        rf"\g<a>{MASK}",
    ),
    # api_key='x', "api_key": "x", api-key: x, ?token=x; but "#cached-token: 4096" counts tokens
    (
        re.compile(
            rf"(?i)(?P<a>(?<![\w#.-]){_NAME}(?:{_QUOTE})?\s*(?:=|:)\s*){_EMPTY}"
            rf"(?:{_QUOTED}|\[[^\]\n]*\]|{_BARE})"
        ),
        rf"\g<a>{MASK}",
    ),
    # HF_TOKEN=x is covered above; SOME_KEY=x only in capitals, where it is a variable
    (
        re.compile(
            rf"(?P<a>\b(?:[A-Z0-9_]*(?:KEY|SECRET|PASS|PASSWORD|PASSCODE|CREDENTIALS|_PWD)|(?:[A-Z0-9_]*_)?(?:PW|DSN))"
            rf"(?:{_QUOTE})?[=:]\s*)(?:{_QUOTED}|{_BARE})"
        ),
        rf"\g<a>{MASK}",
    ),
    # https://user:password@host and https://token@host
    (re.compile(r"(?P<a>\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@\"']*:)[^\s/@\"']+(?P<b>@)"), rf"\g<a>{MASK}\g<b>"),
    (re.compile(r"(?P<a>\bhttps?://)[^\s/:@\"']{16,}(?P<b>@)"), rf"\g<a>{MASK}\g<b>"),
    # keys as they stand in files
    (
        re.compile(r"(?s)(?P<a>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(?P<b>-----END|\Z)"),
        rf"\g<a>{MASK}\g<b>",
    ),
    # well-known shapes, whatever they are called
    (
        re.compile(
            r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|"
            r"glpat-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|"
            r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
        ),
        MASK,
    ),
)
_OPTION = re.compile(rf"(?i)^--?{_NAME}\Z")
_SECRET_NAME = re.compile(rf"(?i){_NAME}|{_NAME_OF_VARIABLE}")
_ASSIGNED = re.compile(rf"(?is)^(--?{_NAME}=|{_NAME}=).+\Z")


def redact(text: str) -> str:
    """Mask every secret in a piece of text. Redacting twice changes nothing."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def names_a_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret, as far as a name can tell."""
    return bool(_SECRET_NAME.fullmatch(name))


def secret_in_variable(name: str, value: str) -> str | None:
    """What about NAME=value is a secret, as a clause without the value; None where nothing is."""
    if names_a_secret(name):
        return f"{name} looks like a secret"
    if redact(value) != value:
        return f"the value of {name} holds a secret (a password in an address, or a token)"
    return None


def redact_argv(argv: t.Sequence[str]) -> str:
    """A command line as one line of text, quoted for a shell, with secrets masked."""
    shown = []
    expect_secret = False
    for argument in argv:
        assigned = _ASSIGNED.match(argument)
        if expect_secret:
            shown.append(MASK)
        elif assigned:
            shown.append(assigned.group(1) + MASK)
        else:
            shown.append(redact(argument))
        expect_secret = not expect_secret and bool(_OPTION.match(argument))
    if len(shown) == 1:  # a title that the process gave itself
        line = shown[0]
    else:
        line = " ".join(part if part and re.match(r"^[\w@%+=:,./*-]+\Z", part) else shlex.quote(part) for part in shown)
    return printable(redact(line).replace("\n", "\\n").replace("\r", "\\r"))
