# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take the picture of the status page for the docs: write_picture.py FILE.png [--width 1280] [--scheme light].

Needs a Chromium and ansible-core: .nox/venvs/runtime/bin/python with PYTHONPATH=.ansible/collections.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import chromium
import shown_nodes

LARGEST = 300_000  # bytes: it is part of every installation


def main() -> str | None:
    parser = argparse.ArgumentParser(description="Take the picture of the status page.")
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--width", type=int, default=1120)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--height", type=int, help="cut it off below this")
    parser.add_argument("--worst", action="store_true", help="show the hostile node of the tests instead")
    arguments = parser.parse_args()
    program = chromium.find()
    if program is None:
        return f"No browser is on PATH ({', '.join(chromium.NAMES)}); on Debian: apt install chromium."
    page = shown_nodes.worst_node() if arguments.worst else shown_nodes.three_nodes()
    with tempfile.TemporaryDirectory() as folder, chromium.opened(program) as browser:
        path = pathlib.Path(folder) / "status.html"
        path.write_text(page, encoding="utf-8")
        browser.show(path, arguments.width, arguments.scheme)
        browser.picture(arguments.picture, arguments.height)
    size = arguments.picture.stat().st_size
    return f"{arguments.picture} has {size} bytes, at most {LARGEST} are allowed." if size > LARGEST else None


if __name__ == "__main__":
    sys.exit(main())
