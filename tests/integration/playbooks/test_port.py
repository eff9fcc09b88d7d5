# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has the server's port: a server started by hand makes room, a stranger is named before anything is stopped."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import typing as t
import urllib.request

from simulated_nodes import Node, alive


@contextlib.contextmanager
def stranger_on(port: int) -> t.Iterator[int]:
    """A web server that has nothing to do with GPUs. Its PID."""
    argv = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert b"Serving" in process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def test_a_server_started_by_hand_makes_room(make_node, play) -> None:
    """Its launcher computes on no GPU, and has the port that the new server is to have."""
    node: Node = make_node()
    node.story("serving")
    (by_hand,) = node.launchers()
    run = play("relaunch", node)
    assert run.rc == 0, str(run)
    assert not alive(by_hand)
    (launcher,) = node.launchers()
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/health", timeout=20) as answer:
        assert answer.status == 200
    assert "sglang.service" in run.text
    assert launcher != by_hand


def test_a_stranger_is_named_and_the_old_server_goes_on(make_node, play) -> None:
    """The unit serves on one port, and the profile that is asked for has another one, which somebody else has."""
    node: Node = make_node()
    started = play("start", node)
    assert started.rc == 0, str(started)
    old = node.launchers()
    with stranger_on(node.port + 1) as stranger:
        run = play("relaunch", node, gpu_release_port=node.port + 1)
        released = play("release", node, gpu_release_port=node.port + 1)
        assert alive(stranger)
    assert run.rc == 2, str(run)
    for text in (f"pid {stranger} ", "http.server", f"127.0.0.1:{node.port + 1}"):
        assert text in run.text, str(run)
    assert node.launchers() == old
    assert all(call.asks for call in run.of(node)), run.of(node)
    assert released.rc == 2, str(released)
    assert node.launchers() == old
