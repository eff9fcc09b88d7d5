# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Without a controller: the node fetches inventory and playbook from a repository and looks at itself."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="ansible-pull needs git")
PLAYBOOK = "- name: Look at this node\n  ansible.builtin.import_playbook: cleanslate.gpu.drift\n"


def git(folder: pathlib.Path, *words: str) -> None:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.invalid")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def publish(folder: pathlib.Path, inventory: pathlib.Path) -> pathlib.Path:
    """A site's own repository: its inventory, and one playbook that names the collection's."""
    shutil.copytree(inventory, folder / "inventory")
    (folder / "drift.yml").write_text(PLAYBOOK)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Say what is wanted")
    return folder


@pytest.mark.parametrize("nodes", [2], indirect=True)
def test_a_node_looks_at_itself_and_at_nobody_else(nodes, play, settings, tmp_path) -> None:
    here, other = nodes
    # ansible-pull works on the host of the inventory that has this machine's name.
    here.name = os.uname().nodename
    rows = tmp_path / "rows.json"
    site = publish(tmp_path / "site", play.inventory(nodes, {"gpu_drift_result_file": str(rows)}, "sglang_nodes"))
    command = ["ansible-pull", "--url", f"file://{site}", "--directory", str(tmp_path / "fetched")]
    # As on a node, without the settings of this checkout: ansible-pull's own first step has no inventory yet.
    settings.pop("ANSIBLE_CONFIG")
    done = subprocess.run(
        [*command, "--inventory", "inventory", "drift.yml"],
        cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(rows.read_text())
    # Nobody has asked for anything there, and that is what is said.
    assert (row["host"], row["action"]) == (here.name, "report"), done.stdout
    assert here.calls()
    assert all(call.asks for call in here.calls())
    assert not other.calls()
