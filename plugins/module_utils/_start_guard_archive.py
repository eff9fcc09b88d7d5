# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Private to this collection: it can change at any time. Public are the modules, roles and playbooks.

"""The start guard as one file: a zip archive of the modules that it needs, which Python runs as it is.

The same modules give the same bytes, on every controller: nothing is compressed, since that differs between versions
of the compressor, and every entry has the same time.
"""

from __future__ import annotations

import io
import os
import re
import zipfile

PROGRAM = "_start_guard_program"
_PACKAGE = "ansible_collections.cleanslate.gpu.plugins.module_utils"
_IMPORT = re.compile(rf"^[ \t]*from {re.escape(_PACKAGE)}(?:\.(\w+))? import (\([^)]*\)|.+)$", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?:[ \t]+as[ \t]+\w+)?")
_COMMENT = re.compile(r"#.*")
_OLDEST = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can say
# Until the program can say so itself, a signal must not look like a good end: systemd would go on to the server.
_MAIN = f"""\
import os
import signal
import sys

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda *ignored: os._exit(5))

from {_PACKAGE}.{PROGRAM} import main

sys.exit(main())
"""


def needed_modules(sources: str, first: str = PROGRAM) -> tuple[str, ...]:
    """The names of a module of the core and of all that it imports, sorted. sources: the folder of the core."""
    found: set[str] = set()
    open_names = [first]
    while open_names:
        name = open_names.pop()
        if name not in found:
            found.add(name)
            open_names += _imports(_read(sources, name).decode("utf-8"))
    return tuple(sorted(found))


def archive(sources: str) -> bytes:
    """The whole program."""
    packages = _PACKAGE.split(".")
    files = {"__main__.py": _MAIN.encode("ascii")}
    # Each package needs a file here: Python finds no package in an archive without.
    files.update({"/".join([*packages[: depth + 1], "__init__.py"]): b"" for depth in range(len(packages))})
    for name in needed_modules(sources):
        files["/".join([*packages, f"{name}.py"])] = _read(sources, name)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as together:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _OLDEST)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            together.writestr(entry, files[path])
    return made.getvalue()


def _read(sources: str, name: str) -> bytes:
    with open(os.path.join(sources, f"{name}.py"), "rb") as file:
        return file.read()


def _imports(text: str) -> list[str]:
    """By their form. Parsing all files takes a tenth of a second, for each host of each run."""
    names = []
    for module, imported in _IMPORT.findall(text):
        names += [module] if module else _NAME.findall(_COMMENT.sub("", imported))
    return names
