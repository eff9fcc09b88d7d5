# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A page that names a command which does not exist is found."""

from __future__ import annotations

import pathlib

import page_rules
import pytest


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "relaunch.yml").touch()
    (tmp_path / "inventory" / "demo").mkdir(parents=True)
    (tmp_path / "Makefile").write_text("NOX := x\ndemo: setup ## a\n\ntest lint: setup\n\trun\n", encoding="utf-8")
    (tmp_path / "noxfile.py").write_text(
        '@nox.session\ndef unit(session):\n    pass\n\n@nox.session(name="unit-oldest")\ndef unit_oldest(session):\n',
        encoding="utf-8",
    )
    return tmp_path


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("make demo", 0),
        ("make lint test", 0),
        ("$ make lint", 0),
        ("make demos", 1),
        ("PYTHON=python3.12 make demo && echo made", 0),
        ("make demo # and what it shows", 0),
        ("nox -s unit", 0),
        (".venv/bin/nox -s unit-oldest -- -k x", 0),
        ("nox -s units", 1),
        ("ansible-playbook playbooks/relaunch.yml -i inventory/demo", 0),
        ("ansible-playbook -i inventory/demo \\\n  playbooks/relaunch.yml", 0),
        ("ansible-playbook playbooks/relaunched.yml -i inventory/demo", 1),
        ("ansible-playbook playbooks/relaunch.yml -i inventory/nowhere", 1),
        ("ansible-playbook playbooks/relaunch.yml -i inventory/NAME", 0),
        ("ansible-playbook cleanslate.gpu.relaunch -i hosts.yml", 0),
        ("ansible-playbook cleanslate.gpu.stopped -i hosts.yml", 1),
        ("cat Makefile", 0),
    ],
)
def test_commands(root: pathlib.Path, command: str, wrong: int) -> None:
    (root / "README.md").write_text(f"# Title\n\n```sh\n{command}\n```\n", encoding="utf-8")
    assert len(page_rules.wrong_commands(root, "README.md")) == wrong


def test_inside_a_sentence(root: pathlib.Path) -> None:
    (root / "README.md").write_text("Run `make demo`, then `make nothing`.\n", encoding="utf-8")
    assert page_rules.wrong_commands(root, "README.md") == [
        "README.md: `make nothing`: there is no target nothing in the Makefile.",
    ]
