# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._holder_records import Scope
from ansible_collections.cleanslate.gpu.plugins.module_utils._holders import ScanRequest
from ansible_collections.cleanslate.gpu.plugins.module_utils._port_owner import Port
from ansible_collections.cleanslate.gpu.plugins.module_utils._scan_arguments import SCAN_ARGUMENTS, scan_request

UUID = "GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7"


def params(**given: t.Any) -> dict[str, t.Any]:
    return {**{name: spec.get("default") for name, spec in SCAN_ARGUMENTS.items()}, "scope": "own", **given}


def test_the_defaults() -> None:
    assert scan_request(params()) == ScanRequest(Scope("own"))


def test_everything_arrives() -> None:
    request = scan_request(
        params(
            devices=["/x/nvidia*"],
            majors=[4],
            scope="unit",
            units=["sglang", "a@b.service", "x.scope"],
            gpus=[UUID],
            protect=["mine"],
            allow_protected=["nvidia-cuda-mps-server"],
            scan_timeout=5,
        ),
        proc_root="/p",
    )
    assert request == ScanRequest(
        Scope(
            "unit",
            units=("sglang.service", "a@b.service", "x.scope"),
            gpus=(UUID,),
            protect=("mine",),
            allow_protected=("nvidia-cuda-mps-server",),
        ),
        devices=("/x/nvidia*",),
        majors=(4,),
        timeout=5.0,
        proc_root="/p",
    )
    assert scan_request(params(port=30000)).port == Port(30000, "0.0.0.0")
    assert scan_request(params(port=30001, host="127.0.0.1")).port == Port(30001, "127.0.0.1")
    assert scan_request(params(scope="lxc", lxc=[101, "102"])).scope.lxc == ("101", "102")
    assert scan_request(params(scope="all", allow_foreign=True)).scope.name == "all"
    assert scan_request(params(containers=["ab" * 6, "web"])).scope.containers == ("ab" * 6, "web")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"scope": None}, ["scope", "None"]),
        ({"scope": "unit"}, ["unit", "units is empty"]),
        ({"scope": "lxc"}, ["lxc is empty"]),
        ({"lxc": ["101"]}, ["lxc is 101", "own"]),
        ({"scope": "lxc", "lxc": ["101"], "containers": ["abc"]}, ["containers is abc", "lxc"]),
        ({"gpus": [UUID]}, ["gpus", UUID, "own"]),
        ({"scope": "unit", "units": ["x"], "gpus": ["0"]}, ["gpus", "'0'"]),
        ({"scope": "all"}, ["all", "allow_foreign"]),
        ({"allow_foreign": True}, ["allow_foreign", "own"]),
        ({"devices": []}, ["devices is empty"]),
        ({"devices": ["dev/nvidia0"]}, ["devices", "dev/nvidia0"]),
        ({"units": [" "]}, ["units", "empty"]),
        ({"containers": ["abc"]}, ["containers", "abc", "12"]),
        ({"scan_timeout": 0}, ["scan_timeout is 0"]),
        ({"scan_timeout": float("nan")}, ["scan_timeout is nan"]),
        ({"scan_timeout": float("inf")}, ["scan_timeout is inf"]),
        ({"majors": [0]}, ["majors", "0"]),
        ({"majors": [5000]}, ["majors", "5000"]),
        ({"port": 0}, ["port is 0"]),
        ({"port": 65536}, ["port is 65536"]),
    ],
)
def test_what_cannot_be_meant(given: dict[str, t.Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        scan_request(params(**given))
    for word in words:
        assert word in str(caught.value)
