# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies of the collection with one guard taken out: a row that stays green on such a copy proves nothing."""

from __future__ import annotations

import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("galaxy.yml", "meta", "plugins", "roles", "playbooks", "inventory")
INSIDE = pathlib.Path("ansible_collections") / "cleanslate" / "gpu"


class NotThere(Exception):
    """The text to replace is not in the file exactly once: the guard has moved, and the test has to follow."""


def sabotaged(folder: pathlib.Path, file: str, old: str, new: str) -> pathlib.Path:
    """The folder, with a copy of the collection in it in which `old` in this file has become `new`. For PYTHONPATH or
    ANSIBLE_COLLECTIONS_PATH."""
    place = folder / INSIDE
    place.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, place / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, place / part)
    text = (place / file).read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise NotThere(f"{file} has {old!r} {text.count(old)} times")
    (place / file).write_text(text.replace(old, new), encoding="utf-8")
    return folder
