# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the Python interpreters of this machine by running them.

A name on PATH proves nothing: version managers put shims there that exit 127 for a version that is not chosen, and
distributions ship a python3 that cannot make virtual environments. Standard library only, Python 3.9 and later: this is
the first thing that runs in a fresh checkout.

    python3 tests/tooling/find_python.py --oldest 3.12 --newest 3.14    prints the path of the newest one in that range
    python3 tests/tooling/find_python.py --list                         prints every version found and its path
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

Version = tuple[int, int]

# What the collection is tested with: modules from 3.9 on, and the newest that a supported ansible-core runs on.
OLDEST: Version = (3, 9)
NEWEST: Version = (3, 14)

# Where version managers and distributions keep interpreters, beside what PATH says. `~` is the home folder.
USUAL_FOLDERS = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "~/.local/bin",
    "~/.asdf/installs/python/*/bin",
    "~/.local/share/mise/installs/python/*/bin",
    "~/*conda3/bin",
    "~/*conda3/envs/*/bin",
    "~/miniforge3/bin",
    "~/miniforge3/envs/*/bin",
    "/opt/*conda3/bin",
    "/opt/miniforge3/bin",
    "/opt/python/*/bin",
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "/usr/bin",
)
SYSTEM_FOLDERS = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})
NAMED = re.compile(r"python3(\.\d+)?\Z")
# ensurepip and venv are apart from the interpreter on Debian; without them nothing can be installed into a venv of it.
PROBE = (
    "import json, os, sys, sysconfig, ensurepip, venv\n"
    "print(json.dumps([sys.version_info[:2], os.path.realpath(sys.executable), sys.prefix == sys.base_prefix,"
    " bool(sysconfig.get_config_var('Py_GIL_DISABLED')), sys.implementation.name]))\n"
)


@dataclasses.dataclass(frozen=True)
class Search:
    """What was found (one path per version) and what was not usable, with the reason."""

    found: dict[Version, str]
    refused: dict[str, str]

    def within(self, oldest: Version, newest: Version) -> dict[Version, str]:
        return {version: path for version, path in self.found.items() if oldest <= version <= newest}


def folders(path: str, home: str) -> list[str]:
    """The folders to look into: PATH first, each once."""
    listed = [folder for folder in path.split(os.pathsep) if folder]
    pyenv = os.environ.get("PYENV_ROOT")
    patterns = ([f"{pyenv}/versions/*/bin"] if pyenv else []) + list(USUAL_FOLDERS)
    for pattern in patterns:
        # The newest patch release of a version comes first.
        listed += sorted(glob.glob(pattern.replace("~", home, 1)), key=_natural, reverse=True)
    return [folder for folder in dict.fromkeys(listed) if os.path.isdir(folder)]


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def candidates(places: t.Iterable[str]) -> list[str]:
    """Every executable named python3 or python3.N."""
    listed = []
    for folder in places:
        try:
            names = sorted(name for name in os.listdir(folder) if NAMED.match(name))
        except OSError:
            continue
        listed += [os.path.join(folder, name) for name in names if os.access(os.path.join(folder, name), os.X_OK)]
    return listed


def probe(path: str) -> tuple[Version, str, bool] | str:
    """Run it: version, real path and whether it is no virtual environment; or why it cannot be used."""
    try:
        # The folder is left: a module lying there must not be imported in place of the standard library's.
        result = subprocess.run(
            [path, "-I", "-c", PROBE], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"could not be run: {error}"
    if result.returncode != 0:
        words = (result.stderr.strip() or "no output").splitlines()[-1]
        return f"exit {result.returncode}: {words}"
    try:
        version, real, base, free_threaded, implementation = json.loads(result.stdout)
    except ValueError:
        return f"printed something else than asked for: {result.stdout[:80]!r}"
    if free_threaded or implementation != "cpython":
        return "not a regular CPython build"
    return (int(version[0]), int(version[1])), str(real), bool(base)


def search(path: str | None = None, home: str | None = None) -> Search:
    """Look everywhere; the first usable interpreter of a version wins, virtual environments are passed over."""
    path = os.environ.get("PATH", os.defpath) if path is None else path
    home = str(pathlib.Path.home()) if home is None else home
    found: dict[Version, str] = {}
    refused: dict[str, str] = {}
    answers: dict[str, tuple[Version, str, bool] | str] = {}
    for candidate in candidates(folders(path, home)):
        real = os.path.realpath(candidate)
        answer = answers.get(real) or probe(candidate)
        if os.path.basename(real).startswith("python"):
            # Shims all resolve to one program that answers by its name, so only a real interpreter is asked once.
            answers[real] = answer
        if isinstance(answer, str):
            refused[candidate] = answer
        elif answer[2]:
            found.setdefault(answer[0], answer[1])
    return Search(dict(sorted(found.items())), refused)


def path_with(result: Search, path: str | None = None) -> str:
    """A PATH on which python3.N is the interpreter that was found, for tools that look for that name.

    The folders of the found interpreters come first; folders that hold a broken python3.N are left out, unless the
    system's own programs live there.
    """
    path = os.environ.get("PATH", os.defpath) if path is None else path
    broken = {os.path.dirname(name) for name in result.refused} - SYSTEM_FOLDERS
    # A system folder put first would hide the other versions' plain names; its interpreters are found where they are.
    usable = result.within(OLDEST, NEWEST)
    real = [os.path.dirname(usable[version]) for version in sorted(usable, reverse=True)]
    first = [folder for folder in real if folder not in SYSTEM_FOLDERS]
    rest = [folder for folder in path.split(os.pathsep) if folder and folder not in broken]
    return os.pathsep.join(dict.fromkeys(first + rest + [folder for folder in real if folder in SYSTEM_FOLDERS]))


def text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def parse(words: str) -> Version:
    match = re.fullmatch(r"(\d+)\.(\d+)", words)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a version like 3.12, got {words!r}")
    return int(match[1]), int(match[2])


def main(arguments: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find Python interpreters by running them.")
    parser.add_argument("--oldest", type=parse, default=OLDEST, metavar="3.N")
    parser.add_argument("--newest", type=parse, default=NEWEST, metavar="3.N")
    parser.add_argument("--list", action="store_true", help="print every version found in the range")
    options = parser.parse_args(arguments)
    result = search()
    usable = result.within(options.oldest, options.newest)
    if options.list:
        for version, path in usable.items():
            print(text(version), path)
    elif usable:
        print(usable[max(usable)])
    if usable:
        return 0
    seen = ", ".join(f"{text(version)} ({path})" for version, path in result.found.items()) or "none"
    print(
        f"No usable Python from {text(options.oldest)} to {text(options.newest)} was found; usable ones of other"
        f" versions: {seen}. Install one (from your distribution with its -venv package, or through pyenv, uv or conda)"
        " and run this again.",
        file=sys.stderr,
    )
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for name, reason in result.refused.items():
        reasons[reason].append(name)
    for reason, names in reasons.items():
        print(f"  not usable: {', '.join(names)}: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
