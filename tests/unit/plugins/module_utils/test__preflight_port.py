# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import GpuLook
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_world import GpuWorld
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import HolderScan, PortOwner, Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Port
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_gate import OneLook
from ansible_collections.cleanslate.gpu.plugins.module_utils._preflight_port import port_free

NOBODY = HolderScan()
CONTEXT: t.Any = None
PORT = Port(30000)
STRANGER = PortOwner("0.0.0.0:30000", 20, "nginx", "nginx -g", unit="nginx.service", reason="another active service")
LAUNCHER = PortOwner("0.0.0.0:30000", 50, "python3", disposition="target", reason="belongs to sglang.service")


class World(GpuWorld):
    def __init__(self, found: HolderScan, port: Port | None = PORT) -> None:
        self.request = ScanRequest(Scope("own"), port=port)
        self.found = found

    def look(self, processes: bool = True) -> GpuLook:
        return GpuLook("no_tool", None)

    def scan(self, processes: t.Sequence[t.Any]) -> HolderScan:
        return self.found


@pytest.mark.parametrize(
    ("found", "ok", "words"),
    [
        (NOBODY, True, ["port 30000", "free"]),
        (HolderScan(port_owners=(LAUNCHER,)), True, ["pid 50", "sglang.service", "stopped or released"]),
        (HolderScan(port_owners=(LAUNCHER, STRANGER)), False, ["pid 20", "nginx -g", "nginx.service", "port 30000"]),
        (HolderScan(complete=False, incomplete_reason="x could not be read"), None, ["x could not be read"]),
    ],
)
def test_the_port(found: HolderScan, ok: bool | None, words: list[str]) -> None:
    check = port_free(CONTEXT, OneLook(World(found)))
    assert (check.name, check.ok) == ("port", ok)
    for word in words:
        assert word in check.detail
    assert bool(check.cure) == (ok is False)


def test_without_a_port_nothing_is_told() -> None:
    assert port_free(CONTEXT, OneLook(World(HolderScan(port_owners=(STRANGER,)), None))).ok is None
