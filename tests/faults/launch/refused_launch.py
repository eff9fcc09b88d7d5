# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Relaunches of a serving node with a profile that cannot come up."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

from planted_faults import REFUSED, Refusal
from simulated_nodes import ROOT, Node, Playbooks, Run

sys.path.insert(0, str(ROOT / "tests" / "simulator"))

import model_folder

DRAFT = "speculative-draft-model-path"


@dataclasses.dataclass
class Broken:
    """A profile on its way to being wrong: its arguments, its model, and what is put back afterwards."""

    node: Node
    model: pathlib.Path
    args: dict[str, t.Any]
    ends: contextlib.ExitStack

    def change_config(self, **changes: t.Any) -> None:
        path = self.model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def truncate_a_shard(broken: Broken) -> None:
    shard = broken.model / "model-00002-of-00002.safetensors"
    os.truncate(shard, shard.stat().st_size - 1)


def remove_a_shard(broken: Broken) -> None:
    (broken.model / "model-00001-of-00002.safetensors").unlink()


def bring_own_code(broken: Broken) -> None:
    broken.change_config(auto_map={"AutoConfig": "configuration_odd.OddConfig"}, model_type="odd")


def take_away_heads(broken: Broken) -> None:
    broken.change_config(num_attention_heads=60)


def name_no_model(broken: Broken) -> None:
    broken.args["model-path"] = str(broken.model.with_name("no-such-model"))


def make_a_short_draft(broken: Broken) -> None:
    draft = broken.model.with_name("short-draft")
    model_folder.make(str(draft), shards=1, max_position_embeddings=131072)
    broken.args[DRAFT] = str(draft)


def make_a_foreign_draft(broken: Broken) -> None:
    draft = broken.model.with_name("foreign-draft")
    model_folder.make(str(draft), shards=1, vocab_size=32000)
    broken.args[DRAFT] = str(draft)


def hide_a_node(broken: Broken) -> None:
    device = broken.node.folder / "dev" / "nvidia7"
    hidden = broken.node.folder / "hidden-nvidia7"
    device.rename(hidden)
    broken.ends.callback(hidden.rename, device)


LISTEN = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"


def listen_on_another_port(broken: Broken) -> None:
    """A process of its own: the one that runs the tests is an ancestor of the module, and so no stranger."""
    stranger = subprocess.Popen([sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    broken.ends.callback(stranger.wait)
    broken.ends.callback(stranger.kill)
    assert stranger.stdout is not None
    broken.args["port"] = int(stranger.stdout.readline())


PLANTS: dict[str, t.Callable[[Broken], None]] = {
    plant.__name__: plant
    for plant in (
        truncate_a_shard, remove_a_shard, bring_own_code, take_away_heads, name_no_model, make_a_short_draft,
        make_a_foreign_draft, hide_a_node, listen_on_another_port,
    )
}  # fmt: skip


def relaunch(node: Node, play: Playbooks, group: str) -> Run:
    """One relaunch with every fault of a group."""
    faults: list[Refusal] = [fault for fault in REFUSED if fault.group == group]
    model = node.folder / "models" / f"broken-{group}"
    args = {"model-path": str(model), "served-model-name": "demo", "tp-size": 8, "port": node.port}
    variables: dict[str, t.Any] = {}
    profile: dict[str, t.Any] = {}
    with contextlib.ExitStack() as ends:
        ends.callback(shutil.rmtree, model, ignore_errors=True)
        model_folder.make(str(model))
        broken = Broken(node, model, args, ends)
        for fault in faults:
            args.update(fault.args)
            variables.update(fault.variables)
            profile.update(fault.profile)
            if fault.plant:
                PLANTS[fault.plant](broken)
        profiles = [{"name": "broken", "args": broken.args, **profile}]
        chosen = {"sglang_server_profiles": profiles, "sglang_server_profile": "broken", **variables}
        return play("relaunch", node, variables=chosen)
