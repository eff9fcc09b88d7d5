# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in for get-pip really puts a pip into an environment without one."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import environments
import pip_bootstrap

SCRIPT = str(pathlib.Path(pip_bootstrap.__file__))


def test_get_pips_own_options_do_not_reach_pip() -> None:
    given = ["--disable-pip-version-check", "pip==25.2", "setuptools==80.0", "--no-setuptools", "--no-wheel"]
    first, second = pip_bootstrap.commands("py", given)
    assert first == ["py", "-I", "-m", "ensurepip", "--default-pip"]
    assert second[:6] == ["py", "-I", "-m", "pip", "install", "--upgrade"]
    assert second[6:] == ["--disable-pip-version-check", "pip==25.2", "setuptools==80.0"]


def test_without_a_package_there_is_nothing_to_install() -> None:
    assert len(pip_bootstrap.commands("py", ["--disable-pip-version-check", "--no-wheel"])) == 1


def test_pip_arrives_in_an_environment_without_one(tmp_path: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    python = str(tmp_path / "v" / "bin" / "python")
    assert subprocess.run([python, "-m", "pip", "--version"], check=False, capture_output=True).returncode != 0
    # No package argument: what ensurepip brings needs no network.
    subprocess.run([python, SCRIPT, "--disable-pip-version-check", "--no-wheel"], check=True, capture_output=True)
    assert subprocess.run([python, "-m", "pip", "--version"], check=False, capture_output=True).returncode == 0


def test_a_failing_pip_fails_the_bootstrap(tmp_path: pathlib.Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\ncase "$3" in ensurepip) exit 0;; *) exit 7;; esac\n', encoding="utf-8")
    fake.chmod(0o755)
    code = (
        f"import sys; sys.argv = ['get_pip', 'pip==1']; sys.executable = {str(fake)!r};"
        f" exec(compile(open({SCRIPT!r}).read(), 'get_pip', 'exec'), {{'__name__': '__main__'}})"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 7


def test_settings_of_pip_survive_the_other_home() -> None:
    listed = (
        ":env:.index-url='https://example.invalid/a'\n:env:.config-file='/x'\nglobal.index-url='https://b.invalid'\n"
        "global.find-links='/one\\n/two'\ninstall.user='false'\nnonsense\n"
    )
    assert environments.pip_settings(listed) == (
        "[global]\nindex-url = https://example.invalid/a\nfind-links = /one\n    /two\n[install]\nuser = false\n"
    )
    assert environments.pip_settings("") == "[global]\n"
