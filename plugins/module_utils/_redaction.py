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
MOST_OF_A_COMMAND_LINE = 4096  # characters: any user can start a process that has 128 KiB and more

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
# Every rule takes time in proportion to the text, whatever any user of the machine put there: what repeats is bounded,
# or stays on its line, or is masked away together with what it ran across.
_QUOTE = r"\\{0,15}[\"']"  # also as it stands in JSON within JSON
# A quote within it has a backslash more before it than the one at its begin, or stands twice, as YAML writes it.
_QUOTED = r"(?:[bBrRuUfF]?(?P<q>\\{0,15}[\"'])(?:(?!(?P=q)).|(?<=\\)(?P=q)|(?P=q)(?P=q))*(?P=q))"
# Cut off before its end, as the last line that was read, or quoted too deep: what is there is part of a secret.
_UNCLOSED = r"\\*[\"'](?![\s,;:)\]}\"'\\]|\Z)[^\n]+"
_NEXT = r"[A-Za-z_][\w.-]{0,60}(?:=(?![=\s]|\Z)|[ \t]?:(?=[\s\"']))"  # the name of the next value
# A comma or a bracket is the end of it, unless the same word goes on after it.
_BARE = rf"(?:[^\s,;&\"'{{}}()\[\]]|[,{{}}()\[\]]{{1,4}}(?=[\w+/~$%@^-])(?!{_NEXT}))+"
_LIST = r"\[[^\]\n]*(?:\]|(?=\n)|\Z)"
_EMPTY = r"(?!(?:None|null|true|false|True|False|~)(?:[\s,;&)\]}>]|\\{0,15}[\"']|\.(?:\s|\Z)|\Z))"
_NO_MAPPING = r"(?![ \t\r]*\n\s*[\w.-]{1,60}:(?:\s|\Z))"  # after its colon: what the next line names is no value
# Several of them; but tokens are mostly counted, and secrets and credentials listed by name.
_NAMES = rf"{_NAME}(?:(?<!token)(?<!secret)(?<!credential)(?<!credentials)s)?"
# What argparse takes for an option that holds a secret of the server. A title or a script is not read as closely.
_ABBREVIATED = r"(?:api-(?:k(?:ey?)?)?|admin-(?:a(?:p(?:i(?:-(?:k(?:ey?)?)?)?)?)?)?|ssl-keyfile-(?:p[a-z]{0,7})?)"
_SECRET_OPTIONS = {"api-key": "api", "admin-api-key": "ad", "ssl-keyfile-password": "ssl-keyfile-"}  # and the shortest

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # ['--api-key', 'x'] as a list of arguments is printed
    (re.compile(rf"(?i)(?P<a>{_QUOTE}--?{_NAME}{_QUOTE}\s*,\s*)(?:{_QUOTED}|{_UNCLOSED})"), rf"\g<a>{MASK}"),
    # ('api_key', 'x') as a pair is printed
    (
        re.compile(
            rf"(?i)(?P<a>\(\s*{_QUOTE}(?:{_NAMES}|(?:proxy-)?authorization|(?:set-)?cookie){_QUOTE}\s*,\s*)"
            rf"{_QUOTED}(?=\s*\))"
        ),
        rf"\g<a>{MASK}",
    ),
    # --api-key x, --api-key=x
    (
        re.compile(
            rf"(?i)(?P<a>(?<![\w-])--?(?:{_NAME}|(?<=--){_ABBREVIATED})(?:=|\s+))(?:{_QUOTED}|{_UNCLOSED}|[^\s\"']+)"
        ),
        rf"\g<a>{MASK}",
    ),
    # curl -u name:x
    (
        re.compile(
            r"(?P<a>\bcurl\b[^\n|;]{0,200}?\s(?:-u|-U|--user|--proxy-user)[= \t]*)"
            r"(?:\"[^\"\n:]{0,64}:[^\"\n]+\"?|'[^'\n:]{0,64}:[^'\n]+'?|[^\s:\"']{0,64}:[^\s\"']+)"
        ),
        rf"\g<a>{MASK}",
    ),
    # Cookie: session=x
    (
        re.compile(
            rf"(?i)(?P<a>(?<![\w-])(?:set-)?cookie(?:{_QUOTE})?[ \t]*:[ \t]*)"
            rf"(?:{_QUOTED}|{_UNCLOSED}|(?!\*{{8}})[^\s\"'][^\n\"']*)"
        ),
        rf"\g<a>{MASK}",
    ),
    # Authorization: Bearer x, also on its own
    (re.compile(r"(?i)(?P<a>\b(?:bearer|basic)\s+)(?!\*)[A-Za-z0-9._~+/=-]{4,}"), rf"\g<a>{MASK}"),
    (
        re.compile(
            rf"(?i)(?P<a>\b(?:proxy-)?authorization(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?)(?!(?:[\w-]{{1,40}}\s+)?\*{{8}})"
            r"[^\s\"',;]+(?:[ \t]+[^\s\"',;]+)?"
        ),
        rf"\g<a>{MASK}",
    ),
    # a line of YAML: the whole value, blanks and all
    (
        re.compile(
            rf"(?im)(?P<a>^[ \t]*(?:-[ \t]+)?{_NAME}:[ \t]+){_EMPTY}(?![\"'{{\[|>*\s])"
            rf"(?:(?!,[ \t]*[\"']?[\w.-]{{1,60}}[\"']?[ \t]*[:=])[^\n])+(?<!\s)"
        ),
        rf"\g<a>{MASK}",
    ),
    # api_key='x', "api_key": "x", api-key: x, ?token=x; but "#cached-token: 4096" counts tokens
    (
        re.compile(
            rf"(?i)(?P<a>(?<![\w#.-]){_NAMES}(?:{_QUOTE})?\s*(?:=|:){_NO_MAPPING}\s*){_EMPTY}"
            rf"(?:{_QUOTED}|{_UNCLOSED}|{_LIST}|{_BARE})"
        ),
        rf"\g<a>{MASK}",
    ),
    # HF_TOKEN=x is covered above; SOME_KEY=x only in capitals, where it is a variable
    (
        re.compile(
            rf"(?P<a>\b(?:[A-Z0-9_]*(?:KEY|SECRET|PASS|PASSWORD|PASSCODE|CREDENTIALS|_PWD)|(?:[A-Z0-9_]*_)?(?:PW|DSN))"
            rf"(?:{_QUOTE})?[=:]\s*)(?:{_QUOTED}|{_UNCLOSED}|{_BARE})"
        ),
        rf"\g<a>{MASK}",
    ),
    # HF_TOKENS=x,y; but MAX_TOKENS=4096
    (
        re.compile(
            rf"(?P<a>\b[A-Z0-9_]{{1,60}}_TOKENS(?:{_QUOTE})?[=:]\s*){_EMPTY}(?!(?:{_QUOTE})?[\d.]+(?![\w.]))"
            rf"(?:{_QUOTED}|{_UNCLOSED}|{_LIST}|{_BARE})"
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
_ASSIGNED = re.compile(rf"(?is)^(--?{_NAMES}=|{_NAMES}=).+\Z")


# A key of YAML, or of JSON on lines of its own, and what its line holds of its value.
_KEY = re.compile(rf"(?im)^(?P<indent>[ \t]*(?:-[ \t]+)*)[\"']?{_NAMES}[\"']?[ \t]*:(?P<value>(?:[ \t][^\n]*)?)\r?$")
_GOES_ON = re.compile(
    r"(?:[&!]\S*[ \t]+){0,3}(?:[|>][-+0-9]{0,2}[ \t]*(?:#.*)?|\[[^\]]*|(?P<q>[\"'])(?:(?!(?P=q)).)*)\Z"
)
_MAPPING = re.compile(r"[ \t]*(?:-[ \t]+)*[\"']?[\w.-]+[\"']?[ \t]*:(?:\s|\Z)")
_ITEM = re.compile(r"[ \t]*-[ \t]")


def redact(text: str) -> str:
    """Mask every secret in a piece of text. Redacting twice changes nothing."""
    text = _without_blocks(text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def _without_blocks(text: str) -> str:
    """Mask the values that go on in lines of their own: a block after | or >, a list, a quote that is not closed."""
    shown, done = [], 0
    key = _KEY.search(text)
    while key is not None:
        value = key["value"].strip()
        end = _end_of_block(text, key, bool(value)) if not value or _GOES_ON.match(value) else None
        if end is not None:
            shown += [text[done : key.start("value")], f" {MASK}"]
            done = end
        key = _KEY.search(text, end if end is not None else key.end())
    return "".join([*shown, text[done:]])


def _end_of_block(text: str, key: re.Match[str], begun: bool) -> int | None:
    """Where the lines end that stand deeper than their key; None where there are none, or where they are a mapping."""
    column, items, end = len(key["indent"]), False, None
    at = text.find("\n", key.end()) + 1
    while at:
        after = text.find("\n", at)
        line = text[at : after if after >= 0 else len(text)]
        if line.strip():
            if end is None and not begun:
                if _MAPPING.match(line):
                    return None
                items = bool(_ITEM.match(line))
            depth = len(line) - len(line.lstrip())
            if depth < column or (depth == column and not (items and _ITEM.match(line))):
                break
            end = at + len(line)
        at = after + 1
    return end


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


def redact_argv(argv: t.Sequence[str], most: int = MOST_OF_A_COMMAND_LINE) -> str:
    """A command line as one line of text, quoted for a shell, with secrets masked. What is above most is left out."""
    shown = []
    option = ""  # the one before, where its value is a secret
    kept, left_out = _first(argv, most)
    for argument in kept:
        assigned = _ASSIGNED.match(argument) or _abbreviates(argument, "=")
        if option and (_OPTION.match(option) or not argument.startswith("-")):
            shown.append(MASK)
            option = ""
            continue
        shown.append(assigned.group(1) + MASK if assigned else redact(argument))
        option = argument if _OPTION.match(argument) or _abbreviates(argument, r"\Z") else ""
    if len(shown) == 1 and len(argv) == 1:  # a title that the process gave itself
        line = shown[0]
    else:
        line = " ".join(part if part and re.match(r"^[\w@%+=:,./*-]+\Z", part) else shlex.quote(part) for part in shown)
    line = printable(redact(line).replace("\n", "\\n").replace("\r", "\\r"))
    return f"{line} [{left_out} more characters]".lstrip() if left_out else line


def _abbreviates(argument: str, end: str) -> re.Match[str] | None:
    """--api-k x or --api-k=x, which argparse takes for --api-key. Its first group is what is before the value."""
    found = re.match(rf"(--([a-z][a-z-]{{0,30}}){end})", argument)
    fits = found is not None and any(
        option.startswith(found.group(2)) and found.group(2).startswith(shortest)
        for option, shortest in _SECRET_OPTIONS.items()
    )
    return found if fits else None


def _first(argv: t.Sequence[str], most: int) -> tuple[list[str], int]:
    """The arguments that fit into so many characters, and how many characters do not. Only a blank is cut at: half a
    secret has no shape that would be known."""
    kept, left = [], most
    for argument in argv:
        if len(argument) > left:
            blank = re.match(r"(?s).*\s", argument[:left])
            kept.append(argument[: blank.end()].rstrip() if blank else "")
            break
        kept.append(argument)
        left -= len(argument)
    if kept and not kept[-1] and len(kept[-1]) != len(argv[len(kept) - 1]):
        kept.pop()
    return kept, sum(map(len, argv)) - sum(map(len, kept))
