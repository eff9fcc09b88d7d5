# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands in pages for people name things that exist."""

from __future__ import annotations

import pathlib
import re

# The reader's own.
PLACEHOLDERS = frozenset({"inventory/NAME", "inventory/mine", "inventory/…"})
BLOCK = re.compile(r"^```(?:sh|bash|console|shell|text)?[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:make|nox|ansible-playbook|ansible-galaxy) [^`\n]+)`")
SESSION = re.compile(r"^@nox\.session(?:\(name=\"(?P<name>[\w-]+)\"\))?\ndef (?P<function>\w+)", re.MULTILINE)


def commands(page: str) -> list[str]:
    """Lines of code blocks and commands inside sentences, with continued lines joined."""
    lines = [line for block in BLOCK.findall(page) for line in block.replace("\\\n", " ").splitlines()]
    return [re.sub(r"^\s*[$#]\s+", "", line).strip() for line in lines] + INLINE.findall(page)


def targets(root: pathlib.Path) -> set[str]:
    rules = re.findall(r"^([a-z][a-z -]*):(?!=)", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return {name for rule in rules for name in rule.split()}


def sessions(root: pathlib.Path) -> set[str]:
    found = SESSION.finditer((root / "noxfile.py").read_text(encoding="utf-8"))
    return {match["name"] or match["function"] for match in found}


def _make(root: pathlib.Path, words: list[str]) -> list[str]:
    asked = []
    for word in words:
        if word in ("&&", "||", ";", "|", "#"):
            break
        if re.fullmatch(r"[a-z][a-z-]*", word):
            asked.append(word)
    return [f"there is no target {word} in the Makefile" for word in asked if word not in targets(root)]


def _nox(root: pathlib.Path, words: list[str]) -> list[str]:
    pairs = zip(words, words[1:])
    asked = [name for option, name in pairs if option in ("-s", "--session", "--sessions")]
    return [f"there is no session {name} in noxfile.py" for name in asked if name not in sessions(root)]


def _playbook(root: pathlib.Path, words: list[str]) -> list[str]:
    wrong = []
    for option, value in zip(["", *words], words):
        inventory = option in ("-i", "--inventory") and value.startswith("inventory/") and value not in PLACEHOLDERS
        if inventory or value.startswith("playbooks/"):
            wrong += [] if (root / value).exists() else [f"there is no {value}"]
        elif re.fullmatch(r"cleanslate\.gpu\.\w+", value):
            name = value.rpartition(".")[2]
            wrong += [] if (root / "playbooks" / f"{name}.yml").exists() else [f"there is no playbook {value}"]
    return wrong


def wrong_commands(root: pathlib.Path, name: str) -> list[str]:
    """Breaches in one page."""
    breaches = []
    for command in commands((root / name).read_text(encoding="utf-8")):
        words = command.split()
        while words and re.fullmatch(r"[A-Z_]+=\S*|sudo|time", words[0]):
            words = words[1:]
        program = words[0].rsplit("/", 1)[-1] if words else ""
        rules = {"make": _make, "nox": _nox, "ansible-playbook": _playbook}
        if program in rules:
            breaches += [f"{name}: `{command}`: {wrong}." for wrong in rules[program](root, words[1:])]
    return breaches
