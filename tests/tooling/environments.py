# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One virtual environment per group of tools, made once and used by every session that names it.

Tools are apart because some cannot live together (pytest-ansible breaks pytest-testinfra, and two versions of
ansible-core are needed). An environment is made again when its requirements or its interpreter change.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

# Prefixes of variables that would let a person's own settings decide what a test sees.
PERSONAL = ("ANSIBLE_", "MOLECULE_", "PYTEST_")
PERSONAL_NAMES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MYPYPATH")


@contextlib.contextmanager
def _alone(lock: pathlib.Path) -> t.Iterator[None]:
    """Two sessions that start together must not fill the same environment."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _runs(python: pathlib.Path) -> bool:
    try:
        return subprocess.run([str(python), "-c", ""], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def ensure(root: pathlib.Path, group: str, python: str = sys.executable) -> pathlib.Path:
    """The bin folder of the group's environment, made or renewed if need be."""
    requirements = root / "tests" / "tooling" / "requirements" / f"{group}.txt"
    place = root / ".nox" / "venvs" / group
    stamp = place / "made-from"
    # The place is part of it: scripts in a virtual environment carry its path, so one that was moved is of no use.
    text = "\n".join((requirements.read_text(encoding="utf-8"), os.path.realpath(python), str(place)))
    wanted = hashlib.sha256(text.encode()).hexdigest()
    with _alone(root / ".nox" / "venvs" / f"{group}.lock"):
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and _runs(place / "bin" / "python"):
            return place / "bin"
        print(f"Making the virtual environment {place} with {python}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        for command in ([python, "-m", "venv", str(place)], [*pip, "--requirement", str(requirements)]):
            result = subprocess.run(command, check=False)
            if result.returncode != 0:
                raise SystemExit(
                    f"Making the virtual environment for {group!r} failed: {' '.join(command)} ended with exit code"
                    f" {result.returncode}. A package index must be reachable (see pip's own settings)."
                )
        stamp.write_text(wanted, encoding="utf-8")
    return place / "bin"


def variables(root: pathlib.Path, binaries: pathlib.Path, collections: pathlib.Path) -> dict[str, str | None]:
    """The environment of a tool: its programs first, this checkout's settings, none of the person's (None removes)."""
    dropped: dict[str, str | None] = {
        name: None for name in os.environ if name.startswith(PERSONAL) or name in PERSONAL_NAMES
    }
    return {
        **dropped,
        "PATH": os.pathsep.join((str(binaries), os.environ.get("PATH", os.defpath))),
        "ANSIBLE_CONFIG": str(root / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        # Said here as well as in ansible.cfg: a settings file that is not found must not turn a failure into a success.
        "ANSIBLE_HOST_PATTERN_MISMATCH": "error",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true",
        "ANSIBLE_NOCOWS": "1",
    }


def ansible_test_home(root: pathlib.Path, python: pathlib.Path) -> pathlib.Path:
    """A home folder for ansible-test: its cache with our pip bootstrap, and the person's settings for pip.

    ansible-test hands no PIP_ variable on, so the settings in force are written down where pip reads them.
    """
    home = root / ".nox" / "home"
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    # The version that each ansible-core asks for: 2.17, 2.18 and 2.19, 2.20 and 2.21.
    for version in ("23_1_2", "24_2", "25_2"):
        shutil.copyfile(root / "tests" / "tooling" / "pip_bootstrap.py", cache / f"get_pip_{version}.py")
    listed = subprocess.run(
        [str(python), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    settings = home / ".config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.touch(mode=0o600)
    settings.write_text(pip_settings(listed), encoding="utf-8")
    return home


def pip_settings(listed: str) -> str:
    """`pip config list` as a pip.conf. What the environment says is listed under `:env:` and wins, as for pip."""
    sections: dict[str, dict[str, str]] = {}
    from_environment: dict[str, str] = {}
    for line in listed.splitlines():
        key, found, value = line.partition("=")
        section, dot, option = key.rpartition(".")
        if not found or not dot:
            continue
        plain = value.strip("'").replace("\\n", "\n    ")
        if section == ":env:":
            from_environment[option] = plain
        else:
            sections.setdefault(section, {})[option] = plain
    sections["global"] = {**sections.get("global", {}), **from_environment}
    lines = []
    for section, options in sections.items():
        lines += [
            f"[{section}]",
            *(f"{option} = {value}" for option, value in options.items() if option != "config-file"),
        ]
    return "\n".join(lines) + "\n"
