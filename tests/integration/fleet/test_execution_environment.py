# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The execution environment is one that ansible-builder accepts, and brings what the playbooks use."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml
from simulated_nodes import ROOT

BUILDER = pathlib.Path(sys.executable).with_name("ansible-builder")
DEFINITION = ROOT / "execution-environment.yml"
RUNTIME = ROOT / "tests" / "tooling" / "requirements" / "runtime.txt"

pytestmark = pytest.mark.skipif(not BUILDER.exists(), reason="ansible-builder belongs to the tools of the group fleet")


def test_the_build_context_holds_the_collection(settings, tmp_path) -> None:
    shutil.copy(DEFINITION, tmp_path)
    build = ["ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(tmp_path)]
    subprocess.run(build, env=settings, check=True, capture_output=True)
    create = [str(BUILDER), "create", "--file", str(tmp_path / DEFINITION.name), "--context", str(tmp_path / "context")]
    done = subprocess.run(create, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    context = tmp_path / "context"
    assert len(list((context / "_build" / "collection").glob("cleanslate-gpu-*.tar.gz"))) == 1
    steps = (context / "Containerfile").read_text()
    # Installed after the last stage has begun, and without the network.
    assert steps.index("ansible-galaxy collection install --offline") > steps.index("AS final")
    assert "jmespath" in (context / "_build" / "requirements.txt").read_text()


def test_it_runs_what_is_tested_here() -> None:
    tested = [
        line for line in RUNTIME.read_text().splitlines() if line.startswith(("ansible-core", "jmespath", "mitogen"))
    ]
    wanted = yaml.safe_load(DEFINITION.read_text())["dependencies"]
    assert len(tested) == 3
    assert sorted(tested) == sorted([wanted["ansible_core"]["package_pip"], *wanted["python"]])
