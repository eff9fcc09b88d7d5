# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make setup`: .venv with nox, made by a Python that the newest ansible-core runs on. Needs Python 3.9 itself."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import find_python
import stage

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What ansible-core 2.21 runs on.
OLDEST, NEWEST = "3.12", "3.14"


def main() -> int:
    usable = find_python.search().within(find_python.parse(OLDEST), find_python.parse(NEWEST))
    if not usable:
        # The same search once more, in its own words.
        return find_python.main(["--oldest", OLDEST, "--newest", NEWEST])
    python = usable[max(usable)]
    stage.link(ROOT)
    place = ROOT / ".venv"
    shutil.rmtree(place, ignore_errors=True)
    print(f"Setting up {place} with {python}", flush=True)
    requirements = str(ROOT / "tests" / "tooling" / "requirements" / "nox.txt")
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    for command in ([python, "-m", "venv", str(place)], [*pip, "--requirement", requirements]):
        result = subprocess.run(command, check=False)
        if result.returncode != 0:
            print(f"{' '.join(command)} ended with exit code {result.returncode}.", file=sys.stderr)
            return 1
    (place / "ready").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
