# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put the collection where tools look for it: a link for most, a copy for ansible-test.

ansible-test works only in a real folder ansible_collections/NAMESPACE/NAME: it resolves links. So it gets a copy of
what git would commit: tracked files, and new ones that are not ignored. Without git (an unpacked archive) the tree is
walked and .gitignore's plain patterns are applied.
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
import shutil
import subprocess

INSIDE = pathlib.Path("ansible_collections", "cleanslate", "gpu")
# Left alone in a copy that is made again: ansible-test keeps its virtual environments and results there.
KEPT = "tests/output"


def link(root: pathlib.Path) -> pathlib.Path:
    """Make .ansible/collections a collections path whose cleanslate.gpu is this checkout, live."""
    collections = root / ".ansible" / "collections"
    place = collections / INSIDE
    target = os.path.relpath(root, place.parent)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink() and os.readlink(place) == target:
        return collections
    if place.is_dir() and not place.is_symlink():
        raise SystemExit(f"{place} should be a link to this checkout, but is a folder. Move it away and try again.")
    place.unlink(missing_ok=True)
    place.symlink_to(target)
    return collections


def _from_git(root: pathlib.Path) -> list[str] | None:
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    # A checkout may belong to another user than the one who runs the tests (a bind mount, sudo).
    command = ["git", "-c", f"safe.directory={root}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        raise SystemExit(f"git ls-files in {root} failed with exit code {result.returncode}: {result.stderr.strip()}")
    return [name for name in result.stdout.split("\0") if name]


def _ignored(relative: str, patterns: list[str], *, folder: bool) -> bool:
    for pattern in patterns:
        if pattern.endswith("/") and not folder:
            continue
        plain = pattern.strip("/")
        subject = relative if "/" in plain else relative.rsplit("/", 1)[-1]
        if fnmatch.fnmatch(subject, plain):
            return True
    return False


def _from_walk(root: pathlib.Path) -> list[str]:
    ignore = root / ".gitignore"
    lines = ignore.read_text(encoding="utf-8").splitlines() if ignore.exists() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    names = []
    for folder, folders, files in os.walk(root):
        inside = pathlib.Path(folder).relative_to(root)
        folders[:] = [
            name
            for name in folders
            if name != ".git" and not _ignored((inside / name).as_posix(), patterns, folder=True)
        ]
        paths = [(inside / name).as_posix() for name in files]
        names += [path for path in paths if not _ignored(path, patterns, folder=False)]
    return names


def files(root: pathlib.Path) -> list[str]:
    """The project's files, relative to its root, sorted. A tracked file that was deleted is not one."""
    names = _from_git(root)
    if names is None:
        names = _from_walk(root)
    return sorted({name for name in names if (root / name).is_file() or (root / name).is_symlink()})


def copy(root: pathlib.Path, collections: pathlib.Path) -> pathlib.Path:
    """Make (or bring up to date) a copy below the collections path and return its folder."""
    names = files(root)
    if not names:
        raise SystemExit(f"There is no file to test in {root}.")
    place = collections / INSIDE
    wanted = set(names)
    for folder, folders, present in os.walk(place, topdown=True):
        inside = pathlib.Path(folder).relative_to(place)
        folders[:] = [name for name in folders if name != ".git" and (inside / name).as_posix() != KEPT]
        for name in present:
            if (inside / name).as_posix() not in wanted:
                (place / inside / name).unlink()
    for name in names:
        source, copied = root / name, place / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.unlink(missing_ok=True)
        shutil.copy2(source, copied, follow_symlinks=False)
    if shutil.which("git"):
        # ansible-test asks the nearest repository for its files; in the checkout's own, this copy is ignored.
        subprocess.run(
            ["git", "init", "--quiet", str(place)], check=True, stdin=subprocess.DEVNULL, capture_output=True
        )
    return place
