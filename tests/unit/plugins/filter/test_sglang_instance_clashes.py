# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.filter.sglang_instance_clashes import sglang_instance_clashes


def server(name: str, port: int, *uuids: str, **more: t.Any) -> dict[str, t.Any]:
    return {
        "inventory_hostname": name,
        "ansible_host": "192.0.2.1",
        "sglang_server_unit": f"sglang@{name}.service",
        "sglang_server_profile": "p",
        "sglang_server_profiles": [{"name": "p", "args": {"model-path": "/m", "tp-size": 4, "port": port}}],
        "gpu_idle_expected_uuids": list(uuids),
        **more,
    }


LEFT = server("left", 30000, "GPU-a", "GPU-b")


def test_two_servers_that_share_nothing_do_not_clash() -> None:
    assert sglang_instance_clashes([LEFT, server("right", 30001, "GPU-c", "GPU-d")], "left") == []


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (server("right", 30000, "GPU-c"), "listen on the same port, 30000"),
        (server("right", 30001, "GPU-c", "GPU-b"), "share GPU-b in gpu_idle_expected_uuids"),
        (server("right", 30001), "and right does not say which GPUs are its own"),
        (server("right", 30001, "GPU-c", sglang_server_unit="sglang@left.service"), "the same sglang_server_unit"),
    ],
)
def test_what_two_servers_of_one_node_share_is_told_to_both(right: dict[str, t.Any], words: str) -> None:
    for name in ("left", "right"):
        (sentence,) = sglang_instance_clashes([LEFT, right], name)
        assert words in sentence
        assert sentence.startswith("left and right are servers of one node (192.0.2.1)")


def test_the_default_unit_is_one_that_two_can_share() -> None:
    one = server("left", 30000, "GPU-a", sglang_server_unit=None)
    (sentence,) = sglang_instance_clashes([one, server("r", 1, "GPU-b", sglang_server_unit="sglang.service")], "r")
    assert "sglang.service" in sentence


def test_a_shared_log_is_a_clash() -> None:
    pair = [server("l", 1, "GPU-a", sglang_server_log_file="/l"), server("r", 2, "GPU-b", sglang_server_log_file="/l")]
    (sentence,) = sglang_instance_clashes(pair, "l")
    assert "sglang_server_log_file, /l" in sentence


def test_servers_of_other_nodes_and_of_other_hosts_say_nothing() -> None:
    elsewhere = server("right", 30000, "GPU-a", ansible_host="192.0.2.2")
    assert sglang_instance_clashes([LEFT, elsewhere], "left") == []
    third = server("third", 1, "GPU-z", ansible_host="192.0.2.9")
    assert sglang_instance_clashes([LEFT, server("right", 30000, "GPU-a"), third], "third") == []
    nameless = {**LEFT, "ansible_host": None}
    assert sglang_instance_clashes([nameless, {**nameless, "inventory_hostname": "other"}], "left") == []
