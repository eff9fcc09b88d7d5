# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand-in for the get-pip script that `ansible-test --venv` downloads, so that a package index is all it needs.

ansible-test runs ~/.ansible/test/cache/get_pip_VERSION.py in a fresh virtual environment without pip, with pip's
options and `name==version` arguments. This does the same with what Python brings along: ensurepip puts a pip there,
and that pip installs the wanted versions.
"""

from __future__ import annotations

import subprocess
import sys

# Words of get-pip itself, which pip does not know.
GET_PIP_ONLY = frozenset({"--no-setuptools", "--no-wheel"})


def commands(python: str, arguments: list[str]) -> list[list[str]]:
    options = [argument for argument in arguments if argument not in GET_PIP_ONLY]
    # -I: the working folder is somebody else's; what lies there must not be imported.
    wanted = [[python, "-I", "-m", "ensurepip", "--default-pip"]]
    if any("==" in option for option in options):
        wanted.append([python, "-I", "-m", "pip", "install", "--upgrade", *options])
    return wanted


def main() -> None:
    for command in commands(sys.executable, sys.argv[1:]):
        result = subprocess.run(command, check=False)
        if result.returncode != 0:
            sys.exit(result.returncode)


if __name__ == "__main__":
    main()
