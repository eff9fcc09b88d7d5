# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The server's port, with processes that really listen there."""

from __future__ import annotations

import pathlib
import socket
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.tests.unit.plugins.modules.release_node import Node, alive, gone

LISTENING = str(pathlib.Path(__file__).parent.parent / "module_utils/listening.py")


@pytest.fixture
def node(tmp_path: pathlib.Path) -> t.Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


@pytest.fixture
def port() -> int:
    """One that nobody has, and that nobody is given: from below the range of those for clients."""
    for number in range(20000, 30000):
        with socket.socket() as one, socket.socket() as every:
            try:
                one.bind(("127.0.0.1", number))
                every.bind(("", number + 10000))
            except OSError:
                continue
            return number
    raise AssertionError("no port is free")


def listen(node: Node, port: int, way: str, late: float = 0.0) -> int:
    (pid,) = node.start(LISTENING, str(port), way, str(node.folder / "dev/nvidia1"), str(late))
    return pid


@pytest.mark.parametrize("way", ["open", "worker"])
def test_the_launcher_is_asked_first_and_the_port_is_free_afterwards(node: Node, port: int, way: str) -> None:
    pid = listen(node, port, way)
    result = node.release(port=port, host="127.0.0.1", wait_idle=True, expected_count=2, timeout=30)
    assert (result["verdict"], result["gate"]["verdict"]) == ("released", "idle")
    assert [(one["pid"], one["signal"]) for one in result["signalled"]] == [(pid, "TERM")]
    assert [(one["pid"], one["disposition"]) for one in result["port_owners"]] == [(pid, "target")]
    assert result["gate"]["port_owners"] == []
    assert gone(pid)


def test_one_that_outlives_its_workers_is_still_known_as_theirs(node: Node, port: int) -> None:
    pid = listen(node, port, "worker", late=60)
    ladder = [{"signal": "TERM", "wait": 2}, {"signal": "KILL", "wait": 30}]
    result = node.release(port=port, ladder=ladder, wait_idle=True, expected_count=2, timeout=30)
    assert (result["verdict"], result["gate"]["verdict"]) == ("released", "idle")
    assert [(one["pid"], one["signal"]) for one in result["signalled"]] == [(pid, "TERM"), (pid, "KILL")]
    assert gone(pid)


def test_a_stranger_stays_and_keeps_the_gate_shut(node: Node, port: int) -> None:
    stranger = listen(node, port, "none")
    (holder,) = node.hold("end")
    rehearsed = node.release(check=True, port=port, wait_idle=True, expected_count=2, timeout=30)
    assert (rehearsed["failed"], rehearsed["gate"]["verdict"], rehearsed["verdict"]) == (
        True, "foreign", "would_release",
    )  # fmt: skip
    assert alive(holder)
    result = node.release(port=port, wait_idle=True, expected_count=2, timeout=1)
    assert [one["pid"] for one in result["signalled"]] == [holder]
    assert (result["verdict"], result["gate"]["verdict"]) == ("released", "foreign")
    assert result["failed"]
    for text in (f"pid {stranger} ", LISTENING[:40], f"127.0.0.1:{port}", "left alone"):
        assert text in result["msg"]
    assert alive(stranger)


def test_a_stranger_is_told_where_only_a_release_was_asked_for(node: Node, port: int) -> None:
    stranger = listen(node, port, "none")
    result = node.release(port=port)
    assert (result["verdict"], result["changed"]) == ("free", False)
    assert f"pid {stranger} " in result["msg"]
