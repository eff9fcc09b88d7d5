# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.cleanslate.gpu.plugins.module_utils._commands import CommandResult
from ansible_collections.cleanslate.gpu.plugins.module_utils._container_names import with_container_ids
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest

ID = "0123456789abcdef" * 4


class Tools:
    """docker and podman, of which each knows some containers by name."""

    def __init__(self, **known: dict[str, str]) -> None:
        self.known = known
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, argv: t.Sequence[str], timeout: float) -> CommandResult:
        self.asked.append(tuple(argv))
        if argv[0] not in self.known:
            return CommandResult(tuple(argv), None, "", "", 0.0, error="not_found")
        found = self.known[argv[0]].get(argv[-1])
        if found is None:
            return CommandResult(tuple(argv), 1, "[]\n", "Error: No such container", 0.0)
        return CommandResult(tuple(argv), 0, f"{found}\n", "", 0.0)


def containers(tools: Tools, *names: str) -> tuple[str, ...]:
    request = ScanRequest(scope=Scope("own", containers=names))
    return with_container_ids(request, tools).scope.containers


def test_a_name_gets_the_id_that_a_cgroup_shows() -> None:
    assert containers(Tools(docker={"sglang": ID}), "sglang") == ("sglang", ID)
    assert containers(Tools(docker={}, podman={"sglang": ID}), "sglang") == ("sglang", ID)


def test_a_name_that_nobody_knows_stays_a_name() -> None:
    assert containers(Tools(docker={}), "sglang") == ("sglang",)
    assert containers(Tools(), "sglang") == ("sglang",)


def test_what_is_no_id_is_not_believed() -> None:
    assert containers(Tools(docker={"sglang": "WARNING: no id"}), "sglang") == ("sglang",)


def test_nobody_is_asked_about_an_id() -> None:
    tools = Tools(docker={})
    assert containers(tools, ID, ID[:12]) == (ID, ID[:12])
    assert containers(tools) == ()
    assert not tools.asked
