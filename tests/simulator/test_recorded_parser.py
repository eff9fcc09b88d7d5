# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's interpreter answers for the parser of the version that the node plays."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = (ROOT / "plugins" / "module_utils" / "_sglang_parser_program.py").read_text()
CONFIG = """\
model-path: "/models/m"
tp-size: 8
trust-remote-code: true
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    import node as nodes

    folder = tmp_path_factory.mktemp("parser") / "node"
    nodes.create(str(folder), gpus=8, memory_mib=97887, name="x", python=nodes.default_python(), port=None)
    return folder


def ask(node, version, config, *argv):
    (node / "scenario.json").write_text(json.dumps({"server": {"version": version}}))
    question = json.dumps({"config": config, "argv": argv, "seconds": 60})
    done = subprocess.run(
        [node / "bin" / "python", "-c", PROGRAM, question], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout.partition(":")[2])


@pytest.mark.parametrize("version", ["0.5.12", "0.5.15", "0.5.23"])
def test_a_good_launch(node, version):
    assert ask(node, version, CONFIG, "--disable-cuda-graph") == {
        "version": version, "config_refused": [], "arguments_refused": [],
    }  # fmt: skip


def test_versions_differ(node):
    config = CONFIG + "cuda-graph-max-bs-decode: 8\n"
    old, middle, new = (ask(node, version, config) for version in ("0.5.12", "0.5.15", "0.5.23"))
    assert old["arguments_refused"] == ["unrecognized arguments: --cuda-graph-max-bs-decode 8"]
    assert middle["config_refused"] == ["Unsupported config option 'cuda_graph_max_bs_decode'"]
    assert (new["config_refused"], new["arguments_refused"]) == ([], [])


def test_a_bad_choice(node):
    (said,) = ask(node, "0.5.23", CONFIG, "--tool-call-parser", "nonsense")["arguments_refused"]
    assert said.startswith("argument --tool-call-parser: invalid choice: 'nonsense'")
