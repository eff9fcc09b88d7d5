# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard of a unit that a playbook installed, when somebody starts it without a playbook."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import typing as t

import pytest
from driving import until
from simulated_nodes import SIMULATE, Node


def systemctl(node: Node, verb: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(node.folder / "bin" / "systemctl"), "--user", verb, "sglang.service"],
        env={**os.environ, "XDG_RUNTIME_DIR": str(node.folder / "run")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def report(node: Node) -> dict[str, t.Any]:
    return dict(json.loads((node.folder / "run" / "guard" / "sglang.service.json").read_text()))


@pytest.fixture(scope="module")
def node(make_shared_node, play) -> Node:
    node = make_shared_node()
    run = play("relaunch", node)
    assert run.rc == 0, str(run)
    return node


def test_a_relaunch_installs_it_and_it_lets_the_server_start(node) -> None:
    assert (node.folder / "lib" / "sglang.pyz").stat().st_mode & 0o777 == 0o644
    assert report(node)["verdict"] == "start"
    assert len(node.launchers()) == 1


def test_the_server_itself_has_the_lock(node) -> None:
    (launcher,) = node.launchers()
    lock = node.folder / "run" / "gpus" / "all.lock"
    open_files = [os.readlink(f"/proc/{launcher}/fd/{name}") for name in os.listdir(f"/proc/{launcher}/fd")]
    assert str(lock) in open_files
    second = subprocess.run(["flock", "-n", "-E", "75", str(lock), "true"], check=False)
    assert second.returncode == 75


def test_a_start_by_hand_is_refused_while_somebody_else_computes(node) -> None:
    assert systemctl(node, "stop").returncode == 0
    holder = node.hold("--gpu", "3", "--mib", "5000")
    assert systemctl(node, "start").returncode != 0
    said = report(node)
    assert (said["verdict"], said["refused_count"]) == ("refused", 1)
    assert f"pid {holder}" in said["reason"]
    assert "GPU 3 holds 5000 MiB" in said["reason"]
    assert node.launchers() == []
    os.kill(holder, 9)
    systemctl(node, "reset-failed")  # systemd forgets it at the next start, the one that plays it does not
    assert systemctl(node, "start").returncode == 0
    assert (report(node)["verdict"], report(node)["refused_count"]) == ("start", 0)
    assert until(lambda: len(node.launchers()) == 1)


def test_a_second_relaunch_changes_no_file(node, play) -> None:
    program = (node.folder / "lib" / "sglang.pyz").read_bytes()
    run = play("relaunch", node, "--diff")
    assert run.rc == 0, str(run)
    assert (node.folder / "lib" / "sglang.pyz").read_bytes() == program
    assert "sha256" not in run.out, "nothing differs, so there is no diff"


def test_start_says_whom_the_guard_refused(node, play) -> None:
    """Somebody takes a GPU in the moment between the gate and the start."""
    assert systemctl(node, "stop").returncode == 0
    served = node.config.read_bytes()
    hold = shlex.join([sys.executable, str(SIMULATE), "hold", str(node.folder), "--gpu", "3", "--mib", "5000"])
    node.wrap_systemctl({}, before={"start": f"{hold} >/dev/null 2>&1"})
    try:
        run = play("start", node, sglang_server_profile="slow")
    finally:
        node.unwrap_systemctl()
    assert run.rc == 2, str(run)
    assert "sglang.service was not started: Refuses to start sglang.service" in run.text, str(run)
    assert "GPU 3 holds 5000 MiB" in run.text, str(run)
    assert node.launchers() == []
    assert node.config.read_bytes() == served, "what systemd goes on trying is what served"
    assert "IS DOWN. The former files are live" in run.text, str(run)


def test_the_words_of_an_earlier_start_are_not_quoted(node, play) -> None:
    """A guard that ends before it could write leaves them: whoever held GPU 3 then may be long gone."""
    for pid in node.of_role("holder"):
        os.kill(pid, 9)
    systemctl(node, "reset-failed")
    assert until(lambda: node.used_mib() == [0] * 8)
    earlier = report(node)
    assert "GPU 3 holds 5000 MiB" in earlier["reason"]
    guard = node.folder / "lib" / "sglang.pyz"
    node.wrap_systemctl({}, before={"start": f"echo 'raise SystemExit(2)' > {shlex.quote(str(guard))}"})
    try:
        run = play("start", node)
    finally:
        node.unwrap_systemctl()
    assert run.rc == 2, str(run)
    assert report(node) == earlier, "this guard wrote nothing"
    assert "sglang.service was not started:" in run.text, str(run)
    assert "5000 MiB" not in run.text, str(run)
    assert earlier["reason"][:40] not in run.text, str(run)
    assert node.launchers() == []
