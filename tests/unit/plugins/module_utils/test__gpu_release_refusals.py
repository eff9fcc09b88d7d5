# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands against a release before anybody is looked at, and what of a release counts as failed."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils import _gpu_release
from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_release import Released, refusal, release_gpus
from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder import ReleaseOptions
from ansible_collections.cleanslate.gpu.plugins.module_utils._ladder_rules import ReleaseResult, ReleaseVerdict
from ansible_collections.cleanslate.gpu.tests.unit.plugins.module_utils.fake_proc import FakeProc

NODE, OTHER = "pid:[4026532177]", "pid:[4026532999]"
LXC = Scope("lxc", lxc=("101",))


@pytest.fixture
def host(tmp_path: pathlib.Path) -> FakeProc:
    """A Proxmox host with container 101."""
    fake = FakeProc(tmp_path / "proc")
    fake.add(1010, comm="systemd", cgroup="0::/lxc/101/ns/init.scope", ns_pids=(1010, 1), namespace=NODE)
    return fake


def said(host: FakeProc, scope: Scope, namespace: str | None, allowed: str = "none.json") -> str | None:
    request = ScanRequest(scope, proc_root=host.root)
    return refusal(request, namespace, str(host.path.parent / allowed))


def test_a_node_that_is_not_the_named_container_is_refused(host: FakeProc) -> None:
    """Else the processes of a stranger's container would be ended."""
    assert said(host, LXC, NODE) is None
    found = said(host, LXC, OTHER)
    assert found is not None
    assert f"The node's PID namespace is {OTHER}" in found


def test_without_a_node_there_is_no_pair_to_prove(host: FakeProc) -> None:
    assert said(host, LXC, None) is None


@pytest.mark.parametrize("scope", [Scope("own"), Scope("unit", units=("a.service",))])
def test_a_node_by_itself_is_no_pair(host: FakeProc, scope: Scope) -> None:
    assert said(host, scope, OTHER) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="the list must be root's")
@pytest.mark.parametrize("namespace", [NODE, OTHER, None])
def test_what_the_host_forbids_is_refused_whatever_the_pair_is(host: FakeProc, namespace: str | None) -> None:
    path = host.path.parent / "allowed.json"
    path.write_text(json.dumps({"lxc": [102]}))
    path.chmod(0o644)
    found = said(host, LXC, namespace, "allowed.json")
    assert found is not None
    assert found.startswith(f"Container 101 may not be touched on this host: {path} allows")


def test_a_list_that_cannot_be_understood_forbids_everything(host: FakeProc) -> None:
    (host.path.parent / "allowed.json").write_text("{")
    found = said(host, LXC, NODE, "allowed.json")
    assert found is not None
    assert found.endswith(". Nothing was touched.")


def test_whoever_is_refused_is_not_even_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_release, "refusal", lambda *given: "no")

    class Untouched:
        request = ScanRequest(Scope("own"))

        def __getattr__(self, name: str) -> t.NoReturn:
            raise AssertionError(f"{name} was asked for")

    found = release_gpus(t.cast(t.Any, Untouched()), ReleaseOptions())
    assert (found.result.verdict, found.message, found.gate, found.smi_state) == ("refused", "no", None, "not_asked")
    assert found.failed


class Gate:
    def __init__(self, passed: bool) -> None:
        self.passed = passed
        self.message = "GPU 1 holds 5 MiB."


@pytest.mark.parametrize(
    ("verdict", "gate", "failed", "message"),
    [
        ("released", None, False, "Done."),
        ("released", True, False, "Done. Gate: GPU 1 holds 5 MiB."),
        ("released", False, True, "Done. Gate: GPU 1 holds 5 MiB."),
        ("survivors", None, True, "Done."),
        ("survivors", True, True, "Done."),
        ("survivors", False, True, "Done."),
    ],
)
def test_a_release_has_worked_where_its_gate_has_passed_too(
    verdict: ReleaseVerdict, gate: bool | None, failed: bool, message: str
) -> None:
    result = ReleaseResult(verdict, "Done.")
    released = Released(result, None if gate is None else t.cast(t.Any, Gate(gate)), "ok")
    assert (released.failed, released.message) == (failed, message)
