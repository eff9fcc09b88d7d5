# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.cleanslate.gpu.plugins.module_utils._gpu_records import Expectation
from ansible_collections.cleanslate.gpu.plugins.module_utils._smi_arguments import (
    EXPECTATION_ARGUMENTS,
    SMI_ARGUMENTS,
    check_smi_arguments,
    expectation_from,
)

UUID = "GPU-0d951c95-602f-417c-2d01-7e07fc10d0f9"
OTHER = "GPU-061bfd71-05da-2c88-8018-a460eaf5d6e7"
DEFAULTS = {name: option.get("default") for name, option in {**SMI_ARGUMENTS, **EXPECTATION_ARGUMENTS}.items()}


@pytest.mark.parametrize(
    ("params", "expectation"),
    [
        ({}, Expectation()),
        ({"expected_count": 1}, Expectation(count=1)),
        ({"expected_count": 8}, Expectation(count=8)),
        ({"expected_uuids": [UUID, f" {OTHER} "]}, Expectation(uuids=(UUID, OTHER))),
        ({"expected_uuids": [UUID.upper()]}, Expectation(uuids=(UUID.upper(),))),
    ],
)
def test_what_is_expected(params, expectation):
    assert expectation_from({**DEFAULTS, **params}) == expectation


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"expected_count": 0}, ["expected_count is 0"]),
        ({"expected_count": -1}, ["expected_count is -1"]),
        ({"expected_count": 8, "expected_uuids": [UUID]}, ["expected_count (8)", "expected_uuids", "exclude"]),
        ({"expected_count": 8, "expected_uuids": []}, ["expected_count (8)", "expected_uuids", "exclude"]),
        ({"expected_uuids": []}, ["expected_uuids is empty"]),
        ({"expected_uuids": [UUID, UUID[:-1]]}, [UUID[:-1], "no GPU UUID", "nvidia-smi -L"]),
        ({"expected_uuids": ["0"]}, ["'0'", "no GPU UUID"]),
        ({"expected_uuids": ["MIG-" + UUID[4:]]}, ["no GPU UUID"]),
        ({"expected_uuids": [UUID, UUID.upper()]}, [UUID, "more than once"]),
        ({"max_used_mib": -1}, ["max_used_mib is -1"]),
        ({"max_used_mib": 513}, ["max_used_mib is 513", "between 0 and 512"]),
    ],
)
def test_contradictions_are_refused_with_the_name_and_the_value(params, words):
    with pytest.raises(ValueError) as caught:
        expectation_from({**DEFAULTS, **params})
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("timeout", [0.0, -1.0, 3600.5, float("nan"), float("inf")])
def test_a_deadline_that_cannot_be_meant_is_refused(timeout):
    with pytest.raises(ValueError, match="smi_timeout is "):
        check_smi_arguments({**DEFAULTS, "smi_timeout": timeout})


@pytest.mark.parametrize("path", ["", " "])
def test_an_empty_path_is_refused(path):
    with pytest.raises(ValueError, match=r"nvidia_smi is ' ?'; give the name or the path"):
        check_smi_arguments({**DEFAULTS, "nvidia_smi": path})


def test_the_defaults_are_valid():
    check_smi_arguments(DEFAULTS)


@pytest.mark.parametrize("timeout", [0.5, 60.0, 3600.0])
def test_a_deadline_that_can_be_meant(timeout):
    check_smi_arguments({**DEFAULTS, "smi_timeout": timeout})


def test_no_machine_has_more_than_1024_gpus():
    assert expectation_from({**DEFAULTS, "expected_count": 1024}) == Expectation(count=1024)
    with pytest.raises(ValueError, match="expected_count is 1025: no machine has more than 1024 GPUs"):
        expectation_from({**DEFAULTS, "expected_count": 1025})


def test_what_is_asked_where_nothing_is_said():
    assert SMI_ARGUMENTS["smi_timeout"]["default"] == 60.0
    assert EXPECTATION_ARGUMENTS["max_used_mib"]["default"] == 0
