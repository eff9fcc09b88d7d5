# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`relaunch.yml --check --diff` tells whom it would signal and what it would write, and does neither."""

from __future__ import annotations

from simulated_nodes import alive

OLD_KEY, NEW_KEY = "old-key-aaaaaaaaaaaaaaaa", "new-key-bbbbbbbbbbbbbbbb"


def profiles(node, key: str) -> dict[str, object]:
    args = {
        "model-path": f"{node.folder}/models/demo-397b",
        "served-model-name": "checked",
        "tp-size": 8,
        "port": node.port,
    }
    profile = {"name": "checked", "api_key": key, "args": args}
    return {"sglang_server_profile": "checked", "sglang_server_profiles": [profile]}


def test_on_a_stuck_node_with_files_of_an_older_run(make_node, play) -> None:
    node = make_node()
    # Files of before, so that there is something to show a difference with.
    node.config.parent.mkdir()
    node.config.write_text(f"model-path: /models/before\napi-key: {OLD_KEY}\n")
    node.config.chmod(0o600)
    node.story("stuck_gpu")
    (left_over,) = node.of_role("left-over")
    monitor = node.hold("--gpu", "3", "--no-map")
    before = node.snapshot()

    run = play("relaunch", node, "--check", "--diff", variables=profiles(node, NEW_KEY))

    assert run.rc == 0, str(run)
    assert f"pid {left_over}" in run.text or f"pid: {left_over}" in run.text, str(run)
    assert "/models/before" in run.text, str(run)
    assert f"{node.folder}/models/demo-397b" in run.text, str(run)
    for key in (OLD_KEY, NEW_KEY):
        assert key not in run.out, str(run)
    assert "would_relaunch" in run.text, str(run)
    assert node.snapshot() == before
    assert all(call.asks for call in run.of(node)), run.of(node)
    assert alive(left_over)
    assert alive(monitor)
